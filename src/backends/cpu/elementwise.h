// What all elementwise kernels share: operands of any dtype, layout and broadcast are walked in step, and brought to the
// lanes that an operator computes with in short tiles, unless they are that already.
#pragma once

#include "backends/cpu/convert.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"

namespace clikart::cpu {

inline constexpr int kMaxOperands = 3;

/// The operands of one run: operand k has elements `step[k]` apart, 0 or 1.
struct Operands {
    const void* data[kMaxOperands];
    int64_t step[kMaxOperands];
    const Attributes* attributes;
    bool streamed;  // the output goes past the caches, and is aligned for that
};

/// What one operator does for one computing dtype: n results to contiguous `out`, which may be the place of an operand.
struct ElementLoop {
    void (*run)(const Operands& operands, void* out, int64_t n) = nullptr;
    DType in[kMaxOperands] = {};  // the lanes it reads
    DType out = DType::Unspecified;
};

// The loops of each file; one without `run` where the operator is not there.
ElementLoop loop_of_find_activation(OpCode op, DType compute);
ElementLoop loop_of_find_arithmetic(OpCode op, DType compute);
ElementLoop loop_of_find_comparison(OpCode op, DType compute);
ElementLoop loop_of_find_ternary(OpCode op, DType compute);
ElementLoop loop_of_find_unary_math(OpCode op, DType compute);
ElementLoop loop_of_find_unary_number(OpCode op, DType compute);

/// Runs the loop over a call with N inputs.
void elementwise(const KernelCall& call, const ElementLoop& loop);

// The kernels of one file, after HWY_EXPORT(finder): one line with the file's finder, then one for each operator.
#define CLIKART_ELEMENTWISE_KERNELS(finder)                                \
    static ElementLoop loop_for(OpCode op, DType compute) {                \
        return HWY_DYNAMIC_DISPATCH(finder)(op, compute);                  \
    }                                                                      \
    ElementLoop loop_of_##finder(OpCode op, DType compute) {               \
        return loop_for(op, compute);                                      \
    }                                                                      \
    template <OpCode op>                                                   \
    static void run_loop(const KernelCall& call) {                         \
        elementwise(call, loop_for(op, static_cast<DType>(call.compute))); \
    }
#define CLIKART_ELEMENTWISE(name, Op)                                                     \
    KernelFn kernel_##name(DType dtype) {                                                 \
        return loop_for(OpCode::Op, dtype).run ? &kernel<run_loop<OpCode::Op>> : nullptr; \
    }

}  // namespace clikart::cpu
