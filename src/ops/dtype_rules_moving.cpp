// The dtype rules of operators that put elements in other places, and of elementwise ones of three operands.
#include "ops/rules.h"

namespace clikart {

DTypes dtype_given_or_float32(const OpCall& call) {
    if (call.attributes.integer(call.attributes.count - 1) != 0) return dtype_given(call);
    return {DType::Float32, DType::Float32};
}

DTypes dtype_one_hot(const OpCall& call) {
    const DType t = call.inputs[0]->dtype();
    if (!is_integer(t)) fail(ErrorKind::Type, "{}: needs integers, got {}", call.info.name, describe(*call.inputs[0]));
    return {t, DType::Int64};
}

DTypes dtype_clamp(const OpCall& call) {
    if (call.inputs.size() < 2) fail(ErrorKind::Value, "{}: needs min, max or both", call.info.name);
    const DTypes types = dtype_promote_number(call);
    require_fitting_numbers(call, types.result);
    return types;
}

DTypes dtype_prelu(const OpCall& call) {
    const Tensor &x = *call.inputs[0], &weight = *call.inputs[1];
    const DTypes types = dtype_float(call);
    if (!computes(types.compute) || (!x.weak && !weight.weak && x.dtype() != weight.dtype())) {
        fail(ErrorKind::Type, "{}: needs floats of one dtype, got {} and {}", call.info.name, describe(x), describe(weight));
    }
    return types;
}

}  // namespace clikart
