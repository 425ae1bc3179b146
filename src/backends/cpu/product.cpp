#include "backends/cpu/product.h"

#include <memory>
#include <optional>
#include <utility>

#include "backends/cpu/convert.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/matvec.h"
#include "backends/cpu/onednn_matmul.h"
#include "backends/cpu/row_products.h"
#include "base/small_vector.h"

namespace clikart::cpu {
namespace {

int64_t batch_offset(const Matrices& m, const Dims& batch, int64_t index) {
    int64_t offset = 0;
    for (int d = batch.rank() - 1; d >= 0; --d) {
        offset += index % batch[d] * m.batch_strides[d];
        index /= batch[d];
    }
    return offset;
}

char* element(const Matrices& m, int64_t offset, DType dtype) {
    return m.data + offset * size_of(dtype);
}

/// Where the matrices of a stack follow each other as their rows do, all of them are one matrix.
bool stack_rows(Matrices& m, const Dims& batch) {
    int64_t next = 0;
    bool started = false;
    for (int d = batch.rank() - 1; d >= 0; --d) {
        if (batch[d] == 1) continue;
        if (!started) {
            if (m.rows == 1) m.row = m.batch_strides[d];
            next = m.row * m.rows;  // may be 0: matrices that are broadcast
            started = true;
        }
        if (m.batch_strides[d] != next) return false;
        next *= batch[d];
    }
    return true;
}

/// A stack times one matrix is one tall product.
void flatten(MatrixProduct& p) {
    for (int d = 0; d < p.batch.rank(); ++d) {
        if (p.b.batch_strides[d] != 0 && p.batch[d] != 1) return;
    }
    Matrices a = p.a, added = p.added ? *p.added : Matrices{};
    if (!stack_rows(a, p.batch)) return;
    if (p.added && added.rows == p.c.rows) {
        if (!stack_rows(added, p.batch)) return;
    } else if (p.added) {  // one row for all rows of a matrix: then it has to be one for all matrices
        for (int d = 0; d < p.batch.rank(); ++d) {
            if (added.batch_strides[d] != 0 && p.batch[d] != 1) return;
        }
        added.row = 0;
    }
    const int64_t all = numel(p.batch);
    p.a.row = a.row;
    p.a.rows *= all;
    p.c.rows *= all;
    if (p.added) {
        p.added->row = added.row;
        p.added->rows *= all;
        p.added->batch_strides = Dims{};
    }
    p.batch = p.a.batch_strides = p.b.batch_strides = p.c.batch_strides = Dims{};
}

/// Turns what an engine produced into the result: alpha, what is added, and the result's dtype.
class Finisher {
public:
    Finisher(const MatrixProduct& p, DType produced)
        : p_(p), produced_(produced), in_place_(size_of(produced) == size_of(p.dtype)), blends_(p.alpha != 1 || p.added), blend_(find_blend(produced)) {
        if (!in_place_) convert_ = find_convert(produced, p.dtype);
        if (p.added && (!in_place_ || p.added->column != 1)) fetch_ = find_convert(p.dtype, in_place_ ? p.dtype : produced);
    }
    /// Whether engines write to the result itself.
    bool in_place() const noexcept { return in_place_; }

    /// The part of matrix `index` of the result that begins at (i, j), with its elements at `from`.
    void run(int64_t index, int64_t i, int64_t j, int64_t rows, int64_t columns, char* from, int64_t from_row) const {
        if (in_place_ && !blends_) return;
        const int64_t element = size_of(produced_), whole = batch_offset(p_.c, p_.batch, index);
        const Scratch room(static_cast<size_t>(fetch_ ? columns * element : 1));
        const int64_t begin = p_.added ? batch_offset(*p_.added, p_.batch, index) + j * p_.added->column : 0;
        const void* added = nullptr;
        for (int64_t r = 0; r < rows; ++r) {
            char* const row = from + r * from_row * element;
            if (p_.added && (r == 0 || p_.added->row != 0)) {
                added = p_.added->data + (begin + (i + r) * p_.added->row) * size_of(p_.dtype);
                if (fetch_) {
                    fetch_(added, p_.added->column, room.as<void>(), 1, p_.added->column == 0 ? 1 : columns);
                    added = room.as<void>();
                }
            }
            if (blends_) blend_(row, columns, p_.alpha, p_.beta, added, p_.added && p_.added->column == 0 ? 0 : 1);
            if (convert_) convert_(row, 1, p_.c.data + (whole + (i + r) * p_.c.row + j) * size_of(p_.dtype), 1, columns);
        }
    }

private:
    const MatrixProduct& p_;
    const DType produced_;
    const bool in_place_, blends_;
    const BlendFn blend_;
    ConvertFn convert_ = nullptr, fetch_ = nullptr;
};

/// How a product is cut.  Large tiles keep the kernel's own blocking effective; small products stay whole, because
/// they end before another thread would have woken.
struct Tiling {
    int64_t m, n;
    int64_t together = 1;  // tiles of one piece of work

