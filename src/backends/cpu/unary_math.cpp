// Elementwise functions of one floating-point operand.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/unary_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <numbers>

#include "backends/cpu/elementwise-inl.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/sleef-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A functor that is a function of the same meaning.
#undef CLIKART_FUNCTOR
#define CLIKART_FUNCTOR(Name, expression)         \
    struct Name {                                 \
        template <class D, class V>               \
        HWY_INLINE V operator()(D d, V x) const { \
            (void)d;                              \
            return expression;                    \
        }                                         \
    };

CLIKART_FUNCTOR(ExpFn, exp(d, x))
CLIKART_FUNCTOR(Exp2Fn, exp2(d, x))
CLIKART_FUNCTOR(Expm1Fn, expm1(d, x))
CLIKART_FUNCTOR(LogFn, log(d, x))
CLIKART_FUNCTOR(Log2Fn, log2(d, x))
CLIKART_FUNCTOR(Log10Fn, log10(d, x))
CLIKART_FUNCTOR(SinFn, sin(d, x))
CLIKART_FUNCTOR(CosFn, cos(d, x))
CLIKART_FUNCTOR(TanFn, tan(d, x))
CLIKART_FUNCTOR(AsinFn, asin(d, x))
CLIKART_FUNCTOR(AcosFn, acos(d, x))
CLIKART_FUNCTOR(AtanFn, atan(d, x))
CLIKART_FUNCTOR(TanhFn, tanh(d, x))
CLIKART_FUNCTOR(AtanhFn, atanh(d, x))
CLIKART_FUNCTOR(ErfFn, erf(d, x))
CLIKART_FUNCTOR(ErfcFn, erfc(d, x))
CLIKART_FUNCTOR(SqrtFn, hn::Sqrt(x))
CLIKART_FUNCTOR(RsqrtFn, hn::Div(hn::Set(d, 1), hn::Sqrt(x)))
CLIKART_FUNCTOR(ReciprocalFn, hn::Div(hn::Set(d, 1), x))
CLIKART_FUNCTOR(SigmoidFn, sigmoid(d, x))

// SLEEF gives infinity where these are large, but not that large.
template <class D>
HWY_INLINE hn::Vec<D> large(D d) {
    return set(d, sizeof(hn::TFromD<D>) == sizeof(float) ? 1e9 : 1e18);
}
struct Log1pFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenElse(hn::Gt(x, large(d)), log(d, x), log1p(d, x));
    }
};
struct SinhFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V size = hn::Abs(x), near_the_end = hn::Set(d, ExpConstants<hn::TFromD<D>>::plain);
        if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(size, near_the_end)))) return sinh(d, x);
        return hn::IfThenElse(hn::Gt(size, near_the_end), hn::CopySignToAbs(exp_anywhere<-1>(d, size), x), sinh(d, x));
    }
};
struct CoshFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V size = hn::Abs(x), near_the_end = hn::Set(d, ExpConstants<hn::TFromD<D>>::plain);
        if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(size, near_the_end)))) return cosh(d, x);
        return hn::IfThenElse(hn::Gt(size, near_the_end), exp_anywhere<-1>(d, size), cosh(d, x));
    }
};
struct AsinhFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V size = hn::Abs(x), doubled = hn::Add(log(d, size), set(d, std::numbers::ln2));
        return hn::IfThenElse(hn::Gt(size, large(d)), hn::CopySignToAbs(doubled, x), asinh(d, x));
    }
};
struct AcoshFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenElse(hn::Gt(x, large(d)), hn::Add(log(d, x), set(d, std::numbers::ln2)), acosh(d, x));
    }
};
/// Stirling's formula where its next term is below the last digit.
struct LgammaFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V far = hn::MulAdd(x, hn::Sub(log(d, x), set(d, 1)), hn::Mul(log(d, x), set(d, -0.5)));
        const V inside = hn::IfThenElse(hn::Eq(hn::Abs(x), set(d, std::numeric_limits<double>::infinity())), hn::Abs(x), lgamma(d, x));
        return hn::IfThenElse(hn::Gt(x, large(d)), hn::IfThenElse(hn::Eq(x, hn::Add(x, x)), x, far), inside);
    }
};

