// The shape rules of operators that put elements in other places, and of tensors that follow from a few numbers.
#include "ops/rules.h"

namespace clikart {

void shape_stack(const OpCall& call, OutputSpec& out) {
    const Dims& first = call.inputs[0]->shape();
    for (const Tensor* t : call.inputs) {
        if (t->shape() == first) continue;
        fail(ErrorKind::Value, "{}: shapes {} and {} differ", call.info.name, to_string(first), to_string(t->shape()));
    }
    const int dim = normalized_dim(call, call.attributes.integer(attribute::stack_dim), first.rank() + 1);
    check_result_rank(call, first.rank() + 1);
    for (int d = 0; d <= first.rank(); ++d) {
        if (d == dim) out.shape.push_back(static_cast<int64_t>(call.inputs.size()));
        if (d < first.rank()) out.shape.push_back(first[d]);
    }
}

void shape_pad(const OpCall& call, OutputSpec& out) {
    const Attributes& attributes = call.attributes;
    const Dims& in = call.inputs[0]->shape();
    const int64_t n = attributes.length(attribute::pad_padding);
    const int64_t* const padding = attributes.list(attribute::pad_padding);
    const auto mode = static_cast<PadMode>(attributes.integer(attribute::pad_mode));
    const auto refuse = [&](const std::string& why) {
        fail(ErrorKind::Value, "{}: {}: padding [{}] for shape {}", call.info.name, why, fmt::join(padding, padding + n, ", "), to_string(in));
    };
    if (n % 2 != 0) refuse("the entries are no pairs");
    if (n > 2 * in.rank()) refuse("more pairs than dimensions");
    if (mode != PadMode::Constant && attributes.real(attribute::pad_value) != 0) refuse("a value is for mode constant");
    const auto value = scalar(attributes.real(attribute::pad_value));
    require_fits(call.info.name, *value, own_dtype(*call.inputs[0]));
    out.shape = in;
    for (int64_t i = 0; i < n / 2; ++i) {
        const int d = in.rank() - 1 - static_cast<int>(i);
        const int64_t before = padding[2 * i], after = padding[2 * i + 1];
        if (mode != PadMode::Constant) {
            const int64_t most = mode == PadMode::Reflect ? in[d] - 1 : mode == PadMode::Circular ? in[d] : in[d] == 0 ? 0 : INT64_MAX;
            if (before < 0 || after < 0) refuse("only mode constant takes elements away");
            if (std::max(before, after) > std::max<int64_t>(most, 0)) refuse(fmt::format("more than dimension {} of size {} can fill in this mode", d, in[d]));
        }
        if (__builtin_add_overflow(in[d], before, &out.shape[d]) || __builtin_add_overflow(out.shape[d], after, &out.shape[d])) {
            refuse("more elements than can be addressed");
        }
        if (out.shape[d] < 0) refuse(fmt::format("dimension {} has fewer elements than are taken away", d));
    }
}

void shape_diag_embed(const OpCall& call, OutputSpec& out) {
    const Dims& in = call.inputs[0]->shape();
    normalized_dim(call, -1, in.rank());
    check_result_rank(call, in.rank() + 1);
    const int rows = normalized_dim(call, call.attributes.integer(attribute::diag_embed_dim1), in.rank() + 1);
    const int columns = normalized_dim(call, call.attributes.integer(attribute::diag_embed_dim2), in.rank() + 1);
    if (rows == columns) fail(ErrorKind::Value, "{}: dim1 and dim2 are both {}", call.info.name, rows);
    const int64_t offset = call.attributes.integer(attribute::diag_embed_offset);
    int64_t size;
    if (offset == INT64_MIN || __builtin_add_overflow(in[in.rank() - 1], offset < 0 ? -offset : offset, &size)) {
        fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
    }
    int next = 0;
    for (int d = 0; d <= in.rank(); ++d) out.shape.push_back(d == rows || d == columns ? size : in[next++]);
}

void shape_one_hot(const OpCall& call, OutputSpec& out) {
    const int64_t classes = call.attributes.integer(attribute::one_hot_num_classes);
    if (classes < 0) fail(ErrorKind::Value, "{}: num_classes is {}", call.info.name, classes);
    out.shape = call.inputs[0]->shape();
    check_result_rank(call, out.shape.rank() + 1);
    out.shape.push_back(classes);
}

void shape_eye(const OpCall& call, OutputSpec& out) {
    const int64_t n = call.attributes.integer(attribute::eye_n);
    out.shape = Dims{n, call.attributes.present(attribute::eye_m) ? call.attributes.integer(attribute::eye_m) : n};
}

void shape_linspace(const OpCall& call, OutputSpec& out) {
    out.shape = Dims{call.attributes.integer(attribute::linspace_steps)};
}

void shape_logspace(const OpCall& call, OutputSpec& out) {
    out.shape = Dims{call.attributes.integer(attribute::logspace_steps)};
}

void shape_prelu(const OpCall& call, OutputSpec& out) {
    const Dims &x = call.inputs[0]->shape(), &weight = call.inputs[1]->shape();
    const bool one_each = weight.rank() == 1 && x.rank() > 0 && weight[0] == x[x.rank() - 1];
    if (!one_each && !(weight.rank() <= 1 && call.inputs[1]->numel() == 1)) {
        fail(ErrorKind::Value, "{}: needs one weight, or one for each channel of the last dimension: weight {} for {}", call.info.name, to_string(weight),
             to_string(x));
    }
    out.shape = x;
}

void shape_glu(const OpCall& call, OutputSpec& out) {
    out.shape = call.inputs[0]->shape();
    const int dim = normalized_dim(call, call.attributes.integer(attribute::glu_dim), out.shape.rank());
    if (out.shape[dim] % 2 != 0) fail(ErrorKind::Value, "{}: dimension {} has an odd size, shape {}", call.info.name, dim, to_string(out.shape));
    out.shape[dim] /= 2;
}

}  // namespace clikart
