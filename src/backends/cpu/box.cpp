#include "backends/cpu/box.h"

#include "backends/cpu/tile.h"

namespace clikart::cpu {
namespace {

constexpr int kMost = kMaxRank + 2;
constexpr int64_t kLongRun = 32;  // from here on a longer run is not a better one
constexpr int64_t kTransposedRows = 16, kTransposedColumns = 64;
constexpr int64_t kShortRun = 8;  // elements that share a cache line are worth a call from here on

/// How good a dimension is as the innermost loop: best where both sides lie in a run, then one of them.
int64_t worth(const BoxDim& dim) {
    const int64_t length = std::min(dim.size, kLongRun), lying = (dim.from == 1) + (dim.to == 1);
    return (lying > 0 && dim.size >= kShortRun ? 4 * kLongRun * lying : 0) + 2 * length + (dim.from == 1);
}

/// `rows` runs of `columns` elements, converted, to columns that are `pitch` apart and contiguous along the rows.
template <class T>
void put_transposed(const T* from, int64_t rows, int64_t columns, T* to, int64_t pitch) {
    for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows; ++r) to[c * pitch + r] = from[r * kTransposedColumns + c];
    }
}

/// A plane whose elements are neighbours along `read` on the one side and along `written` on the other: in blocks, so that
/// whole cache lines are read and written however far apart they are.
void transpose(const BoxDim& read, const BoxDim& written, const char* from, int64_t from_bytes, char* to, int64_t to_bytes, ConvertFn convert) {
    alignas(64) char block[kTransposedRows * kTransposedColumns * kWidest];
    for (int64_t w = 0; w < written.size; w += kTransposedRows) {
        const int64_t rows = std::min(kTransposedRows, written.size - w);
        for (int64_t r = 0; r < read.size; r += kTransposedColumns) {
            const int64_t columns = std::min(kTransposedColumns, read.size - r);
            const char* in = from + (w * written.from + r) * from_bytes;
            char* out = to + (r * read.to + w) * to_bytes;
            for (int64_t i = 0; i < rows; ++i) convert(in + i * written.from * from_bytes, 1, block + i * kTransposedColumns * to_bytes, 1, columns);
            const auto put = [&]<class T>() { put_transposed(reinterpret_cast<const T*>(block), rows, columns, reinterpret_cast<T*>(out), read.to); };
            switch (to_bytes) {
                case 1: put.operator()<uint8_t>(); break;
                case 2: put.operator()<uint16_t>(); break;
                case 4: put.operator()<uint32_t>(); break;
                default: put.operator()<uint64_t>(); break;
            }
        }
    }
}

}  // namespace

void move_box(std::span<const BoxDim> dims, const void* from_data, int64_t from_bytes, void* to_data, int64_t to_bytes, ConvertFn convert) {
    BoxDim kept[kMost];
    int n = 0;
    for (const BoxDim& dim : dims) {
        if (dim.size == 0) return;
        if (dim.size == 1) continue;
        if (n > 0 && kept[n - 1].from == dim.size * dim.from && kept[n - 1].to == dim.size * dim.to) {
            kept[n - 1] = {kept[n - 1].size * dim.size, dim.from, dim.to};
        } else {
            kept[n++] = dim;
        }
    }
    const auto* from = static_cast<const char*>(from_data);
    auto* to = static_cast<char*>(to_data);
    if (n == 0) return convert(from, 1, to, 1, 1);
    const auto take = [&](const BoxDim* dim) {
        const BoxDim taken = *dim;
        n = static_cast<int>(std::copy(dim + 1, static_cast<const BoxDim*>(kept) + n, kept + (dim - kept)) - kept);
        return taken;
    };
    const BoxDim run = take(std::max_element(kept, kept + n, [](const BoxDim& a, const BoxDim& b) { return worth(a) < worth(b); }));
    BoxDim across{1, 0, 0};
    if (run.size >= kShortRun && (run.from == 1) != (run.to == 1)) {
        const BoxDim* other = std::find_if(kept, kept + n, [&](const BoxDim& d) { return d.size >= kShortRun && (run.from == 1 ? d.to : d.from) == 1; });
        if (other != kept + n) across = take(other);
    }
    // What lies closest together innermost.
    std::stable_sort(kept, kept + n, [](const BoxDim& a, const BoxDim& b) { return std::abs(a.from) > std::abs(b.from); });
    int64_t at[kMost] = {};
    for (;;) {
        if (across.size == 1) {
            convert(from, run.from, to, run.to, run.size);
        } else if (run.from == 1) {
            transpose(run, across, from, from_bytes, to, to_bytes, convert);
        } else {
            transpose(across, run, from, from_bytes, to, to_bytes, convert);
        }
        int d = n - 1;
        for (; d >= 0; --d) {
            from += kept[d].from * from_bytes;
            to += kept[d].to * to_bytes;
            if (++at[d] < kept[d].size) break;
            from -= kept[d].size * kept[d].from * from_bytes;
            to -= kept[d].size * kept[d].to * to_bytes;
            at[d] = 0;
        }
        if (d < 0) return;
    }
}

}  // namespace clikart::cpu
