// var, std and logsumexp: reductions whose partial results are pairs of numbers.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/moments.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "backends/cpu/convert.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/reduce-inl.h"

#ifndef CLIKART_CPU_MOMENTS_ONCE
#define CLIKART_CPU_MOMENTS_ONCE
namespace clikart::cpu {

/// Of some elements: how many, their mean as a number and what that number is off by, and the sum of squares of what the
/// elements differ from the mean.
struct Moments {
    double count, mean, rest, squares;
};
/// Of some elements: the largest, and the sum of exp(x - largest); 1 where that is infinite or NaN.
struct ExpSum {
    double largest, sum;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// x - center or its square, with a center for each row or accumulator.
template <class T, bool Squared>
struct Difference {
    const T* centers;
    bool one;  // for all of a vector
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, int64_t at) const {
        const V difference = hn::Sub(x, one ? hn::Set(d, centers[at]) : hn::LoadU(d, centers + at));
        return Squared ? hn::Mul(difference, difference) : difference;
    }
};
/// exp(x - shift), likewise.
template <class T>
struct ShiftedExp {
    const T* shifts;
    bool one;
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, int64_t at) const {
        return exp(d, hn::Sub(x, one ? hn::Set(d, shifts[at]) : hn::LoadU(d, shifts + at)));
    }
};

/// values[0..n), again and again for each lane that fold_columns keeps, and for what a last vector reads too much.
template <class T>
void repeat(T* values, int64_t n) {
    for (int64_t l = 1; l < kReduceLanes; ++l) std::copy(values, values + n, values + l * n);
    std::fill_n(values + kReduceLanes * n, kReduceLanes, T(0));
}

/// What makes the mean exact enough for float64: a float32's is, in float64.
Moments moments_of(int64_t count, double mean, double differences, double squares) {
    const auto n = static_cast<double>(count);
    const double rest = count > 0 ? differences / n : 0;
    return {n, mean, rest, squares - rest * differences};
}

template <class In>
void moments_rows(const BlockCall& call) {
    const auto* in = static_cast<const In*>(call.in);
    auto* out = static_cast<Moments*>(call.partial);
    for (int64_t r = 0; r < call.count; ++r, in += call.row_stride) {
        double sum, differences = 0, squares;
        fold_rows<1, SumFold>(in, 0, call.n, AsIs(), &sum);
        const double mean = call.n > 0 ? sum / static_cast<double>(call.n) : 0;
        if constexpr (std::is_same_v<In, double>) fold_rows<1, SumFold>(in, 0, call.n, Difference<double, false>{&mean, true}, &differences);
        fold_rows<1, SumFold>(in, 0, call.n, Difference<double, true>{&mean, true}, &squares);
        out[r] = moments_of(call.n, mean, differences, squares);
    }
}

template <class In>
void moments_columns(const BlockCall& call) {
    auto* acc = static_cast<double*>(call.work);
    double* means = acc + kReduceLanes * call.count;
    const auto* in = static_cast<const In*>(call.in);
    auto* out = static_cast<Moments*>(call.partial);
    fold_columns<SumFold>(in, call.row_stride, call.n, call.count, AsIs(), acc);
    for (int64_t c = 0; c < call.count; ++c) means[c] = call.n > 0 ? acc[c] / static_cast<double>(call.n) : 0;
    repeat(means, call.count);
    if constexpr (std::is_same_v<In, double>) {
        fold_columns<SumFold>(in, call.row_stride, call.n, call.count, Difference<double, false>{means, false}, acc);
        for (int64_t c = 0; c < call.count; ++c) out[c].rest = acc[c];
    } else {
        for (int64_t c = 0; c < call.count; ++c) out[c].rest = 0;
    }
    fold_columns<SumFold>(in, call.row_stride, call.n, call.count, Difference<double, true>{means, false}, acc);
    for (int64_t c = 0; c < call.count; ++c) out[c] = moments_of(call.n, means[c], out[c].rest, acc[c]);
}

template <class T>
void exp_sum_rows(const BlockCall& call) {
    const auto* in = static_cast<const T*>(call.in);
    auto* out = static_cast<ExpSum*>(call.partial);
    for (int64_t r = 0; r < call.count; ++r, in += call.row_stride) {
        T largest, sum = 1;
        fold_rows<1, ExtremeFold<true>>(in, 0, call.n, AsIs(), &largest);
        if (std::isfinite(largest)) fold_rows<1, SumFold>(in, 0, call.n, ShiftedExp<T>{&largest, true}, &sum);
        out[r] = {static_cast<double>(largest), static_cast<double>(sum)};
    }
}

template <class T>
void exp_sum_columns(const BlockCall& call) {
    auto* acc = static_cast<T*>(call.work);
    T* largest = acc + kReduceLanes * call.count;
    const auto* in = static_cast<const T*>(call.in);
    fold_columns<ExtremeFold<true>>(in, call.row_stride, call.n, call.count, AsIs(), acc);
    std::copy(acc, acc + call.count, largest);
    repeat(largest, call.count);
    fold_columns<SumFold>(in, call.row_stride, call.n, call.count, ShiftedExp<T>{largest, false}, acc);
    auto* out = static_cast<ExpSum*>(call.partial);
    for (int64_t c = 0; c < call.count; ++c) out[c] = {static_cast<double>(largest[c]), std::isfinite(largest[c]) ? static_cast<double>(acc[c]) : 1};
}

