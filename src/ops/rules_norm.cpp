// Rules of normalisation, attention and rotary embedding.
#include "ops/rules.h"

namespace clikart {
namespace {

/// Throws TypeError unless kernels compute in the tensor's dtype.
void require_floats(const OpCall& call, const Tensor& t) {
    if (!computes(t.dtype())) fail(ErrorKind::Type, "{}: needs floating-point tensors, got {}", call.info.name, describe(t));
}

/// Throws ValueError unless the optional tensor has this shape.
void require_shape(const OpCall& call, const Tensor* t, const char* what, const Dims& shape) {
    if (t && !(t->shape() == shape)) fail(ErrorKind::Value, "{}: {} has shape {} and not {}", call.info.name, what, to_string(t->shape()), to_string(shape));
}

/// The channels of x, which are its last dimension.
Dims channels(const OpCall& call) {
    const Dims& x = call.inputs[0]->shape();
    if (x.rank() < 2) fail(ErrorKind::Value, "{}: needs samples and channels, got shape {}", call.info.name, to_string(x));
    return Dims{x[x.rank() - 1]};
}

}  // namespace

DTypes dtype_norm(const OpCall& call) {
    const Tensor& x = *call.inputs[0];
    const DType t = own_dtype(x);
    for (const Tensor* input : call.inputs) require_floats(call, *input);
    return {t, t, DType::Unspecified, 1};
}

DTypes dtype_attention(const OpCall& call) {
    const Tensor &query = *call.inputs[0], &key = *call.inputs[1], &value = *call.inputs[2];
    for (const Tensor* t : {&query, &key, &value}) require_floats(call, *t);
    if (query.dtype() != key.dtype() || query.dtype() != value.dtype()) {
        fail(ErrorKind::Type, "{}: query, key and value need one dtype, got {}, {} and {}", call.info.name, name_of(query.dtype()), name_of(key.dtype()),
             name_of(value.dtype()));
    }
    if (const Tensor* mask = call.optional(3, attribute::scaled_dot_product_attention_given);
        mask && mask->dtype() != DType::Bool && !computes(mask->dtype())) {
        fail(ErrorKind::Type, "{}: needs a mask of bools or floats, got {}", call.info.name, describe(*mask));
    }
    return {query.dtype(), query.dtype(), DType::Unspecified, 0};
}

void shape_last_norm(const OpCall& call, OutputSpec& out) {
    static_assert(attribute::layer_norm_normalized_shape == attribute::rms_norm_normalized_shape);
    static_assert(attribute::layer_norm_given == attribute::rms_norm_given);
    constexpr int at = attribute::layer_norm_normalized_shape, given = attribute::layer_norm_given;
    const Dims& x = call.inputs[0]->shape();
    const Dims last = call.list(at);
    const int before = x.rank() - last.rank();
    bool fits = last.rank() > 0 && before >= 0;
    for (int d = 0; fits && d < last.rank(); ++d) fits = last[d] == x[before + d];
    if (!fits) fail(ErrorKind::Value, "{}: shape {} does not end with normalized_shape {}", call.info.name, to_string(x), to_string(last));
    require_shape(call, call.optional(1, given), "weight", last);
    if (call.info.code == OpCode::LayerNorm) require_shape(call, call.optional(2, given), "bias", last);
    out.shape = x;
}

void shape_group_norm(const OpCall& call, OutputSpec& out) {
    const Dims each = channels(call);
    const int64_t groups = call.attributes.integer(attribute::group_norm_num_groups);
    if (groups < 1 || each[0] % groups != 0) fail(ErrorKind::Value, "{}: {} channels do not make {} groups", call.info.name, each[0], groups);
    require_shape(call, call.optional(1, attribute::group_norm_given), "weight", each);
    require_shape(call, call.optional(2, attribute::group_norm_given), "bias", each);
    out.shape = call.inputs[0]->shape();
}

void shape_channel_norm(const OpCall& call, OutputSpec& out) {
    static_assert(attribute::batch_norm_given == attribute::instance_norm_given);
    constexpr int given = attribute::batch_norm_given;
    const Dims each = channels(call);
    int weight = 1;
    if (call.info.code == OpCode::BatchNorm) {
        require_shape(call, call.inputs[1], "running_mean", each);
        require_shape(call, call.inputs[2], "running_var", each);
        weight = 3;
    }
    require_shape(call, call.optional(weight, given), "weight", each);
    require_shape(call, call.optional(weight + 1, given), "bias", each);
    out.shape = call.inputs[0]->shape();
}

namespace {

/// Broadcasts the dimensions of `shape` before its last `kept` ones with `lead`; false where they do not.
bool broadcast_lead(const Dims& shape, int kept, Dims& lead) {
    Dims own, both;
    for (int d = 0; d < shape.rank() - kept; ++d) own.push_back(shape[d]);
    if (!broadcast_shapes(lead, own, both)) return false;
    lead = both;
    return true;
}

}  // namespace

void shape_attention(const OpCall& call, OutputSpec& out) {
    const Dims &q = call.inputs[0]->shape(), &k = call.inputs[1]->shape(), &v = call.inputs[2]->shape();
    const Tensor* mask = call.optional(3, attribute::scaled_dot_product_attention_given);
    const auto refuse = [&](const char* why) {
        fail(ErrorKind::Value, "{}: {}: query {}, key {}, value {}{}{}", call.info.name, why, to_string(q), to_string(k), to_string(v), mask ? ", mask " : "",
             mask ? to_string(mask->shape()) : "");
    };
    if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) refuse("needs at least two dimensions");
    if (q[q.rank() - 1] != k[k.rank() - 1]) refuse("query and key differ in their last size");
    if (k[k.rank() - 2] != v[v.rank() - 2]) refuse("there are not as many keys as values");
    Dims lead;
    for (int d = 0; d < q.rank() - 2; ++d) lead.push_back(q[d]);
    for (const Dims* other : {&k, &v}) {
        Dims shape = *other;
        if (call.attributes.integer(attribute::scaled_dot_product_attention_enable_gqa) && shape.rank() > 2 && q.rank() > 2) {
            int64_t& heads = shape[shape.rank() - 3];
            const int64_t all = q[q.rank() - 3];
            if (heads == 0 ? all != 0 : all % heads != 0) refuse("the heads of query are no multiple of the others'");
            heads = all;
        }
        if (!broadcast_lead(shape, 2, lead)) refuse("the dimensions before the last two do not broadcast");
    }
    out.shape = lead;
    out.shape.push_back(q[q.rank() - 2]);
    if (mask) {
        Dims scores = out.shape, both;
        scores.push_back(k[k.rank() - 2]);
        if (!broadcast_shapes(scores, mask->shape(), both) || !(both == scores)) refuse("the mask does not broadcast to the scores");
    }
    out.shape.push_back(v[v.rank() - 1]);
}

void shape_rotary(const OpCall& call, OutputSpec& out) {
    const Dims &x = call.inputs[0]->shape(), &cos = call.inputs[1]->shape(), &sin = call.inputs[2]->shape();
    const auto refuse = [&](const char* why) {
        fail(ErrorKind::Value, "{}: {}: x {}, cos {} and sin {}", call.info.name, why, to_string(x), to_string(cos), to_string(sin));
    };
    if (x.rank() == 0 || cos.rank() == 0 || sin.rank() == 0) refuse("needs at least one dimension");
    const int64_t angles = cos[cos.rank() - 1];
    if (sin[sin.rank() - 1] != angles) refuse("cos and sin differ in their last size");
    if (angles > x[x.rank() - 1] / 2) refuse("more angles than pairs");
    Dims own;
    for (int d = 0; d < x.rank() - 1; ++d) own.push_back(x[d]);
    for (const Dims* other : {&cos, &sin}) {
        Dims lead = own;
        if (!broadcast_lead(*other, 1, lead) || !(lead == own)) refuse("angles do not broadcast to the dimensions before the last");
    }
    out.shape = x;
}

}  // namespace clikart
