// Convolutions of any geometry and layout: for each result the products of the places of its window that are inside the input.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/direct_convolution.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/convolution.h"

#ifndef CLIKART_CPU_DIRECT_CONVOLUTION_ONCE
#define CLIKART_CPU_DIRECT_CONVOLUTION_ONCE
namespace clikart::cpu {

/// One place of a window: elements from the operands' first ones.
struct Tap {
    int64_t x, weight;
};

/// The results of one place and one group: n output channels, each the sum over taps and `channels` input channels.
struct DirectResult {
    const void *x, *weight, *bias;  // bias: null for none
    void* out;
    int64_t n, channels, x_stride, weight_stride;  // steps from one input channel to the next; output channels are adjacent
    const Tap* taps;
    int64_t n_taps;
};
using DirectFn = void (*)(const DirectResult& r);

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// `Vectors` vectors of results from `first` on.
template <int Vectors, class D>
void direct_block(D d, const DirectResult& r, int64_t first) {
    using T = hn::TFromD<D>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<D> sums[Vectors];
    for (int v = 0; v < Vectors; ++v) sums[v] = r.bias ? hn::LoadU(d, static_cast<const T*>(r.bias) + first + v * lanes) : hn::Zero(d);
    for (int64_t t = 0; t < r.n_taps; ++t) {
        const T* x = static_cast<const T*>(r.x) + r.taps[t].x;
        const T* weight = static_cast<const T*>(r.weight) + r.taps[t].weight + first;
        for (int64_t c = 0; c < r.channels; ++c, x += r.x_stride, weight += r.weight_stride) {
            const auto factor = hn::Set(d, *x);
            for (int v = 0; v < Vectors; ++v) sums[v] = hn::MulAdd(factor, hn::LoadU(d, weight + v * lanes), sums[v]);
        }
    }
    for (int v = 0; v < Vectors; ++v) hn::StoreU(sums[v], d, static_cast<T*>(r.out) + first + v * lanes);
}

template <class T>
void direct_result(const DirectResult& r) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> one;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t at = 0;
    for (; at + 8 * lanes <= r.n; at += 8 * lanes) direct_block<8>(d, r, at);
    for (; at + lanes <= r.n; at += lanes) direct_block<1>(d, r, at);
    for (; at < r.n; ++at) direct_block<1>(one, r, at);
}

DirectFn find_direct(DType dtype) {
    return dtype == DType::Float64 ? &direct_result<double> : &direct_result<float>;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_direct);

/// Weights as [group, tap, input channel, output channel], in which output channels are adjacent.
template <class T>
void arrange(const KernelCall& call, const ConvolutionShape& s, const ConvolutionOperand& weight, T* to) {
    const int64_t from_n = s.in_group(), to_n = s.out_group(), taps = s.taps();
    // Of the weights' first and last dimension one has the channels of all groups.
    const int64_t in_step = weight.strides[s.transposed ? 0 : 4], out_step = weight.strides[s.transposed ? 4 : 0];
    const int64_t group_step = s.transposed ? in_step * from_n : out_step * to_n;
    parallel_for(call, s.groups * taps, [&](int64_t at) {
        const int64_t group = at / taps, tap = at % taps;
        const int64_t k[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
        const T* from =
            static_cast<const T*>(weight.data) + group * group_step + k[0] * weight.strides[1] + k[1] * weight.strides[2] + k[2] * weight.strides[3];
        T* line = to + at * from_n * to_n;
        for (int64_t i = 0; i < from_n; ++i) {
            for (int64_t o = 0; o < to_n; ++o) *line++ = from[i * in_step + o * out_step];
        }
    });
}

/// The place of the input that result `at` takes from tap `k` of dimension `d`, or -1.
int64_t place_of(const ConvolutionShape& s, int d, int64_t at, int64_t k) noexcept {
    if (s.transposed) {
        const int64_t distance = at + s.low[d] - k * s.dilation[d];
        return distance >= 0 && distance % s.stride[d] == 0 && distance / s.stride[d] < s.in[d] ? distance / s.stride[d] : -1;
    }
    const int64_t place = at * s.stride[d] - s.low[d] + k * s.dilation[d];
    return place >= 0 && place < s.in[d] ? place : -1;
}

}  // namespace

void convolve_directly(const KernelCall& call, DType dtype, const ConvolutionShape& s, const ConvolutionOperand& x, const ConvolutionOperand& weight,
                       const void* bias, void* out) {
    const DirectFn run = HWY_DYNAMIC_DISPATCH(find_direct)(dtype);
    const int64_t size = size_of(dtype), taps = s.taps(), from_n = s.in_group(), to_n = s.out_group();
    const Scratch arranged(static_cast<size_t>(std::max<int64_t>(1, s.groups * taps * from_n * to_n) * size));
    if (dtype == DType::Float64) {
        arrange(call, s, weight, arranged.as<double>());
    } else {
        arrange(call, s, weight, arranged.as<float>());
    }
    constexpr double kProducts = 1 << 20;  // of one piece
    const double each = s.products() / static_cast<double>(s.batch * s.out_places());
    const auto per_piece = static_cast<int64_t>(std::max(1.0, kProducts / std::max(each, 1.0)));
    const int64_t results = s.batch * s.out_places();
    parallel_for(call, (results + per_piece - 1) / per_piece, [&](int64_t piece) {
        const Scratch list(static_cast<size_t>(taps) * sizeof(Tap));
        for (int64_t result = piece * per_piece; result < std::min(results, (piece + 1) * per_piece); ++result) {
            const int64_t place = result % s.out_places();
            const int64_t at[3] = {place / (s.out[1] * s.out[2]), place / s.out[2] % s.out[1], place % s.out[2]};
            int64_t n = 0;
            for (int64_t a = 0; a < s.kernel[0]; ++a) {
                const int64_t i = place_of(s, 0, at[0], a);
                if (i < 0) continue;
                for (int64_t b = 0; b < s.kernel[1]; ++b) {
                    const int64_t j = place_of(s, 1, at[1], b);
                    if (j < 0) continue;
                    for (int64_t c = 0; c < s.kernel[2]; ++c) {
                        const int64_t k = place_of(s, 2, at[2], c);
                        if (k < 0) continue;
                        list.as<Tap>()[n++] = {i * x.strides[1] + j * x.strides[2] + k * x.strides[3],
                                               ((a * s.kernel[1] + b) * s.kernel[2] + c) * from_n * to_n};
                    }
                }
            }
            const char* image = static_cast<const char*>(x.data) + result / s.out_places() * x.strides[0] * size;
            for (int64_t group = 0; group < s.groups; ++group) {
                run({image + group * from_n * x.strides[4] * size, arranged.as<char>() + group * taps * from_n * to_n * size,
                     bias ? static_cast<const char*>(bias) + group * to_n * size : nullptr,
                     static_cast<char*>(out) + (result * s.out_channels + group * to_n) * size, to_n, from_n, x.strides[4], to_n, list.as<Tap>(), n});
            }
        }
    });
}

}  // namespace clikart::cpu
#endif
