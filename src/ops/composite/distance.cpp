// Norms put to use: lengths of one, angles and distances.
#include "ops/composite/parts.h"
#include "ops/rules.h"

namespace clikart {
namespace {

/// x divided by its norm, or by eps where that is larger.
Ref<Tensor> with_norm_one(Tensor& x, double p, const Dims& dims, double eps) {
    const Ref<Tensor> norm = op::norm(x, p, dims, true);
    const Ref<Tensor> divisor = op::clamp(*norm, scalar(eps).get(), nullptr);
    return op::div(x, *divisor);
}

}  // namespace

Ref<Tensor> composite_normalize(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const DType t = own_dtype(x);
    require_floats(call, t);
    named_dims(call, attribute::normalize_dim);  // checked under this name
    const Dims dims = call.list(attribute::normalize_dim);
    const Ref<Tensor> wide = in(x, wide_of(t));
    const Ref<Tensor> result = with_norm_one(*wide, call.attributes.real(attribute::normalize_p), dims, call.attributes.real(attribute::normalize_eps));
    return in(*result, t);
}

Ref<Tensor> composite_cosine_similarity(const OpCall& call) {
    const DType t = dtype_promote(call).result;
    require_floats(call, t);
    OutputSpec both;
    shape_broadcast(call, both);
    checked_numel(both.shape, call.info.name);
    const Dims dims{normalized_dim(call, call.attributes.integer(attribute::cosine_similarity_dim), both.shape.rank(), true)};
    const double eps = call.attributes.real(attribute::cosine_similarity_eps);
    const auto direction = [&](Tensor& x) {
        const Ref<Tensor> wide = in(x, wide_of(t));
        const Ref<Tensor> whole = op::broadcast_to(*wide, both.shape);  // the norm is that of the elements that it broadcasts to
        return with_norm_one(*whole, 2, dims, eps);
    };
    const Ref<Tensor> a = direction(*call.inputs[0]), b = direction(*call.inputs[1]);
    const Ref<Tensor> products = op::mul(*a, *b);
    const Ref<Tensor> sum = op::sum(*products, dims, false);
    return in(*sum, t);
}

Ref<Tensor> composite_pairwise_distance(const OpCall& call) {
    const DType t = dtype_promote_float(call).result;
    OutputSpec both;
    shape_broadcast(call, both);
    const Ref<Tensor> a = in(*call.inputs[0], wide_of(t)), b = in(*call.inputs[1], wide_of(t));
    const Ref<Tensor> difference = op::sub(*a, *b);
    const Ref<Tensor> moved = op::add(*difference, *scalar(call.attributes.real(attribute::pairwise_distance_eps)));
    const bool keepdim = call.attributes.integer(attribute::pairwise_distance_keepdim) != 0;
    const Ref<Tensor> norm = op::norm(*moved, call.attributes.real(attribute::pairwise_distance_p), Dims{-1}, keepdim);
    return in(*norm, t);
}

}  // namespace clikart
