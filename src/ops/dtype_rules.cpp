#include "ops/rules.h"

namespace clikart {
namespace {

// torch's standing in promotion: a dimensioned tensor beats a 0-d tensor beats a Python number, within a category.
int standing(const Tensor& t) noexcept {
    return t.weak ? 0 : t.rank() == 0 ? 1 : 2;
}

/// torch's result_type of some of a call's tensors.
DType result_type(const OpCall& call, std::span<Tensor* const> inputs) {
    DType best[3] = {DType::Unspecified, DType::Unspecified, DType::Unspecified};
    for (const Tensor* t : inputs) {
        DType& slot = best[standing(*t)];
        const DType own = own_dtype(*t);
        if (slot == DType::Unspecified) {
            slot = own;
            continue;
        }
        const DType both = promote(slot, own);
        if (both == DType::Unspecified) {
            fail(ErrorKind::Type, "{}: no common dtype for {} and {}; cast one of them", call.info.name, name_of(slot), name_of(own));
        }
        slot = both;
    }
    DType result = best[2];
    for (const DType lower : {best[1], best[0]}) {
        if (lower == DType::Unspecified) continue;
        if (result == DType::Unspecified || category_of(result) < category_of(lower)) {
            result = lower;
        }
    }
    return result;
}
DType result_type(const OpCall& call) {
    return result_type(call, call.inputs);
}

[[noreturn]] void refuse(const OpCall& call, const char* need, DType got) {
    fail(ErrorKind::Type, "{}: needs {}, got {}", call.info.name, need, name_of(got));
}

DTypes number(const OpCall& call, DType t) {
    if (t == DType::Bool) refuse(call, "numbers", t);
    return {t, t};
}

}  // namespace

void require_fits(const char* who, const Tensor& number, DType dtype) {
    if (scalar_fits(number, dtype)) return;
    with_type(number.dtype(),
              [&]<class T>() { fail(ErrorKind::Overflow, "{}: {} does not fit {}", who, *static_cast<const T*>(number.data()), name_of(dtype)); });
}

void require_fitting_numbers(const OpCall& call, DType dtype) {
    for (const Tensor* input : call.inputs) {
        if (input->weak) require_fits(call.info.name, *input, dtype);
    }
}

DTypes dtype_same(const OpCall& call) {
    const DType t = result_type(call);
    return {t, t};
}

DTypes dtype_same_number(const OpCall& call) {
    return number(call, result_type(call));
}

DTypes dtype_given(const OpCall& call) {
    const auto t = static_cast<DType>(call.attributes.integer(call.attributes.count - 1));
    if (t == DType::Unspecified) fail(ErrorKind::Type, "{}: a dtype is needed", call.info.name);
    name_of(t);  // throws for a code outside the table
    return {t, t, DType::Unspecified, 0};
}

namespace {

DTypes given_or_value(const OpCall& call) {
    if (call.attributes.integer(call.attributes.count - 1) != 0) return dtype_given(call);
    const DType t = result_type(call);
    return {t, t, DType::Unspecified, 0};
}

}  // namespace

DTypes dtype_full(const OpCall& call) {
    const DTypes types = given_or_value(call);
    require_fitting_numbers(call, types.result);
    return types;
}

DTypes dtype_given_or_number(const OpCall& call) {
    const DTypes types = given_or_value(call);
    const bool given = call.attributes.integer(call.attributes.count - 1) != 0;
    if (types.result == DType::Bool && !given) return {DType::Int64, DType::Int64, DType::Unspecified, 0};
    return types;
}

DTypes dtype_promote(const OpCall& call) {
    const DType t = result_type(call);
    return {t, t};
}

DTypes dtype_promote_fitting(const OpCall& call) {
    const DTypes types = dtype_promote(call);
    require_fitting_numbers(call, types.result);
    return types;
}

DTypes dtype_promote_number(const OpCall& call) {
    return number(call, result_type(call));
}

DTypes dtype_promote_float(const OpCall& call) {
    const DType t = result_type(call);
    const DType result = category_of(t) == DTypeCategory::Float ? t : DType::Float32;
    return {result, result};
}

DTypes dtype_promote_list(const OpCall& call) {
    if (call.inputs.empty()) fail(ErrorKind::Value, "{}: needs at least one tensor", call.info.name);
    return dtype_promote(call);
}

DTypes dtype_promote_product(const OpCall& call) {
    const Tensor& first = *call.inputs[0];
    for (const Tensor* t : call.inputs.subspan(1)) {
        if (first.weak || t->weak) fail(ErrorKind::Type, "{}: needs tensors, got a number and {}", call.info.name, describe(first.weak ? *t : first));
        if (first.dtype() != t->dtype()) {
            fail(ErrorKind::Type, "{}: needs one dtype on both sides, got {} and {}", call.info.name, describe(first), describe(*t));
        }
    }
    return number(call, first.dtype());
}

DTypes dtype_float(const OpCall& call) {
    const DType t = result_type(call);
    if (category_of(t) != DTypeCategory::Float) refuse(call, "a floating-point tensor", t);
    return {t, t};
}

DTypes dtype_index(const OpCall& call) {
    return {result_type(call), DType::Int64};
}

DTypes dtype_integer(const OpCall& call) {
    const DType t = result_type(call);
    if (!is_integer(t)) refuse(call, "integers", t);
    return {t, t};
}

DTypes dtype_bitwise(const OpCall& call) {
    const DType t = result_type(call);
    if (category_of(t) == DTypeCategory::Float) refuse(call, "integers or bools", t);
    return {t, t};
}

DTypes dtype_compare(const OpCall& call) {
    return {result_type(call), DType::Bool};
}

DTypes dtype_logical(const OpCall&) {
    return {DType::Bool, DType::Bool};
}

DTypes dtype_predicate(const OpCall& call) {
    return {call.inputs[0]->dtype(), DType::Bool};
}

DTypes dtype_where(const OpCall& call) {
    if (call.inputs[0]->dtype() != DType::Bool) refuse(call, "a bool condition", call.inputs[0]->dtype());
    const DType t = result_type(call, call.inputs.subspan(1));
    require_fitting_numbers(call, t);
    return {t, t};
}

}  // namespace clikart
