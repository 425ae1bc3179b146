// Folding blocks, for each SIMD target; see reduce_blocks.h for the order.
// Included once for each target (hence no ordinary include guard), inside files that go through foreach_target.
//
// A fold is a type with `identity<A>()` and a call operator for vectors; a map turns an input vector into what is folded,
// map(d, x, at), where `at` tells which row (in fold_rows) or which accumulator (in fold_columns) it goes to.
#if defined(CLIKART_CPU_REDUCE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CLIKART_CPU_REDUCE_INL_H
#undef CLIKART_CPU_REDUCE_INL_H
#else
#define CLIKART_CPU_REDUCE_INL_H
#endif

#include <hwy/highway.h>

#include "backends/cpu/reduce_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Of two NaN the first one's bits come out.  The compiler takes sums and products for commutative, and one order here and another there.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
#define CLIKART_IN_ORDER(name, instruction, generic)                                       \
    template <class V>                                                                     \
    HWY_INLINE V name(V a, V b) {                                                          \
        using T = hn::TFromV<V>;                                                           \
        if constexpr (std::is_same_v<T, float>) {                                          \
            asm("v" #instruction "ps %2, %1, %0" : "=v"(a.raw) : "v"(a.raw), "vm"(b.raw)); \
            return a;                                                                      \
        } else if constexpr (std::is_same_v<T, double>) {                                  \
            asm("v" #instruction "pd %2, %1, %0" : "=v"(a.raw) : "v"(a.raw), "vm"(b.raw)); \
            return a;                                                                      \
        } else {                                                                           \
            return generic(a, b);                                                          \
        }                                                                                  \
    }
#else
#define CLIKART_IN_ORDER(name, instruction, generic) \
    template <class V>                               \
    HWY_INLINE V name(V a, V b) {                    \
        return generic(a, b);                        \
    }
#endif
CLIKART_IN_ORDER(add_in_order, add, hn::Add)
CLIKART_IN_ORDER(multiply_in_order, mul, hn::Mul)
#undef CLIKART_IN_ORDER

struct SumFold {
    template <class T>
    static constexpr T identity() {
        return T(0);
    }
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return add_in_order(a, b);
    }
};
struct ProductFold {
    template <class T>
    static constexpr T identity() {
        return T(1);
    }
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return multiply_in_order(a, b);
    }
};
/// The largest, or the smallest; a NaN wins.
template <bool Largest>
struct ExtremeFold {
    template <class T>
    static constexpr T identity() {
        if constexpr (std::is_floating_point_v<T>) return Largest ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
        return Largest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    }
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
            const auto keeps = Largest ? hn::Gt(a, b) : hn::Lt(a, b);
            const V equal = Largest ? hn::And(a, b) : hn::Or(a, b);  // of 0 and -0 always the same one, whichever comes first
            return hn::IfThenElse(hn::Eq(a, b), equal, hn::IfThenElse(hn::Or(keeps, hn::IsNaN(a)), a, b));
        } else {
            return Largest ? hn::Max(a, b) : hn::Min(a, b);
        }
    }
};

/// What is there, as it is.
struct AsIs {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x, int64_t) const {
        return x;
    }
};

/// Elements of In as a vector of d's lanes, which are as wide or wider.
template <class D, class In>
HWY_INLINE hn::Vec<D> load(D d, const In* in) {
    if constexpr (std::is_same_v<In, hn::TFromD<D>>) {
        return hn::LoadU(d, in);
    } else if constexpr (HWY_TARGET == HWY_SCALAR && std::is_same_v<In, hwy::float16_t>) {
        return hn::Set(d, static_cast<float>(std::bit_cast<Half>(*in)));  // Highway's own knows no infinity
    } else {
        return hn::PromoteTo(d, hn::LoadU(hn::Rebind<In, D>(), in));
    }
}
/// The first n of them; nothing behind is touched.
template <class D, class In>
HWY_INLINE hn::Vec<D> load_first(D d, const In* in, int64_t n) {
    if constexpr (std::is_same_v<In, hn::TFromD<D>>) {
        return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, in);
    } else if constexpr (sizeof(In) == sizeof(uint16_t)) {  // for which AVX2 has no masked load
        HWY_ALIGN In padded[hn::MaxLanes(d)] = {};
        for (int64_t i = 0; i < n; ++i) padded[i] = in[i];
        return load(d, padded);
    } else {
        const hn::Rebind<In, D> narrow;
        return hn::PromoteTo(d, hn::MaskedLoad(hn::FirstN(narrow, static_cast<size_t>(n)), narrow, in));
    }
}

