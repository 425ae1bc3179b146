#include <cmath>
#include <utility>

#include "base/float_mode.h"
#include "ops/rules.h"

namespace clikart {

int normalized_dim(const OpCall& call, int64_t dim, int rank, bool scalar_has_one) {
    const int range = rank == 0 && scalar_has_one ? 1 : rank;
    if (dim < -range || dim >= range) {
        fail(ErrorKind::Index, "{}: dimension {} is out of range for a tensor of {} dimensions, shape {}", call.info.name, dim, rank,
             to_string(call.inputs[0]->shape()));
    }
    return static_cast<int>(dim < 0 ? dim + range : dim);
}

std::array<bool, kMaxRank> named_dims(const OpCall& call, int dims) {
    const Dims& shape = call.inputs[0]->shape();
    std::array<bool, kMaxRank> named{};
    for (int64_t i = 0; call.attributes.present(dims) && i < call.attributes.length(dims); ++i) {
        const int d = normalized_dim(call, call.attributes.list(dims)[i], shape.rank(), true);
        if (std::exchange(named[static_cast<size_t>(d)], true)) {
            fail(ErrorKind::Value, "{}: dimension {} is named twice, shape {}", call.info.name, d, to_string(shape));
        }
    }
    return named;
}

namespace {

const Dims& input_shape(const OpCall& call) {
    return call.inputs[0]->shape();
}

}  // namespace

bool broadcast_shapes(const Dims& a, const Dims& b, Dims& out) {
    const int rank = std::max(a.rank(), b.rank());
    out.resize(rank);
    for (int d = 0; d < rank; ++d) {
        const int da = d - (rank - a.rank()), db = d - (rank - b.rank());
        const int64_t sa = da < 0 ? 1 : a[da], sb = db < 0 ? 1 : b[db];
        if (sa != sb && sa != 1 && sb != 1) return false;
        out[d] = sa == 1 ? sb : sa;
    }
    return true;
}

void shape_same(const OpCall& call, OutputSpec& out) {
    out.shape = input_shape(call);
}

void shape_broadcast(const OpCall& call, OutputSpec& out) {
    out.shape = call.inputs[0]->shape();
    for (size_t i = 1; i < call.inputs.size(); ++i) {
        const Dims &a = out.shape, &b = call.inputs[i]->shape();
        Dims both;
        if (a == b) continue;
        if (!broadcast_shapes(a, b, both)) {
            std::string shapes = to_string(call.inputs[0]->shape());
            for (size_t k = 1; k < call.inputs.size(); ++k) shapes += (k + 1 < call.inputs.size() ? ", " : " and ") + to_string(call.inputs[k]->shape());
            fail(ErrorKind::Value, "{}: shapes {} do not broadcast", call.info.name, shapes);
        }
        out.shape = both;
    }
}

void shape_given(const OpCall& call, OutputSpec& out) {
    out.shape = call.list(attribute::full_shape);
    if (call.inputs[0]->numel() != 1) {
        fail(ErrorKind::Value, "{}: needs one value, got {}", call.info.name, describe(*call.inputs[0]));
    }
}

void shape_arange(const OpCall& call, OutputSpec& out) {
    for (const Tensor* t : call.inputs) {
        if (!t->weak) fail(ErrorKind::Type, "{}: start, end and step are numbers, got {}", call.info.name, describe(*t));
    }
    const auto is_integer = [](const Tensor* t) { return t->dtype() != DType::Float64; };
    if (is_integer(call.inputs[0]) && is_integer(call.inputs[1]) && is_integer(call.inputs[2])) {
        int64_t v[3];
        for (int i = 0; i < 3; ++i) {
            const Tensor& t = *call.inputs[static_cast<size_t>(i)];
            if (t.dtype() == DType::UInt64) require_fits(call.info.name, t, DType::Int64);
            v[i] = t.dtype() == DType::Bool ? *static_cast<const bool*>(t.data()) : *static_cast<const int64_t*>(t.data());
        }
        if (v[2] == 0) fail(ErrorKind::Value, "{}: step is zero", call.info.name);
        // In unsigned arithmetic, where the distance of any two numbers fits.
        const auto start = static_cast<uint64_t>(v[0]), end = static_cast<uint64_t>(v[1]), step = static_cast<uint64_t>(v[2]);
        uint64_t n = 0;
        if (v[2] > 0 && v[1] > v[0]) n = (end - start - 1) / step + 1;
        if (v[2] < 0 && v[1] < v[0]) n = (start - end - 1) / (0 - step) + 1;
        if (n > INT64_MAX) fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
        out.shape = Dims{static_cast<int64_t>(n)};
    } else {
        const DefaultFloatMode mode;
        const double start = scalar_value(*call.inputs[0]), end = scalar_value(*call.inputs[1]), step = scalar_value(*call.inputs[2]);
        if (!std::isfinite(start) || !std::isfinite(end) || !std::isfinite(step)) {
            fail(ErrorKind::Value, "{}: start {}, end {} and step {} must be finite", call.info.name, start, end, step);
        }
        if (step == 0) fail(ErrorKind::Value, "{}: step is zero", call.info.name);
        const double n = std::max(0.0, std::ceil((end - start) / step));
        if (n > 9e18) fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
        out.shape = Dims{static_cast<int64_t>(n)};
    }
}

void shape_concat(const OpCall& call, OutputSpec& out) {
    const Dims& first = input_shape(call);
    if (first.rank() == 0) fail(ErrorKind::Value, "{}: 0-d tensors cannot be joined", call.info.name);
    const int dim = normalized_dim(call, call.attributes.integer(attribute::concat_dim), first.rank());
    out.shape = first;
    for (size_t i = 1; i < call.inputs.size(); ++i) {
        const Dims& next = call.inputs[i]->shape();
        bool fits = next.rank() == first.rank();
        for (int d = 0; fits && d < first.rank(); ++d) fits = d == dim || next[d] == first[d];
        if (!fits) {
            fail(ErrorKind::Value, "{}: shapes {} and {} differ in more than dimension {}", call.info.name, to_string(first), to_string(next), dim);
        }
        if (__builtin_add_overflow(out.shape[dim], next[dim], &out.shape[dim])) {
            fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
        }
    }
}

void shape_matmul(const OpCall& call, OutputSpec& out) {
    const Dims &a = call.inputs[0]->shape(), &b = call.inputs[1]->shape();
    const auto refuse = [&](const char* why) { fail(ErrorKind::Value, "{}: {}, got shapes {} and {}", call.info.name, why, to_string(a), to_string(b)); };
    if (a.rank() == 0 || b.rank() == 0) refuse("needs at least one dimension on both sides");
    const int64_t inner_a = a[a.rank() - 1], inner_b = b.rank() == 1 ? b[0] : b[b.rank() - 2];
    if (inner_a != inner_b) refuse("inner sizes differ");
    Dims batch_a, batch_b;
    for (int d = 0; d < a.rank() - 2; ++d) batch_a.push_back(a[d]);
    for (int d = 0; d < b.rank() - 2; ++d) batch_b.push_back(b[d]);
    if (!broadcast_shapes(batch_a, batch_b, out.shape)) refuse("leading dimensions do not broadcast");
    if (a.rank() > 1) out.shape.push_back(a[a.rank() - 2]);
    if (b.rank() > 1) out.shape.push_back(b[b.rank() - 1]);
}

void shape_nonzero(const OpCall& call, OutputSpec& out) {
    out.shape = Dims{0, input_shape(call).rank()};  // the first size is found by the kernel
}

void shape_reshape(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    Dims shape = call.list(attribute::reshape_shape);
    const Dims wanted = shape;
    const auto refuse = [&](const char* why) { fail(ErrorKind::Value, "{}: {}: {} to {}", call.info.name, why, to_string(x.shape()), to_string(wanted)); };
    int open = -1;
    Dims known;
    for (int d = 0; d < shape.rank(); ++d) {
        if (shape[d] == -1) {
            if (open >= 0) refuse("only one size may be -1");
            open = d;
        } else {
            known.push_back(shape[d]);
        }
    }
    const int64_t have = x.numel(), rest = checked_numel(known, call.info.name);
    if (open >= 0) {
        if (rest == 0 || have % rest != 0) refuse("the open size does not come out");
        shape[open] = have / rest;
    } else if (rest != have) {
        refuse("the number of elements differs");
    }
    out.shape = shape;
    out.offset = x.offset();
    // call() has made x contiguous where its strides do not allow a view.
    if (!reshape_strides(x.shape(), x.strides(), shape, out.strides)) out.strides.resize(0);
}

void shape_permute(const OpCall& call, OutputSpec& out) {
    const Attributes& attributes = call.attributes;
    const Tensor& x = *call.inputs[0];
    const int64_t n = attributes.length(attribute::permute_dims);
    const auto refuse = [&] {
        fail(ErrorKind::Value, "{}: {} is not an order of the {} dimensions of {}", call.info.name, to_string(call.list(attribute::permute_dims)), x.rank(),
             to_string(x.shape()));
    };
    if (n != x.rank()) refuse();
    bool seen[kMaxRank] = {};
    for (int64_t i = 0; i < n; ++i) {
        const int d = normalized_dim(call, attributes.list(attribute::permute_dims)[i], x.rank());
        if (seen[d]) refuse();
        seen[d] = true;
        out.shape.push_back(x.shape()[d]);
        out.strides.push_back(x.strides()[d]);
    }
    out.offset = x.offset();
}

void shape_slice(const OpCall& call, OutputSpec& out) {
    const Attributes& attributes = call.attributes;
    const Tensor& x = *call.inputs[0];
    const int dim = normalized_dim(call, attributes.integer(attribute::slice_dim), x.rank());
    const int64_t size = x.shape()[dim], step = attributes.integer(attribute::slice_step);
    if (step == 0) fail(ErrorKind::Value, "{}: step is zero", call.info.name);
    // Python's rules: a border counts from the end when negative, and is then cut to what the direction can reach.
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto border = [&](int position, int64_t missing) {
        if (!attributes.present(position)) return missing;
        int64_t value = attributes.integer(position);
        if (value < 0) value = std::max(value, -size - 1) + size;
        return std::clamp(value, low, high);
    };
    const int64_t start = border(attribute::slice_start, step > 0 ? low : high), end = border(attribute::slice_end, step > 0 ? high : low);
    int64_t n = 0;
    if (step > 0 && end > start) n = (end - start - 1) / step + 1;
    if (step < 0 && start > end) n = static_cast<int64_t>((static_cast<uint64_t>(start - end) - 1) / (uint64_t{0} - static_cast<uint64_t>(step))) + 1;
    out.shape = x.shape();
    out.shape[dim] = n;
    out.strides = x.strides();
    out.strides[dim] = n > 1 ? x.strides()[dim] * step : x.strides()[dim];
    out.offset = x.offset() + (n > 0 ? start * x.strides()[dim] : 0);
}

void shape_select(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int dim = normalized_dim(call, call.attributes.integer(attribute::select_dim), x.rank());
    const int64_t size = x.shape()[dim], index = call.attributes.integer(attribute::select_index);
    if (index < -size || index >= size) {
        fail(ErrorKind::Index, "{}: index {} is out of range for dimension {} of size {}, shape {}", call.info.name, index, dim, size, to_string(x.shape()));
    }
    out.shape = x.shape();
    out.strides = x.strides();
    out.offset = x.offset() + (index < 0 ? index + size : index) * x.strides()[dim];
    out.shape.erase(dim);
    out.strides.erase(dim);
}

}  // namespace clikart
