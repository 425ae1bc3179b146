// Boxes of elements between two strided layouts: how tiles are filled and emptied whatever the layout.
#pragma once

#include "backends/cpu/convert.h"

namespace clikart::cpu {

/// One dimension of a box; strides are in elements.
struct BoxDim {
    int64_t size, from, to;
};

/// Moves a box, converting its elements.  The order is chosen so that memory is read in runs where it can be; a box should
/// be small enough to stay in the second-level cache.  At most kMaxRank + 2 dimensions.
void move_box(std::span<const BoxDim> dims, const void* from, int64_t from_bytes, void* to, int64_t to_bytes, ConvertFn convert);

}  // namespace clikart::cpu
