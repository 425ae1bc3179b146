// Random operators made of uniform random numbers.
#include <cmath>

#include "ops/composite/parts.h"
#include "ops/rules.h"

namespace clikart {
namespace {

/// Random numbers from low to high of x's shape, in the dtype that x computes in.
Ref<Tensor> uniform_like(const OpCall& call, const Tensor& x, double low, double high) {
    return op::uniform(x.shape(), low, high, wide_of(own_dtype(x)), call.generator, Placement{{}, x.device()});
}

}  // namespace

Ref<Tensor> composite_rrelu(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const DType t = own_dtype(x);
    require_floats(call, t);
    const double lower = call.attributes.real(attribute::rrelu_lower), upper = call.attributes.real(attribute::rrelu_upper);
    if (!std::isfinite(lower) || !std::isfinite(upper) || lower > upper) {
        fail(ErrorKind::Value, "{}: needs factors from lower to upper, got {} and {}", call.info.name, lower, upper);
    }
    if (!call.attributes.integer(attribute::rrelu_training)) return op::leaky_relu(x, (lower + upper) / 2);
    const Ref<Tensor> factors = uniform_like(call, x, lower, upper), wide = in(x, wide_of(t));
    const Ref<Tensor> scaled = op::mul(*wide, *factors), positive = op::gt(x, *scalar(0.0));
    const Ref<Tensor> result = op::where(*positive, *wide, *scaled);
    return in(*result, t);
}

Ref<Tensor> composite_gumbel_softmax(const OpCall& call) {
    Tensor& logits = *call.inputs[0];
    const DType t = own_dtype(logits), wide = wide_of(t);
    require_floats(call, t);
    const double tau = call.attributes.real(attribute::gumbel_softmax_tau);
    if (!(tau > 0)) fail(ErrorKind::Value, "{}: tau must be positive, got {}", call.info.name, tau);
    const int dim = normalized_dim(call, call.attributes.integer(attribute::gumbel_softmax_dim), logits.rank(), true);
    // -log of a uniform number is exponentially distributed.  Zero, one in 2^24 (2^53), stands for what is smaller than a step.
    const double least = std::ldexp(1.0, wide == DType::Float64 ? -54 : -25);
    const Ref<Tensor> uniform = uniform_like(call, logits, 0, 1), minus = op::neg(*uniform);
    const Ref<Tensor> logarithm = op::log1p(*minus), exponential = op::neg(*logarithm), positive = op::clamp(*exponential, scalar(least).get(), nullptr);
    const Ref<Tensor> minus_noise = op::log(*positive), input = in(logits, wide);
    const Ref<Tensor> noisy = op::sub(*input, *minus_noise), scaled = op::div(*noisy, *scalar(tau));
    const Ref<Tensor> soft = op::softmax(*scaled, dim);
    if (!call.attributes.integer(attribute::gumbel_softmax_hard) || logits.numel() == 0) return in(*soft, t);
    const Ref<Tensor> chosen = op::argmax(*soft, Dims{dim}, true);
    const Placement here{{}, logits.device()};
    const Ref<Tensor> zeros = op::full(logits.shape(), *scalar(0.0), t, here);
    return op::scatter(*zeros, dim, *chosen, *scalar(1.0), ScatterReduce::None, true);
}

}  // namespace clikart
