// Elements of several places put together, channel by channel.
#pragma once

#include "core/dtype.h"

namespace clikart::cpu {

/// What a window's elements become.
enum class WindowFold { Max, Sum };

/// Puts together n contiguous channels of n_places places (at least one), and what is in `result` unless this comes first.
/// Max: NaN where there is one, of equals what came first.
using FoldFn = void (*)(const void* const* places, int64_t n_places, void* result, int64_t n, bool first);
/// For the integers, float32 and float64; sums for floats alone.  Null for others.
FoldFn find_window_fold(WindowFold fold, DType dtype);

/// The largest of `result`, which holds something already, and of what is in the places, and in `which`, of unsigned integers as
/// wide as an element, the number of the place where it was found, all ones where `result` stayed.  The first of equals, the
/// last NaN.
using LargestFn = void (*)(const void* const* places, int64_t n_places, void* result, void* which, int64_t n);
/// For numbers of 32 and 64 bits.  Null for others.
LargestFn find_largest(DType dtype);

/// Divides n elements of float32 or float64.
void divide_by(DType dtype, void* elements, int64_t n, double divisor);

}  // namespace clikart::cpu
