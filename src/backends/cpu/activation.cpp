// Activations: elementwise functions of one floating-point operand, some with numbers that shape them.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/elementwise-inl.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/sleef-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// x between two numbers; NaN stays.
template <class D, class V>
HWY_INLINE V clamped(D d, V x, double low, double high) {
    const V l = set(d, low), h = set(d, high);
    return hn::IfThenElse(hn::Lt(x, l), l, hn::IfThenElse(hn::Gt(x, h), h, x));
}

struct Relu6Fn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return clamped(d, x, 0, 6);
    }
};
struct HardtanhFn {
    double low, high;
    explicit HardtanhFn(const Attributes& a) : low(a.real(attribute::hardtanh_min_val)), high(a.real(attribute::hardtanh_max_val)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return clamped(d, x, low, high);
    }
};
struct HardsigmoidFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Div(clamped(d, hn::Add(x, set(d, 3)), 0, 6), set(d, 6));
    }
};
struct HardswishFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Div(hn::Mul(x, clamped(d, hn::Add(x, set(d, 3)), 0, 6)), set(d, 6));
    }
};
struct LeakyReluFn {
    double slope;
    explicit LeakyReluFn(const Attributes& a) : slope(a.real(attribute::leaky_relu_negative_slope)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, set(d, slope)));
    }
};
/// x where it is positive, else `factor` (e^(x * inner) - 1); all of it times `scale`.
template <class D, class V>
HWY_INLINE V exponential_unit(D d, V x, double factor, double inner, double scale) {
    const V below = hn::Mul(set(d, factor), expm1(d, hn::Mul(x, set(d, inner))));
    return hn::Mul(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, below), set(d, scale));
}
struct EluFn {
    double alpha;
    explicit EluFn(const Attributes& a) : alpha(a.real(attribute::elu_alpha)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return exponential_unit(d, x, alpha, 1, 1);
    }
};
struct CeluFn {
    double alpha;
    explicit CeluFn(const Attributes& a) : alpha(a.real(attribute::celu_alpha)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return exponential_unit(d, x, alpha, 1 / alpha, 1);
    }
};
struct SeluFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return exponential_unit(d, x, 1.6732632423543772848, 1, 1.0507009873554804934);
    }
};
struct GeluFn {
    bool by_tanh;
    explicit GeluFn(const Attributes& a) : by_tanh(a.integer(attribute::gelu_approximate) == static_cast<int64_t>(GeluForm::Tanh)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V half = hn::Mul(x, set(d, 0.5)), one = set(d, 1);
        if (by_tanh) {
            const V cube = hn::Mul(hn::Mul(x, x), x);
            const V inner = hn::Mul(set(d, 0.79788456080286535588), hn::MulAdd(cube, set(d, 0.044715), x));
            return hn::Mul(half, hn::Add(one, tanh(d, inner)));
        }
        const V scaled = hn::Mul(x, set(d, 0.70710678118654752440));
        if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
            return hn::Mul(half, hn::Add(one, rough_erf(d, scaled)));
        } else {
            return hn::Mul(half, hn::Add(one, erf(d, scaled)));
        }
    }
};
struct SiluFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Mul(x, sigmoid(d, x));
    }
};
/// log(1 + e^x), without overflow.
template <class D, class V>
HWY_INLINE V softplus(D d, V x) {
    const V tail = log1p(d, exp(d, hn::Neg(hn::Abs(x))));
    return hn::Add(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x), tail);
}
struct SoftplusFn {
    double beta, threshold;
    explicit SoftplusFn(const Attributes& a) : beta(a.real(attribute::softplus_beta)), threshold(a.real(attribute::softplus_threshold)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V scaled = hn::Mul(x, set(d, beta));
        return hn::IfThenElse(hn::Gt(scaled, set(d, threshold)), x, hn::Div(softplus(d, scaled), set(d, beta)));
    }
};
struct LogsigmoidFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Neg(softplus(d, hn::Neg(x)));
    }
};
struct MishFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Mul(x, tanh(d, softplus(d, x)));
    }
};
struct SoftsignFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Div(x, hn::Add(set(d, 1), hn::Abs(x)));
    }
};
struct TanhshrinkFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::Sub(x, tanh(d, x));
    }
};
struct HardshrinkFn {
    double border;
    explicit HardshrinkFn(const Attributes& a) : border(a.real(attribute::hardshrink_lambd)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenZeroElse(hn::And(hn::Ge(x, set(d, -border)), hn::Le(x, set(d, border))), x);
    }
};
struct SoftshrinkFn {
    double border;
    explicit SoftshrinkFn(const Attributes& a) : border(a.real(attribute::softshrink_lambd)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V b = set(d, border);
        const V shrunk = hn::IfThenElse(hn::Gt(x, b), hn::Sub(x, b), hn::Add(x, b));
        return hn::IfThenZeroElse(hn::And(hn::Ge(x, hn::Neg(b)), hn::Le(x, b)), shrunk);
    }
};
struct ThresholdFn {
    double border, value;
    explicit ThresholdFn(const Attributes& a) : border(a.real(attribute::threshold_threshold)), value(a.real(attribute::threshold_value)) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenElse(hn::Le(x, set(d, border)), set(d, value), x);  // NaN is not below and stays
    }
};

