#include "core/dtype.h"

#include "base/error.h"
#include "core/dtype_table.h"

namespace clikart {

const DTypeInfo& dtype_info(DType dtype) {
    const auto code = static_cast<size_t>(dtype);
    if (code == 0 || code >= std::size(dtype_table)) fail(ErrorKind::Type, "dtype: {} is not the code of a dtype", static_cast<int>(dtype));
    return dtype_table[code];
}

DType dtype_named(std::string_view name) {
    for (size_t code = 1; code < std::size(dtype_table); ++code) {
        if (dtype_table[code].name == name) return static_cast<DType>(code);
    }
    return DType::Unspecified;
}

DType promote(DType a, DType b) {
    if (a == b) return a;
    const DTypeCategory ca = category_of(a), cb = category_of(b);
    if (is_packed(a) || is_packed(b) || is_complex(a) || is_complex(b)) return DType::Unspecified;
    if (ca != cb) return ca < cb ? b : a;
    if (ca == DTypeCategory::Float) {
        if (size_of(a) == 1 || size_of(b) == 1) return DType::Unspecified;
        if (size_of(a) == size_of(b)) return DType::Float32;  // float16 with bfloat16
        return size_of(a) < size_of(b) ? b : a;
    }
    const auto is_signed = [](DType t) { return t >= DType::Int8 && t <= DType::Int64; };
    if (is_signed(a) == is_signed(b)) {
        if (is_signed(a)) return size_of(a) < size_of(b) ? b : a;
    } else {
        const DType u = is_signed(a) ? b : a, s = is_signed(a) ? a : b;
        if (u == DType::UInt8) return s == DType::Int8 ? DType::Int16 : s;
    }
    return DType::Unspecified;
}

}  // namespace clikart