/// a[i] = f(a[i], b[i]).
template <class F, class T>
HWY_INLINE void fold_into(T* a, const T* b, int64_t n) {
    const hn::ScalableTag<T> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const F f;
    if (n == 1) {
        const hn::CappedTag<T, 1> d1;
        return hn::StoreU(f(hn::LoadU(d1, a), hn::LoadU(d1, b)), d1, a);
    }
    int64_t i = 0;
    for (; i + step <= n; i += step) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
    if (i < n) {
        const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
        hn::BlendedStore(f(hn::MaskedLoad(mask, d, a + i), hn::MaskedLoad(mask, d, b + i)), mask, d, a + i);
    }
}

/// The lanes of one block, folded in halves.
template <class F, class T>
HWY_INLINE T fold_lanes(T* lanes) {
    const hn::CappedTag<T, kReduceLanes / 2> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const F f;
    int64_t half = kReduceLanes / 2;
    for (; half >= step; half /= 2) {
        for (int64_t i = 0; i < half; i += step) hn::Store(f(hn::Load(d, lanes + i), hn::Load(d, lanes + half + i)), d, lanes + i);
    }
    const hn::CappedTag<T, 1> d1;
    for (; half >= 1; half /= 2) {
        for (int64_t i = 0; i < half; ++i) hn::StoreU(f(hn::LoadU(d1, lanes + i), hn::LoadU(d1, lanes + half + i)), d1, lanes + i);
    }
    return lanes[0];
}

/// Rows of n elements to out[0..Rows), in step, so that one's additions need not wait for each other.
template <int Rows, class F, class A, class In, class Map>
HWY_INLINE void fold_rows(const In* in, int64_t row_stride, int64_t n, const Map& map, A* out) {
    const hn::CappedTag<A, kReduceLanes> d;
    constexpr auto step = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<A, kReduceLanes>()));
    constexpr int vectors = static_cast<int>(kReduceLanes / step);
    constexpr bool kPrefetch = kReduceLanes * sizeof(In) >= 64;  // of what comes next: each row is a page, behind which no prefetcher looks
    const F f;
    hn::Vec<decltype(d)> acc[Rows * vectors];
    for (auto& a : acc) a = hn::Set(d, F::template identity<A>());
    int64_t i = 0;
    for (; i + kReduceLanes <= n; i += kReduceLanes) {
        HWY_UNROLL(8)
        for (int r = 0; r < Rows; ++r) {
            if constexpr (kPrefetch) __builtin_prefetch(in + (Rows + r) * row_stride + i);
            HWY_UNROLL(16)
            for (int v = 0; v < vectors; ++v) acc[r * vectors + v] = f(acc[r * vectors + v], map(d, load(d, in + r * row_stride + i + v * step), r));
        }
    }
    if (i < n) {  // the lanes past the end stay as they are
        HWY_UNROLL(16)
        for (int v = 0; v < vectors; ++v) {
            const int64_t rest = std::clamp<int64_t>(n - i - v * step, 0, step);
            if (rest == 0) continue;
            const auto mask = hn::FirstN(d, static_cast<size_t>(rest));
            HWY_UNROLL(8)
            for (int r = 0; r < Rows; ++r) {
                auto& a = acc[r * vectors + v];
                a = hn::IfThenElse(mask, f(a, map(d, load_first(d, in + r * row_stride + i + v * step, rest), r)), a);
            }
        }
    }
    for (int r = 0; r < Rows; ++r) {
        HWY_ALIGN A lanes[kReduceLanes];
        for (int v = 0; v < vectors; ++v) hn::Store(acc[r * vectors + v], d, lanes + v * step);
        out[r] = fold_lanes<F>(lanes);
    }
}

