#include "core/dims.h"

#include "base/error.h"

namespace clikart {
namespace {

void check_rank(size_t rank) {
    if (rank > kMaxRank) fail(ErrorKind::Value, "a tensor has at most {} dimensions, got {}", kMaxRank, rank);
}

}  // namespace

Dims::Dims(std::span<const int64_t> values) {
    check_rank(values.size());
    rank_ = static_cast<int>(values.size());
    std::copy(values.begin(), values.end(), values_);
}

void Dims::push_back(int64_t value) {
    check_rank(static_cast<size_t>(rank_) + 1);
    values_[rank_++] = value;
}

void Dims::resize(int rank, int64_t fill) {
    check_rank(static_cast<size_t>(rank));
    if (rank > rank_) std::fill(values_ + rank_, values_ + rank, fill);
    rank_ = rank;
}

std::string to_string(const Dims& dims) {
    return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

int64_t checked_numel(const Dims& shape, const char* who) {
    bool empty = false;
    for (int64_t size : shape) {
        if (size < 0) fail(ErrorKind::Value, "{}: negative size in shape {}", who, to_string(shape));
        empty |= size == 0;
    }
    if (empty) return 0;
    constexpr int64_t limit = INT64_MAX / 16;  // 16 bytes: the widest element that may come, with room to round up
    int64_t count = 1;
    for (int64_t size : shape) {
        if (__builtin_mul_overflow(count, size, &count) || count > limit) {
            fail(ErrorKind::Value, "{}: shape {} has more elements than can be addressed", who, to_string(shape));
        }
    }
    return count;
}

int64_t numel(const Dims& shape) noexcept {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    return count;
}

Dims contiguous_strides(const Dims& shape) noexcept {
    Dims strides = shape;
    int64_t step = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        strides[i] = step;
        step *= std::max<int64_t>(shape[i], 1);
    }
    return strides;
}

bool is_contiguous(const Dims& shape, const Dims& strides) noexcept {
    int64_t step = 1;
    bool dense = true;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        if (shape[i] == 0) return true;
        if (shape[i] != 1 && strides[i] != step) dense = false;
        step *= shape[i];
    }
    return dense;
}

bool reshape_strides(const Dims& shape, const Dims& strides, const Dims& to, Dims& out) noexcept {
    out = contiguous_strides(to);
    if (numel(shape) == 0) return true;
    // Walk both shapes in groups of equal product; each group of old axes must be uniformly strided.
    int i = 0, j = 0;
    while (i < shape.rank() || j < to.rank()) {
        const int i0 = i, j0 = j;
        int64_t have = i < shape.rank() ? shape[i++] : 1;
        int64_t want = j < to.rank() ? to[j++] : 1;
        while (have != want) {
            if (have < want) {
                have *= shape[i++];
            } else {
                want *= to[j++];
            }
        }
        while (i < shape.rank() && shape[i] == 1) ++i;
        while (j < to.rank() && to[j] == 1) ++j;
        int64_t innermost = 1;
        bool first = true;
        int64_t expected = 0;
        for (int k = i - 1; k >= i0; --k) {
            if (shape[k] == 1) continue;
            if (first) {
                innermost = strides[k];
                first = false;
            } else if (strides[k] != expected) {
                return false;
            }
            expected = strides[k] * shape[k];
        }
        int64_t step = innermost;
        for (int k = j - 1; k >= j0; --k) {
            out[k] = step;
            step *= to[k];
        }
    }
    return true;
}

}  // namespace clikart
