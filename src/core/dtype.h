// Element types: what the generated table (from dtypes.toml) says, and how a host value becomes an element.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype_enum.h"

namespace clikart {

/// The first axis of type promotion: a float beats an integer beats a bool.
enum class DTypeCategory : uint8_t { Bool, Int, Float };

struct DTypeInfo {
    std::string_view name;
    int32_t bits;
    DTypeCategory category;
    std::string_view safetensors;
};

/// Bytes of the widest element there is.
inline constexpr size_t kWidestElement = 8;

/// Throws TypeError for a code that is not in the table.
const DTypeInfo& dtype_info(DType dtype);
inline int64_t size_of(DType dtype) {
    return dtype_info(dtype).bits / 8;
}
inline std::string_view name_of(DType dtype) {
    return dtype_info(dtype).name;
}
inline DTypeCategory category_of(DType dtype) {
    return dtype_info(dtype).category;
}

/// torch's promotion of two dtypes of equal standing.  Throws TypeError where torch has none (uint16..uint64 with others).
DType promote(DType a, DType b);

/// Calls f.operator()<T>() with the C++ type of `dtype` and returns true; false when kernels have no such type.
template <class F>
bool with_type(DType dtype, F&& f) {
    switch (dtype) {
        case DType::Bool: f.template operator()<bool>(); return true;
        case DType::Int32: f.template operator()<int32_t>(); return true;
        case DType::Int64: f.template operator()<int64_t>(); return true;
        case DType::Float32: f.template operator()<float>(); return true;
        case DType::Float64: f.template operator()<double>(); return true;
        default: return false;
    }
}

}  // namespace clikart
