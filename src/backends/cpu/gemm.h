// Our own matrix product, for every dtype: blocked, packed, computed by the calling thread alone.
// Each element of the result is one sum in the order of k, in blocks whose borders are fixed, so how the result is cut never
// shows in its bits.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// C[m, n] = A[m, k] B[k, n].  A and B are of one stored dtype, with any strides in elements; C is of its accumulator dtype,
/// with adjacent columns.
struct GemmPiece {
    int64_t m, n, k;
    const void* a;
    int64_t a_row, a_column;
    const void* b;
    int64_t b_row, b_column;
    void* c;
    int64_t c_row;
    const void *next_a, *next_b;  // operands of what is computed next, perhaps: read ahead
};

/// What products of a stored dtype add up in: float32 for the narrower floats, 16 bits for 8-bit integers; else itself.
/// Unsigned integers have the bits of signed ones.
DType accumulator_of(DType stored) noexcept;

constexpr int64_t kDepthBytes = 1024;      // of what is added up in one go: a strip of it fills two thirds of the first-level cache
constexpr int64_t kNearBytes = 32 * 1024;  // stay in the first-level cache

/// Whether a right side of k x n stays in the first-level cache: each row of A then needs to be read once, and no packing pays.
inline bool is_near(int64_t k, int64_t n, DType accumulator) noexcept {
    const int64_t size = size_of(accumulator);
    return k * size <= kDepthBytes && n <= kNearBytes && k * n * size <= kNearBytes;
}

using GemmFn = void (*)(const GemmPiece& piece, DType stored);
/// The product of a stored dtype; never null for numbers that are computed with.
GemmFn find_gemm(DType stored);

/// One row of an accumulator dtype: row = alpha row + beta added; `added` may be null, its elements stand still with stride 0.
using BlendFn = void (*)(void* row, int64_t n, double alpha, double beta, const void* added, int64_t added_stride);
BlendFn find_blend(DType accumulator);

}  // namespace clikart::cpu
