// sum, prod, mean, amax, amin, any, all, count_nonzero, norm: folds of single numbers.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/reduce-inl.h"
#include "backends/cpu/row_part.h"
#include "backends/cpu/sleef-inl.h"
#include "backends/cpu/widening.h"

#ifndef CLIKART_CPU_REDUCE_ONCE
#define CLIKART_CPU_REDUCE_ONCE
namespace clikart::cpu {

enum class Fold { Sum, Product, Largest, Smallest };
/// What is folded of an element for a norm.
enum class NormOf { Nonzero, Magnitude, Square, Power, Largest, Smallest };

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class F>
BlockReducer of_numbers(DType lane) {
    switch (lane) {
        case DType::Float32: return FoldBlocks<F, float, float, AsIs>::make(lane);
        case DType::Float64: return FoldBlocks<F, double, double, AsIs>::make(lane);
        case DType::Int64: return FoldBlocks<F, int64_t, int64_t, AsIs>::make(lane);
        default: return {};
    }
}
/// Narrow floats too, from where they lie.
template <class F>
BlockReducer of_stored(DType lane) {
    switch (lane) {
        case DType::Float16: return FoldBlocks<F, float, hwy::float16_t, AsIs>::make(lane);
        case DType::BFloat16: return FoldBlocks<F, float, hwy::bfloat16_t, AsIs>::make(lane);
        default: return of_numbers<F>(lane);
    }
}
template <class F>
BlockReducer of_ordered(DType lane) {
    switch (lane) {
        case DType::Int32: return FoldBlocks<F, int32_t, int32_t, AsIs>::make(lane);
        case DType::UInt64: return FoldBlocks<F, uint64_t, uint64_t, AsIs>::make(lane);
        default: return of_stored<F>(lane);
    }
}

BlockReducer find_fold(Fold fold, DType lane) {
    switch (fold) {
        case Fold::Sum: return of_stored<SumFold>(lane);
        case Fold::Product: return of_numbers<ProductFold>(lane);
        case Fold::Largest: return of_ordered<ExtremeFold<true>>(lane);
        default: return of_ordered<ExtremeFold<false>>(lane);
    }
}

struct IsNonzero {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, int64_t) const {
        return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, 1));
    }
};
struct Magnitude {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x, int64_t) const {
        return hn::Abs(x);
    }
};
struct Square {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x, int64_t) const {
        return hn::Mul(x, x);
    }
};
struct Power {
    explicit Power(double exponent) : exponent_(exponent) {}
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x, int64_t) const {
        return pow(d, hn::Abs(x), hn::Set(d, exponent_));
    }

private:
    double exponent_;
};

/// In double, so that squares of what float32 can hold neither overflow nor vanish.
template <class In>
BlockReducer norm_of(NormOf what, DType lane) {
    switch (what) {
        case NormOf::Nonzero: return FoldBlocks<SumFold, double, In, IsNonzero>::make(lane);
        case NormOf::Magnitude: return FoldBlocks<SumFold, double, In, Magnitude>::make(lane);
        case NormOf::Square: return FoldBlocks<SumFold, double, In, Square>::make(lane);
        case NormOf::Power: return FoldBlocks<SumFold, double, In, Power>::make(lane);
        case NormOf::Largest: return FoldBlocks<ExtremeFold<true>, double, In, Magnitude>::make(lane);
        default: return FoldBlocks<ExtremeFold<false>, double, In, Magnitude>::make(lane);
    }
}
BlockReducer find_norm(NormOf what, DType lane) {
    return lane == DType::Float32 ? norm_of<float>(what, lane) : norm_of<double>(what, lane);
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_fold);
HWY_EXPORT(find_norm);

template <class T>
void finish_as_is(const void* partial, int64_t n, int64_t, double, void* const* results) {
    std::memcpy(results[0], partial, static_cast<size_t>(n) * sizeof(T));
}
template <class T>
void finish_mean(const void* partial, int64_t n, int64_t extent, double, void* const* results) {
    const auto* sums = static_cast<const T*>(partial);
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(results[0])[i] = sums[i] / static_cast<T>(extent);
}
void finish_any(const void* partial, int64_t n, int64_t, double, void* const* results) {
    for (int64_t i = 0; i < n; ++i) static_cast<bool*>(results[0])[i] = static_cast<const int64_t*>(partial)[i] > 0;
}
void finish_all(const void* partial, int64_t n, int64_t extent, double, void* const* results) {
    for (int64_t i = 0; i < n; ++i) static_cast<bool*>(results[0])[i] = static_cast<const int64_t*>(partial)[i] == extent;
}
void finish_norm(const void* partial, int64_t n, int64_t, double p, void* const* results) {
    const auto* sums = static_cast<const double*>(partial);
    auto* out = static_cast<double*>(results[0]);
    for (int64_t i = 0; i < n; ++i) out[i] = p == 2 ? std::sqrt(sums[i]) : p == 0 || p == 1 || std::isinf(p) ? sums[i] : std::pow(sums[i], 1 / p);
}

BlockReducer fold_of(Fold fold, DType lane) {
    BlockReducer reducer = HWY_DYNAMIC_DISPATCH(find_fold)(fold, lane);
    reducer.results[0] = lane_of(lane);
    reducer.any_order = fold == Fold::Largest || fold == Fold::Smallest || lane == DType::Int64;
    reducer.finish = size_of(lane_of(lane)) == 4 ? &finish_as_is<uint32_t> : &finish_as_is<uint64_t>;
    return reducer;
}

