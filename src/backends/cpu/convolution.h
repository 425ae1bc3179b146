// A convolution's numbers, and what computes one.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// Three spatial dimensions; what has fewer has leading ones of size 1.  `low` and `high` are the zeros around the input, or,
/// of a transposed convolution, what is cut off its result.  `high` follows from the rest and may be negative: elements that no
/// window reaches, or more result at the end.
struct ConvolutionShape {
    int64_t batch, groups, in_channels, out_channels;
    int64_t in[3], kernel[3], out[3], stride[3], dilation[3], low[3], high[3];
    int64_t transposed, bias;  // whether it is, and has one

    int64_t reach(int d) const noexcept { return (kernel[d] - 1) * dilation[d] + 1; }
    int64_t taps() const noexcept { return kernel[0] * kernel[1] * kernel[2]; }
    int64_t in_places() const noexcept { return in[0] * in[1] * in[2]; }
    int64_t out_places() const noexcept { return out[0] * out[1] * out[2]; }
    int64_t in_group() const noexcept { return in_channels / groups; }
    int64_t out_group() const noexcept { return out_channels / groups; }
    /// What padding has to be at the end of dimension `d` for all else to come out.
    int64_t high_of(int d) const noexcept {
        return transposed ? (in[d] - 1) * stride[d] + reach(d) - low[d] - out[d] : (out[d] - 1) * stride[d] + reach(d) - in[d] - low[d];
    }
    /// Multiplications.
    double products() const noexcept {
        return static_cast<double>(batch) * static_cast<double>(transposed ? in_places() : out_places()) * static_cast<double>(taps()) *
               static_cast<double>(in_group()) * static_cast<double>(out_channels);
    }
    friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

/// Places in memory and strides in elements: batch, three spatial dimensions, channels; or, of weights, first channels, the
/// kernel's three, last channels.
struct ConvolutionOperand {
    void* data;
    int64_t strides[5];
};

/// float32 or float64, any strides, one result after the other.  `bias` is contiguous or null, the result contiguous.
void convolve_directly(const KernelCall& call, DType dtype, const ConvolutionShape& shape, const ConvolutionOperand& x, const ConvolutionOperand& weight,
                       const void* bias, void* out);

}  // namespace clikart::cpu
