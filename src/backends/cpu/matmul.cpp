// The operators that are matrix products.
#include "backends/cpu/kernels.h"
#include "backends/cpu/onednn_matmul.h"
#include "backends/cpu/product.h"

namespace clikart::cpu {
namespace {

/// The result of a call, whose last `kept` dimensions are those of one matrix.
MatrixProduct product_of(const KernelCall& call, const View& a, const View& b, int kept) {
    const View& c = call.outputs[0];
    MatrixProduct p;
    p.dtype = dtype_of(c);
    for (int d = 0; d < c.rank - kept; ++d) p.batch.push_back(c.shape[d]);
    p.a = matrices_of(a, true, p.batch);
    p.b = matrices_of(b, false, p.batch);
    p.c = {static_cast<char*>(c.data), p.a.rows, p.b.columns, p.b.columns, 1, {}};
    for (int d = 0; d < p.batch.rank(); ++d) p.c.batch_strides.push_back(c.strides[d]);
    return p;
}

void matmul(const KernelCall& call) {
    const View &a = call.inputs[0], &b = call.inputs[1];
    multiply(call, product_of(call, a, b, (a.rank > 1) + (b.rank > 1)));
}

void linear(const KernelCall& call) {
    const View &x = call.inputs[0], &weight = call.inputs[1];
    const int64_t shape[] = {weight.shape[1], weight.shape[0]}, strides[] = {weight.strides[1], weight.strides[0]};
    MatrixProduct p = product_of(call, x, {weight.data, shape, strides, 2, weight.dtype}, 1 + (x.rank > 1));
    Matrices bias;
    if (const View* given = optional_input(call, 2, attribute::linear_given)) {
        bias = matrices_of(*given, true, p.batch);
        p.added = &bias;
    }
    multiply(call, p);
}

/// beta input + alpha (a b)
void added(const KernelCall& call, double beta, double alpha) {
    const View& input = call.inputs[0];
    MatrixProduct p = product_of(call, call.inputs[1], call.inputs[2], 2);
    p.alpha = alpha, p.beta = beta;
    p.b_input = 2;
    Matrices term;
    if (beta != 0) {  // what is multiplied with zero is not read: its NaN stays out
        term = matrices_of(input, true, p.batch);
        if (term.rows == 1) term.row = 0;
        if (term.columns == 1) term.column = 0;
        p.added = &term;
    }
    multiply(call, p);
}

void addmm(const KernelCall& call) {
    added(call, call.attributes->real(attribute::addmm_beta), call.attributes->real(attribute::addmm_alpha));
}

void baddbmm(const KernelCall& call) {
    added(call, call.attributes->real(attribute::baddbmm_beta), call.attributes->real(attribute::baddbmm_alpha));
}

bool is_number(DType t) {
    if (t == DType::Float32 || t == DType::BFloat16) OneDnnProduct::wake();
    return t != DType::Bool && t != DType::Float8E4M3 && t != DType::Float8E5M2;
}

}  // namespace

KernelFn kernel_matmul(DType t) {
    return is_number(t) ? &kernel<matmul> : nullptr;
}
KernelFn kernel_linear(DType t) {
    return is_number(t) ? &kernel<linear> : nullptr;
}
KernelFn kernel_addmm(DType t) {
    return is_number(t) ? &kernel<addmm> : nullptr;
}
KernelFn kernel_baddbmm(DType t) {
    return is_number(t) ? &kernel<baddbmm> : nullptr;
}

}  // namespace clikart::cpu
