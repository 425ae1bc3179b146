// What composites that compute in floats share.
#pragma once

#include "ops/op_calls.h"

namespace clikart {

/// Throws under the operator's name: TypeError for anything but floats, NotImplementedError for those that are only stored.
inline void require_floats(const OpCall& call, DType t) {
    if (category_of(t) != DTypeCategory::Float) fail(ErrorKind::Type, "{}: needs a floating-point tensor, got {}", call.info.name, name_of(t));
    if (!computes(t)) fail(ErrorKind::NotImplemented, "op '{}' has no {} kernel on cpu", call.info.name, name_of(t));
}

/// What several operators in a row compute in, so that they round once: float32 for float16 and bfloat16.
inline DType wide_of(DType t) {
    return t == DType::Float16 || t == DType::BFloat16 ? DType::Float32 : t;
}

/// The tensor in another dtype; itself where that is its own.
inline Ref<Tensor> in(Tensor& x, DType t) {
    return x.dtype() == t && !x.weak ? Ref<Tensor>::share(&x) : op::cast(x, t);
}

}  // namespace clikart
