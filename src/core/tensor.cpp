#include "core/tensor.h"

#include <cstring>

#include "base/float_mode.h"
#include "core/convert.h"

namespace clikart {

Ref<Tensor> make_tensor(DType dtype, const Dims& shape, Device device) {
    auto storage = make_ref<Storage>(bytes_of(dtype, numel(shape)), device);
    return make_ref<Tensor>(dtype, shape, contiguous_strides(shape), 0, std::move(storage));
}

void Tensor::find_size(int64_t size) {
    shape_[0] = size;
    storage_->materialize(bytes_of(dtype_, numel()));
    size_known_.store(true, std::memory_order_release);
}

Ref<Tensor> make_view(const Tensor& of, DType dtype, const Dims& shape, const Dims& strides, int64_t offset) {
    auto view = make_ref<Tensor>(dtype, shape, strides, offset, of.storage_ref());
    view->born_with_data = of.born_with_data;
    view->stream = of.stream;
    return view;
}

void normalize_bools(Tensor& tensor) noexcept {
    auto* bytes = static_cast<uint8_t*>(tensor.storage().data());
    for (int64_t i = 0; i < tensor.storage().bytes(); ++i) bytes[i] = bytes[i] != 0;
}

Ref<Tensor> tensor_from_host(const void* data, DType dtype, const Dims& shape) {
    auto tensor = make_tensor(dtype, shape, Device{});
    tensor->storage().materialize();
    if (const int64_t bytes = tensor->storage().bytes()) std::memcpy(tensor->storage().data(), data, static_cast<size_t>(bytes));
    if (dtype == DType::Bool) normalize_bools(*tensor);
    tensor->born_with_data = true;
    return tensor;
}

template <class T>
Ref<Tensor> scalar(T value) {
    constexpr DType dtype = std::is_same_v<T, bool>       ? DType::Bool
                            : std::is_same_v<T, int64_t>  ? DType::Int64
                            : std::is_same_v<T, uint64_t> ? DType::UInt64
                                                          : DType::Float64;
    auto tensor = tensor_from_host(&value, dtype, Dims{});
    tensor->weak = tensor->number = true;
    return tensor;
}
template Ref<Tensor> scalar(bool);
template Ref<Tensor> scalar(int64_t);
template Ref<Tensor> scalar(uint64_t);
template Ref<Tensor> scalar(double);

double scalar_value(const Tensor& weak) {
    double value = 0;
    with_type(weak.dtype(), [&]<class T>() { value = static_cast<double>(*static_cast<const T*>(weak.data())); });
    return value;
}

Ref<Tensor> scalar_as(const Tensor& weak, DType dtype) {
    auto tensor = make_tensor(dtype, Dims{}, weak.device());
    tensor->storage().materialize();
    tensor->born_with_data = tensor->number = true;
    const DefaultFloatMode mode;
    const bool known = with_stored_type(dtype, [&]<class To>() {
        with_type(weak.dtype(), [&]<class From>() { *static_cast<To*>(tensor->data()) = convert<To>(*static_cast<const From*>(weak.data())); });
    });
    if (!known) fail(ErrorKind::NotImplemented, "op 'cast' has no {} kernel on {}", name_of(dtype), to_string(weak.device()));
    return tensor;
}

bool scalar_fits(const Tensor& weak, DType dtype) {
    bool fits = true;
    const auto within = [&](auto least, auto most) {
        with_type(weak.dtype(), [&]<class From>() {
            const auto value = *static_cast<const From*>(weak.data());
            if constexpr (std::is_same_v<From, bool>) {
            } else if constexpr (std::is_floating_point_v<From>) {  // the limits as powers of two, which are exact
                const auto whole = std::trunc(value);
                fits = whole >= static_cast<From>(least) && whole < 2 * (static_cast<From>(most / 2) + 1);
            } else {
                fits = std::cmp_greater_equal(value, least) && std::cmp_less_equal(value, most);
            }
        });
    };
    if (is_packed(dtype)) {
        dtype == DType::Int4 ? within(-8, 7) : within(0, 15);
    } else if (is_integer(dtype)) {
        with_type(dtype, [&]<class To>() {
            if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool>) within(std::numeric_limits<To>::min(), std::numeric_limits<To>::max());
        });
    }
    return fits;
}

std::string describe(const Tensor& tensor) {
    if (!tensor.size_known()) {
        std::string sizes = "?";
        for (int d = 1; d < tensor.rank(); ++d) sizes += fmt::format(", {}", tensor.shape()[d]);
        return fmt::format("{} [{}]", name_of(tensor.dtype()), sizes);
    }
    return fmt::format("{} {}", name_of(tensor.dtype()), to_string(tensor.shape()));
}

}  // namespace clikart