/// What a sum reads its elements as: narrow floats as they are.
DType added_as(DType in, DType compute) {
    return in == compute && computes(compute) ? compute : sum_lane(compute);
}
DType compared_as(DType in) {
    return computes(in) ? in : order_lane(in);
}

BlockReducer mean_of(DType lane) {
    BlockReducer reducer = fold_of(Fold::Sum, lane);
    reducer.finish = reducer.results[0] == DType::Float32 ? &finish_mean<float> : &finish_mean<double>;
    return reducer;
}

DType added_as(const KernelCall& call) {
    return added_as(dtype_of(call.inputs[0]), static_cast<DType>(call.compute));
}

void sum(const KernelCall& call) {
    reduce_blocks(call, fold_of(Fold::Sum, added_as(call)), attribute::sum_dims);
}
void prod(const KernelCall& call) {
    reduce_blocks(call, fold_of(Fold::Product, sum_lane(static_cast<DType>(call.compute))), attribute::prod_dims);
}

template <Fold F>
void extreme(const KernelCall& call) {
    reduce_blocks(call, fold_of(F, compared_as(dtype_of(call.inputs[0]))), attribute::amax_dims);
}

void mean(const KernelCall& call) {
    reduce_blocks(call, mean_of(added_as(call)), attribute::mean_dims);
}

class FoldPart final : public RowPart {
public:
    FoldPart(const BlockReducer& reducer, int64_t row) noexcept : RowPart(reducer.lane, reducer.results[0]), reducer_(reducer), row_(row) {}
    void run(const void*, const void* x, int64_t, int64_t n, void* to) const override {
        const auto* from = static_cast<const char*>(x);
        auto* result = static_cast<char*>(to);
        for (; n > 0; n -= row_, from += row_ * size_of(in), result += size_of(out)) {
            void* const results[] = {result};
            reduce_row(reducer_, from, row_, results);
        }
    }

private:
    const BlockReducer reducer_;
    const int64_t row_;
};

BlockReducer nonzero_counter() {
    BlockReducer reducer = fold_of(Fold::Sum, DType::Int64);
    reducer.counts_nonzero = true;
    return reducer;
}

void count_nonzero(const KernelCall& call) {
    reduce_blocks(call, nonzero_counter(), attribute::count_nonzero_dims);
}

template <bool All>
void truth(const KernelCall& call) {
    BlockReducer reducer = nonzero_counter();
    reducer.finish = All ? &finish_all : &finish_any;
    reducer.results[0] = DType::Bool;
    reduce_blocks(call, reducer, attribute::any_dims);
}

void norm(const KernelCall& call) {
    const double p = call.attributes->real(attribute::norm_p);
    const NormOf what = p == 0           ? NormOf::Nonzero
                        : p == 1         ? NormOf::Magnitude
                        : p == 2         ? NormOf::Square
                        : !std::isinf(p) ? NormOf::Power
                        : p > 0          ? NormOf::Largest
                                         : NormOf::Smallest;
    BlockReducer reducer = HWY_DYNAMIC_DISPATCH(find_norm)(what, lane_of(static_cast<DType>(call.compute)));
    reducer.parameter = p;
    reducer.finish = &finish_norm;
    reducer.results[0] = DType::Float64;
    reduce_blocks(call, reducer, attribute::norm_dims);
}

}  // namespace

std::unique_ptr<const RowPart> find_fold_part(const FusedPart& part, const View& x, int64_t row) {
    const auto compute = static_cast<DType>(part.compute);
    const DType own = dtype_of(x);
    if (row > kMostRowBlocks * kReduceBlock || !computes(own) || !computes(static_cast<DType>(part.dtype))) return nullptr;
    BlockReducer reducer;
    switch (static_cast<OpCode>(part.op)) {
        case OpCode::Sum: reducer = fold_of(Fold::Sum, added_as(own, compute)); break;
        case OpCode::Mean: reducer = mean_of(added_as(own, compute)); break;
        case OpCode::Amax: reducer = fold_of(Fold::Largest, compared_as(own)); break;
        case OpCode::Amin: reducer = fold_of(Fold::Smallest, compared_as(own)); break;
        default: return nullptr;
    }
    return std::make_unique<FoldPart>(reducer, row);
}

KernelFn kernel_sum(DType t) {
    return if_computed(t, &kernel<sum>);
}
KernelFn kernel_prod(DType t) {
    return if_computed(t, &kernel<prod>);
}
KernelFn kernel_amax(DType t) {
    return if_computed(t, &kernel<extreme<Fold::Largest>>);
}
KernelFn kernel_amin(DType t) {
    return if_computed(t, &kernel<extreme<Fold::Smallest>>);
}
KernelFn kernel_count_nonzero(DType t) {
    return if_computed(t, &kernel<count_nonzero>);
}
KernelFn kernel_any(DType t) {
    return if_computed(t, &kernel<truth<false>>);
}
KernelFn kernel_all(DType t) {
    return if_computed(t, &kernel<truth<true>>);
}
KernelFn kernel_mean(DType t) {
    return if_floats(t, &kernel<mean>);
}
KernelFn kernel_norm(DType t) {
    return if_floats(t, &kernel<norm>);
}

}  // namespace clikart::cpu
#endif
