// Operators made of elementwise ones.
#include "ops/op_calls.h"
#include "ops/rules.h"

namespace clikart {
Ref<Tensor> composite_isclose(const OpCall& call) {
    Tensor &a = *call.inputs[0], &b = *call.inputs[1];
    const double rtol = call.attributes.real(attribute::isclose_rtol), atol = call.attributes.real(attribute::isclose_atol);
    if (!(rtol >= 0) || !(atol >= 0)) fail(ErrorKind::Value, "{}: rtol {} and atol {} must not be negative", call.info.name, rtol, atol);
    OutputSpec spec;
    shape_broadcast(call, spec);
    const Ref<Tensor> wide_a = op::cast(a, DType::Float64), wide_b = op::cast(b, DType::Float64);
    const bool exact = is_integer(a.dtype()) && a.dtype() == b.dtype();         // float64 does not tell all integers apart
    const Ref<Tensor> equal = exact ? op::eq(a, b) : op::eq(*wide_a, *wide_b);  // also where both are the same infinity
    const Ref<Tensor> signed_difference = op::sub(*wide_a, *wide_b), difference = op::abs(*signed_difference), size = op::abs(*wide_b);
    const Ref<Tensor> relative = op::mul(*size, *scalar(rtol)), allowed = op::add(*relative, *scalar(atol));
    const Ref<Tensor> near = op::le(*difference, *allowed), finite = op::isfinite(*difference), close = op::logical_and(*near, *finite);
    Ref<Tensor> result = exact && rtol == 0 && atol == 0 ? equal : op::logical_or(*equal, *close);
    if (call.attributes.integer(attribute::isclose_equal_nan)) {
        const Ref<Tensor> nan_a = op::isnan(*wide_a), nan_b = op::isnan(*wide_b), both = op::logical_and(*nan_a, *nan_b);
        result = op::logical_or(*result, *both);
    }
    return result;
}

}  // namespace clikart
