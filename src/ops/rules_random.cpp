// Rules of random operators.
#include <cmath>
#include <limits>
#include <utility>

#include "core/narrow_float.h"
#include "ops/rules.h"

namespace clikart {
namespace {

DType given_dtype(const OpCall& call) {
    const auto t = static_cast<DType>(call.attributes.integer(call.attributes.count - 1));
    if (t != DType::Unspecified) name_of(t);  // throws for a code outside the table
    return t;
}

/// The largest finite number of a floating-point dtype.
double largest(DType dtype) {
    switch (dtype) {
        case DType::Float16: return 65504;
        case DType::BFloat16: return static_cast<double>(BFloat16::decode(0x7f7f));
        case DType::Float32: return static_cast<double>(std::numeric_limits<float>::max());
        default: return std::numeric_limits<double>::max();
    }
}

/// Throws ValueError unless each integer from low to last is a number of the dtype.
void require_holds(const OpCall& call, DType dtype, int64_t low, int64_t last) {
    bool holds = true;
    if (is_integer(dtype)) {
        with_type(dtype, [&]<class T>() {
            if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) holds = std::in_range<T>(low) && std::in_range<T>(last);
        });
    } else {
        const int digits = dtype == DType::Float64 ? 53 : dtype == DType::Float32 ? 24 : dtype == DType::Float16 ? 11 : 8;
        const int64_t border = int64_t{1} << digits;
        holds = low >= -border && last <= border;
    }
    if (!holds) fail(ErrorKind::Value, "{}: {} cannot hold all integers from {} to {}", call.info.name, name_of(dtype), low, last);
}

DType random_number(const OpCall& call) {
    const DType t = given_dtype(call);
    return t == DType::Unspecified ? DType::Int64 : t;
}

}  // namespace

DTypes dtype_random_float(const OpCall& call) {
    DType t = given_dtype(call);
    if (t == DType::Unspecified) t = DType::Float32;
    if (!computes(t)) fail(ErrorKind::Type, "{}: needs a floating-point dtype, got {}", call.info.name, name_of(t));
    return {t, t};
}

DTypes dtype_random_number(const OpCall& call) {
    const DType t = random_number(call);
    if (!computes(t) && !is_integer(t)) fail(ErrorKind::Type, "{}: needs a dtype of numbers, got {}", call.info.name, name_of(t));
    return {t, t};
}

DTypes dtype_multinomial(const OpCall& call) {
    const Tensor& weights = *call.inputs[0];
    if (!computes(weights.dtype())) fail(ErrorKind::Type, "{}: needs a floating-point tensor, got {}", call.info.name, describe(weights));
    return {weights.dtype(), DType::Int64};
}

void shape_uniform(const OpCall& call, OutputSpec& out) {
    const double low = call.attributes.real(attribute::uniform_low), high = call.attributes.real(attribute::uniform_high);
    const DType dtype = dtype_random_float(call).result;
    const double limit = largest(dtype);
    if (!(low <= high)) fail(ErrorKind::Value, "{}: low {} is not below high {}", call.info.name, low, high);
    if (low < -limit || high > limit || high - low > limit) {
        fail(ErrorKind::Value, "{}: from {} to {} is further than {} reaches", call.info.name, low, high, name_of(dtype));
    }
    out.shape = call.list(attribute::uniform_shape);
}

void shape_normal(const OpCall& call, OutputSpec& out) {
    const double std = call.attributes.real(attribute::normal_std);
    if (!(std >= 0)) fail(ErrorKind::Value, "{}: the standard deviation {} is negative or NaN", call.info.name, std);
    out.shape = call.list(attribute::normal_shape);
}

void shape_randint(const OpCall& call, OutputSpec& out) {
    const int64_t low = call.attributes.integer(attribute::randint_low), high = call.attributes.integer(attribute::randint_high);
    if (low >= high) fail(ErrorKind::Value, "{}: low {} is not below high {}", call.info.name, low, high);
    require_holds(call, random_number(call), low, high - 1);
    out.shape = call.list(attribute::randint_shape);
}

void shape_dropout(const OpCall& call, OutputSpec& out) {
    const double p = call.attributes.real(attribute::dropout_p);
    if (!(p >= 0 && p <= 1)) fail(ErrorKind::Value, "{}: the probability {} is outside [0, 1]", call.info.name, p);
    out.shape = call.inputs[0]->shape();
}

void shape_multinomial(const OpCall& call, OutputSpec& out) {
    const Dims& weights = call.inputs[0]->shape();
    const int64_t samples = call.attributes.integer(attribute::multinomial_num_samples);
    if (weights.rank() != 1 && weights.rank() != 2) fail(ErrorKind::Value, "{}: needs one or two dimensions, got shape {}", call.info.name, to_string(weights));
    const int64_t choices = weights[weights.rank() - 1];
    if (samples < 1) fail(ErrorKind::Value, "{}: num_samples is {}", call.info.name, samples);
    if (choices == 0) fail(ErrorKind::Value, "{}: no weights to choose from, shape {}", call.info.name, to_string(weights));
    if (samples > choices && !call.attributes.integer(attribute::multinomial_replacement)) {
        fail(ErrorKind::Value, "{}: {} different samples of {} weights", call.info.name, samples, choices);
    }
    if (weights.rank() == 2) out.shape.push_back(weights[0]);
    out.shape.push_back(samples);
}

void shape_randperm(const OpCall& call, OutputSpec& out) {
    const int64_t n = call.attributes.integer(attribute::randperm_n);
    if (n < 0) fail(ErrorKind::Value, "{}: n is {}", call.info.name, n);
    if (n > 0) require_holds(call, random_number(call), 0, n - 1);
    out.shape = Dims{n};
}

}  // namespace clikart
