// Runs of elements from one dtype to another.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// n elements, `stride` elements apart on each side.  Where both are contiguous the places may be the same if the result's
/// elements are not wider.
using ConvertFn = void (*)(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n);

/// Converts as core/convert.h says; never null.  Between equal dtypes it copies.
ConvertFn find_convert(DType from, DType to);

/// What elements of a dtype are computed as: float32 for the narrower floats, else the dtype itself.
inline DType lane_of(DType dtype) noexcept {
    return dtype == DType::Float16 || dtype == DType::BFloat16 ? DType::Float32 : dtype;
}

}  // namespace clikart::cpu
