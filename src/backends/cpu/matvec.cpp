#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matvec.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/matvec.h"

#ifndef CLIKART_CPU_MATVEC_ONCE
#define CLIKART_CPU_MATVEC_ONCE
namespace clikart::cpu {

struct VectorKernels {
    VectorFn dots = nullptr, sums = nullptr;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// A vector of computed elements from stored ones.
template <class D, class S>
HWY_INLINE hn::Vec<D> load(D d, const S* from) {
    if constexpr (is_narrow_float<S>) {
        using Stored = std::conditional_t<std::is_same_v<S, Half>, hwy::float16_t, hwy::bfloat16_t>;
        const hn::Rebind<Stored, D> narrow;
        return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const Stored*>(from)));
    } else {
        return hn::LoadU(d, from);
    }
}

/// The same, with what comes 2 KiB later on its way: the processor's own prefetching ends with every page.
template <class D, class S>
HWY_INLINE hn::Vec<D> stream(D d, const S* from) {
    constexpr int64_t ahead = 2048 / static_cast<int64_t>(sizeof(S));
    hwy::Prefetch(from + ahead);
    return load(d, from);
}

/// R rows of M and X vectors at a time: several streams come from memory at once, and what is loaded is used more than once.
/// At least eight sums are under way, which hides the additions' latency.
template <class S, int R, int X>
void dot_rows(const S* m, int64_t distance, const typename Wide<S>::type* x, int64_t x_distance, int64_t k, typename Wide<S>::type* y, int64_t y_distance) {
    using T = typename Wide<S>::type;
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    constexpr auto lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
    constexpr int steps = X == 1 ? 2 : 1;
    V sums[R][X][steps];
    for (auto& row : sums) {
        for (auto& pair : row) {
            for (V& sum : pair) sum = hn::Zero(d);
        }
    }
    int64_t p = 0;
    for (; p + steps * lanes <= k; p += steps * lanes) {
#pragma GCC unroll 2
        for (int s = 0; s < steps; ++s) {
            const int64_t at = p + s * lanes;
            V factors[X];
#pragma GCC unroll 4
            for (int v = 0; v < X; ++v) factors[v] = hn::LoadU(d, x + v * x_distance + at);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const V row = stream(d, m + r * distance + at);
#pragma GCC unroll 4
                for (int v = 0; v < X; ++v) sums[r][v][s] = hn::MulAdd(row, factors[v], sums[r][v][s]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int v = 0; v < X; ++v) {
            T sum = hn::GetLane(hn::SumOfLanes(d, steps == 2 ? hn::Add(sums[r][v][0], sums[r][v][steps - 1]) : sums[r][v][0]));
            for (int64_t q = p; q < k; ++q) sum += static_cast<T>(m[r * distance + q]) * x[v * x_distance + q];
            y[v * y_distance + r] = sum;
        }
    }
}

template <class S, int R>
void dot_rows(const VectorBlock& block, int64_t row) {
    using T = typename Wide<S>::type;
    const S* const m = static_cast<const S*>(block.matrix) + row * block.distance;
    for (int64_t v = 0; v < block.vectors; v += 4) {
        const T* const x = static_cast<const T*>(block.x) + v * block.x_distance;
        T* const y = static_cast<T*>(block.y) + v * block.y_distance + row;
        switch (block.vectors - v) {
            case 1: dot_rows<S, R, 1>(m, block.distance, x, block.x_distance, block.k, y, block.y_distance); break;
            case 2: dot_rows<S, R, 2>(m, block.distance, x, block.x_distance, block.k, y, block.y_distance); break;
            case 3: dot_rows<S, R, 3>(m, block.distance, x, block.x_distance, block.k, y, block.y_distance); break;
            default: dot_rows<S, R, 4>(m, block.distance, x, block.x_distance, block.k, y, block.y_distance); break;
        }
    }
}

template <class S>
void dots(const VectorBlock& block) {
    int64_t i = 0;
    for (; i + 4 <= block.n; i += 4) dot_rows<S, 4>(block, i);
    for (; i < block.n; ++i) dot_rows<S, 1>(block, i);
}

/// y = or += the R columns at m, scaled.
template <class S, int R>
void add_columns(const S* m, int64_t distance, const typename Wide<S>::type* x, typename Wide<S>::type* y, int64_t n, bool set) {
    using T = typename Wide<S>::type;
    const hn::ScalableTag<T> d;
    constexpr auto lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
    hn::Vec<decltype(d)> factors[R];
    for (int r = 0; r < R; ++r) factors[r] = hn::Set(d, x[r]);
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
        auto sum = set ? hn::Zero(d) : hn::LoadU(d, y + j);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum = hn::MulAdd(stream(d, m + r * distance + j), factors[r], sum);
        hn::StoreU(sum, d, y + j);
    }
    for (; j < n; ++j) {
        T sum = set ? T(0) : y[j];
        for (int r = 0; r < R; ++r) sum += static_cast<T>(m[r * distance + j]) * x[r];
        y[j] = sum;
    }
}

template <class S>
void sums(const VectorBlock& block) {
    using T = typename Wide<S>::type;
    const auto* m = static_cast<const S*>(block.matrix);
    const auto* x = static_cast<const T*>(block.x);
    auto* y = static_cast<T*>(block.y);
    int64_t p = 0;
    for (; p + 8 <= block.k; p += 8) add_columns<S, 8>(m + p * block.distance, block.distance, x + p, y, block.n, p == 0);
    for (; p < block.k; ++p) add_columns<S, 1>(m + p * block.distance, block.distance, x + p, y, block.n, p == 0);
}

VectorKernels find_vector_kernels(DType stored) {
    switch (stored) {
        case DType::Float16: return {&dots<Half>, &sums<Half>};
        case DType::BFloat16: return {&dots<BFloat16>, &sums<BFloat16>};
        case DType::Float32: return {&dots<float>, &sums<float>};
        case DType::Float64: return {&dots<double>, &sums<double>};
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_vector_kernels);

}  // namespace

VectorFn find_dots(DType stored) {
    return HWY_DYNAMIC_DISPATCH(find_vector_kernels)(stored).dots;
}

VectorFn find_sums(DType stored) {
    return HWY_DYNAMIC_DISPATCH(find_vector_kernels)(stored).sums;
}

}  // namespace clikart::cpu
#endif
