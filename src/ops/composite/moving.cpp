// Operators that put elements in other places, made of views and copies.
#include "ops/op_calls.h"
#include "ops/rules.h"

namespace clikart {
namespace {

/// How many a dimension has when each of them comes `times` times.
int64_t times_as_many(const OpCall& call, int64_t size, int64_t times) {
    int64_t all;
    if (__builtin_mul_overflow(size, times, &all)) fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
    return all;
}

/// A contiguous copy, also where the shape alone could be had as a view.
Ref<Tensor> copied(Tensor& view, const Dims& shape) {
    const Ref<Tensor> copy = op::copy(view);
    return op::reshape(*copy, shape);
}

/// x, of as many dimensions as entries, `times` over.
Ref<Tensor> repeated(const OpCall& call, Tensor& x, const Dims& times) {
    Dims shape;
    int more = 0;
    for (int d = 0; d < times.rank(); ++d) {
        shape.push_back(times_as_many(call, x.shape()[d], times[d]));
        more += times[d] != 1 && x.shape()[d] != 1;
    }
    checked_numel(shape, call.info.name);
    if (x.rank() + more > kMaxRank) {  // one dimension after the other, between all before it and all after it
        Ref<Tensor> result = Ref<Tensor>::share(&x);
        for (int d = 0; d < times.rank(); ++d) {
            if (times[d] == 1) continue;
            int64_t before = 1, after = 1;
            Dims now = result->shape();
            for (int i = 0; i < now.rank(); ++i) (i < d ? before : after) *= now[i];
            now[d] = shape[d];
            const Ref<Tensor> flat = op::reshape(*result, Dims{before, 1, after});
            const Ref<Tensor> view = op::expand(*flat, Dims{before, times[d], after});
            result = copied(*view, now);
        }
        return &*result == &x ? op::copy(x) : result;
    }
    // A dimension of size 1 is expanded itself, any other by a new one before it.
    Dims apart, expanded;
    for (int d = 0; d < times.rank(); ++d) {
        if (times[d] != 1 && x.shape()[d] != 1) {
            apart.push_back(1);
            expanded.push_back(times[d]);
        }
        apart.push_back(x.shape()[d]);
        expanded.push_back(x.shape()[d] == 1 ? times[d] : x.shape()[d]);
    }
    const Ref<Tensor> flat = op::reshape(x, apart);
    const Ref<Tensor> view = op::expand(*flat, expanded);
    return copied(*view, shape);
}

Ref<Tensor> with_dimensions_in_front(Tensor& x, int rank) {
    Dims shape;
    for (int d = x.rank(); d < rank; ++d) shape.push_back(1);
    for (const int64_t size : x.shape()) shape.push_back(size);
    return op::reshape(x, shape);
}

void refuse_negative(const OpCall& call, const Dims& times) {
    for (const int64_t n : times) {
        if (n < 0) fail(ErrorKind::Value, "{}: a negative number of times in {}", call.info.name, to_string(times));
    }
}

Ref<Tensor> rolled(Tensor& x, int64_t shift, int dim) {
    const int64_t size = x.shape()[dim];
    if (size == 0) return op::copy(x);
    const int64_t by = (shift % size + size) % size;
    if (by == 0) return op::copy(x);
    const Ref<Tensor> last = op::slice(x, dim, size - by, std::nullopt, 1), first = op::slice(x, dim, 0, size - by, 1);
    Tensor* const parts[] = {last.get(), first.get()};
    return op::concat(parts, dim);
}

/// [..., h, w, c] as all before it, and the three.
Dims pixels(const OpCall& call, int64_t factor) {
    const Dims& in = call.inputs[0]->shape();
    if (in.rank() < 3) fail(ErrorKind::Value, "{}: needs [..., h, w, c], got shape {}", call.info.name, to_string(in));
    if (factor < 1) fail(ErrorKind::Value, "{}: the factor is {}", call.info.name, factor);
    int64_t before = 1;
    for (int d = 0; d < in.rank() - 3; ++d) before *= in[d];
    return Dims{before, in[in.rank() - 3], in[in.rank() - 2], in[in.rank() - 1]};
}

Dims with_pixels(const Dims& in, int64_t height, int64_t width, int64_t channels) {
    Dims shape = in;
    shape[in.rank() - 3] = height;
    shape[in.rank() - 2] = width;
    shape[in.rank() - 1] = channels;
    return shape;
}

}  // namespace

Ref<Tensor> composite_repeat(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const Dims times = call.list(attribute::repeat_repeats);
    if (times.rank() < x.rank()) {
        fail(ErrorKind::Value, "{}: {} has fewer entries than shape {} dimensions", call.info.name, to_string(times), to_string(x.shape()));
    }
    refuse_negative(call, times);
    const Ref<Tensor> all = with_dimensions_in_front(x, times.rank());
    return repeated(call, *all, times);
}

Ref<Tensor> composite_tile(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const Dims given = call.list(attribute::tile_dims);
    refuse_negative(call, given);
    Dims times;
    for (int d = given.rank(); d < x.rank(); ++d) times.push_back(1);
    for (const int64_t n : given) times.push_back(n);
    const Ref<Tensor> all = with_dimensions_in_front(x, times.rank());
    return repeated(call, *all, times);
}

Ref<Tensor> composite_repeat_interleave(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const int64_t repeats = call.attributes.integer(attribute::repeat_interleave_repeats);
    if (repeats < 0) fail(ErrorKind::Value, "{}: repeats is {}", call.info.name, repeats);
    int64_t before = 1, size = x.numel(), after = 1;
    Dims shape{size};
    if (call.attributes.present(attribute::repeat_interleave_dim)) {
        const int dim = normalized_dim(call, call.attributes.integer(attribute::repeat_interleave_dim), x.rank(), true);
        if (x.rank() > 0) {
            shape = x.shape();
            size = shape[dim];
            for (int d = 0; d < x.rank(); ++d) {
                if (d != dim) (d < dim ? before : after) *= shape[d];
            }
        }
        shape[dim] = times_as_many(call, size, repeats);
    } else {
        shape[0] = times_as_many(call, size, repeats);
    }
    checked_numel(shape, call.info.name);
    const Ref<Tensor> apart = op::reshape(x, Dims{before, size, 1, after});
    const Ref<Tensor> view = op::expand(*apart, Dims{before, size, repeats, after});
    return copied(*view, shape);
}

Ref<Tensor> composite_roll(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const Dims shifts = call.list(attribute::roll_shifts);
    if (!call.attributes.present(attribute::roll_dims)) {
        if (shifts.rank() != 1) fail(ErrorKind::Value, "{}: needs one shift where there are no dims, got {}", call.info.name, to_string(shifts));
        const Ref<Tensor> flat = op::reshape(x, Dims{x.numel()});
        const Ref<Tensor> result = rolled(*flat, shifts[0], 0);
        return op::reshape(*result, x.shape());
    }
    const Dims dims = call.list(attribute::roll_dims);
    if (shifts.rank() != dims.rank()) {
        fail(ErrorKind::Value, "{}: shifts {} and dims {} differ in length", call.info.name, to_string(shifts), to_string(dims));
    }
    Dims by;  // for each dimension
    by.resize(x.rank());
    for (int i = 0; i < dims.rank(); ++i) {
        const int d = normalized_dim(call, dims[i], x.rank(), true);
        if (x.rank() > 0 && x.shape()[d] > 0) by[d] = (by[d] + shifts[i] % x.shape()[d]) % x.shape()[d];
    }
    Ref<Tensor> result;
    for (int d = 0; d < x.rank(); ++d) {
        if (by[d] != 0) result = rolled(result ? *result : x, by[d], d);
    }
    return result ? result : op::copy(x);
}

Ref<Tensor> composite_flip(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const auto flipped = named_dims(call, attribute::flip_dims);
    Ref<Tensor> view = Ref<Tensor>::share(&x);
    for (int d = 0; d < x.rank(); ++d) {
        if (flipped[static_cast<size_t>(d)]) view = op::slice(*view, d, std::nullopt, std::nullopt, -1);
    }
    return op::copy(*view);
}

Ref<Tensor> composite_diag(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const int64_t offset = call.attributes.integer(attribute::diag_diagonal);
    if (x.rank() == 1) return op::diag_embed(x, offset, 0, 1);
    if (x.rank() != 2) fail(ErrorKind::Value, "{}: needs one or two dimensions, got shape {}", call.info.name, to_string(x.shape()));
    const Ref<Tensor> view = op::diagonal(x, offset, 0, 1);
    return op::copy(*view);
}

Ref<Tensor> composite_pixel_shuffle(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const int64_t r = call.attributes.integer(attribute::pixel_shuffle_upscale_factor);
    const Dims in = pixels(call, r);
    int64_t square;
    if (__builtin_mul_overflow(r, r, &square) || in[3] % square != 0) {
        fail(ErrorKind::Value, "{}: {} channels are no multiple of {} times {}, shape {}", call.info.name, in[3], r, r, to_string(x.shape()));
    }
    const int64_t channels = in[3] / square;
    const Dims shape = with_pixels(x.shape(), times_as_many(call, in[1], r), times_as_many(call, in[2], r), channels);
    const Ref<Tensor> apart = op::reshape(x, Dims{in[0], in[1], in[2], channels, r, r});
    const Ref<Tensor> view = op::permute(*apart, Dims{0, 1, 4, 2, 5, 3});
    return copied(*view, shape);
}

Ref<Tensor> composite_pixel_unshuffle(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const int64_t r = call.attributes.integer(attribute::pixel_unshuffle_downscale_factor);
    const Dims in = pixels(call, r);
    if (in[1] % r != 0 || in[2] % r != 0) {
        fail(ErrorKind::Value, "{}: height and width are no multiples of {}, shape {}", call.info.name, r, to_string(x.shape()));
    }
    const Dims shape = with_pixels(x.shape(), in[1] / r, in[2] / r, times_as_many(call, times_as_many(call, in[3], r), r));
    const Ref<Tensor> apart = op::reshape(x, Dims{in[0], in[1] / r, r, in[2] / r, r, in[3]});
    const Ref<Tensor> view = op::permute(*apart, Dims{0, 1, 3, 5, 2, 4});
    return copied(*view, shape);
}

Ref<Tensor> composite_channel_shuffle(const OpCall& call) {
    Tensor& x = *call.inputs[0];
    const int64_t groups = call.attributes.integer(attribute::channel_shuffle_groups);
    const int last = x.rank() - 1;
    if (last < 0 || groups < 1 || x.shape()[last] % groups != 0) {
        fail(ErrorKind::Value, "{}: the last dimension of shape {} does not make {} groups", call.info.name, to_string(x.shape()), groups);
    }
    if (x.numel() == 0) return op::copy(x);
    const int64_t channels = x.shape()[last];
    const Ref<Tensor> apart = op::reshape(x, Dims{x.numel() / channels, groups, channels / groups});
    const Ref<Tensor> view = op::permute(*apart, Dims{0, 2, 1});
    return copied(*view, x.shape());
}

Ref<Tensor> composite_take_along_dim(const OpCall& call) {
    Tensor &x = *call.inputs[0], &index = *call.inputs[1];
    if (!is_integer(index.dtype())) fail(ErrorKind::Type, "{}: needs integers as places, got {}", call.info.name, describe(index));
    if (!call.attributes.present(attribute::take_along_dim_dim)) {
        const Ref<Tensor> flat = op::reshape(x, Dims{-1}), places = op::reshape(index, Dims{-1});
        return op::gather(*flat, 0, *places);
    }
    const int dim = normalized_dim(call, call.attributes.integer(attribute::take_along_dim_dim), x.rank());
    Dims of_x = x.shape(), of_index = index.shape(), both;
    bool fits = of_x.rank() == of_index.rank();
    if (fits) {
        of_x[dim] = of_index[dim] = 1;
        fits = broadcast_shapes(of_x, of_index, both);
    }
    if (!fits) fail(ErrorKind::Value, "{}: an index of shape {} does not fit shape {}", call.info.name, to_string(index.shape()), to_string(x.shape()));
    of_x = of_index = both;
    of_x[dim] = x.shape()[dim];
    of_index[dim] = index.shape()[dim];
    const Ref<Tensor> elements = op::broadcast_to(x, of_x), places = op::broadcast_to(index, of_index);
    return op::gather(*elements, dim, *places);
}

namespace {

/// The tensors with dimensions in front until they have `rank`, one after the other.
Ref<Tensor> joined(const OpCall& call, int rank, int dim) {
    SmallVector<Ref<Tensor>, 4> owned;
    SmallVector<Tensor*, 4> parts;
    for (Tensor* const t : call.inputs) parts.push_back(t->rank() < rank ? owned.emplace_back(with_dimensions_in_front(*t, rank)).get() : t);
    return op::concat({parts.data(), parts.size()}, dim);
}

void require_some(const OpCall& call) {
    if (call.inputs.empty()) fail(ErrorKind::Value, "{}: needs at least one tensor", call.info.name);
}

}  // namespace

Ref<Tensor> composite_hstack(const OpCall& call) {
    require_some(call);
    return joined(call, 1, call.inputs[0]->rank() <= 1 ? 0 : 1);
}

Ref<Tensor> composite_vstack(const OpCall& call) {
    require_some(call);
    return joined(call, 2, 0);
}

}  // namespace clikart
