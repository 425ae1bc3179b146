// exp, tanh and sigmoid on vectors of float and double: the functions that models spend their time in.
// Included once for each SIMD target (hence no ordinary include guard), inside files that go through foreach_target.
//
// exp: x = n ln2 + r with |r| <= ln2/2; the Taylor polynomial of e^r, whose degree is chosen so that what it leaves out
// is below a tenth of an ULP; scaled by 2^n.  n is rounded by adding a number so large that no fraction fits behind it.
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
    static constexpr float rounder = 12582912.0f;              // 1.5 * 2^23
    static constexpr float plain = 86.0f;                      // up to here, on both sides, e^x is a normal number
    static constexpr float lowest = -104.0f, highest = 90.0f;  // below: 0; above: infinity, halved too
    static constexpr int degree = 7;
    static constexpr int exponent_bits = 23, exponent_bias = 127;
    static constexpr float tanh_is_one = 10.0f;
};
template <>
struct ExpConstants<double> {
    static constexpr double log2_e = 1.44269504088896340736, ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double rounder = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double plain = 707.0;
    static constexpr double lowest = -746.0, highest = 711.0;
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

/// x / ln2 rounded to an integer n: its bits are those of `rounder` plus n.
template <class D, class V>
HWY_INLINE V rounded_quotient(D d, V x) {
    using C = ExpConstants<hn::TFromD<D>>;
    return hn::MulAdd(x, hn::Set(d, C::log2_e), hn::Set(d, C::rounder));
}

/// e^r - 1 for r = x - n ln2.  The part of r that does not fit one number goes in at the end, where it still counts.
template <class D, class V>
HWY_INLINE V reduced_expm1(D d, V x, V rounded) {
    using C = ExpConstants<hn::TFromD<D>>;
    const V n = hn::Sub(rounded, hn::Set(d, C::rounder));
    const V high = hn::NegMulAdd(n, hn::Set(d, C::ln2_high), x);
    const V low = hn::Mul(n, hn::Set(d, C::ln2_low));
    const V r = hn::Sub(high, low);
    return hn::Add(high, hn::MulSub(hn::Mul(r, r), exp_tail(d, r), low));
}

/// 2^n for an n whose low bits are given, the exponent of a normal number; what stands above is shifted out.
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
    using C = ExpConstants<hn::TFromD<D>>;
    const hn::RebindToSigned<D> di;
    return hn::BitCast(d, hn::ShiftLeft<C::exponent_bits>(hn::Add(n, hn::Set(di, C::exponent_bias))));
}

/// e^x times 2^Shift, where a result may be denormal, zero, infinite or NaN.
template <int Shift, class D, class V>
HWY_NOINLINE V exp_anywhere(D d, V x) {
    using C = ExpConstants<hn::TFromD<D>>;
    const hn::RebindToSigned<D> di;
    // Zero by choice and not by multiplication: a product that underflows costs the CPU a hundred cycles, and -infinity is
    // what masks attention scores.
    const auto vanishes = hn::Lt(x, hn::Set(d, C::lowest));
    const V bounded = hn::IfThenZeroElse(vanishes, hn::Min(x, hn::Set(d, C::highest)));
    const V rounded = rounded_quotient(d, bounded);
    const V e = hn::Add(hn::Set(d, 1), reduced_expm1(d, bounded, rounded));
    // In two steps, so that a denormal result is rounded once and the largest ones do not overflow on the way.
    const auto n = hn::Add(hn::Sub(hn::BitCast(di, rounded), hn::BitCast(di, hn::Set(d, C::rounder))), hn::Set(di, Shift));
    const auto half = hn::ShiftRight<1>(n);
    const V scaled = hn::Mul(hn::Mul(e, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(vanishes, scaled));
}

/// The same bits for an element whatever its neighbours are: where both ways apply, scaling is exact in both.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
    using C = ExpConstants<hn::TFromD<D>>;
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, C::plain))))) return exp_anywhere<0>(d, x);
    const V rounded = rounded_quotient(d, x);
    const V e = hn::Add(hn::Set(d, 1), reduced_expm1(d, x, rounded));
    const hn::RebindToSigned<D> di;
    return hn::BitCast(d, hn::Add(hn::BitCast(di, e), hn::ShiftLeft<C::exponent_bits>(hn::BitCast(di, rounded))));
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
    using C = ExpConstants<hn::TFromD<D>>;
    const hn::RebindToSigned<D> di;
    const V a = hn::Min(hn::Abs(x), hn::Set(d, C::tanh_is_one));
    const V twice = hn::Add(a, a);
    const V rounded = rounded_quotient(d, twice);
    const V p = reduced_expm1(d, twice, rounded);
    const V power = power_of_two(d, hn::BitCast(di, rounded));
    const V m = hn::MulAdd(power, p, hn::Sub(power, hn::Set(d, 1)));  // e^(2a) - 1
    const V t = hn::Div(m, hn::Add(m, hn::Set(d, 2)));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySignToAbs(t, x));
}

/// 1 / (1 + e^-x), computed from e^-|x|, which does not overflow.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
    const V one = hn::Set(d, 1);
    const V e = exp(d, hn::Neg(hn::Abs(x)));
    return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

/// erf on floats to 2.1e-7, absolutely, which is what gelu needs, in a third of the time of one that is right to the last bit.
/// erf(x) / x is even and smooth: a polynomial in x^2, brought from [0, border^2] to [-1, 1], fitted in Chebyshev's basis.
template <class D, class V>
HWY_INLINE V rough_erf(D d, V x) {
    constexpr float border = 3.925f;  // from here on it rounds to 1
    constexpr float c[] = {-0.000770196435f, 0.0020828878f, -0.00172578543f, 0.00212030835f, -0.00733393757f, 0.0141245453f, -0.0204182826f, 0.0299866535f,
                           -0.0434893891f,   0.0584696345f, -0.0740906224f,  0.0905832499f,  -0.109088488f,   0.133932814f,  -0.17988427f,   0.360277921f};
    const V t = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 2 / (border * border)), hn::Set(d, -1));
    V p = hn::Set(d, c[0]);
    HWY_UNROLL(16)
    for (size_t i = 1; i < std::size(c); ++i) p = hn::MulAdd(p, t, hn::Set(d, c[i]));
    return hn::IfThenElse(hn::Ge(hn::Abs(x), hn::Set(d, border)), hn::CopySign(hn::Set(d, 1), x), hn::Mul(x, p));
}

}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
