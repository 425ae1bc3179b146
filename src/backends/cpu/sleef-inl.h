// SLEEF's functions on vectors of Highway: at most 1 ULP off (erfc 1.5) over the whole range.
// Those that it computes only for a part of the range are in unary_math.cpp, completed.
// Included once for each SIMD target (hence no ordinary include guard), inside files that go through foreach_target.
#if defined(CLIKART_CPU_SLEEF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CLIKART_CPU_SLEEF_INL_H
#undef CLIKART_CPU_SLEEF_INL_H
#else
#define CLIKART_CPU_SLEEF_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// SLEEF's names for this target, of float and of double vectors, and their types.  Its header declares only what the compiler
// was told of the machine for the whole file, hence the declarations here.
#undef CLIKART_SLEEF_F
#undef CLIKART_SLEEF_D
#if HWY_TARGET == HWY_AVX3
using SleefF = __m512;
using SleefD = __m512d;
#define CLIKART_SLEEF_F(name, ulp) Sleef_##name##f16_##ulp##avx512f
#define CLIKART_SLEEF_D(name, ulp) Sleef_##name##d8_##ulp##avx512f
#elif HWY_TARGET == HWY_AVX2
using SleefF = __m256;
using SleefD = __m256d;
#define CLIKART_SLEEF_F(name, ulp) Sleef_##name##f8_##ulp##avx2
#define CLIKART_SLEEF_D(name, ulp) Sleef_##name##d4_##ulp##avx2
#else
using SleefF = float;
using SleefD = double;
#define CLIKART_SLEEF_F(name, ulp) Sleef_##name##f_##ulp
#define CLIKART_SLEEF_D(name, ulp) Sleef_##name##_##ulp
#endif

/// f, which looks at all lanes to choose how it reduces angles: for floats below 125 or not, for doubles below 15, 1e14 or not
/// (Sleef's TRIGRANGEMAX).  An element's result must not depend on its neighbours', so lanes of each range go to it alone.
template <class D, class V, class F>
HWY_INLINE V by_range(D d, V x, F&& f) {
    using T = hn::TFromD<D>;
    const V size = hn::Abs(x);
    const auto near = hn::Lt(size, hn::Set(d, sizeof(T) == sizeof(float) ? T(125) : T(15)));
    if (HWY_LIKELY(hn::AllTrue(d, near))) return f(x);
    const auto alone = [&](auto mask, double other) { return f(hn::IfThenElse(mask, x, hn::Set(d, static_cast<T>(other)))); };
    V far = alone(hn::Not(near), 1000);
    if constexpr (sizeof(T) == sizeof(double)) {
        const auto middle = hn::Lt(size, hn::Set(d, T(1e14)));
        if (!hn::AllTrue(d, middle)) far = hn::IfThenElse(middle, alone(hn::AndNot(near, middle), 1000), alone(hn::Not(middle), 1e20));
    }
    return hn::IfThenElse(near, alone(near, 0), far);
}

// Defines name(d, x) and name(d, x, y) for whole vectors of either type.
#undef CLIKART_SLEEF_1
#define CLIKART_SLEEF_1(name, ulp)                              \
    extern "C" SleefF CLIKART_SLEEF_F(name, ulp)(SleefF);       \
    extern "C" SleefD CLIKART_SLEEF_D(name, ulp)(SleefD);       \
    template <class D, class V>                                 \
    HWY_INLINE V name(D, V x) {                                 \
        if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) { \
            return V{CLIKART_SLEEF_F(name, ulp)(x.raw)};        \
        } else {                                                \
            return V{CLIKART_SLEEF_D(name, ulp)(x.raw)};        \
        }                                                       \
    }
#undef CLIKART_SLEEF_2
#define CLIKART_SLEEF_2(name, ulp)                                \
    extern "C" SleefF CLIKART_SLEEF_F(name, ulp)(SleefF, SleefF); \
    extern "C" SleefD CLIKART_SLEEF_D(name, ulp)(SleefD, SleefD); \
    template <class D, class V>                                   \
    HWY_INLINE V name(D, V x, V y) {                              \
        if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {   \
            return V{CLIKART_SLEEF_F(name, ulp)(x.raw, y.raw)};   \
        } else {                                                  \
            return V{CLIKART_SLEEF_D(name, ulp)(x.raw, y.raw)};   \
        }                                                         \
    }

#undef CLIKART_SLEEF_ANGLE
#define CLIKART_SLEEF_ANGLE(name, ulp)                                                       \
    extern "C" SleefF CLIKART_SLEEF_F(name, ulp)(SleefF);                                    \
    extern "C" SleefD CLIKART_SLEEF_D(name, ulp)(SleefD);                                    \
    template <class D, class V>                                                              \
    HWY_INLINE V name(D d, V x) {                                                            \
        if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {                              \
            return by_range(d, x, [](V v) { return V{CLIKART_SLEEF_F(name, ulp)(v.raw)}; }); \
        } else {                                                                             \
            return by_range(d, x, [](V v) { return V{CLIKART_SLEEF_D(name, ulp)(v.raw)}; }); \
        }                                                                                    \
    }

// clang-format off: it takes the lines for one expression
CLIKART_SLEEF_1(exp2, u10)
CLIKART_SLEEF_1(expm1, u10)
CLIKART_SLEEF_1(log, u10)
CLIKART_SLEEF_1(log2, u10)
CLIKART_SLEEF_1(log10, u10)
CLIKART_SLEEF_1(log1p, u10)
CLIKART_SLEEF_ANGLE(sin, u10)
CLIKART_SLEEF_ANGLE(cos, u10)
CLIKART_SLEEF_ANGLE(tan, u10)
CLIKART_SLEEF_1(asin, u10)
CLIKART_SLEEF_1(acos, u10)
CLIKART_SLEEF_1(atan, u10)
CLIKART_SLEEF_1(sinh, u10)
CLIKART_SLEEF_1(cosh, u10)
CLIKART_SLEEF_1(asinh, u10)
CLIKART_SLEEF_1(acosh, u10)
CLIKART_SLEEF_1(atanh, u10)
CLIKART_SLEEF_1(erf, u10)
CLIKART_SLEEF_1(erfc, u15)
CLIKART_SLEEF_1(lgamma, u10)
CLIKART_SLEEF_2(pow, u10)
CLIKART_SLEEF_2(atan2, u10)
CLIKART_SLEEF_2(hypot, u05)
// clang-format on

}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
