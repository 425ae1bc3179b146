// A stretch of a row vector by vector, the last of which is masked; for each SIMD target.
// Included once for each target (hence no ordinary include guard), inside files that go through foreach_target.
#if defined(CLIKART_CPU_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CLIKART_CPU_VECTORS_INL_H
#undef CLIKART_CPU_VECTORS_INL_H
#else
#define CLIKART_CPU_VECTORS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls f(at, mask, whole) for each vector of [from, to): `whole` is std::true_type, and the mask full, but for the last one of
/// a stretch that is no multiple of d's lanes.
template <class D, class F>
HWY_INLINE void vectors(D d, int64_t from, int64_t to, F&& f) {
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const auto full = hn::FirstN(d, static_cast<size_t>(step));
    for (; from + step <= to; from += step) f(from, full, std::true_type());
    if (from < to) f(from, hn::FirstN(d, static_cast<size_t>(to - from)), std::false_type());
}

/// What is masked out is 0, and not read.
template <class D, class M, class W, class T>
HWY_INLINE hn::Vec<D> load(D d, M mask, W whole, const T* from) {
    if constexpr (whole) {
        return hn::LoadU(d, from);
    } else {
        return hn::MaskedLoad(mask, d, from);
    }
}

/// What is masked out stays as it is.  A streamed vector goes past the caches, to an aligned place.
template <bool streamed = false, class D, class M, class W, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, M mask, W whole, T* to) {
    if constexpr (!whole) {
        hn::BlendedStore(v, mask, d, to);
    } else if constexpr (streamed) {
        hn::Stream(v, d, to);
    } else {
        hn::StoreU(v, d, to);
    }
}

}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