/// The work of columns: accumulators, and as many numbers again with a vector behind them.
template <class A>
constexpr int64_t kPairWork = (2 * kReduceLanes + kReduceLanes) * static_cast<int64_t>(sizeof(A));

BlockReducer find_moments(DType lane) {
    BlockReducer reducer;
    reducer.lane = lane;
    reducer.partial_bytes = sizeof(Moments);
    reducer.work_bytes = kPairWork<double>;
    reducer.rows = lane == DType::Float32 ? &moments_rows<float> : &moments_rows<double>;
    reducer.columns = lane == DType::Float32 ? &moments_columns<float> : &moments_columns<double>;
    return reducer;
}

BlockReducer find_exp_sum(DType lane) {
    BlockReducer reducer;
    reducer.lane = lane;
    reducer.partial_bytes = sizeof(ExpSum);
    reducer.work_bytes = kPairWork<double>;
    reducer.rows = lane == DType::Float32 ? &exp_sum_rows<float> : &exp_sum_rows<double>;
    reducer.columns = lane == DType::Float32 ? &exp_sum_columns<float> : &exp_sum_columns<double>;
    return reducer;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_moments);
HWY_EXPORT(find_exp_sum);

/// T. F. Chan's and others' update of moments by those of further elements.
void combine_moments(void* a_bytes, const void* b_bytes, int64_t n) {
    auto* a = static_cast<Moments*>(a_bytes);
    const auto* b = static_cast<const Moments*>(b_bytes);
    for (int64_t i = 0; i < n; ++i) {
        const double count = a[i].count + b[i].count, share = b[i].count / count;
        const double difference = (b[i].mean - a[i].mean) + (b[i].rest - a[i].rest);
        a[i] = {count, a[i].mean, a[i].rest + difference * share, a[i].squares + b[i].squares + difference * difference * a[i].count * share};
    }
}

void combine_exp_sums(void* a_bytes, const void* b_bytes, int64_t n) {
    auto* a = static_cast<ExpSum*>(a_bytes);
    const auto* b = static_cast<const ExpSum*>(b_bytes);
    for (int64_t i = 0; i < n; ++i) {
        const double largest = std::isnan(a[i].largest) || a[i].largest > b[i].largest ? a[i].largest : b[i].largest;
        const double sum = std::isfinite(largest) ? a[i].sum * std::exp(a[i].largest - largest) + b[i].sum * std::exp(b[i].largest - largest) : 1;
        a[i] = {largest, sum};
    }
}

template <bool Root>
void finish_moments(const void* partial, int64_t n, int64_t, double correction, void* const* results) {
    const auto* moments = static_cast<const Moments*>(partial);
    for (int64_t i = 0; i < n; ++i) {
        const double variance = moments[i].squares / std::max(0.0, moments[i].count - correction);
        static_cast<double*>(results[0])[i] = Root ? std::sqrt(variance) : variance;
    }
}

void finish_exp_sum(const void* partial, int64_t n, int64_t, double, void* const* results) {
    const auto* sums = static_cast<const ExpSum*>(partial);
    for (int64_t i = 0; i < n; ++i) {
        static_cast<double*>(results[0])[i] = std::isfinite(sums[i].largest) ? sums[i].largest + std::log(sums[i].sum) : sums[i].largest;
    }
}

template <bool Root>
void variance(const KernelCall& call) {
    BlockReducer reducer = HWY_DYNAMIC_DISPATCH(find_moments)(lane_of(static_cast<DType>(call.compute)));
    reducer.combine = &combine_moments;
    reducer.finish = &finish_moments<Root>;
    reducer.results[0] = DType::Float64;
    reducer.parameter = static_cast<double>(call.attributes->integer(attribute::var_correction));
    reduce_blocks(call, reducer, attribute::var_dims);
}

void logsumexp(const KernelCall& call) {
    BlockReducer reducer = HWY_DYNAMIC_DISPATCH(find_exp_sum)(lane_of(static_cast<DType>(call.compute)));
    reducer.combine = &combine_exp_sums;
    reducer.finish = &finish_exp_sum;
    reducer.results[0] = DType::Float64;
    reduce_blocks(call, reducer, attribute::logsumexp_dims);
}

}  // namespace

KernelFn kernel_var(DType t) {
    return computes(t) ? &kernel<variance<false>> : nullptr;
}
KernelFn kernel_std(DType t) {
    return computes(t) ? &kernel<variance<true>> : nullptr;
}
KernelFn kernel_logsumexp(DType t) {
    return computes(t) ? &kernel<logsumexp> : nullptr;
}

}  // namespace clikart::cpu
#endif
