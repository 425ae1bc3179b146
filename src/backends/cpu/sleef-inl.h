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

// clang-format off: it takes the lines for one expression
CLIKART_SLEEF_1(exp2, u10)
CLIKART_SLEEF_1(expm1, u10)
CLIKART_SLEEF_1(log, u10)
CLIKART_SLEEF_1(log2, u10)
CLIKART_SLEEF_1(log10, u10)
CLIKART_SLEEF_1(log1p, u10)
CLIKART_SLEEF_1(sin, u10)
CLIKART_SLEEF_1(cos, u10)
CLIKART_SLEEF_1(tan, u10)
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
