// Matrix products.  float32 goes through oneDNN, in tiles whose borders follow from the shape alone; the other dtypes
// through a blocked loop.
#include <bit>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/onednn_matmul.h"
#include "core/convert.h"

namespace clikart::cpu {
namespace {

/// A stack of matrices; one dense axis each.
struct Matrices {
    char* data;
    int64_t rows, columns, row, column;  // sizes, strides in elements
    Dims batch_strides;                  // for the result's batch dimensions; 0 where broadcast
};

Matrices operand(const View& view, bool left, const Dims& batch) {
    Matrices m{static_cast<char*>(view.data), 1, 1, 0, 0, {}};
    const int r = view.rank;
    if (r == 1) {
        (left ? m.columns : m.rows) = view.shape[0];
        (left ? m.column : m.row) = view.strides[0];
    } else {
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

int64_t batch_offset(const Matrices& m, const Dims& batch, int64_t index) {
    int64_t offset = 0;
    for (int d = batch.rank() - 1; d >= 0; --d) {
        offset += index % batch[d] * m.batch_strides[d];
        index /= batch[d];
    }
    return offset;
}

/// True when rows, or columns, are contiguous and do not overlap; strides of axes of size 1 are then set to fit.
bool is_dense(Matrices& m) {
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

/// Copies the operand into scratch memory unless it is dense.
std::unique_ptr<Scratch> make_dense(const KernelCall& call, const View& view, Matrices& m, const Dims& batch, bool left) {
    if (is_dense(m)) return nullptr;
    const Dims shape = shape_of(view), strides = contiguous_strides(shape);
    auto scratch = std::make_unique<Scratch>(static_cast<size_t>(numel(shape) * size_of(dtype_of(view))));
    const View copy{scratch->as<void>(), view.shape, strides.data(), view.rank, view.dtype};
    copy_view(call, view, copy);
    m = operand(copy, left, batch);
    is_dense(m);
    return scratch;
}

/// How a product is cut.  Large tiles keep the kernel's own blocking effective; small products stay whole, because
/// they end before another thread would have woken.
struct Tiling {
    int64_t m, n;
    bool packed = false;  // B is brought into the kernel's layout once, for all tiles
    Tiling(int64_t rows, int64_t columns, int64_t inner, int64_t batches) : m(rows), n(columns) {
        constexpr double kWhole = 2.0 * 128 * 128 * 128;  // operations
        constexpr double kPacked = 2.0 * 1024 * 1024 * 1024;
        constexpr int64_t kTile = 512, kTiles = 4;
        const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
        if (operations <= kWhole || batches >= 2 * kTiles) return;
        m = std::min(m, kTile);
        n = std::min(n, kTile);
        // Enough tiles to share out, cut along the longer side; 512^3 takes 1.25 times as long in eight as in four.
        const auto tiles = [&] { return (rows + m - 1) / m * ((columns + n - 1) / n) * batches; };
        while (tiles() < kTiles && (m > 64 || n > 256)) {
            if (m > 64 && (m >= n || n <= 256)) {
                m = std::max<int64_t>(64, (m + 1) / 2);
            } else {
                n = std::max<int64_t>(256, (n + 1) / 2);
            }
        }
        // The kernel packs for itself, once for each tile of rows; doing it once is 5 % of 2048^3 and nothing of 1024^3.
        packed = batches == 1 && operations >= kPacked && rows >= 2 * m;
    }
};

void multiply_f32(const KernelCall& call, const Matrices& a, const Matrices& b, const Matrices& c, const Dims& batch) {
    const int64_t batches = numel(batch), k = a.columns;
    const Tiling tile(c.rows, c.columns, k, batches);
    const int64_t tiles_m = (c.rows + tile.m - 1) / tile.m, tiles_n = (c.columns + tile.n - 1) / tile.n;
    const auto *pa = reinterpret_cast<const float*>(a.data), *pb = reinterpret_cast<const float*>(b.data);
    auto* pc = reinterpret_cast<float*>(c.data);
    const auto shape_at = [&](int64_t i, int64_t j, bool packed) {
        return ProductShape{std::min(tile.m, c.rows - i * tile.m), std::min(tile.n, c.columns - j * tile.n), k, a.row, a.column, b.row, b.column, c.row,
                            packed ? std::min(tile.m, c.rows) : 0};
    };
    const bool packed = tile.packed;
    std::unique_ptr<Scratch> panels;
    int64_t panel_bytes = 0;
    if (packed) {
        panel_bytes = static_cast<int64_t>((Product::find(shape_at(0, 0, true))->packed_bytes() + 4095) / 4096 * 4096);
        panels = std::make_unique<Scratch>(static_cast<size_t>(panel_bytes * tiles_n));
        parallel_for(call, tiles_n,
                     [&](int64_t j) { Product::find(shape_at(0, j, true))->pack(pb + j * tile.n * b.column, panels->as<char>() + j * panel_bytes); });
    }
    parallel_for(call, batches * tiles_m * tiles_n, [&](int64_t piece) {
        const int64_t index = piece / (tiles_m * tiles_n), j = piece / tiles_m % tiles_n, i = piece % tiles_m;
        const float* from_a = pa + batch_offset(a, batch, index) + i * tile.m * a.row;
        float* to = pc + batch_offset(c, batch, index) + i * tile.m * c.row + j * tile.n;
        const void* from_b = pb + batch_offset(b, batch, index) + j * tile.n * b.column;
        if (packed) from_b = panels->as<char>() + j * panel_bytes;
        Product::find(shape_at(i, j, packed))->run(from_a, from_b, to);
    });
}

/// C = A B for any number type: four rows and kWidth columns of C at a time in local accumulators.
template <class T>
void multiply_tile(const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, T* c, int64_t c_row, int64_t rows, int64_t columns, int64_t k) {
    constexpr int64_t kWidth = 64;
    for (int64_t j = 0; j < columns; j += kWidth) {
        const int64_t width = std::min(kWidth, columns - j);
        for (int64_t i = 0; i < rows; i += 4) {
            const int64_t height = std::min<int64_t>(4, rows - i);
            T acc[4][kWidth] = {};
            for (int64_t p = 0; p < k; ++p) {
                const T* line = b + p * b_row + j;
                for (int64_t r = 0; r < height; ++r) {
                    const T factor = a[(i + r) * a_row + p * a_column];
                    if (width == kWidth) {
                        for (int64_t w = 0; w < kWidth; ++w) acc[r][w] += factor * line[w];
                    } else {
                        for (int64_t w = 0; w < width; ++w) acc[r][w] += factor * line[w];
                    }
                }
            }
            for (int64_t r = 0; r < height; ++r) std::copy_n(acc[r], width, c + (i + r) * c_row + j);
        }
    }
}

template <class T>
void multiply_any(const KernelCall& call, const Matrices& a, const Matrices& b, const Matrices& c, const Dims& batch) {
    constexpr int64_t kRows = 32;
    const int64_t strips = (c.rows + kRows - 1) / kRows, batches = numel(batch);
    std::unique_ptr<Scratch> copied;
    const auto *pa = reinterpret_cast<const T*>(a.data), *pb = reinterpret_cast<const T*>(b.data);
    auto* pc = reinterpret_cast<T*>(c.data);
    parallel_for(call, batches * strips, [&](int64_t piece) {
        const int64_t index = piece / strips, i = piece % strips * kRows;
        const T* from_b = pb + batch_offset(b, batch, index);
        int64_t b_row = b.row;
        std::unique_ptr<Scratch> lines;
        if (b.column != 1) {  // rows of B must be contiguous
            lines = std::make_unique<Scratch>(static_cast<size_t>(b.rows * b.columns) * sizeof(T));
            T* to = lines->template as<T>();
            for (int64_t r = 0; r < b.rows; ++r) {
                for (int64_t col = 0; col < b.columns; ++col) to[r * b.columns + col] = from_b[r * b.row + col * b.column];
            }
            from_b = to;
            b_row = b.columns;
        }
        multiply_tile(pa + batch_offset(a, batch, index) + i * a.row, a.row, a.column, from_b, b_row, pc + batch_offset(c, batch, index) + i * c.row, c.row,
                      std::min(kRows, c.rows - i), c.columns, a.columns);
    });
}

void matmul(const KernelCall& call) {
    const View &va = call.inputs[0], &vb = call.inputs[1], &vc = call.outputs[0];
    Dims batch;
    const int kept = (va.rank > 1) + (vb.rank > 1);
    for (int d = 0; d < vc.rank - kept; ++d) batch.push_back(vc.shape[d]);
    Matrices a = operand(va, true, batch), b = operand(vb, false, batch);
    Matrices c{static_cast<char*>(vc.data), a.rows, b.columns, b.columns, 1, {}};
    for (int d = 0; d < batch.rank(); ++d) c.batch_strides.push_back(vc.strides[d]);
    if (a.columns == 0) {
        std::memset(vc.data, 0, static_cast<size_t>(numel(shape_of(vc)) * size_of(dtype_of(vc))));
        return;
    }
    // A stack times one matrix is one tall product.
    if (vb.rank <= 2 && va.rank > 2 && is_contiguous(shape_of(va), strides_of(va))) {
        a.rows = c.rows = numel(batch) * a.rows;
        batch = a.batch_strides = b.batch_strides = c.batch_strides = Dims{};
        a.row = a.columns, a.column = 1;
    }
    if (dtype_of(vc) == DType::Float32) {
        const auto copied_a = make_dense(call, va, a, batch, true), copied_b = make_dense(call, vb, b, batch, false);
        multiply_f32(call, a, b, c, batch);
        return;
    }
    with_type(dtype_of(vc), [&]<class T>() {
        if constexpr (!std::is_same_v<T, bool>) multiply_any<T>(call, a, b, c, batch);
    });
}

}  // namespace

KernelFn kernel_matmul(DType t) {
    if (t == DType::Float32) Product::wake();
    return t != DType::Bool && with_type(t, []<class T>() {}) ? &kernel<matmul> : nullptr;
}

}  // namespace clikart::cpu