ElementLoop find_activation(OpCode op, DType t) {
    switch (op) {
        case OpCode::Relu6: return floats<Relu6Fn, 1>(t);
        case OpCode::Hardtanh: return floats<HardtanhFn, 1>(t);
        case OpCode::Hardsigmoid: return floats<HardsigmoidFn, 1>(t);
        case OpCode::Hardswish: return floats<HardswishFn, 1>(t);
        case OpCode::LeakyRelu: return floats<LeakyReluFn, 1>(t);
        case OpCode::Elu: return floats<EluFn, 1>(t);
        case OpCode::Celu: return floats<CeluFn, 1>(t);
        case OpCode::Selu: return floats<SeluFn, 1>(t);
        case OpCode::Gelu: return floats<GeluFn, 1>(t);
        case OpCode::Silu: return floats<SiluFn, 1>(t);
        case OpCode::Softplus: return floats<SoftplusFn, 1>(t);
        case OpCode::Logsigmoid: return floats<LogsigmoidFn, 1>(t);
        case OpCode::Mish: return floats<MishFn, 1>(t);
        case OpCode::Softsign: return floats<SoftsignFn, 1>(t);
        case OpCode::Tanhshrink: return floats<TanhshrinkFn, 1>(t);
        case OpCode::Hardshrink: return floats<HardshrinkFn, 1>(t);
        case OpCode::Softshrink: return floats<SoftshrinkFn, 1>(t);
        case OpCode::Threshold: return floats<ThresholdFn, 1>(t);
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_activation);
CLIKART_ELEMENTWISE_KERNELS(find_activation)
CLIKART_ELEMENTWISE(relu6, Relu6)
CLIKART_ELEMENTWISE(hardtanh, Hardtanh)
CLIKART_ELEMENTWISE(hardsigmoid, Hardsigmoid)
CLIKART_ELEMENTWISE(hardswish, Hardswish)
CLIKART_ELEMENTWISE(leaky_relu, LeakyRelu)
CLIKART_ELEMENTWISE(elu, Elu)
CLIKART_ELEMENTWISE(celu, Celu)
CLIKART_ELEMENTWISE(selu, Selu)
CLIKART_ELEMENTWISE(gelu, Gelu)
CLIKART_ELEMENTWISE(silu, Silu)
CLIKART_ELEMENTWISE(softplus, Softplus)
CLIKART_ELEMENTWISE(logsigmoid, Logsigmoid)
CLIKART_ELEMENTWISE(mish, Mish)
CLIKART_ELEMENTWISE(softsign, Softsign)
CLIKART_ELEMENTWISE(tanhshrink, Tanhshrink)
CLIKART_ELEMENTWISE(hardshrink, Hardshrink)
CLIKART_ELEMENTWISE(softshrink, Softshrink)
CLIKART_ELEMENTWISE(threshold, Threshold)

}  // namespace clikart::cpu
#endif
