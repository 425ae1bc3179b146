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

constexpr int64_t kSumLanes = 16;  // fixed, so that the sum's order is the same for every instruction set

template <class T>
void softmax_row(const void* in_bytes, void* out_bytes, int64_t n) {
    const hn::CappedTag<T, kSumLanes> d;
    constexpr auto step = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, kSumLanes>()));
    using V = hn::Vec<decltype(d)>;
    const auto* in = static_cast<const T*>(in_bytes);
    auto* out = static_cast<T*>(out_bytes);
    constexpr T lowest = -std::numeric_limits<T>::infinity();

    V largest = hn::Set(d, lowest);  // a NaN may be lost here, but comes back through exp below
    int64_t i = 0;
    for (; i + step <= n; i += step) largest = hn::Max(largest, hn::LoadU(d, in + i));
    HWY_ALIGN T lanes[kSumLanes];
    hn::Store(largest, d, lanes);
    T top = lowest;
    for (int64_t l = 0; l < step; ++l) top = lanes[l] > top ? lanes[l] : top;
    for (int64_t j = i; j < n; ++j) top = in[j] > top ? in[j] : top;

    const V shift = hn::Set(d, top);
    V sums[kSumLanes / step];
    for (V& s : sums) s = hn::Zero(d);
    HWY_ALIGN T rest[kSumLanes];
    for (i = 0; i < n; i += kSumLanes) {
        if (i + kSumLanes <= n) {
            for (int64_t v = 0; v < kSumLanes / step; ++v) {
                const V e = exp(d, hn::Sub(hn::LoadU(d, in + i + v * step), shift));
                hn::StoreU(e, d, out + i + v * step);
                sums[v] = hn::Add(sums[v], e);
            }
        } else {
            std::fill(rest, rest + kSumLanes, lowest);
            std::memcpy(rest, in + i, static_cast<size_t>(n - i) * sizeof(T));
            for (int64_t v = 0; v < kSumLanes / step; ++v) hn::Store(exp(d, hn::Sub(hn::Load(d, rest + v * step), shift)), d, rest + v * step);
            std::fill(rest + (n - i), rest + kSumLanes, T(0));
            std::memcpy(out + i, rest, static_cast<size_t>(n - i) * sizeof(T));
            for (int64_t v = 0; v < kSumLanes / step; ++v) sums[v] = hn::Add(sums[v], hn::Load(d, rest + v * step));
        }
    }
    for (int64_t v = 0; v < kSumLanes / step; ++v) hn::Store(sums[v], d, lanes + v * step);
    for (int64_t half = kSumLanes / 2; half >= 1; half /= 2) {
        for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    const V total = hn::Set(d, lanes[0]);
    for (i = 0; i + step <= n; i += step) hn::StoreU(hn::Div(hn::LoadU(d, out + i), total), d, out + i);
    for (; i < n; ++i) out[i] /= lanes[0];
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
