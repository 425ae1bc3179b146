// From a functor to the loops of elementwise.h, for each SIMD target.
// Included once for each target (hence no ordinary include guard), inside files that go through foreach_target.
//
// A functor is called with vectors, f(d, a, b ...), where it has that form for the lanes in question, and otherwise with
// elements, f(a, b ...), in a loop that the compiler makes vectors of.  One that needs attributes is constructed from them.
#if defined(CLIKART_CPU_ELEMENTWISE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CLIKART_CPU_ELEMENTWISE_INL_H
#undef CLIKART_CPU_ELEMENTWISE_INL_H
#else
#define CLIKART_CPU_ELEMENTWISE_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backends/cpu/elementwise.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// For a vector form that floats alone have.
template <class D>
concept FloatTag = hwy::IsFloat<hn::TFromD<D>>();

template <class D>
HWY_INLINE hn::Vec<D> set(D d, double value) {
    return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

template <class F>
F made(const Attributes& attributes) {
    if constexpr (std::is_constructible_v<F, const Attributes&>) {
        return F(attributes);
    } else {
        return F();
    }
}

template <class F, class T, class... V>
concept HasVectorForm = requires(const F f, hn::ScalableTag<T> d, V... v) { f(d, v...); };

/// N operands in vectors of T.
template <class F, class T, int N>
void vector_loop(const Operands& operands, void* out_bytes, int64_t n) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const F f = made<F>(*operands.attributes);
    auto* out = static_cast<T*>(out_bytes);
    const T* in[N];
    bool all_move = true;
    V still[N];
    for (int k = 0; k < N; ++k) {
        in[k] = static_cast<const T*>(operands.data[k]);
        all_move &= operands.step[k] != 0;
        still[k] = hn::Set(d, *in[k]);
    }
    const auto apply = [&](auto&& load) {
        if constexpr (N == 1) {
            return f(d, load(0));
        } else if constexpr (N == 2) {
            return f(d, load(0), load(1));
        } else {
            return f(d, load(0), load(1), load(2));
        }
    };
    int64_t i = 0;
    if (all_move) {
        const auto load = [&](int k) { return hn::LoadU(d, in[k] + i); };
        if (operands.streamed) {
            for (; i + lanes <= n; i += lanes) hn::Stream(apply(load), d, out + i);
            hwy::FlushStream();
        } else {
            for (; i + lanes <= n; i += lanes) hn::StoreU(apply(load), d, out + i);
        }
    } else {
        const auto load = [&](int k) { return operands.step[k] ? hn::LoadU(d, in[k] + i) : still[k]; };
        for (; i + lanes <= n; i += lanes) hn::StoreU(apply(load), d, out + i);
    }
    if (i < n) {  // padded with what is there anyway, so that nothing overflows that need not
        HWY_ALIGN T tail[N][hn::MaxLanes(d)];
        HWY_ALIGN T result[hn::MaxLanes(d)];
        for (int k = 0; k < N; ++k) {
            for (int64_t j = 0; j < lanes; ++j) tail[k][j] = in[k][std::min(i + j, n - 1) * operands.step[k]];
        }
        hn::Store(apply([&](int k) { return hn::Load(d, tail[k]); }), d, result);
        std::memcpy(out + i, result, static_cast<size_t>(n - i) * sizeof(T));
    }
}

/// N operands element by element.
template <class F, class R, class... T>
void scalar_loop(const Operands& operands, void* out_bytes, int64_t n) {
    constexpr int N = sizeof...(T);
    const F f = made<F>(*operands.attributes);
    auto* out = static_cast<R*>(out_bytes);
    const auto pointers = [&]<size_t... K>(std::index_sequence<K...>) {
        return std::tuple<const T*...>(static_cast<const T*>(operands.data[K])...);
    }(std::index_sequence_for<T...>());
    if constexpr (N == 1) {
        const auto* a = std::get<0>(pointers);
        if (operands.step[0]) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i]));
        } else {
            std::fill_n(out, n, static_cast<R>(f(*a)));
        }
    } else if constexpr (N == 2) {
        const auto* a = std::get<0>(pointers);
        const auto* b = std::get<1>(pointers);
        const auto va = *a;
        const auto vb = *b;
        if (operands.step[0] && operands.step[1]) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i], b[i]));
        } else if (operands.step[0]) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i], vb));
        } else if (operands.step[1]) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(va, b[i]));
        } else {
            std::fill_n(out, n, static_cast<R>(f(va, vb)));
        }
    } else {
        const auto [a, b, c] = pointers;
        const int64_t sa = operands.step[0], sb = operands.step[1], sc = operands.step[2];
        if (sa && sb && sc) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i], b[i], c[i]));
        } else {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i * sa], b[i * sb], c[i * sc]));
        }
    }
}

