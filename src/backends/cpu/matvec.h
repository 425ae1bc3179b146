// A matrix times one vector or a few, as fast as the matrix comes from memory.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// A block of y = M x, for `vectors` pairs of x and y.  These are of the accumulator dtype (float32, or float64 for itself), each
/// contiguous; M is as stored.
struct VectorBlock {
    const void* matrix;
    int64_t distance;  // of what is contiguous in M: its rows, or its columns
    const void* x;
    int64_t x_distance;  // from one x to the next
    void* y;
    int64_t y_distance;
    int64_t n, k, vectors;  // elements of y and of x; how many of each
};

using VectorFn = void (*)(const VectorBlock& block);
/// For contiguous rows: every element of y is a dot product.  Null for dtypes that are not floats.
VectorFn find_dots(DType stored);
/// For contiguous columns: y is a sum of scaled columns, of one vector.  Null for dtypes that are not floats.
VectorFn find_sums(DType stored);

}  // namespace clikart::cpu
