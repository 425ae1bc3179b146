// Rules of the operators whose windows slide over spatial dimensions: convolutions and pools.  Channels come last, the batch
// first where there is one.
#include "ops/rules.h"

namespace clikart {
namespace {

// Products of two such numbers, and sums of a few products with a size, fit 64 bits.
constexpr int64_t kLargest = INT32_MAX;

/// What all of them have in common.
struct Windows {
    explicit Windows(const OpCall& of) : call(of) {
        const std::string_view name = call.info.name;
        spatial = name[name.find_first_of("123")] - '0';  // each has it in its name: "conv2d"
        const Dims& x = shape();
        if (x.rank() != spatial + 1 && x.rank() != spatial + 2) {
            fail(ErrorKind::Value, "{}: needs {} spatial dimensions and channels, with or without a batch, got shape {}", name, spatial, to_string(x));
        }
        batched = x.rank() == spatial + 2;
        for (int d = 0; d < spatial; ++d) {  // an empty tensor may have any
            if (size(d) > INT64_MAX / 4) fail(ErrorKind::Value, "{}: more elements than can be addressed, shape {}", name, to_string(x));
        }
    }

    const Dims& shape() const { return call.inputs[0]->shape(); }
    int64_t channels() const { return shape()[shape().rank() - 1]; }
    int64_t size(int dim) const { return shape()[batched + dim]; }

    /// The entries of a list, each of them within [least, kLargest], or what else is allowed.
    Dims entries(int position, const char* what, int64_t least, int64_t also = kLargest) const {
        const Attributes& attributes = call.attributes;
        const int64_t length = attributes.length(position);
        const Dims given(std::span(attributes.list(position), static_cast<size_t>(length)));
        if (length != 1 && length != spatial) {
            fail(ErrorKind::Value, "{}: {} needs one entry or {}, got {}", call.info.name, what, spatial, to_string(given));
        }
        Dims all;
        for (int d = 0; d < spatial; ++d) {
            all.push_back(attributes.entry(position, d));
            if ((all[d] < least && all[d] != also) || all[d] > kLargest) {
                fail(ErrorKind::Value, "{}: {} must be from {} to {}, got {}", call.info.name, what, least, kLargest, to_string(given));
            }
        }
        return all;
    }

    /// The result's shape from its spatial sizes.
    void answer(const Dims& sizes, int64_t channels_out, OutputSpec& out) const {
        out.shape = Dims{};
        if (batched) out.shape.push_back(shape()[0]);
        for (const int64_t size : sizes) out.shape.push_back(size);
        out.shape.push_back(channels_out);
    }

