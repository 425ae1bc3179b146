// Products of stacks of matrices: which engine computes one, and how it is cut.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// A stack of matrices, strides in elements.
struct Matrices {
    char* data;
    int64_t rows, columns, row, column;  // sizes, strides
    Dims batch_strides;                  // for the result's batch dimensions; 0 where broadcast
};

/// The last two dimensions of a view as matrices; a 1-d one is a row on the left and a column on the right, a
/// 0-d one a single element.
Matrices matrices_of(const View& view, bool left, const Dims& batch);

/// result = alpha (A B) + beta added, all of one dtype.
struct MatrixProduct {
    Matrices a, b;
    Matrices c;  // contiguous
    Dims batch;
    DType dtype;
    double alpha = 1, beta = 1;
    Matrices* added = nullptr;  // broadcast to the result with strides of 0
    int32_t b_input = 1;        // which input of the call b is
};

/// The sum of products of float16 and bfloat16 and what is added are float32; they are rounded once.
void multiply(const KernelCall& call, MatrixProduct product);

}  // namespace clikart::cpu
