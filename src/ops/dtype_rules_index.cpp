// Dtypes of operators that sort, search, and go by places.
#include "ops/rules.h"

namespace clikart {
namespace {

void require_integers(const OpCall& call, const Tensor& t) {
    if (!is_integer(t.dtype())) fail(ErrorKind::Type, "{}: needs integers as places, got {}", call.info.name, describe(t));
}

/// What is put into a tensor may be narrowed, but not lose its kind.
void require_category(const OpCall& call, const Tensor& values, DType to) {
    if (category_of(values.dtype()) > category_of(to)) {
        fail(ErrorKind::Type, "{}: {} cannot be put into a tensor of {}", call.info.name, describe(values), name_of(to));
    }
}

constexpr uint32_t input(int i) {
    return uint32_t{1} << i;
}

}  // namespace

DTypes dtype_with_places(const OpCall& call) {
    const DType t = own_dtype(*call.inputs[0]);
    return {t, t, DType::Int64};
}

DTypes dtype_searchsorted(const OpCall& call) {
    return {dtype_promote(call).compute, DType::Int64};
}

DTypes dtype_bincount(const OpCall& call) {
    require_integers(call, *call.inputs[0]);
    const Tensor* const weights = call.optional(1, attribute::bincount_given);
    if (!weights) return {DType::Int64, DType::Int64, DType::Unspecified, 0};
    const DType t = own_dtype(*weights) == DType::Float32 ? DType::Float32 : DType::Float64;
    return {t, t, DType::Unspecified, input(1)};
}

DTypes dtype_indexed(const OpCall& call) {
    for (const Tensor* index : call.inputs.subspan(1)) require_integers(call, *index);
    const DType t = own_dtype(*call.inputs[0]);
    return {t, t, DType::Unspecified, input(0)};
}

DTypes dtype_embedding(const OpCall& call) {
    require_integers(call, *call.inputs[0]);
    const DType t = own_dtype(*call.inputs[1]);
    return {t, t, DType::Unspecified, input(1)};
}

DTypes dtype_scatter(const OpCall& call) {
    require_integers(call, *call.inputs[1]);
    const DType t = own_dtype(*call.inputs[0]);
    require_category(call, *call.inputs[2], t);
    const auto reduce = static_cast<ScatterReduce>(call.attributes.integer(attribute::scatter_reduce));
    const bool has_numbers = is_integer(t) || computes(t), has_order = has_numbers || t == DType::Bool;
    if (reduce == ScatterReduce::Mean && !has_numbers) fail(ErrorKind::Type, "{}: there is no mean of {}", call.info.name, name_of(t));
    if (reduce != ScatterReduce::None && !has_order) fail(ErrorKind::NotImplemented, "{}: does not compute in {}", call.info.name, name_of(t));
    return {t, t, DType::Unspecified, input(0) | input(2)};
}

DTypes dtype_index_put(const OpCall& call) {
    for (const Tensor* index : call.inputs.subspan(2)) require_integers(call, *index);
    const Tensor& values = *call.inputs[1];
    const DType t = own_dtype(*call.inputs[0]);
    if (!values.weak && values.dtype() != t) {
        fail(ErrorKind::Type, "{}: {} cannot be put into a tensor of {}; cast it first", call.info.name, describe(values), name_of(t));
    }
    require_fitting_numbers(call, t);
    if (call.attributes.integer(attribute::index_put_accumulate) && category_of(t) == DTypeCategory::Float && !computes(t)) {
        fail(ErrorKind::NotImplemented, "{}: does not compute in {}", call.info.name, name_of(t));
    }
    return {t, t, DType::Unspecified, input(0) | input(1)};
}

DTypes dtype_masked(const OpCall& call) {
    if (call.inputs[1]->dtype() != DType::Bool) fail(ErrorKind::Type, "{}: needs a mask of bools, got {}", call.info.name, describe(*call.inputs[1]));
    const DType t = own_dtype(*call.inputs[0]);
    if (call.inputs.size() > 2) require_category(call, *call.inputs[2], t);
    require_fitting_numbers(call, t);
    return {t, t, DType::Unspecified, input(0) | input(2)};
}

}  // namespace clikart
