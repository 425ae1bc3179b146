// Element types: what the generated table (from dtypes.toml) says, and how a host value becomes an element.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype_enum.h"
#include "core/narrow_float.h"

namespace clikart {

/// The first axis of type promotion: a float beats an integer beats a bool.
enum class DTypeCategory : uint8_t { Bool, Int, Float, Complex };

struct DTypeInfo {
    std::string_view name;
    int32_t bits;
    DTypeCategory category;
    std::string_view safetensors;
};

/// Bytes of the widest element that kernels compute with, and the alignment that every element can do with.
inline constexpr size_t kWidestElement = 8;

/// Throws TypeError for a code that is not in the table.
const DTypeInfo& dtype_info(DType dtype);
/// Bytes of one element; 0 for those that share one (is_packed).
inline int64_t size_of(DType dtype) {
    return dtype_info(dtype).bits / 8;
}
/// Bytes of `count` elements in order.
inline int64_t bytes_of(DType dtype, int64_t count) {
    const int64_t bits = dtype_info(dtype).bits;
    return bits >= 8 ? count * (bits / 8) : count / 2 + count % 2;
}
inline DTypeCategory category_of(DType dtype) {
    return dtype_info(dtype).category;
}
/// int4 and uint4: two elements in a byte, the first in the lower half.  They are stored, cast and copied, all elements of a
/// tensor in order; nothing else.
inline bool is_packed(DType dtype) {
    return dtype_info(dtype).bits < 8;
}
/// complex64 and complex128: two floats.  They are stored, viewed, copied and exchanged; nothing computes in them.
inline bool is_complex(DType dtype) {
    return category_of(dtype) == DTypeCategory::Complex;
}
inline std::string_view name_of(DType dtype) {
    return dtype_info(dtype).name;
}

/// The dtype of this name; Unspecified where there is none.
DType dtype_named(std::string_view name);

/// torch's promotion of two dtypes of equal standing; Unspecified where torch has none (uint16..uint64 with others).
DType promote(DType a, DType b);

/// Calls f.operator()<T>() with the C++ type of `dtype` and returns true; false where C++ has none to compute with: for floats
/// narrower than float.
template <class F>
bool with_type(DType dtype, F&& f) {
    switch (dtype) {
        case DType::Bool: f.template operator()<bool>(); return true;
        case DType::UInt8: f.template operator()<uint8_t>(); return true;
        case DType::UInt16: f.template operator()<uint16_t>(); return true;
        case DType::UInt32: f.template operator()<uint32_t>(); return true;
        case DType::UInt64: f.template operator()<uint64_t>(); return true;
        case DType::Int8: f.template operator()<int8_t>(); return true;
        case DType::Int16: f.template operator()<int16_t>(); return true;
        case DType::Int32: f.template operator()<int32_t>(); return true;
        case DType::Int64: f.template operator()<int64_t>(); return true;
        case DType::Float32: f.template operator()<float>(); return true;
        case DType::Float64: f.template operator()<double>(); return true;
        default: return false;
    }
}

/// The same with every type that holds an element; false for packed and complex ones, of which none does.
template <class F>
bool with_stored_type(DType dtype, F&& f) {
    if (with_type(dtype, f)) return true;
    switch (dtype) {
        case DType::Float16: f.template operator()<Half>(); return true;
        case DType::BFloat16: f.template operator()<BFloat16>(); return true;
        case DType::Float8E4M3: f.template operator()<Float8E4M3>(); return true;
        case DType::Float8E5M2: f.template operator()<Float8E5M2>(); return true;
        default: return false;
    }
}

/// float16, bfloat16, float32 or float64: what operators compute with, float16 and bfloat16 as float32.
inline bool computes(DType dtype) {
    return category_of(dtype) == DTypeCategory::Float && dtype_info(dtype).bits >= 16;
}
inline bool is_integer(DType dtype) {
    return category_of(dtype) == DTypeCategory::Int && !is_packed(dtype);
}

}  // namespace clikart