/// Rows in step; one without vectors, which has no registers for more.
inline constexpr int kRowsInStep = HWY_TARGET == HWY_SCALAR ? 1 : 4;

/// Columns of n rows to acc[0..columns); acc has room for kReduceLanes times as many.
template <class F, class A, class In, class Map>
HWY_INLINE void fold_columns(const In* in, int64_t row_stride, int64_t n, int64_t columns, const Map& map, A* acc) {
    const hn::ScalableTag<A> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const F f;
    int64_t used = std::clamp<int64_t>(n, 1, kReduceLanes);
    std::fill(acc, acc + used * columns, F::template identity<A>());
    const auto add = [&](const In* from, int64_t count, int64_t at) {
        int64_t j = 0;
        for (; j + step <= count; j += step) hn::StoreU(f(hn::LoadU(d, acc + at + j), map(d, load(d, from + j), at + j)), d, acc + at + j);
        if (j < count) {
            const auto mask = hn::FirstN(d, static_cast<size_t>(count - j));
            const auto x = map(d, load_first(d, from + j, count - j), at + j);
            hn::BlendedStore(f(hn::MaskedLoad(mask, d, acc + at + j), x), mask, d, acc + at + j);
        }
    };
    if (row_stride == columns) {  // lane after lane in memory: all of them at once
        for (int64_t i = 0; i < n; i += kReduceLanes) add(in + i * columns, std::min(n - i, kReduceLanes) * columns, 0);
    } else {
        for (int64_t i = 0; i < n; ++i) add(in + i * row_stride, columns, i % kReduceLanes * columns);
    }
    for (int64_t half = kReduceLanes / 2; half >= 1; half /= 2) {
        if (used <= half) continue;
        fold_into<F>(acc, acc + half * columns, (used - half) * columns);
        used = half;
    }
}

/// A reducer's functions for a fold whose partial result is the folded value; `Map` is made from the call's parameter.
template <class F, class A, class In, class Map>
struct FoldBlocks {
    static Map map_of(const BlockCall& call) {
        if constexpr (std::is_constructible_v<Map, double>) {
            return Map(call.parameter);
        } else {
            return Map();
        }
    }
    static void rows(const BlockCall& call) {
        const auto* in = static_cast<const In*>(call.in);
        auto* out = static_cast<A*>(call.partial);
        const Map map = map_of(call);
        int64_t r = 0;
        for (; r + kRowsInStep <= call.count; r += kRowsInStep) fold_rows<kRowsInStep, F>(in + r * call.row_stride, call.row_stride, call.n, map, out + r);
        for (; r < call.count; ++r) fold_rows<1, F>(in + r * call.row_stride, 0, call.n, map, out + r);
    }
    static void columns(const BlockCall& call) {
        auto* acc = static_cast<A*>(call.work);
        fold_columns<F>(static_cast<const In*>(call.in), call.row_stride, call.n, call.count, map_of(call), acc);
        std::memcpy(call.partial, acc, static_cast<size_t>(call.count) * sizeof(A));
    }
    static void combine(void* a, const void* b, int64_t n) { fold_into<F>(static_cast<A*>(a), static_cast<const A*>(b), n); }

    static BlockReducer make(DType lane) {
        BlockReducer reducer;
        reducer.lane = lane;
        reducer.partial_bytes = sizeof(A);
        reducer.work_bytes = kReduceLanes * static_cast<int64_t>(sizeof(A));
        reducer.rows = &rows;
        reducer.columns = &columns;
        reducer.combine = &combine;
        return reducer;
    }
};

}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
