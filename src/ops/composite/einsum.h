// Sums of products in index notation.
#pragma once

#include <span>
#include <string_view>

#include "core/tensor.h"

namespace clikart {

/// "ij,jk->ik": letters are dimensions, those that the result does not name are summed over.  As torch.einsum, with one dtype
/// for all operands; contracted from left to right.  Throws ValueError for an equation that cannot be read or does not fit the
/// shapes, TypeError for numbers, mixed dtypes, and bools where something is summed or multiplied.
Ref<Tensor> einsum(std::string_view equation, std::span<Tensor* const> operands);

}  // namespace clikart
