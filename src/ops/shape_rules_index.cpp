// Shapes of operators that sort, search, and go by places.  Whether places are in range is seen by the kernels.
#include <algorithm>

#include "ops/rules.h"

namespace clikart {
namespace {

const Dims& shape_of(const OpCall& call, size_t i) {
    return call.inputs[i]->shape();
}

/// The dimension that a call works along, and its size; a 0-d tensor has one of size 1.
struct Along {
    int dim;
    int64_t size;
};
Along along(const OpCall& call, int position) {
    const Dims& x = shape_of(call, 0);
    const int dim = normalized_dim(call, call.attributes.integer(position), x.rank(), true);
    return {dim, x.rank() == 0 ? 1 : x[dim]};
}

void require_k(const OpCall& call, int64_t k, int64_t least, int64_t most) {
    if (k < least || k > most) fail(ErrorKind::Value, "{}: k is {}, not from {} to {}, shape {}", call.info.name, k, least, most, to_string(shape_of(call, 0)));
}

void shape_of_mask(const OpCall& call, Dims& out) {
    const Dims &x = shape_of(call, 0), &mask = shape_of(call, 1);
    if (!broadcast_shapes(x, mask, out)) fail(ErrorKind::Value, "{}: shapes {} and {} do not broadcast", call.info.name, to_string(x), to_string(mask));
}

/// Where there is no place at all, an index need not be looked at.
void require_places(const OpCall& call, const Dims& index, const Dims& x, int dim) {
    if (numel(index) > 0 && x.rank() > 0 && x[dim] == 0) fail(ErrorKind::Index, "{}: index is out of range for dimension {} of size 0", call.info.name, dim);
}

/// Of one index tensor for each of some dimensions: that they name places of x, and the shape of what is there.
Dims indexed_shape(const OpCall& call, int position, size_t first) {
    const Dims& x = shape_of(call, 0);
    const auto n = static_cast<size_t>(call.attributes.length(position));
    const auto indices = call.inputs.subspan(first);
    if (n == 0 || indices.size() != n) {
        fail(ErrorKind::Value, "{}: needs one index for each of some dimensions, got {} for {}", call.info.name, indices.size(), n);
    }
    int dims[kMaxRank];
    Dims together, out;
    for (size_t i = 0; i < n; ++i) {
        dims[i] = normalized_dim(call, call.attributes.list(position)[i], x.rank());
        if (i > 0 && dims[i] <= dims[i - 1]) {
            fail(ErrorKind::Value, "{}: dimensions must ascend, got {} after {}", call.info.name, dims[i], dims[i - 1]);
        }
        const Dims before = together;
        if (!broadcast_shapes(before, indices[i]->shape(), together)) {
            fail(ErrorKind::Index, "{}: indices of shapes {} and {} do not broadcast", call.info.name, to_string(before), to_string(indices[i]->shape()));
        }
    }
    for (size_t i = 0; i < n; ++i) require_places(call, together, x, dims[i]);
    const bool neighbours = dims[n - 1] - dims[0] == static_cast<int>(n) - 1;
    const int place = neighbours ? dims[0] : 0;
    if (const int rank = together.rank() + x.rank() - static_cast<int>(n); rank > kMaxRank) {
        fail(ErrorKind::Value, "{}: a tensor has at most {} dimensions, got {}", call.info.name, kMaxRank, rank);
    }
    for (int d = 0; d < place; ++d) out.push_back(x[d]);
    for (const int64_t size : together) out.push_back(size);
    for (int d = place; d < x.rank(); ++d) {
        if (std::find(dims, dims + n, d) == dims + n) out.push_back(x[d]);
    }
    return out;
}

}  // namespace

void shape_sort(const OpCall& call, OutputSpec& out) {
    along(call, attribute::sort_dim);
    out.shape = shape_of(call, 0);
}

void shape_topk(const OpCall& call, OutputSpec& out) {
    const auto [dim, size] = along(call, attribute::topk_dim);
    const int64_t k = call.attributes.integer(attribute::topk_k);
    out.shape = shape_of(call, 0);
    require_k(call, k, out.shape.rank() == 0 ? 1 : 0, size);
    if (out.shape.rank() > 0) out.shape[dim] = k;
}

void shape_kthvalue(const OpCall& call, OutputSpec& out) {
    const auto [dim, size] = along(call, attribute::kthvalue_dim);
    out.shape = shape_of(call, 0);
    require_k(call, call.attributes.integer(attribute::kthvalue_k), 1, size);
    if (out.shape.rank() == 0) return;
    if (call.attributes.integer(attribute::kthvalue_keepdim)) {
        out.shape[dim] = 1;
    } else {
        out.shape.erase(dim);
    }
}

void shape_found(const OpCall&, OutputSpec& out) {
    out.shape = Dims{0};
}

void shape_searchsorted(const OpCall& call, OutputSpec& out) {
    const Dims &sorted = shape_of(call, 0), &values = shape_of(call, 1);
    bool fits = sorted.rank() == 1 || (sorted.rank() > 1 && sorted.rank() == values.rank());
    for (int d = 0; fits && d < sorted.rank() - 1; ++d) fits = sorted[d] == values[d];
    if (!fits) {
        fail(ErrorKind::Value, "{}: needs the leading dimensions of both to be the same, or one dimension to search in, got shapes {} and {}", call.info.name,
             to_string(sorted), to_string(values));
    }
    out.shape = values;
}

void shape_bincount(const OpCall& call, OutputSpec& out) {
    const Dims& x = shape_of(call, 0);
    if (x.rank() != 1) fail(ErrorKind::Value, "{}: needs one dimension, got shape {}", call.info.name, to_string(x));
    const Tensor* const weights = call.optional(1, attribute::bincount_given);
    if (weights && !(weights->shape() == x)) {
        fail(ErrorKind::Value, "{}: needs as many weights as numbers, got shapes {} and {}", call.info.name, to_string(weights->shape()), to_string(x));
    }
    const int64_t least = call.attributes.integer(attribute::bincount_minlength);
    if (least < 0) fail(ErrorKind::Value, "{}: minlength is negative: {}", call.info.name, least);
    out.shape = Dims{0};
}

void shape_gather(const OpCall& call, OutputSpec& out) {
    const Dims &x = shape_of(call, 0), &index = shape_of(call, 1);
    const int dim = along(call, attribute::gather_dim).dim;
    bool fits = x.rank() == index.rank();
    for (int d = 0; fits && d < x.rank(); ++d) fits = d == dim || index[d] <= x[d];
    if (!fits) {
        fail(ErrorKind::Value, "{}: an index of shape {} does not fit into shape {} along dimension {}", call.info.name, to_string(index), to_string(x), dim);
    }
    require_places(call, index, x, dim);
    out.shape = index;
}

void shape_scatter(const OpCall& call, OutputSpec& out) {
    shape_gather(call, out);
    const Dims index = out.shape, &src = shape_of(call, 2);
    bool fits = src.rank() == index.rank() || src.rank() == 0;
    for (int d = 0; fits && d < src.rank(); ++d) fits = index[d] <= src[d];
    if (!fits) fail(ErrorKind::Value, "{}: an index of shape {} does not fit into src, shape {}", call.info.name, to_string(index), to_string(src));
    out.shape = shape_of(call, 0);
}

void shape_take(const OpCall& call, OutputSpec& out) {
    out.shape = shape_of(call, 1);
}

void shape_index_select(const OpCall& call, OutputSpec& out) {
    const Dims &x = shape_of(call, 0), &index = shape_of(call, 1);
    const int dim = normalized_dim(call, call.attributes.integer(attribute::index_select_dim), x.rank());
    if (index.rank() > 1) fail(ErrorKind::Value, "{}: needs an index of one dimension, got shape {}", call.info.name, to_string(index));
    out.shape = x;
    out.shape[dim] = numel(index);
}

void shape_index(const OpCall& call, OutputSpec& out) {
    out.shape = indexed_shape(call, attribute::index_dims, 1);
}

void shape_index_put(const OpCall& call, OutputSpec& out) {
    const Dims places = indexed_shape(call, attribute::index_put_dims, 2), &values = shape_of(call, 1);
    Dims both;
    if (!broadcast_shapes(values, places, both) || !(both == places)) {
        fail(ErrorKind::Value, "{}: values of shape {} do not broadcast to the shape of the places, {}", call.info.name, to_string(values), to_string(places));
    }
    out.shape = shape_of(call, 0);
}

void shape_embedding(const OpCall& call, OutputSpec& out) {
    const Dims& weight = shape_of(call, 1);
    if (weight.rank() != 2) fail(ErrorKind::Value, "{}: needs a table of two dimensions, got shape {}", call.info.name, to_string(weight));
    check_result_rank(call, shape_of(call, 0).rank() + 1);
    out.shape = shape_of(call, 0);
    out.shape.push_back(weight[1]);
}

void shape_masked_select(const OpCall& call, OutputSpec& out) {
    Dims both;
    shape_of_mask(call, both);
    checked_numel(both, call.info.name);
    out.shape = Dims{0};
}

void shape_masked_fill(const OpCall& call, OutputSpec& out) {
    shape_of_mask(call, out.shape);
    if (call.inputs[2]->rank() != 0) {
        fail(ErrorKind::Value, "{}: needs a number or a 0-d tensor as the value, got shape {}", call.info.name, to_string(shape_of(call, 2)));
    }
}

void shape_masked_scatter(const OpCall& call, OutputSpec& out) {
    shape_of_mask(call, out.shape);
}

}  // namespace clikart
