#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pool_window.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pool_window.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
auto replaces(D, V so_far, V next) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
        return hn::Or(hn::Gt(next, so_far), hn::IsNaN(next));
    } else {
        return hn::Gt(next, so_far);
    }
}

struct Larger {
    template <class D, class V>
    static V join(D d, V so_far, V next) {
        if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return hn::IfThenElse(replaces(d, so_far, next), next, so_far);
        return hn::Max(so_far, next);
    }
};
struct Add {
    template <class D, class V>
    static V join(D, V so_far, V next) {
        return hn::Add(so_far, next);
    }
};

template <class Join, int Vectors, class D>
void fold_block(D d, const void* const* places, int64_t n_places, void* result, int64_t at, bool first) {
    using T = hn::TFromD<D>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto load = [&](const void* place, int v) { return hn::LoadU(d, static_cast<const T*>(place) + at + v * lanes); };
    hn::Vec<D> all[Vectors];
    for (int v = 0; v < Vectors; ++v) all[v] = load(places[0], v);
    for (int64_t p = 1; p < n_places; ++p) {
        for (int v = 0; v < Vectors; ++v) all[v] = Join::join(d, all[v], load(places[p], v));
    }
    for (int v = 0; v < Vectors; ++v) {
        if (!first) all[v] = Join::join(d, load(result, v), all[v]);
        hn::StoreU(all[v], d, static_cast<T*>(result) + at + v * lanes);
    }
}

template <class T, class Join>
void fold(const void* const* places, int64_t n_places, void* result, int64_t n, bool first) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> one;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t at = 0;
    for (; at + 4 * lanes <= n; at += 4 * lanes) fold_block<Join, 4>(d, places, n_places, result, at, first);
    for (; at + lanes <= n; at += lanes) fold_block<Join, 1>(d, places, n_places, result, at, first);
    for (; at < n; ++at) fold_block<Join, 1>(one, places, n_places, result, at, first);
}

template <int Vectors, class D>
void largest_block(D d, const void* const* places, int64_t n_places, void* result, void* which, int64_t at) {
    using T = hn::TFromD<D>;
    const hn::RebindToUnsigned<D> du;
    using U = hn::TFromD<decltype(du)>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<D> best[Vectors];
    hn::Vec<decltype(du)> from[Vectors];
    for (int v = 0; v < Vectors; ++v) {
        best[v] = hn::LoadU(d, static_cast<const T*>(result) + at + v * lanes);
        from[v] = hn::Set(du, static_cast<U>(-1));
    }
    for (int64_t p = 0; p < n_places; ++p) {
        const auto number = hn::Set(du, static_cast<U>(p));
        for (int v = 0; v < Vectors; ++v) {
            const auto next = hn::LoadU(d, static_cast<const T*>(places[p]) + at + v * lanes);
            const auto better = replaces(d, best[v], next);
            best[v] = hn::IfThenElse(better, next, best[v]);
            from[v] = hn::IfThenElse(hn::RebindMask(du, better), number, from[v]);
        }
    }
    for (int v = 0; v < Vectors; ++v) {
        hn::StoreU(best[v], d, static_cast<T*>(result) + at + v * lanes);
        hn::StoreU(from[v], du, static_cast<U*>(which) + at + v * lanes);
    }
}

template <class T>
void largest(const void* const* places, int64_t n_places, void* result, void* which, int64_t n) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> one;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t at = 0;
    for (; at + 4 * lanes <= n; at += 4 * lanes) largest_block<4>(d, places, n_places, result, which, at);
    for (; at + lanes <= n; at += lanes) largest_block<1>(d, places, n_places, result, which, at);
    for (; at < n; ++at) largest_block<1>(one, places, n_places, result, which, at);
}

template <class T>
void divide(void* elements, int64_t n, double divisor) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> one;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    auto* const to = static_cast<T*>(elements);
    const T by = static_cast<T>(divisor);
    int64_t at = 0;
    for (; at + lanes <= n; at += lanes) hn::StoreU(hn::Div(hn::LoadU(d, to + at), hn::Set(d, by)), d, to + at);
    for (; at < n; ++at) hn::StoreU(hn::Div(hn::LoadU(one, to + at), hn::Set(one, by)), one, to + at);
}

FoldFn find(WindowFold what, DType dtype) {
    FoldFn found = nullptr;
    with_type(dtype, [&]<class T>() {
        if constexpr (!std::is_same_v<T, bool>) {
            if (what == WindowFold::Max) found = &fold<T, Larger>;
        }
        if constexpr (std::is_floating_point_v<T>) {
            if (what == WindowFold::Sum) found = &fold<T, Add>;
        }
    });
    return found;
}

LargestFn find_largest_of(DType dtype) {
    LargestFn found = nullptr;
    with_type(dtype, [&]<class T>() {
        if constexpr (sizeof(T) >= 4) found = &largest<T>;
    });
    return found;
}

void divide_elements(DType dtype, void* elements, int64_t n, double divisor) {
    (dtype == DType::Float64 ? divide<double> : divide<float>)(elements, n, divisor);
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find);
HWY_EXPORT(find_largest_of);
HWY_EXPORT(divide_elements);

}  // namespace

FoldFn find_window_fold(WindowFold fold, DType dtype) {
    return HWY_DYNAMIC_DISPATCH(find)(fold, dtype);
}

LargestFn find_largest(DType dtype) {
    return HWY_DYNAMIC_DISPATCH(find_largest_of)(dtype);
}

void divide_by(DType dtype, void* elements, int64_t n, double divisor) {
    HWY_DYNAMIC_DISPATCH(divide_elements)(dtype, elements, n, divisor);
}

}  // namespace clikart::cpu
#endif