    const OpCall& call;
    int spatial = 0;
    bool batched = false;
};

int64_t reach_of(int64_t kernel, int64_t dilation) {
    return (kernel - 1) * dilation + 1;
}

/// The number of channels of the result; checks everything about x, weight, bias and groups but the spatial sizes.
int64_t channels_of_convolution(const Windows& windows, bool transposed, int groups_position) {
    const OpCall& call = windows.call;
    const Dims& weight = call.inputs[1]->shape();
    const char* const op = call.info.name;
    const int64_t groups = call.attributes.integer(groups_position), channels = windows.channels();
    if (weight.rank() != windows.spatial + 2) {
        fail(ErrorKind::Value, "{}: needs a weight of {} dimensions, got shape {}", op, windows.spatial + 2, to_string(weight));
    }
    if (groups < 1) fail(ErrorKind::Value, "{}: groups must be positive, got {}", op, groups);
    const int64_t first = weight[0], last = weight[weight.rank() - 1];
    const auto refuse = [&] {
        fail(ErrorKind::Value, "{}: x of shape {} and weight of shape {} do not fit with groups = {}", op, to_string(windows.shape()), to_string(weight),
             groups);
    };
    int64_t product = 0;
    if (__builtin_mul_overflow(last, groups, &product) || first % groups != 0 || (transposed ? first : product) != channels) refuse();
    const int64_t out = transposed ? product : first;
    if (call.inputs.size() == 3 && !(call.inputs[2]->shape() == Dims{out})) {
        fail(ErrorKind::Value, "{}: needs a bias of shape [{}], got {}", op, out, to_string(call.inputs[2]->shape()));
    }
    for (int d = 0; d < windows.spatial; ++d) {
        if (weight[1 + d] < 1 || weight[1 + d] > kLargest) {
            fail(ErrorKind::Value, "{}: a kernel's sizes must be from 1 to {}, got weight of shape {}", op, kLargest, to_string(weight));
        }
    }
    return out;
}

/// The number of windows along a dimension.
int64_t count_of_windows(const Windows& windows, int dim, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
    const int64_t size = windows.size(dim), padded = size + 2 * padding, reach = reach_of(kernel, dilation);
    const int64_t steps = padded - reach + (ceil_mode ? stride - 1 : 0);
    if (steps < 0) {
        fail(ErrorKind::Value, "{}: a window that reaches over {} is larger than size {} with padding {}, x has shape {}", windows.call.info.name, reach, size,
             padding, to_string(windows.shape()));
    }
    int64_t count = steps / stride + 1;
    if (ceil_mode && (count - 1) * stride >= size + padding) --count;  // it would start in the padding at the end
    return count;
}

struct Pool {
    Dims kernel, stride, padding;
};

Pool pool_of(const Windows& windows) {
    const OpCall& call = windows.call;
    constexpr int kernel = attribute::max_pool1d_kernel_size, stride = attribute::max_pool1d_stride, padding = attribute::max_pool1d_padding;
    static_assert(attribute::avg_pool1d_kernel_size == kernel && attribute::avg_pool1d_stride == stride && attribute::avg_pool1d_padding == padding);
    for (int d = 0; d < windows.spatial; ++d) {
        if (windows.size(d) == 0) fail(ErrorKind::Value, "{}: no elements to choose from, shape {}", call.info.name, to_string(windows.shape()));
    }
    Pool pool{windows.entries(kernel, "kernel_size", 1), {}, windows.entries(padding, "padding", 0)};
    pool.stride = call.attributes.length(stride) == 0 ? pool.kernel : windows.entries(stride, "stride", 1);
    return pool;
}

void shape_pool(const Windows& windows, const Pool& pool, const Dims& dilation, bool ceil_mode, OutputSpec& out) {
    Dims sizes;
    for (int d = 0; d < windows.spatial; ++d) {
        const int64_t reach = reach_of(pool.kernel[d], dilation[d]);
        if (pool.padding[d] > reach / 2) {
            fail(ErrorKind::Value, "{}: padding {} is more than half of a window that reaches over {}, x has shape {}", windows.call.info.name, pool.padding[d],
                 reach, to_string(windows.shape()));
        }
        sizes.push_back(count_of_windows(windows, d, pool.kernel[d], pool.stride[d], pool.padding[d], dilation[d], ceil_mode));
    }
    windows.answer(sizes, windows.channels(), out);
}

}  // namespace

DTypes dtype_convolution(const OpCall& call) {
    const Tensor& x = *call.inputs[0];
    for (const Tensor* t : call.inputs) {
        if (t->weak) fail(ErrorKind::Type, "{}: needs tensors, got a number", call.info.name);
        if (t->dtype() != x.dtype()) fail(ErrorKind::Type, "{}: needs one dtype for all, got {} and {}", call.info.name, describe(x), describe(*t));
    }
    if (category_of(x.dtype()) != DTypeCategory::Float) {
        fail(ErrorKind::Type, "{}: needs floating-point tensors, got {}", call.info.name, name_of(x.dtype()));
    }
    return {x.dtype(), x.dtype()};
}

DTypes dtype_max_indices(const OpCall& call) {
    DTypes types = dtype_same_number(call);
    types.second = DType::Int64;
    return types;
}

void shape_convolution(const OpCall& call, OutputSpec& out) {
    const Windows windows(call);
    const int64_t channels = channels_of_convolution(windows, false, attribute::conv1d_groups);
    const Dims stride = windows.entries(attribute::conv1d_stride, "stride", 1);
    const Dims padding = windows.entries(attribute::conv1d_padding, "padding", 0, kSamePadding),
               dilation = windows.entries(attribute::conv1d_dilation, "dilation", 1);
    Dims sizes;
    for (int d = 0; d < windows.spatial; ++d) {
        if (padding[d] == kSamePadding) {
            if (stride[d] != 1) fail(ErrorKind::Value, "{}: padding 'same' needs a stride of 1, got {}", call.info.name, to_string(stride));
            if (windows.size(d) == 0) fail(ErrorKind::Value, "{}: x has shape {}, there is nothing to pad", call.info.name, to_string(windows.shape()));
            sizes.push_back(windows.size(d));
            continue;
        }
        sizes.push_back(count_of_windows(windows, d, call.inputs[1]->shape()[1 + d], stride[d], padding[d], dilation[d], false));
    }
    windows.answer(sizes, channels, out);
}

void shape_transposed_convolution(const OpCall& call, OutputSpec& out) {
    const Windows windows(call);
    const int64_t channels = channels_of_convolution(windows, true, attribute::conv_transpose1d_groups);
    const Dims stride = windows.entries(attribute::conv_transpose1d_stride, "stride", 1);
    const Dims padding = windows.entries(attribute::conv_transpose1d_padding, "padding", 0);
    const Dims more = windows.entries(attribute::conv_transpose1d_output_padding, "output_padding", 0);
    const Dims dilation = windows.entries(attribute::conv_transpose1d_dilation, "dilation", 1);
    Dims sizes;
    for (int d = 0; d < windows.spatial; ++d) {
        if (more[d] >= stride[d] && more[d] >= dilation[d]) {
            fail(ErrorKind::Value, "{}: output_padding {} must be less than stride {} or dilation {}", call.info.name, more[d], stride[d], dilation[d]);
        }
        int64_t size = 0;
        if (__builtin_mul_overflow(windows.size(d) - 1, stride[d], &size) ||
            __builtin_add_overflow(size, reach_of(call.inputs[1]->shape()[1 + d], dilation[d]) + more[d] - 2 * padding[d], &size)) {
            fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
        }
        if (size < 1) {
            fail(ErrorKind::Value, "{}: the result would have size {}, x has shape {} and weight {}", call.info.name, size, to_string(windows.shape()),
                 to_string(call.inputs[1]->shape()));
        }
        sizes.push_back(size);
    }
    windows.answer(sizes, channels, out);
}

void shape_max_pool(const OpCall& call, OutputSpec& out) {
    const Windows windows(call);
    const Pool pool = pool_of(windows);
    const Dims dilation = windows.entries(attribute::max_pool1d_dilation, "dilation", 1);
    shape_pool(windows, pool, dilation, call.attributes.integer(attribute::max_pool1d_ceil_mode), out);
}

void shape_avg_pool(const OpCall& call, OutputSpec& out) {
    const Windows windows(call);
    const Pool pool = pool_of(windows);
    constexpr int divisor = attribute::avg_pool1d_divisor_override;
    if (call.attributes.present(divisor) && call.attributes.integer(divisor) == 0) fail(ErrorKind::Value, "{}: divisor_override is zero", call.info.name);
    shape_pool(windows, pool, Dims{1, 1, 1}, call.attributes.integer(attribute::avg_pool1d_ceil_mode), out);
}

void shape_adaptive_pool(const OpCall& call, OutputSpec& out) {
    const Windows windows(call);
    Dims sizes = windows.entries(attribute::adaptive_avg_pool1d_output_size, "output_size", -1);
    for (int d = 0; d < windows.spatial; ++d) {
        if (windows.size(d) == 0) fail(ErrorKind::Value, "{}: no elements to choose from, shape {}", call.info.name, to_string(windows.shape()));
        if (sizes[d] == -1) sizes[d] = windows.size(d);
    }
    windows.answer(sizes, windows.channels(), out);
}

}  // namespace clikart
