// exp and tanh on vectors of float and double.
// Included once for each SIMD target (hence no ordinary include guard), inside files that go through foreach_target.
//
// exp: x = n ln2 + r with |r| <= ln2/2; the Taylor polynomial of e^r, whose degree is chosen so that what it leaves out
// is below a tenth of an ULP; scaled by 2^n in two steps, so that denormal results round once.
// tanh: with m = e^(2|x|) - 1 computed without cancellation, tanh|x| = m / (m + 2).
#if defined(CLIKART_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CLIKART_CPU_MATH_INL_H
#undef CLIKART_CPU_MATH_INL_H
#else
#define CLIKART_CPU_MATH_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
    // ln2 in two parts; the first has 9 significant bits, so that n * ln2_high is exact.
    static constexpr float log2_e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440054690583e-4f;
    static constexpr float lowest = -104.0f, highest = 89.0f;  // below: 0; above: infinity
    static constexpr int degree = 7;
    static constexpr int exponent_bits = 23, exponent_bias = 127;
    static constexpr float tanh_is_one = 10.0f;
};
template <>
struct ExpConstants<double> {
    static constexpr double log2_e = 1.44269504088896340736, ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double lowest = -746.0, highest = 710.0;
    static constexpr int degree = 13;
    static constexpr int exponent_bits = 52, exponent_bias = 1023;
    static constexpr double tanh_is_one = 20.0;
};

constexpr double inverse_factorial(int k) {
    double product = 1;
    for (int i = 2; i <= k; ++i) product *= i;
    return 1 / product;
}

/// (e^r - 1 - r) / r^2 as a Taylor polynomial.
template <class D, class V>
HWY_INLINE V exp_tail(D d, V r) {
    using T = hn::TFromD<D>;
    V p = hn::Set(d, static_cast<T>(inverse_factorial(ExpConstants<T>::degree)));
    HWY_UNROLL(16)
    for (int k = ExpConstants<T>::degree - 1; k >= 2; --k) p = hn::MulAdd(p, r, hn::Set(d, static_cast<T>(inverse_factorial(k))));
    return p;
}

/// e^r - 1 for r = x - n ln2.  The part of r that does not fit one number goes in at the end, where it still counts.
template <class D, class V>
HWY_INLINE V reduced_expm1(D d, V x, V n) {
    using C = ExpConstants<hn::TFromD<D>>;
    const V high = hn::NegMulAdd(n, hn::Set(d, C::ln2_high), x);
    const V low = hn::Mul(n, hn::Set(d, C::ln2_low));
    const V r = hn::Sub(high, low);
    return hn::Add(high, hn::MulSub(hn::Mul(r, r), exp_tail(d, r), low));
}

/// 2^n for an integer-valued n that is the exponent of a normal number.
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
    using C = ExpConstants<hn::TFromD<D>>;
    const hn::RebindToSigned<D> di;
    return hn::BitCast(d, hn::ShiftLeft<C::exponent_bits>(hn::Add(n, hn::Set(di, C::exponent_bias))));
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
    using C = ExpConstants<hn::TFromD<D>>;
    const hn::RebindToSigned<D> di;
    // Zero by choice and not by multiplication: a product that underflows costs the CPU a hundred cycles, and -infinity is
    // what masks attention scores.
    const auto vanishes = hn::Lt(x, hn::Set(d, C::lowest));
    const V bounded = hn::IfThenZeroElse(vanishes, hn::Min(x, hn::Set(d, C::highest)));
    const V n = hn::Round(hn::Mul(bounded, hn::Set(d, C::log2_e)));
    const V e = hn::Add(hn::Set(d, 1), reduced_expm1(d, bounded, n));
    const auto ni = hn::ConvertTo(di, n);
    const auto half = hn::ShiftRight<1>(ni);
    const V scaled = hn::Mul(hn::Mul(e, power_of_two(d, half)), power_of_two(d, hn::Sub(ni, half)));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(vanishes, scaled));
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
    using C = ExpConstants<hn::TFromD<D>>;
    const hn::RebindToSigned<D> di;
    const V a = hn::Min(hn::Abs(x), hn::Set(d, C::tanh_is_one));
    const V twice = hn::Add(a, a);
    const V n = hn::Round(hn::Mul(twice, hn::Set(d, C::log2_e)));
    const V p = reduced_expm1(d, twice, n);
    const V power = power_of_two(d, hn::ConvertTo(di, n));
    const V m = hn::MulAdd(power, p, hn::Sub(power, hn::Set(d, 1)));  // e^(2a) - 1
    const V t = hn::Div(m, hn::Add(m, hn::Set(d, 2)));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySignToAbs(t, x));
}

}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