template <class T>
constexpr DType dtype_for() {
    if constexpr (std::is_same_v<T, bool>) return DType::Bool;
    if constexpr (std::is_same_v<T, uint8_t>) return DType::UInt8;
    if constexpr (std::is_same_v<T, uint16_t>) return DType::UInt16;
    if constexpr (std::is_same_v<T, uint32_t>) return DType::UInt32;
    if constexpr (std::is_same_v<T, uint64_t>) return DType::UInt64;
    if constexpr (std::is_same_v<T, int8_t>) return DType::Int8;
    if constexpr (std::is_same_v<T, int16_t>) return DType::Int16;
    if constexpr (std::is_same_v<T, int32_t>) return DType::Int32;
    if constexpr (std::is_same_v<T, int64_t>) return DType::Int64;
    if constexpr (std::is_same_v<T, float>) return DType::Float32;
    return DType::Float64;
}

/// The loop of F over N operands that are all of T, to T.
template <class F, class T, int N>
ElementLoop loop_of() {
    constexpr DType t = dtype_for<T>();
    ElementLoop loop{nullptr, {t, t, t}, t};
    using V = hn::Vec<hn::ScalableTag<T>>;
    if constexpr (N == 1) {
        if constexpr (HasVectorForm<F, T, V>) {
            loop.run = &vector_loop<F, T, 1>;
        } else {
            loop.run = &scalar_loop<F, T, T>;
        }
    } else if constexpr (N == 2) {
        if constexpr (HasVectorForm<F, T, V, V>) {
            loop.run = &vector_loop<F, T, 2>;
        } else {
            loop.run = &scalar_loop<F, T, T, T>;
        }
    } else {
        if constexpr (HasVectorForm<F, T, V, V, V>) {
            loop.run = &vector_loop<F, T, 3>;
        } else {
            loop.run = &scalar_loop<F, T, T, T, T>;
        }
    }
    return loop;
}

/// The loop of F from N operands of T to bools.
template <class F, class T, int N>
ElementLoop predicate_of() {
    constexpr DType t = dtype_for<T>();
    if constexpr (N == 1) {
        return {&scalar_loop<F, bool, T>, {t}, DType::Bool};
    } else {
        return {&scalar_loop<F, bool, T, T>, {t, t}, DType::Bool};
    }
}

/// For the dtypes that compute as float or double.
template <class F, int N>
ElementLoop floats(DType t) {
    switch (lane_of(t)) {
        case DType::Float32: return loop_of<F, float, N>();
        case DType::Float64: return loop_of<F, double, N>();
        default: return {};
    }
}
/// For integers.
template <class F, int N>
ElementLoop integers(DType t) {
    switch (t) {
        case DType::UInt8: return loop_of<F, uint8_t, N>();
        case DType::UInt16: return loop_of<F, uint16_t, N>();
        case DType::UInt32: return loop_of<F, uint32_t, N>();
        case DType::UInt64: return loop_of<F, uint64_t, N>();
        case DType::Int8: return loop_of<F, int8_t, N>();
        case DType::Int16: return loop_of<F, int16_t, N>();
        case DType::Int32: return loop_of<F, int32_t, N>();
        case DType::Int64: return loop_of<F, int64_t, N>();
        default: return {};
    }
}
/// For integers where the sign makes no difference: two's complement.
template <class F, int N>
ElementLoop bits(DType t) {
    if (!is_integer(t)) return {};
    ElementLoop loop;
    switch (size_of(t)) {
        case 1: loop = loop_of<F, uint8_t, N>(); break;
        case 2: loop = loop_of<F, uint16_t, N>(); break;
        case 4: loop = loop_of<F, uint32_t, N>(); break;
        default: loop = loop_of<F, uint64_t, N>(); break;
    }
    loop.in[0] = loop.in[1] = loop.in[2] = loop.out = t;
    return loop;
}
template <class F, int N>
ElementLoop numbers(DType t) {
    return is_integer(t) ? integers<F, N>(t) : floats<F, N>(t);
}
/// For numbers whose integers wrap.
template <class F, int N>
ElementLoop wrapping(DType t) {
    return is_integer(t) ? bits<F, N>(t) : floats<F, N>(t);
}
template <class F, int N>
ElementLoop predicates(DType t) {
    ElementLoop loop;
    with_type(lane_of(t), [&]<class T>() { loop = predicate_of<F, T, N>(); });
    return loop;
}

}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
