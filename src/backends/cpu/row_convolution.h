// Convolutions as products of rows.
#pragma once

#include "backends/cpu/convolution.h"

namespace clikart::cpu {

/// Few results of many weights: bringing those into another layout would take longer than the products, which read them as
/// they are.
bool suits_rows(const ConvolutionShape& shape) noexcept;

/// float32, all operands contiguous, weights as [out channel, kernel, in channel]; `bias` may be null.  For what suits_rows().
void convolve_by_rows(const KernelCall& call, const ConvolutionShape& shape, const float* x, const float* weight, const float* bias, float* out);

}  // namespace clikart::cpu
