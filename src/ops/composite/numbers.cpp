// Functions, reductions, differences and buckets of numbers, made of a few operators each.
#include "ops/composite/parts.h"
#include "ops/rules.h"

namespace clikart {
namespace {

/// x with zeros for NaN; itself where it can have none.
Ref<Tensor> without_nan(Tensor& x) {
    if (category_of(own_dtype(x)) != DTypeCategory::Float) return Ref<Tensor>::share(&x);
    const Ref<Tensor> missing = op::isnan(x);
    return op::where(*missing, *scalar(0.0), x);
}

/// The dimensions of a reduction, checked under the caller's name.
std::optional<std::span<const int64_t>> reduced(const OpCall& call, int position) {
    if (!call.attributes.present(position)) return std::nullopt;
    named_dims(call, position);
    return std::span(call.attributes.list(position), static_cast<size_t>(call.attributes.length(position)));
}

}  // namespace

Ref<Tensor> composite_nansum(const OpCall& call) {
    const auto dims = reduced(call, attribute::nansum_dims);
    const Ref<Tensor> numbers = without_nan(*call.inputs[0]);
    return op::sum(*numbers, dims, call.attributes.integer(attribute::nansum_keepdim) != 0);
}

Ref<Tensor> composite_nanmean(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const DType t = own_dtype(x);
    require_floats(call, t);
    const auto dims = reduced(call, attribute::nanmean_dims);
    const bool keepdim = call.attributes.integer(attribute::nanmean_keepdim) != 0;
    const Ref<Tensor> wide = in(x, wide_of(t)), numbers = without_nan(*wide), sum = op::sum(*numbers, dims, keepdim);
    const Ref<Tensor> missing = op::isnan(x), there = op::logical_not(*missing), count = op::sum(*there, dims, keepdim);
    const Ref<Tensor> mean = op::div(*sum, *op::cast(*count, wide_of(t)));
    return in(*mean, t);
}

Ref<Tensor> composite_logit(const OpCall& call) {
    const DType t = dtype_promote_float(call).result;
    Ref<Tensor> x = in(*call.inputs[0], wide_of(t));
    if (call.attributes.present(attribute::logit_eps)) {
        const double eps = call.attributes.real(attribute::logit_eps);
        x = op::clamp(*x, scalar(eps).get(), scalar(1 - eps).get());
    }
    const Ref<Tensor> rest = op::sub(*scalar(1.0), *x), odds = op::div(*x, *rest);
    const Ref<Tensor> result = op::log(*odds);
    return in(*result, t);
}

Ref<Tensor> composite_xlogy(const OpCall& call) {
    const DType t = dtype_promote_float(call).result;
    OutputSpec both;
    shape_broadcast(call, both);
    const Ref<Tensor> a = in(*call.inputs[0], wide_of(t)), b = in(*call.inputs[1], wide_of(t));
    const Ref<Tensor> logarithm = op::log(*b), product = op::mul(*a, *logarithm);
    const Ref<Tensor> zero = op::eq(*a, *scalar(0.0)), missing = op::isnan(*b), known = op::logical_not(*missing);
    const Ref<Tensor> nothing = op::logical_and(*zero, *known);
    const Ref<Tensor> result = op::where(*nothing, *scalar(0.0), *product);
    return in(*result, t);
}

Ref<Tensor> composite_diff(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const int64_t n = call.attributes.integer(attribute::diff_n);
    if (x.rank() == 0) fail(ErrorKind::Value, "{}: needs a dimension, got a 0-d tensor", call.info.name);
    if (n < 0) fail(ErrorKind::Value, "{}: n is {}", call.info.name, n);
    const int dim = normalized_dim(call, call.attributes.integer(attribute::diff_dim), x.rank());
    Tensor *const before = call.optional(1, attribute::diff_given), *const after = call.optional(2, attribute::diff_given);
    Ref<Tensor> result = Ref<Tensor>::share(&x);
    if (before || after) {
        SmallVector<Tensor*, 4> parts;
        for (Tensor* const part : {before, &x, after}) {
            if (part) parts.push_back(part);
        }
        result = op::concat({parts.data(), parts.size()}, dim);
    }
    for (int64_t i = 0; i < n && result->shape()[dim] > 0; ++i) {
        const Ref<Tensor> later = op::slice(*result, dim, 1, std::nullopt, 1), earlier = op::slice(*result, dim, std::nullopt, -1, 1);
        result = result->dtype() == DType::Bool ? op::ne(*later, *earlier) : op::sub(*later, *earlier);
    }
    return result.get() == &x ? op::copy(x) : result;
}

Ref<Tensor> composite_bucketize(const OpCall& call) {
    Tensor& boundaries = *call.inputs[1];
    if (boundaries.rank() != 1) fail(ErrorKind::Value, "{}: needs boundaries of one dimension, got shape {}", call.info.name, to_string(boundaries.shape()));
    return op::searchsorted(boundaries, *call.inputs[0], call.attributes.integer(attribute::bucketize_right) != 0);
}

}  // namespace clikart
