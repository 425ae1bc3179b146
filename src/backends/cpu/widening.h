// Elements on their way into tiles of lanes: the few types that reductions and scans compute in.
#pragma once

#include "backends/cpu/convert.h"

namespace clikart::cpu {

/// The lanes that elements add up or multiply in for a result of a dtype: floats as float32 or float64, integers and bools
/// as int64, whose lower bits are those of every narrower sum.
inline DType sum_lane(DType result) {
    return category_of(result) == DTypeCategory::Float ? lane_of(result) : DType::Int64;
}

/// The lanes in which elements of a dtype keep their order.
DType order_lane(DType dtype);

/// find_convert, with vector instructions where integers and bools are widened or float32 becomes float64.
ConvertFn find_widening(DType from, DType lane);

/// To int64: 1 for what is not zero, NaN among it, else 0.
ConvertFn find_nonzero(DType from);

}  // namespace clikart::cpu
