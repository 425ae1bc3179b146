// The inner kernel keeps the sums of kLeft x kRight pairs of rows in registers, each a vector along the sum.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/row_products.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "backends/cpu/row_products.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// As many pairs as the registers hold beside the vectors of the left rows and one of the right ones, which stay in the first-level
/// cache while all left rows come by.
constexpr int kLeft = HWY_TARGET == HWY_AVX3 ? 6 : 3;
constexpr int kRight = 4;
static_assert(kRowsAbreast % kRight == 0);

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));

#if HWY_TARGET != HWY_SCALAR
/// The sum of a vector's blocks of four.
template <class B>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sum_of_blocks(B d, hn::Vec<B> v) {
    if constexpr (hn::MaxLanes(B()) == 4) {
        return v;
    } else {
        const hn::Half<B> half;
        return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
    }
}

/// The sums of four vectors' lanes, side by side.
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sums_of_lanes(V a, V b, V c, V e) {
    const D d;
    const hn::Repartition<double, D> pairs;
    const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
    const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
    const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
    return sum_of_blocks(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)));
}
#endif

/// Else the compiler loads what is used several times once for each use: more loads than the processor has room for beside its sums.
HWY_INLINE void keep_in_register([[maybe_unused]] V& v) {
#if HWY_TARGET == HWY_AVX3
    asm("" : "+v"(v.raw));
#elif HWY_TARGET == HWY_AVX2
    asm("" : "+x"(v.raw));
#endif
}

/// R left rows and C right rows over one stretch, added to the results from `column` on.  `ahead` is a row that will be read next, asked for meanwhile.
template <int R, int C>
void multiply_rows(const float* const* left, int64_t left_at, const float* HWY_RESTRICT right, int64_t right_row, int64_t length, float* const* out,
                   int64_t column, const float* ahead) {
    const D d;
    const float* rows[R];
    V sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        rows[r] = left[r] + left_at;
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sums[r][c] = hn::Zero(d);
    }
    const auto step = [&](auto&& load) HWY_ATTR {
        V factors[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) factors[r] = load(rows[r]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
            V by = load(right + c * right_row);
            keep_in_register(by);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][c] = hn::MulAdd(factors[r], by, sums[r][c]);
        }
    };
    int64_t p = 0;
    for (; p + kLanes <= length; p += kLanes) {
        __builtin_prefetch(ahead + p, 0, 2);
        step([&](const float* from) HWY_ATTR { return hn::LoadU(d, from + p); });
    }
    if (p < length) {
        const auto rest = hn::FirstN(d, static_cast<size_t>(length - p));
        step([&](const float* from) HWY_ATTR { return hn::MaskedLoad(rest, d, from + p); });
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        float* const to = out[r] + column;
#if HWY_TARGET != HWY_SCALAR
        if constexpr (C % 4 == 0) {
            const hn::FixedTag<float, 4> four;
#pragma GCC unroll 2
            for (int c = 0; c < C; c += 4) {
                const auto sum = sums_of_lanes(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]);
                hn::StoreU(hn::Add(hn::LoadU(four, to + c), sum), four, to + c);
            }
            continue;
        }
#endif
        for (int c = 0; c < C; ++c) {
            to[c] += hn::GetLane(hn::SumOfLanes(d, sums[r][c]));
        }
    }
}

using TileFn = void (*)(const float* const*, int64_t, const float*, int64_t, int64_t, float* const*, int64_t, const float*);

template <int C, int... R>
TileFn tile_of(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr TileFn kernels[] = {&multiply_rows<R + 1, C>...};
    return kernels[rows - 1];
}

template <int C>
void multiply_columns(const RowProducts& p, int64_t column) {
    const float* const right = p.right + column * p.right_row;
    for (int64_t i = 0; i < p.m; ++i) std::fill_n(p.out[i] + p.first + column, C, 0.0f);
    for (int64_t s = 0; s < p.n_stretches; ++s) {
        const Stretch& now = p.stretches[s];
        const float* const from = right + now.right;
        const float* const next = right + (now.ahead == kNextRows ? C * p.right_row + p.stretches[0].right : now.ahead);
        const int64_t tiles = ceil_div(now.end - now.begin, kLeft);
        for (int64_t t = 0, i = now.begin; t < tiles; ++t) {  // of as equal heights as can be
            const int64_t height = ceil_div(now.end - i, tiles - t);
            tile_of<C>(height, std::make_integer_sequence<int, kLeft>())(p.left + i, now.left, from, p.right_row, now.length, p.out + i, p.first + column,
                                                                         t < C ? next + t * p.right_row : from);
            i += height;
        }
    }
}

void multiply_rows(const RowProducts& p) {
    int64_t j = 0;
    for (; j + kRight <= p.n; j += kRight) multiply_columns<kRight>(p, j);
    for (; j < p.n; ++j) multiply_columns<1>(p, j);
}

RowProductsFn find_kernel() {
    return &multiply_rows;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_kernel);

}  // namespace

RowProductsFn find_row_products() {
    return HWY_DYNAMIC_DISPATCH(find_kernel)();
}

}  // namespace clikart::cpu
#endif
