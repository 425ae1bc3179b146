#include <cmath>

#include "ops/rules.h"

namespace clikart {
namespace {

[[noreturn]] void refuse_shapes(const OpCall& call, const char* why) {
    std::string shapes;
    for (const Tensor* t : call.inputs) shapes += (shapes.empty() ? "" : t == call.inputs.back() ? " and " : ", ") + to_string(t->shape());
    fail(ErrorKind::Value, "{}: {}, got shapes {}", call.info.name, why, shapes);
}

/// beta input + alpha a b, for matrices or, with `batches`, stacks of them.
void shape_added(const OpCall& call, OutputSpec& out, bool batches, double beta, double alpha) {
    const Tensor& input = *call.inputs[0];
    const Dims &a = call.inputs[1]->shape(), &b = call.inputs[2]->shape();
    const int first = batches ? 1 : 0;
    if (a.rank() != first + 2 || b.rank() != first + 2) refuse_shapes(call, batches ? "a and b must be 3-d" : "a and b must be 2-d");
    if (batches && a[0] != b[0]) refuse_shapes(call, "a and b are stacks of different lengths");
    if (a[first + 1] != b[first]) refuse_shapes(call, "inner sizes differ");
    if (batches) out.shape.push_back(a[0]);
    out.shape.push_back(a[first]);
    out.shape.push_back(b[first + 1]);
    if (Dims both; !broadcast_shapes(input.shape(), out.shape, both) || !(both == out.shape)) refuse_shapes(call, "input does not broadcast to the product");
    if (category_of(input.dtype()) == DTypeCategory::Float) return;
    for (const double factor : {beta, alpha}) {
        constexpr double kWholes = 9007199254740992;  // up to here every integer is a double
        if (factor != std::trunc(factor) || std::abs(factor) > kWholes) {
            fail(ErrorKind::Value, "{}: beta {} and alpha {} must be integers for {}", call.info.name, beta, alpha, name_of(input.dtype()));
        }
    }
}

}  // namespace

void shape_addmm(const OpCall& call, OutputSpec& out) {
    shape_added(call, out, false, call.attributes.real(attribute::addmm_beta), call.attributes.real(attribute::addmm_alpha));
}

void shape_baddbmm(const OpCall& call, OutputSpec& out) {
    shape_added(call, out, true, call.attributes.real(attribute::baddbmm_beta), call.attributes.real(attribute::baddbmm_alpha));
}

void shape_linear(const OpCall& call, OutputSpec& out) {
    const Dims &x = call.inputs[0]->shape(), &weight = call.inputs[1]->shape();
    if (x.rank() == 0) refuse_shapes(call, "x needs at least one dimension");
    if (weight.rank() != 2) refuse_shapes(call, "weight must be 2-d");
    if (x[x.rank() - 1] != weight[1]) refuse_shapes(call, "the last size of x is not that of weight");
    if (const Tensor* bias = call.optional(2, attribute::linear_given); bias && !(bias->shape() == Dims{weight[0]})) {
        refuse_shapes(call, "bias must be 1-d, with the first size of weight");
    }
    out.shape = x;
    out.shape[x.rank() - 1] = weight[0];
}

void shape_triangle(const OpCall& call, OutputSpec& out) {
    out.shape = call.inputs[0]->shape();
    if (out.shape.rank() < 2) refuse_shapes(call, "needs at least two dimensions");
}

}  // namespace clikart
