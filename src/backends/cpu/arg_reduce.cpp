// argmax, argmin, max_dim, min_dim: where the largest or smallest element is.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/arg_reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/reduce-inl.h"
#include "backends/cpu/widening.h"

#ifndef CLIKART_CPU_ARG_REDUCE_ONCE
#define CLIKART_CPU_ARG_REDUCE_ONCE
namespace clikart::cpu {

/// The best of some elements, the first of equals; a NaN is better than any number.
template <class T>
struct Best {
    T value;
    int64_t index;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// The first position of `value`, which is among the n elements; NaN is found where it is the value.
template <class T>
int64_t position_of(const T* in, int64_t n, T value) {
    const hn::CappedTag<T, kReduceLanes> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const bool nan = value != value;
    const auto wanted = hn::Set(d, value);
    const auto found_in = [&](auto x) {
        if constexpr (std::is_floating_point_v<T>) {
            if (nan) return hn::IsNaN(x);
        }
        return hn::Eq(x, wanted);
    };
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        const auto found = hn::FindFirstTrue(d, found_in(hn::LoadU(d, in + i)));
        if (found >= 0) return i + found;
    }
    while (i < n - 1 && !(nan ? in[i] != in[i] : in[i] == value)) ++i;
    return i;
}

template <class T, bool Largest>
void rows(const BlockCall& call) {
    using F = ExtremeFold<Largest>;
    const auto* in = static_cast<const T*>(call.in);
    auto* out = static_cast<Best<T>*>(call.partial);
    for (int64_t r = 0; r < call.count; r += kRowsInStep) {
        T values[kRowsInStep];
        const auto together = static_cast<int>(std::min<int64_t>(kRowsInStep, call.count - r));
        const T* first = in + r * call.row_stride;
        if (together == kRowsInStep) {
            fold_rows<kRowsInStep, F>(first, call.row_stride, call.n, AsIs(), values);
        } else {
            for (int k = 0; k < together; ++k) fold_rows<1, F>(first + k * call.row_stride, 0, call.n, AsIs(), values + k);
        }
        for (int k = 0; k < together; ++k) {
            out[r + k] = {values[k], call.first + (r + k) * call.first_step + position_of(first + k * call.row_stride, call.n, values[k])};
        }
    }
}

template <class T, bool Largest>
void columns(const BlockCall& call) {
    using I = hwy::MakeSigned<T>;  // positions in a block, as wide as the elements
    const hn::ScalableTag<T> d;
    const hn::Rebind<I, decltype(d)> di;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const auto* in = static_cast<const T*>(call.in);
    auto* values = static_cast<T*>(call.work);
    auto* places = reinterpret_cast<I*>(values + call.count);
    std::copy(in, in + call.count, values);
    std::fill(places, places + call.count, I(0));
    const auto improves = [](auto x, auto best) {
        const auto beyond = Largest ? hn::Gt(x, best) : hn::Lt(x, best);
        if constexpr (std::is_floating_point_v<T>) {
            return hn::Or(beyond, hn::AndNot(hn::IsNaN(best), hn::IsNaN(x)));
        } else {
            return beyond;
        }
    };
    for (int64_t i = 1; i < call.n; ++i) {
        const T* row = in + i * call.row_stride;
        const auto place = hn::Set(di, static_cast<I>(i));
        int64_t c = 0;
        for (; c + step <= call.count; c += step) {
            const auto x = hn::LoadU(d, row + c), best = hn::LoadU(d, values + c);
            const auto better = improves(x, best);
            hn::StoreU(hn::IfThenElse(better, x, best), d, values + c);
            hn::StoreU(hn::IfThenElse(hn::RebindMask(di, better), place, hn::LoadU(di, places + c)), di, places + c);
        }
        for (; c < call.count; ++c) {
            const bool beyond = Largest ? row[c] > values[c] : row[c] < values[c];
            if (!beyond && !(row[c] != row[c] && values[c] == values[c])) continue;
            values[c] = row[c];
            places[c] = static_cast<I>(i);
        }
    }
    auto* out = static_cast<Best<T>*>(call.partial);
    for (int64_t c = 0; c < call.count; ++c) out[c] = {values[c], call.first + places[c]};
}

template <class T>
BlockReducer best_of(DType lane, bool largest) {
    BlockReducer reducer;
    reducer.lane = lane;
    reducer.partial_bytes = sizeof(Best<T>);
    reducer.work_bytes = 2 * sizeof(T);
    reducer.rows = largest ? &rows<T, true> : &rows<T, false>;
    reducer.columns = largest ? &columns<T, true> : &columns<T, false>;
    reducer.wants_wide_columns = true;
    return reducer;
}

BlockReducer find_best(DType lane, bool largest) {
    switch (lane) {
        case DType::Float32: return best_of<float>(lane, largest);
        case DType::Float64: return best_of<double>(lane, largest);
        case DType::Int32: return best_of<int32_t>(lane, largest);
        case DType::Int64: return best_of<int64_t>(lane, largest);
        default: return best_of<uint64_t>(lane, largest);
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_best);

template <class T, bool Largest>
void combine(void* a_bytes, const void* b_bytes, int64_t n) {
    auto* a = static_cast<Best<T>*>(a_bytes);
    const auto* b = static_cast<const Best<T>*>(b_bytes);
    for (int64_t i = 0; i < n; ++i) {
        const T x = b[i].value, best = a[i].value;
        if ((Largest ? x > best : x < best) || (x != x && best == best)) a[i] = b[i];
    }
}

template <class T>
void finish_index(const void* partial, int64_t n, int64_t, double, void* const* results) {
    for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(results[0])[i] = static_cast<const Best<T>*>(partial)[i].index;
}
template <class T>
void finish_both(const void* partial, int64_t n, int64_t, double, void* const* results) {
    const auto* best = static_cast<const Best<T>*>(partial);
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(results[0])[i] = best[i].value;
    for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(results[1])[i] = best[i].index;
}

template <bool Largest>
BlockReducer finder(const KernelCall& call) {
    const DType lane = order_lane(dtype_of(call.inputs[0]));
    BlockReducer reducer = HWY_DYNAMIC_DISPATCH(find_best)(lane, Largest);
    with_type(lane, [&]<class T>() {
        reducer.combine = &combine<T, Largest>;
        reducer.finish = call.n_outputs > 1 ? &finish_both<T> : &finish_index<T>;
    });
    reducer.results[0] = call.n_outputs > 1 ? lane : DType::Int64;
    reducer.results[1] = DType::Int64;
    return reducer;
}

template <bool Largest>
void arg_extreme(const KernelCall& call) {
    reduce_blocks(call, finder<Largest>(call), attribute::argmax_dims);
}

template <bool Largest>
void extreme_along(const KernelCall& call) {
    const int64_t dim = call.attributes->integer(attribute::max_dim_dim);
    bool reduced[kMaxRank] = {};
    if (call.inputs[0].rank > 0) reduced[dim < 0 ? dim + call.inputs[0].rank : dim] = true;
    reduce_blocks(call, finder<Largest>(call), reduced);
}

}  // namespace

KernelFn kernel_argmax(DType t) {
    return if_computed(t, &kernel<arg_extreme<true>>);
}
KernelFn kernel_argmin(DType t) {
    return if_computed(t, &kernel<arg_extreme<false>>);
}
KernelFn kernel_max_dim(DType t) {
    return if_computed(t, &kernel<extreme_along<true>>);
}
KernelFn kernel_min_dim(DType t) {
    return if_computed(t, &kernel<extreme_along<false>>);
}

}  // namespace clikart::cpu
#endif
