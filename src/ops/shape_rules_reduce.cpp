// Shape rules of reductions, and of what works along one dimension.
#include <cmath>

#include "ops/rules.h"

namespace clikart {
namespace {

/// The input's shape without the marked dimensions, or with size 1 in their place.
void remove(const Dims& in, const std::array<bool, kMaxRank>& reduced, bool keepdim, OutputSpec& out) {
    out.shape = Dims{};
    for (int d = 0; d < in.rank(); ++d) {
        if (!reduced[d]) {
            out.shape.push_back(in[d]);
        } else if (keepdim) {
            out.shape.push_back(1);
        }
    }
}

/// The same for the dimensions that the attribute at position `dims` names.
void reduce(const OpCall& call, int dims, int keepdim, OutputSpec& out) {
    const Attributes& attributes = call.attributes;
    const Dims& in = call.inputs[0]->shape();
    auto reduced = named_dims(call, dims);
    if (!attributes.present(dims) || attributes.length(dims) == 0) reduced.fill(true);
    remove(in, reduced, attributes.integer(keepdim) != 0, out);
}

void require_elements(const OpCall& call, const OutputSpec& out) {
    const Dims& in = call.inputs[0]->shape();
    if (numel(in) == 0 && numel(out.shape) != 0) {
        fail(ErrorKind::Value, "{}: no elements to choose from, shape {}", call.info.name, to_string(in));
    }
}

}  // namespace

void shape_reduce(const OpCall& call, OutputSpec& out) {
    reduce(call, attribute::sum_dims, attribute::sum_keepdim, out);
}

void shape_reduce_nonempty(const OpCall& call, OutputSpec& out) {
    shape_reduce(call, out);
    require_elements(call, out);
}

void shape_reduce_dim(const OpCall& call, OutputSpec& out) {
    const Dims& in = call.inputs[0]->shape();
    std::array<bool, kMaxRank> reduced{};
    reduced[normalized_dim(call, call.attributes.integer(attribute::max_dim_dim), in.rank(), true)] = true;
    remove(in, reduced, call.attributes.integer(attribute::max_dim_keepdim) != 0, out);
    require_elements(call, out);
}

void shape_var(const OpCall& call, OutputSpec& out) {
    reduce(call, attribute::var_dims, attribute::var_keepdim, out);
}

void shape_norm(const OpCall& call, OutputSpec& out) {
    reduce(call, attribute::norm_dims, attribute::norm_keepdim, out);
    const double p = call.attributes.real(attribute::norm_p);
    if (p < 0 || std::isinf(p)) require_elements(call, out);
}

void shape_softmax(const OpCall& call, OutputSpec& out) {
    out.shape = call.inputs[0]->shape();
    normalized_dim(call, call.attributes.integer(attribute::softmax_dim), out.shape.rank(), true);
}

}  // namespace clikart
