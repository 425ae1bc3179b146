#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/widening.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/widening.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

/// The compiler makes vectors of the first loop.
template <class From, class To>
void widen(const void* from_bytes, int64_t from_stride, void* to_bytes, int64_t to_stride, int64_t n) {
    const auto* from = static_cast<const From*>(from_bytes);
    auto* to = static_cast<To*>(to_bytes);
    if (from_stride == 1 && to_stride == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
    } else {
        for (int64_t i = 0; i < n; ++i) to[i * to_stride] = static_cast<To>(from[i * from_stride]);
    }
}

/// `Magnitude` takes the sign away, where only bits are looked at.
template <class From, From Magnitude>
void nonzero(const void* from_bytes, int64_t from_stride, void* to_bytes, int64_t to_stride, int64_t n) {
    const auto* from = static_cast<const From*>(from_bytes);
    auto* to = static_cast<int64_t*>(to_bytes);
    if (from_stride == 1 && to_stride == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) to[i] = (from[i] & Magnitude) != 0;
    } else {
        for (int64_t i = 0; i < n; ++i) to[i * to_stride] = (from[i * from_stride] & Magnitude) != 0;
    }
}

ConvertFn find_widen(DType from, DType to) {
    switch (to) {
        case DType::Int32:
            switch (from) {
                case DType::Bool:
                case DType::UInt8: return &widen<uint8_t, int32_t>;
                case DType::UInt16: return &widen<uint16_t, int32_t>;
                case DType::Int8: return &widen<int8_t, int32_t>;
                case DType::Int16: return &widen<int16_t, int32_t>;
                default: return nullptr;
            }
        case DType::Int64:
            switch (from) {
                case DType::Bool: return &nonzero<uint8_t, 0xff>;  // memory that was borrowed may hold more than 0 and 1
                case DType::UInt8: return &widen<uint8_t, int64_t>;
                case DType::UInt16: return &widen<uint16_t, int64_t>;
                case DType::UInt32: return &widen<uint32_t, int64_t>;
                case DType::Int8: return &widen<int8_t, int64_t>;
                case DType::Int16: return &widen<int16_t, int64_t>;
                case DType::Int32: return &widen<int32_t, int64_t>;
                default: return nullptr;
            }
        case DType::Float64: return from == DType::Float32 ? &widen<float, double> : nullptr;
        default: return nullptr;
    }
}

/// By the bits: a float is zero where nothing but its sign is set.
ConvertFn find_nonzero_bits(int64_t bytes, bool is_float) {
    switch (bytes) {
        case 1: return &nonzero<uint8_t, 0xff>;
        case 2: return is_float ? &nonzero<uint16_t, 0x7fff> : &nonzero<uint16_t, 0xffff>;
        case 4: return is_float ? &nonzero<uint32_t, 0x7fffffff> : &nonzero<uint32_t, ~uint32_t{0}>;
        default: return is_float ? &nonzero<uint64_t, ~uint64_t{0} / 2> : &nonzero<uint64_t, ~uint64_t{0}>;
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_widen);
HWY_EXPORT(find_nonzero_bits);

DType order_lane(DType dtype) {
    switch (dtype) {
        case DType::Bool:
        case DType::UInt8:
        case DType::UInt16:
        case DType::Int8:
        case DType::Int16:
        case DType::Int32: return DType::Int32;
        case DType::UInt32: return DType::Int64;
        default: return lane_of(dtype);
    }
}

ConvertFn find_widening(DType from, DType lane) {
    const ConvertFn widen = HWY_DYNAMIC_DISPATCH(find_widen)(from, lane);
    return widen ? widen : find_convert(from, lane);
}

ConvertFn find_nonzero(DType from) {
    return HWY_DYNAMIC_DISPATCH(find_nonzero_bits)(size_of(from), category_of(from) == DTypeCategory::Float);
}

}  // namespace clikart::cpu
#endif
