// softmax along rows of one contiguous dimension; other layouts are copied into rows and back.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/tile.h"

#ifndef CLIKART_CPU_SOFTMAX_ONCE
#define CLIKART_CPU_SOFTMAX_ONCE
namespace clikart::cpu {

/// One row of n contiguous elements.
using SoftmaxRow = void (*)(const void* in, void* out, int64_t n);

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kSumBlock = 4096;
constexpr int64_t kSumLanes = 16;  // fixed, so that the sum's order is the same for every instruction set

template <class T>
void softmax_row(const void* in_bytes, void* out_bytes, int64_t n) {
    const hn::CappedTag<T, kSumLanes> d;
    constexpr auto step = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, kSumLanes>()));
    using V = hn::Vec<decltype(d)>;
    const auto* in = static_cast<const T*>(in_bytes);
    auto* out = static_cast<T*>(out_bytes);
    constexpr T lowest = -std::numeric_limits<T>::infinity();

    // Calls f(at, mask, whole) for each vector of [from, to); the mask is full but for the last one of a row.
    const auto full = hn::FirstN(d, static_cast<size_t>(step));
    const auto vectors = [&](int64_t from, int64_t to, auto&& f) {
        for (; from + step <= to; from += step) f(from, full, std::true_type());
        if (from < to) f(from, hn::FirstN(d, static_cast<size_t>(to - from)), std::false_type());
    };
    const V nothing = hn::Set(d, lowest);
    const auto load = [&](int64_t at, auto mask, auto whole) {
        if constexpr (whole) return hn::LoadU(d, in + at);
        return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, in + at), nothing);
    };

    V largest = nothing;  // a NaN may be lost here, but comes back through exp below
    vectors(0, n, [&](int64_t at, auto mask, auto whole) { largest = hn::Max(largest, load(at, mask, whole)); });
    HWY_ALIGN T lanes[kSumLanes] = {};
    hn::Store(largest, d, lanes);
    T top = lowest;
    for (int64_t l = 0; l < step; ++l) top = lanes[l] > top ? lanes[l] : top;

    // In a block, element i adds to lane i mod kSumLanes, and lanes are folded in halves; blocks add up in double.
    const V shift = hn::Set(d, top);
    double sum = 0;
    for (int64_t block = 0; block < n; block += kSumBlock) {
        V sums[kSumLanes / step];
        for (V& s : sums) s = hn::Zero(d);
        vectors(block, std::min(n, block + kSumBlock), [&](int64_t at, auto mask, auto whole) {
            const V e = exp(d, hn::Sub(load(at, mask, whole), shift));
            V& s = sums[at % kSumLanes / step];
            if constexpr (whole) {
                hn::StoreU(e, d, out + at);
                s = hn::Add(s, e);
            } else {
                hn::BlendedStore(e, mask, d, out + at);
                s = hn::Add(s, hn::IfThenElseZero(mask, e));
            }
        });
        for (int64_t v = 0; v < kSumLanes / step; ++v) hn::Store(sums[v], d, lanes + v * step);
        for (int64_t half = kSumLanes / 2; half >= 1; half /= 2) {
            for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
        }
        sum += static_cast<double>(lanes[0]);
    }
    const V total = hn::Set(d, static_cast<T>(sum));
    vectors(0, n, [&](int64_t at, auto mask, auto whole) {
        if constexpr (whole) {
            hn::StoreU(hn::Div(hn::LoadU(d, out + at), total), d, out + at);
        } else {
            hn::BlendedStore(hn::Div(hn::MaskedLoad(mask, d, out + at), total), mask, d, out + at);
        }
    });
}

SoftmaxRow find_softmax(DType t) {
    return t == DType::Float32 ? &softmax_row<float> : t == DType::Float64 ? &softmax_row<double> : nullptr;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_softmax);

void softmax(const KernelCall& call) {
    const View &in = call.inputs[0], &out = call.outputs[0];
    const SoftmaxRow run = HWY_DYNAMIC_DISPATCH(find_softmax)(dtype_of(in));
    const int64_t element = size_of(dtype_of(in));
    int64_t extent = 1, stride_in = 1, stride_out = 1;
    Dims shape = shape_of(out), strides_in = strides_of(in), strides_out = strides_of(out);
    if (in.rank > 0) {
        const int64_t given = call.attributes->integer(attribute::softmax_dim);
        const auto dim = static_cast<int>(given < 0 ? given + in.rank : given);
        extent = shape[dim], stride_in = strides_in[dim], stride_out = strides_out[dim];
        shape.erase(dim), strides_in.erase(dim), strides_out.erase(dim);
    }
    const int64_t rows = numel(shape), per_piece = std::max<int64_t>(1, kPiece / 4 / extent);  // exp is dear
    parallel_for(call, (rows + per_piece - 1) / per_piece, [&](int64_t piece) {
        const Scratch tile(static_cast<size_t>(stride_in == 1 && stride_out == 1 ? 1 : extent * element));
        for (int64_t r = piece * per_piece; r < std::min(rows, (piece + 1) * per_piece); ++r) {
            int64_t rest = r, at_in = 0, at_out = 0;
            for (int d = shape.rank() - 1; d >= 0; --d) {
                at_in += rest % shape[d] * strides_in[d];
                at_out += rest % shape[d] * strides_out[d];
                rest /= shape[d];
            }
            const char* from = static_cast<const char*>(in.data) + at_in * element;
            char* to = static_cast<char*>(out.data) + at_out * element;
            if (stride_in == 1 && stride_out == 1) {
                run(from, to, extent);
            } else {
                gather(from, stride_in, tile.as<char>(), extent, element);
                run(tile.as<char>(), tile.as<char>(), extent);
                scatter(tile.as<char>(), to, stride_out, extent, element);
            }
        }
    });
}

}  // namespace

KernelFn kernel_softmax(DType t) {
    return HWY_DYNAMIC_DISPATCH(find_softmax)(t) ? &kernel<softmax> : nullptr;
}

}  // namespace clikart::cpu
#endif
