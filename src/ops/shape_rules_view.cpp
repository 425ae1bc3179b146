// The shape rules of views beyond those that everything else is made of (shape_rules.cpp).
#include "ops/rules.h"

namespace clikart {
namespace {

/// x as another shape of as many elements; where strides do not allow a view, call() makes a copy and asks again.
void view_as(const OpCall& call, const Dims& shape, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    out.shape = shape;
    out.offset = x.offset();
    if (!reshape_strides(x.shape(), x.strides(), shape, out.strides)) out.strides.resize(0);
}

/// x's dimensions in another order.
void view_in_order(const OpCall& call, const Dims& order, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    for (const int64_t d : order) {
        out.shape.push_back(x.shape()[static_cast<int>(d)]);
        out.strides.push_back(x.strides()[static_cast<int>(d)]);
    }
    out.offset = x.offset();
}

void expand_to(const OpCall& call, const Dims& wanted, bool minus_one_keeps, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int front = wanted.rank() - x.rank();
    const auto refuse = [&] { fail(ErrorKind::Value, "{}: shape {} does not broadcast to {}", call.info.name, to_string(x.shape()), to_string(wanted)); };
    if (front < 0) refuse();
    out.shape = wanted;
    out.strides.resize(wanted.rank());
    out.offset = x.offset();
    for (int d = 0; d < wanted.rank(); ++d) {
        if (d < front) {
            if (wanted[d] < 0) refuse();
            continue;
        }
        const int64_t own = x.shape()[d - front], stride = x.strides()[d - front];
        if (wanted[d] == own || (minus_one_keeps && wanted[d] == -1)) {
            out.shape[d] = own;
            out.strides[d] = stride;
        } else if (own != 1 || wanted[d] < 0) {
            refuse();
        }
    }
}

}  // namespace

void check_result_rank(const OpCall& call, int rank) {
    if (rank > kMaxRank) fail(ErrorKind::Value, "{}: the result has {} dimensions, at most {} are possible", call.info.name, rank, kMaxRank);
}

void shape_expand(const OpCall& call, OutputSpec& out) {
    expand_to(call, call.list(attribute::expand_shape), true, out);
}

void shape_broadcast_to(const OpCall& call, OutputSpec& out) {
    expand_to(call, call.list(attribute::broadcast_to_shape), false, out);
}

void shape_transpose(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int a = normalized_dim(call, call.attributes.integer(attribute::transpose_dim0), x.rank(), true);
    const int b = normalized_dim(call, call.attributes.integer(attribute::transpose_dim1), x.rank(), true);
    Dims order;
    for (int d = 0; d < x.rank(); ++d) order.push_back(d == a ? b : d == b ? a : d);
    view_in_order(call, order, out);
}

void shape_squeeze(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    constexpr int dims = attribute::squeeze_dims;
    auto named = named_dims(call, dims);
    if (!call.attributes.present(dims)) named.fill(true);
    Dims kept;
    for (int d = 0; d < x.rank(); ++d) {
        if (!named[d] || x.shape()[d] != 1) kept.push_back(d);
    }
    view_in_order(call, kept, out);
}

void shape_unsqueeze(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int at = normalized_dim(call, call.attributes.integer(attribute::unsqueeze_dim), x.rank() + 1);
    check_result_rank(call, x.rank() + 1);
    for (int d = 0; d <= x.rank(); ++d) {
        if (d == at) {
            out.shape.push_back(1);
            out.strides.push_back(0);
        }
        if (d < x.rank()) {
            out.shape.push_back(x.shape()[d]);
            out.strides.push_back(x.strides()[d]);
        }
    }
    out.offset = x.offset();
}

void shape_flatten(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int first = normalized_dim(call, call.attributes.integer(attribute::flatten_start_dim), x.rank(), true);
    const int last = normalized_dim(call, call.attributes.integer(attribute::flatten_end_dim), x.rank(), true);
    if (first > last) fail(ErrorKind::Value, "{}: start_dim {} comes after end_dim {}, shape {}", call.info.name, first, last, to_string(x.shape()));
    Dims shape, together;
    for (int d = 0; d < x.rank(); ++d) {
        if (d < first || d > last) {
            shape.push_back(x.shape()[d]);
            continue;
        }
        together.push_back(x.shape()[d]);
        if (d == last) shape.push_back(checked_numel(together, call.info.name));
    }
    if (x.rank() == 0) shape.push_back(1);
    view_as(call, shape, out);
}

void shape_unflatten(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int dim = normalized_dim(call, call.attributes.integer(attribute::unflatten_dim), x.rank());
    const Dims sizes = call.list(attribute::unflatten_sizes);
    const int64_t have = x.shape()[dim];
    const auto refuse = [&](const char* why) {
        fail(ErrorKind::Value, "{}: {}: {} for dimension {} of {}", call.info.name, why, to_string(sizes), dim, to_string(x.shape()));
    };
    if (sizes.rank() == 0) refuse("no sizes");
    check_result_rank(call, x.rank() - 1 + sizes.rank());
    int open = -1;
    Dims known;
    for (int i = 0; i < sizes.rank(); ++i) {
        if (sizes[i] != -1) {
            known.push_back(sizes[i]);
        } else if (open >= 0) {
            refuse("only one size may be -1");
        } else {
            open = i;
        }
    }
    const int64_t rest = checked_numel(known, call.info.name);
    if (open >= 0 ? rest == 0 || have % rest != 0 : rest != have) refuse("the sizes do not make up the dimension");
    Dims shape;
    for (int d = 0; d < x.rank(); ++d) {
        if (d != dim) shape.push_back(x.shape()[d]);
        for (int i = 0; d == dim && i < sizes.rank(); ++i) shape.push_back(i == open ? have / rest : sizes[i]);
    }
    view_as(call, shape, out);
}

void shape_movedim(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const Dims source = call.list(attribute::movedim_source), destination = call.list(attribute::movedim_destination);
    const auto refuse = [&](const char* why) {
        fail(ErrorKind::Value, "{}: {}: source {}, destination {}, shape {}", call.info.name, why, to_string(source), to_string(destination),
             to_string(x.shape()));
    };
    if (source.rank() != destination.rank()) refuse("the lists differ in length");
    Dims order;
    order.resize(x.rank(), -1);
    bool moved[kMaxRank] = {};
    for (int i = 0; i < source.rank(); ++i) {
        const int from = normalized_dim(call, source[i], x.rank()), to = normalized_dim(call, destination[i], x.rank());
        if (moved[from] || order[to] >= 0) refuse("a dimension is named twice");
        moved[from] = true;
        order[to] = from;
    }
    int next = 0;
    for (int d = 0; d < x.rank(); ++d) {
        if (order[d] >= 0) continue;
        while (moved[next]) ++next;
        order[d] = next++;
    }
    view_in_order(call, order, out);
}

void shape_diagonal(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int64_t offset = call.attributes.integer(attribute::diagonal_offset);
    const int rows = normalized_dim(call, call.attributes.integer(attribute::diagonal_dim1), x.rank());
    const int columns = normalized_dim(call, call.attributes.integer(attribute::diagonal_dim2), x.rank());
    if (rows == columns) fail(ErrorKind::Value, "{}: dim1 and dim2 are both {}, shape {}", call.info.name, rows, to_string(x.shape()));
    const int64_t n = x.shape()[rows], m = x.shape()[columns];
    const int64_t size = std::max<int64_t>(0, offset >= 0 ? std::min(n, m - offset) : std::min(n + offset, m));
    Dims kept;
    for (int d = 0; d < x.rank(); ++d) {
        if (d != rows && d != columns) kept.push_back(d);
    }
    view_in_order(call, kept, out);
    out.shape.push_back(size);
    out.strides.push_back(x.strides()[rows] + x.strides()[columns]);
    if (size > 0) out.offset += offset >= 0 ? offset * x.strides()[columns] : -offset * x.strides()[rows];
}

void shape_unfold(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int dim = normalized_dim(call, call.attributes.integer(attribute::unfold_dim), x.rank(), true);
    const int64_t size = call.attributes.integer(attribute::unfold_size), step = call.attributes.integer(attribute::unfold_step);
    check_result_rank(call, x.rank() + 1);
    const int64_t have = x.rank() == 0 ? 1 : x.shape()[dim], stride = x.rank() == 0 ? 1 : x.strides()[dim];
    if (size < 0 || size > have || step <= 0) {
        fail(ErrorKind::Value, "{}: no windows of size {} and step {} in dimension {} of size {}, shape {}", call.info.name, size, step, dim, have,
             to_string(x.shape()));
    }
    out.shape = x.shape();
    out.strides = x.strides();
    out.offset = x.offset();
    if (x.rank() > 0) {
        out.shape[dim] = (have - size) / step + 1;
        if (out.shape[dim] > 1) out.strides[dim] = stride * step;
    }
    out.shape.push_back(size);
    out.strides.push_back(stride);
}

void shape_narrow(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const int dim = normalized_dim(call, call.attributes.integer(attribute::narrow_dim), x.rank());
    const int64_t size = x.shape()[dim], given = call.attributes.integer(attribute::narrow_start), length = call.attributes.integer(attribute::narrow_length);
    if (given < -size || given > size) {
        fail(ErrorKind::Index, "{}: start {} is out of range for dimension {} of size {}, shape {}", call.info.name, given, dim, size, to_string(x.shape()));
    }
    const int64_t start = given < 0 ? given + size : given;
    if (length < 0 || length > size - start) {
        fail(ErrorKind::Value, "{}: no {} elements from {} on in dimension {} of size {}, shape {}", call.info.name, length, start, dim, size,
             to_string(x.shape()));
    }
    out.shape = x.shape();
    out.shape[dim] = length;
    out.strides = x.strides();
    out.offset = x.offset() + (length > 0 ? start * x.strides()[dim] : 0);
}

namespace {

/// Throws for elements of which two share a byte.
void refuse_packed(const OpCall& call, DType dtype) {
    if (is_packed(dtype))
        fail(ErrorKind::NotImplemented, "{}: {} has two elements in a byte, so there are no such views; cast it first", call.info.name, name_of(dtype));
}

}  // namespace

void shape_view_dtype(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    const auto to = static_cast<DType>(call.attributes.integer(attribute::view_dtype_dtype));
    if (x.weak) fail(ErrorKind::Type, "{}: needs a tensor, got a number", call.info.name);
    if (x.dtype() != to && (x.dtype() == DType::Bool || to == DType::Bool)) {
        fail(ErrorKind::Type, "{}: the bytes of a bool are 0 or 1, so {} cannot be seen as {}; cast it", call.info.name, describe(x), name_of(to));
    }
    const auto refuse = [&](const char* why) {
        fail(ErrorKind::Value, "{}: {}: {} with strides {} as {}", call.info.name, why, describe(x), to_string(x.strides()), name_of(to));
    };
    if (x.dtype() != to) refuse_packed(call, x.dtype()), refuse_packed(call, to);
    const int64_t before = size_of(x.dtype()), after = size_of(to);
    out.shape = x.shape();
    out.strides = x.strides();
    out.offset = x.offset();
    const Storage& storage = x.storage();
    if (after > 0 && storage.host_visible() && reinterpret_cast<uintptr_t>(storage.data()) % std::min(static_cast<size_t>(after), kWidestElement) != 0)
        refuse("the memory is not aligned for it");
    if (before == after) return;
    const int last = x.rank() - 1;
    if (last < 0) refuse("a 0-d tensor has no dimension to change");
    if (x.shape()[last] > 1 && x.strides()[last] != 1) refuse("the elements of the last dimension are not neighbours");
    if (before > after) {
        const int64_t ratio = before / after;
        for (int d = 0; d < last; ++d) out.strides[d] *= ratio;
        out.shape[last] *= ratio;
        out.offset *= ratio;
    } else {
        const int64_t ratio = after / before;
        if (x.shape()[last] % ratio != 0) refuse("the last dimension does not come out");
        bool on_borders = x.numel() == 0 || x.offset() % ratio == 0;
        for (int d = 0; d < last; ++d) {
            on_borders &= x.numel() == 0 || x.shape()[d] <= 1 || x.strides()[d] % ratio == 0;
            out.strides[d] /= ratio;
        }
        if (!on_borders) refuse("elements do not lie on its borders");
        out.shape[last] /= ratio;
        out.offset /= ratio;
    }
    out.strides[last] = 1;
}

void shape_as_strided(const OpCall& call, OutputSpec& out) {
    const Tensor& x = *call.inputs[0];
    refuse_packed(call, x.dtype());
    out.shape = call.list(attribute::as_strided_shape);
    out.strides = call.list(attribute::as_strided_strides);
    out.offset = call.attributes.present(attribute::as_strided_offset) ? call.attributes.integer(attribute::as_strided_offset) : x.offset();
    if (out.shape.rank() != out.strides.rank()) {
        fail(ErrorKind::Value, "{}: shape {} and strides {} differ in length", call.info.name, to_string(out.shape), to_string(out.strides));
    }
    const int64_t count = checked_numel(out.shape, call.info.name);
    const int64_t room = x.storage().bytes() / size_of(x.dtype());
    int64_t low = out.offset, high = out.offset;  // the places of the first and the last element
    bool outside = false;
    for (int d = 0; d < out.shape.rank() && count > 0; ++d) {
        int64_t reach;
        outside |= __builtin_mul_overflow(out.shape[d] - 1, out.strides[d], &reach);
        int64_t& end = reach < 0 ? low : high;
        outside |= __builtin_add_overflow(end, reach, &end);
    }
    if (outside || low < 0 || (count > 0 ? high >= room : high > room)) {
        fail(ErrorKind::Value, "{}: shape {} with strides {} from {} on leaves the memory of {} elements", call.info.name, to_string(out.shape),
             to_string(out.strides), out.offset, room);
    }
    const Dims plain = contiguous_strides(out.shape);
    for (int d = 0; d < out.shape.rank(); ++d) {  // of no consequence, and perhaps beyond what fits
        if (count == 0 || out.shape[d] == 1) out.strides[d] = plain[d];
    }
}

}  // namespace clikart
