// Elementwise operators of several operands that are not plain arithmetic.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/ternary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/elementwise-inl.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A border that is NaN makes the result NaN, as does x.
struct AtLeastFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V x, V low) const {
        return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Ge(x, low)), x, low);
    }
    template <class T>
    T operator()(T x, T low) const {
        return x < low ? low : x;
    }
};
struct AtMostFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V x, V high) const {
        return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Le(x, high)), x, high);
    }
    template <class T>
    T operator()(T x, T high) const {
        return x > high ? high : x;
    }
};
struct ClampFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D d, V x, V low, V high) const {
        return AtMostFn()(d, AtLeastFn()(d, x, low), high);
    }
    template <class T>
    T operator()(T x, T low, T high) const {
        return AtMostFn()(AtLeastFn()(x, low), high);
    }
};

struct AddcmulFn {
    explicit AddcmulFn(const Attributes& attributes) : value(attributes.real(attribute::addcmul_value)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, V a, V b) const {
        return hn::Add(x, hn::Mul(hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(value)), a), b));
    }
    double value;
};
struct AddcdivFn {
    explicit AddcdivFn(const Attributes& attributes) : value(attributes.real(attribute::addcdiv_value)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, V a, V b) const {
        return hn::Add(x, hn::Div(hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(value)), a), b));
    }
    double value;
};

struct PreluFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, V weight) const {
        return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(weight, x));
    }
};

/// One half times the sigmoid of the other.
struct GluFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V a, V gate) const {
        return hn::Mul(a, sigmoid(d, gate));
    }
};

ElementLoop find_ternary(OpCode op, DType t) {
    switch (op) {
        case OpCode::Clamp: return numbers<ClampFn, 3>(t);
        case OpCode::Addcmul: return floats<AddcmulFn, 3>(t);
        case OpCode::Addcdiv: return floats<AddcdivFn, 3>(t);
        case OpCode::Prelu: return floats<PreluFn, 2>(t);
        case OpCode::Glu: return floats<GluFn, 2>(t);
        default: return {};
    }
}
ElementLoop find_one_border(bool lower, DType t) {
    return lower ? numbers<AtLeastFn, 2>(t) : numbers<AtMostFn, 2>(t);
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_ternary);
HWY_EXPORT(find_one_border);
CLIKART_ELEMENTWISE_KERNELS(find_ternary)
CLIKART_ELEMENTWISE(addcmul, Addcmul)
CLIKART_ELEMENTWISE(addcdiv, Addcdiv)
CLIKART_ELEMENTWISE(prelu, Prelu)

static void clamp(const KernelCall& call) {
    const auto t = static_cast<DType>(call.compute);
    if (call.n_inputs == 3) return elementwise(call, loop_for(OpCode::Clamp, t));
    const bool lower = call.attributes->integer(attribute::clamp_given) & 2;
    elementwise(call, HWY_DYNAMIC_DISPATCH(find_one_border)(lower, t));
}
static void glu(const KernelCall& call) {
    const View& in = call.inputs[0];
    const int64_t given = call.attributes->integer(attribute::glu_dim);
    const auto dim = static_cast<int>(given < 0 ? given + in.rank : given);
    const Dims strides = strides_of(in);
    const View& out = call.outputs[0];
    const View halves[] = {
        {in.data, out.shape, strides.data(), in.rank, in.dtype},
        {static_cast<char*>(in.data) + out.shape[dim] * strides[dim] * size_of(dtype_of(in)), out.shape, strides.data(), in.rank, in.dtype},
    };
    KernelCall both = call;
    both.inputs = halves;
    both.n_inputs = 2;
    elementwise(both, loop_for(OpCode::Glu, static_cast<DType>(call.compute)));
}
KernelFn kernel_glu(DType t) {
    return loop_for(OpCode::Glu, t).run ? &kernel<glu> : nullptr;
}
KernelFn kernel_clamp(DType t) {
    return t != DType::Bool && loop_for(OpCode::Clamp, t).run ? &kernel<clamp> : nullptr;
}

}  // namespace clikart::cpu
#endif
