// dtype rules of reductions and scans.  Their kernels convert in tiles, so inputs are seldom cast.
#include "ops/rules.h"

namespace clikart {
DTypes dtype_sum(const OpCall& call) {
    const DType t = own_dtype(*call.inputs[0]);
    const DType result = category_of(t) == DTypeCategory::Float ? t : DType::Int64;
    return {result, result, DType::Unspecified, 0};
}

DTypes dtype_sum_given(const OpCall& call) {
    if (call.attributes.integer(call.attributes.count - 1) == 0) return dtype_sum(call);
    DTypes types = dtype_given(call);
    // The lanes that kernels convert to have these dtypes; to any other, elements are cast before they are added.
    const bool is_lane = types.result == DType::Float32 || types.result == DType::Float64 || types.result == DType::Int64;
    types.cast = is_lane ? 0 : ~uint32_t{0};
    return types;
}

DTypes dtype_reduce_float(const OpCall& call) {
    const DType t = own_dtype(*call.inputs[0]);
    const DType result = category_of(t) == DTypeCategory::Float ? t : DType::Float32;
    return {result, result, DType::Unspecified, 0};
}

DTypes dtype_with_index(const OpCall& call) {
    const DType t = own_dtype(*call.inputs[0]);
    return {t, t, DType::Int64};
}

}  // namespace clikart