/// Giles' approximation (M. Giles, "Approximating the erfinv function", 2010) as a start, then two steps of Newton's method
/// in double with an exact derivative; in float the start is kept when it is exact anyway (0, -1, 1, NaN).
struct ErfinvFn {
    template <class T>
    T operator()(T x) const {
        const double y = static_cast<double>(x);
        if (!(std::abs(y) < 1)) return std::abs(y) == 1 ? std::copysign(std::numeric_limits<T>::infinity(), x) : std::numeric_limits<T>::quiet_NaN();
        if (y == 0) return x;
        const double w = -std::log1p(-y * y);
        double p;
        if (w < 5) {
            constexpr double c[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                    -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
            p = c[0];
            for (int i = 1; i < 9; ++i) p = c[i] + p * (w - 2.5);
        } else {
            constexpr double c[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                    -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
            p = c[0];
            for (int i = 1; i < 9; ++i) p = c[i] + p * (std::sqrt(w) - 3);
        }
        double r = p * y;
        for (int step = 0; step < 2; ++step) {  // near 1 through erfc, which keeps its digits there
            const double error = std::abs(y) > 0.5 ? std::copysign(1, y) * ((1 - std::abs(y)) - std::erfc(std::abs(r))) : std::erf(r) - y;
            r -= error / (1.1283791670955126 * std::exp(-r * r));
        }
        return static_cast<T>(r);
    }
};

ElementLoop find_unary_math(OpCode op, DType t) {
    switch (op) {
        case OpCode::Exp: return floats<ExpFn, 1>(t);
        case OpCode::Exp2: return floats<Exp2Fn, 1>(t);
        case OpCode::Expm1: return floats<Expm1Fn, 1>(t);
        case OpCode::Log: return floats<LogFn, 1>(t);
        case OpCode::Log2: return floats<Log2Fn, 1>(t);
        case OpCode::Log10: return floats<Log10Fn, 1>(t);
        case OpCode::Log1p: return floats<Log1pFn, 1>(t);
        case OpCode::Sin: return floats<SinFn, 1>(t);
        case OpCode::Cos: return floats<CosFn, 1>(t);
        case OpCode::Tan: return floats<TanFn, 1>(t);
        case OpCode::Asin: return floats<AsinFn, 1>(t);
        case OpCode::Acos: return floats<AcosFn, 1>(t);
        case OpCode::Atan: return floats<AtanFn, 1>(t);
        case OpCode::Sinh: return floats<SinhFn, 1>(t);
        case OpCode::Cosh: return floats<CoshFn, 1>(t);
        case OpCode::Tanh: return floats<TanhFn, 1>(t);
        case OpCode::Asinh: return floats<AsinhFn, 1>(t);
        case OpCode::Acosh: return floats<AcoshFn, 1>(t);
        case OpCode::Atanh: return floats<AtanhFn, 1>(t);
        case OpCode::Erf: return floats<ErfFn, 1>(t);
        case OpCode::Erfc: return floats<ErfcFn, 1>(t);
        case OpCode::Erfinv: return floats<ErfinvFn, 1>(t);
        case OpCode::Lgamma: return floats<LgammaFn, 1>(t);
        case OpCode::Sqrt: return floats<SqrtFn, 1>(t);
        case OpCode::Rsqrt: return floats<RsqrtFn, 1>(t);
        case OpCode::Reciprocal: return floats<ReciprocalFn, 1>(t);
        case OpCode::Sigmoid: return floats<SigmoidFn, 1>(t);
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_unary_math);
CLIKART_ELEMENTWISE_KERNELS(find_unary_math)
CLIKART_ELEMENTWISE(exp, Exp)
CLIKART_ELEMENTWISE(exp2, Exp2)
CLIKART_ELEMENTWISE(expm1, Expm1)
CLIKART_ELEMENTWISE(log, Log)
CLIKART_ELEMENTWISE(log2, Log2)
CLIKART_ELEMENTWISE(log10, Log10)
CLIKART_ELEMENTWISE(log1p, Log1p)
CLIKART_ELEMENTWISE(sin, Sin)
CLIKART_ELEMENTWISE(cos, Cos)
CLIKART_ELEMENTWISE(tan, Tan)
CLIKART_ELEMENTWISE(asin, Asin)
CLIKART_ELEMENTWISE(acos, Acos)
CLIKART_ELEMENTWISE(atan, Atan)
CLIKART_ELEMENTWISE(sinh, Sinh)
CLIKART_ELEMENTWISE(cosh, Cosh)
CLIKART_ELEMENTWISE(tanh, Tanh)
CLIKART_ELEMENTWISE(asinh, Asinh)
CLIKART_ELEMENTWISE(acosh, Acosh)
CLIKART_ELEMENTWISE(atanh, Atanh)
CLIKART_ELEMENTWISE(erf, Erf)
CLIKART_ELEMENTWISE(erfc, Erfc)
CLIKART_ELEMENTWISE(erfinv, Erfinv)
CLIKART_ELEMENTWISE(lgamma, Lgamma)
CLIKART_ELEMENTWISE(sqrt, Sqrt)
CLIKART_ELEMENTWISE(rsqrt, Rsqrt)
CLIKART_ELEMENTWISE(reciprocal, Reciprocal)
CLIKART_ELEMENTWISE(sigmoid, Sigmoid)

}  // namespace clikart::cpu
#endif