    Tiling(int64_t m, int64_t n) : m(m), n(n) {}
    /// No tile is made narrower than `least_n`, unless the result is.
    Tiling(const MatrixProduct& p, int64_t least_n) : m(p.c.rows), n(p.c.columns) {
        constexpr double kWhole = 2.0 * 128 * 128 * 128;  // operations
        constexpr int64_t kTile = 512, kTiles = 4;
        const int64_t batches = numel(p.batch);
        const double each = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(std::max<int64_t>(1, p.a.columns));
        if (each * static_cast<double>(batches) <= kWhole / 2) {
            together = batches;
            return;
        }
        if (batches >= 2 * kTiles) {
            together = std::max<int64_t>(1, std::min(batches / kTiles, static_cast<int64_t>(kWhole / 8 / each)));
            return;
        }
        if (each <= kWhole) return;
        m = std::min(m, kTile);
        n = std::min(n, std::max(kTile, least_n));
        // Enough tiles to share out, cut along the longer side; 512^3 takes 1.25 times as long in eight as in four.
        const auto tiles = [&] { return (p.c.rows + m - 1) / m * ((p.c.columns + n - 1) / n) * batches; };
        while (tiles() < kTiles && (m > 64 || n > least_n)) {
            if (m > 64 && (m >= n || n <= least_n)) {
                m = std::max<int64_t>(64, (m + 1) / 2);
            } else {
                n = std::max<int64_t>(least_n, (n + 1) / 2);
            }
        }
    }
};

/// What this thread takes after `piece`: as far on as it came, or, at first, inwards, as loops are taken from both ends.
int64_t guess_next(int64_t piece, int64_t pieces) {
    constexpr int64_t kFar = 16;
    static thread_local int64_t before = 0;
    int64_t step = piece - std::exchange(before, piece);
    if (step == 0 || std::abs(step) > kFar) step = 2 * piece < pieces ? 1 : -1;
    return std::clamp<int64_t>(piece + step, 0, pieces - 1);
}

/// m rows and n columns of matrix `index` of the result, from (i, j) on.
struct Tile {
    int64_t index, i, j, m, n;
};

/// Calls compute(tile, to, to_row, next) for every tile, in pieces on the pool, and finishes what it produced.  `next` is what
/// the same thread probably computes afterwards.
template <class F>
void for_tiles(const KernelCall& call, const MatrixProduct& p, DType produced, const Tiling& tile, F&& compute) {
    const Finisher finisher(p, produced);
    const int64_t tiles_m = (p.c.rows + tile.m - 1) / tile.m, tiles_n = (p.c.columns + tile.n - 1) / tile.n;
    const int64_t tiles = numel(p.batch) * tiles_m * tiles_n;
    const auto tile_at = [&](int64_t t) {
        const int64_t i = t % tiles_m * tile.m, j = t / tiles_m % tiles_n * tile.n;
        return Tile{t / (tiles_m * tiles_n), i, j, std::min(tile.m, p.c.rows - i), std::min(tile.n, p.c.columns - j)};
    };
    const int64_t pieces = ceil_div(tiles, tile.together);
    parallel_for(call, pieces, [&](int64_t piece) {
        std::unique_ptr<Scratch> room;
        if (!finisher.in_place()) room = std::make_unique<Scratch>(static_cast<size_t>(tile.m * tile.n * size_of(produced)));
        const int64_t end = std::min(tiles, (piece + 1) * tile.together);
        const int64_t piece_after = guess_next(piece, pieces);
        for (int64_t t = piece * tile.together; t < end; ++t) {
            const Tile now = tile_at(t), next = tile_at(t + 1 < end ? t + 1 : piece_after * tile.together);
            char* const to = room ? room->as<char>() : element(p.c, batch_offset(p.c, p.batch, now.index) + now.i * p.c.row + now.j, p.dtype);
            const int64_t to_row = room ? now.n : p.c.row;
            compute(now, to, to_row, next);
            finisher.run(now.index, now.i, now.j, now.m, now.n, to, to_row);
        }
    });
}

const char* from_a(const MatrixProduct& p, int64_t index, int64_t i) {
    return element(p.a, batch_offset(p.a, p.batch, index) + i * p.a.row, p.dtype);
}
const char* from_b(const MatrixProduct& p, int64_t index, int64_t j) {
    return element(p.b, batch_offset(p.b, p.batch, index) + j * p.b.column, p.dtype);
}

void multiply_blocked(const KernelCall& call, const MatrixProduct& p) {
    const GemmFn gemm = find_gemm(p.dtype);
    for_tiles(call, p, accumulator_of(p.dtype), Tiling(p, 64), [&](const Tile& t, char* to, int64_t to_row, const Tile& next) {
        gemm({t.m, t.n, p.a.columns, from_a(p, t.index, t.i), p.a.row, p.a.column, from_b(p, t.index, t.j), p.b.row, p.b.column, to, to_row,
              from_a(p, next.index, next.i), from_b(p, next.index, next.j)},
             p.dtype);
    });
}

// ---- a vector on one side, or a few

/// A column on the right is, transposed, a row on the left.
void make_row(MatrixProduct& p) {
    if (p.c.columns != 1 || p.c.rows == 1) return;
    std::swap(p.a, p.b);
    for (Matrices* m : {&p.a, &p.b, p.added}) {
        if (m) std::swap(m->rows, m->columns), std::swap(m->row, m->column);
    }
    p.c.columns = std::exchange(p.c.rows, 1);
    p.c.row = p.c.columns;
}

bool has_contiguous_columns(const Matrices& m) {
    return m.row == 1 || m.rows == 1;
}

/// What takes as long as B comes from memory.  Where B is contiguous in neither direction, the blocked product packs it.
bool is_vector_product(const MatrixProduct& p) {
    constexpr int64_t kFewRows = 12;  // for which nothing has to be packed
    if (p.b.rows == 0 || category_of(p.dtype) != DTypeCategory::Float) return false;
    return p.c.rows == 1 ? has_contiguous_columns(p.b) || p.b.column == 1 : p.c.rows <= kFewRows && has_contiguous_columns(p.b) && p.c.columns > 1;
}

void multiply_vector(const KernelCall& call, const MatrixProduct& p) {
    const bool dots = has_contiguous_columns(p.b);
    const DType computed = accumulator_of(p.dtype);
    const int64_t batches = numel(p.batch), rows = p.c.rows, all_n = p.c.columns, all_k = p.b.rows, size = size_of(computed);
    const VectorFn run = dots ? find_dots(p.dtype) : find_sums(p.dtype);

    // Blocks of one matrix: of the result, and of k where the result alone is too short; their sums are added up afterwards.
    constexpr int64_t kLeast = int64_t{128} << 10, kPieces = 16, kLongest = 4096, kDeepest = int64_t{32} << 10, kSummed = 4096;  // elements
    const int64_t work = std::max(kLeast, all_n * all_k / kPieces) / rows;
    int64_t n = all_n, k = all_k;
    if (dots) {
        k = std::min(k, kDeepest);
        n = std::min(n, std::max<int64_t>(4, work / k / 4 * 4));
    } else {
        n = std::min(n, kLongest);
        k = std::min(k, std::clamp<int64_t>(work / n / 8 * 8, 8, kSummed));
    }
    const int64_t blocks = (all_n + n - 1) / n, parts = (all_k + k - 1) / k, all = batches * blocks * parts;
    const int64_t together = std::clamp<int64_t>(kLeast / (n * k * rows), 1, all);

    const Finisher finisher(p, computed);
    const bool direct = finisher.in_place() && parts == 1, x_as_it_is = p.a.column == 1 && size_of(p.dtype) == size;
    const Scratch x(static_cast<size_t>(x_as_it_is ? 1 : batches * rows * all_k * size));
    const Scratch y(static_cast<size_t>(direct ? 1 : batches * parts * rows * all_n * size));
    const auto result_of = [&](int64_t index) { return element(p.c, batch_offset(p.c, p.batch, index), p.dtype); };
    if (!x_as_it_is) {
        const ConvertFn fetch = find_convert(p.dtype, computed);
        for (int64_t r = 0; r < batches * rows; ++r) fetch(from_a(p, r / rows, r % rows), p.a.column, x.as<char>() + r * all_k * size, 1, all_k);
    }
    parallel_for(call, (all + together - 1) / together, [&](int64_t piece) {
        for (int64_t block = piece * together; block < std::min(all, (piece + 1) * together); ++block) {
            const int64_t index = block / (blocks * parts), part = block / blocks % parts, first = block % blocks * n;
            const char* const from_x = x_as_it_is ? from_a(p, index, 0) : x.as<char>() + index * rows * all_k * size;
            char* const to = direct ? result_of(index) : y.as<char>() + (index * parts + part) * rows * all_n * size;
            run({from_b(p, index, first) + part * k * p.b.row * size_of(p.dtype), dots ? p.b.column : p.b.row, from_x + part * k * size,
                 x_as_it_is ? p.a.row : all_k, to + first * size, all_n, std::min(n, all_n - first), std::min(k, all_k - part * k), rows});
        }
    });
    const BlendFn add = find_blend(computed);
    for (int64_t index = 0; index < batches; ++index) {
        const int64_t results = rows * all_n;
        char* const sum = direct ? result_of(index) : y.as<char>() + index * parts * results * size;
        for (int64_t part = 1; part < parts; ++part) add(sum, results, 1, 1, sum + part * results * size, 1);
        finisher.run(index, 0, 0, rows, all_n, sum, all_n);
        if (finisher.in_place() && !direct) std::memcpy(result_of(index), sum, static_cast<size_t>(results * size));
    }
}

// ---- rows with rows

constexpr int64_t kMostRows = 64;

/// A few rows with a right side that is contiguous along the sum, like the weights of `linear`: they are read where they lie.
bool suits_row_products(const MatrixProduct& p) {
    constexpr int64_t kShortestSum = 64, kLeast = 1 << 16;
    return p.dtype == DType::Float32 && p.c.rows <= kMostRows && p.a.column == 1 && p.b.row == 1 && p.a.columns >= kShortestSum &&
           p.c.columns >= kRowsAbreast && p.a.columns * p.c.columns >= kLeast;
}

void multiply_rows(const KernelCall& call, const MatrixProduct& p) {
    constexpr int64_t kColumns = 8 * kRowsAbreast;
    SmallVector<Stretch, 8> stretches;
    for (int64_t at = 0; at < p.a.columns; at += kLongestStretch) {
        const int64_t next = at + kLongestStretch;
        stretches.push_back({at, at, std::min(kLongestStretch, p.a.columns - at), 0, p.a.rows, next < p.a.columns ? next : kNextRows});
    }
    const Tiling tile(p.c.rows, std::min(p.c.columns, kColumns));
    const RowProductsFn multiply = find_row_products();
    for_tiles(call, p, p.dtype, tile, [&](const Tile& t, char* to, int64_t to_row, const Tile&) {
        const float* left[kMostRows];
        float* out[kMostRows];
        for (int64_t r = 0; r < t.m; ++r) {
            left[r] = reinterpret_cast<const float*>(from_a(p, t.index, t.i + r));
            out[r] = reinterpret_cast<float*>(to) + r * to_row;
        }
        multiply({left, out, t.m, reinterpret_cast<const float*>(from_b(p, t.index, t.j)), p.b.column, t.n, stretches.data(),
                  static_cast<int64_t>(stretches.size()), 0});
    });
}

// ---- through oneDNN

/// True when rows, or columns, are contiguous and do not overlap; strides of axes of size 1 are then set to fit.
bool make_dense(Matrices& m) {
    if ((m.column == 1 || m.columns == 1) && (m.row >= m.columns || m.rows == 1)) {
        m.column = 1, m.row = std::max(m.row, m.columns);
        return true;
    }
    if ((m.row == 1 || m.rows == 1) && (m.column >= m.rows || m.columns == 1)) {
        m.row = 1, m.column = std::max(m.column, m.rows);
        return true;
    }
    return false;
}

/// Whether oneDNN is the faster: not for what fits a few caches' lines, nor where B fits the first-level cache, where nothing
/// has to be packed; and not for a few rows, for which it brings B into another layout first.
bool suits_onednn(const MatrixProduct& p) {
    constexpr int64_t kFewRows = 28;
    constexpr double kFew = 2.0 * 64 * 64 * 64;  // operations
    const double operations = 2.0 * static_cast<double>(p.c.rows) * static_cast<double>(p.c.columns) * static_cast<double>(p.a.columns);
    if (operations <= kFew || (p.dtype == DType::Float32 && is_near(p.a.columns, p.c.columns, p.dtype))) return false;
    return p.c.rows > kFewRows || p.b.column != 1;
}

void multiply_onednn(const KernelCall& call, const MatrixProduct& p) {
    constexpr double kPacked = 2.0 * 1024 * 1024 * 1024;
    const bool narrow = p.dtype == DType::BFloat16;
    const DType produced = p.alpha != 1 || p.added ? DType::Float32 : p.dtype;
    const int64_t k = p.a.columns;
    // Pieces narrower than B would fall to a slower kernel for bfloat16.
    const Tiling tile(p, narrow ? p.c.columns : 256);
    const int64_t tiles_n = (p.c.columns + tile.n - 1) / tile.n;
    const double operations = 2.0 * static_cast<double>(p.c.rows) * static_cast<double>(p.c.columns) * static_cast<double>(k);
    const int64_t to_row = size_of(produced) == size_of(p.dtype) ? p.c.row : 0;
    const auto shape_of = [&](int64_t m, int64_t n, bool packed) {
        return OneDnnShape{p.dtype, produced, m, n, k, p.a.row, p.a.column, p.b.row, p.b.column, to_row ? to_row : n, packed ? std::min(tile.m, p.c.rows) : 0};
    };
    const auto find_kernel = [&](int64_t m, int64_t n, bool packed) { return OneDnnProduct::find(shape_of(m, n, packed)); };
    // What it has no fast kernel for, it computes all the same.
    if (narrow && find_kernel(tile.m, tile.n, false)->name().starts_with("ref")) return multiply_blocked(call, p);

    // The kernel packs for itself, once for each tile of rows; doing it once is 5 % of 2048^3 and nothing of 1024^3.  What stays is
    // packed once for all runs, where that is a tenth of the time or more: it takes as much memory as the weights.
    constexpr int64_t kFewRows = 128;
    const bool one = numel(p.batch) == 1, pays = one && (operations >= kPacked || narrow) && p.c.rows >= 2 * tile.m;
    size_t panel_bytes = 0;
    const auto pack = [&](char* to) {
        parallel_for(call, tiles_n, [&](int64_t j) {
            find_kernel(tile.m, std::min(tile.n, p.c.columns - j * tile.n), true)->pack(from_b(p, 0, j * tile.n), to + j * static_cast<int64_t>(panel_bytes));
        });
    };
    const char* panels = nullptr;
    std::optional<Scratch> room;
    const auto exact = [&] {  // or else it is as it is without being kept
        for (const int64_t m : {std::min(tile.m, p.c.rows), p.c.rows % tile.m}) {
            for (const int64_t n : {std::min(tile.n, p.c.columns), p.c.columns % tile.n}) {
                if (m > 0 && n > 0 && !OneDnnProduct::packs_exactly(shape_of(m, n, true))) return false;
            }
        }
        return true;
    };
    if (pays || (one && call.keep && p.c.rows < kFewRows && p.b_input < call.n_inputs && exact())) {
        panel_bytes = (find_kernel(tile.m, tile.n, true)->packed_bytes() + 4095) / 4096 * 4096;
        panels = Prepared::kept(call, p.b_input, panel_bytes * static_cast<size_t>(tiles_n), pack);
    }
    if (pays && !panels) {
        room.emplace(panel_bytes * static_cast<size_t>(tiles_n));
        pack(room->as<char>());
        panels = room->as<char>();
    }
    for_tiles(call, p, produced, tile, [&](const Tile& t, char* to, int64_t, const Tile&) {
        const void* const b = panels ? panels + static_cast<size_t>(t.j / tile.n) * panel_bytes : from_b(p, t.index, t.j);
        find_kernel(t.m, t.n, panels != nullptr)->run(from_a(p, t.index, t.i), b, to);
    });
}

}  // namespace

Matrices matrices_of(const View& view, bool left, const Dims& batch) {
    Matrices m{static_cast<char*>(view.data), 1, 1, 0, 0, {}};
    const int r = view.rank;
    if (r == 1) {
        (left ? m.columns : m.rows) = view.shape[0];
        (left ? m.column : m.row) = view.strides[0];
    } else if (r > 1) {
        m.rows = view.shape[r - 2], m.columns = view.shape[r - 1];
        m.row = view.strides[r - 2], m.column = view.strides[r - 1];
    }
    const int own = std::max(0, r - 2);
    for (int d = 0; d < batch.rank(); ++d) {
        const int i = d - (batch.rank() - own);
        m.batch_strides.push_back(i < 0 || view.shape[i] == 1 ? 0 : view.strides[i]);
    }
    return m;
}

void multiply(const KernelCall& call, MatrixProduct p) {
    flatten(p);
    make_row(p);
    if (is_vector_product(p)) return multiply_vector(call, p);
    if (suits_row_products(p)) return multiply_rows(call, p);
    if (suits_onednn(p) && OneDnnProduct::is_fast(p.dtype) && make_dense(p.a) && make_dense(p.b)) return multiply_onednn(call, p);
    multiply_blocked(call, p);
}

}  // namespace clikart::cpu
