// The tensor: a shared handle to a value that may still be on its way.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ClikaRT/enums.h>
#include <ClikaRT/error.h>
#include <ClikaRT/stream.h>

namespace ClikaRT {
inline namespace v1 {

using Shape = std::vector<std::int64_t>;

namespace detail {

/// The dtype of a C++ type.
template <class T>
constexpr DataType data_type() {
    if constexpr (std::is_same_v<T, bool>) return DataType::Bool;
    if constexpr (std::is_same_v<T, float>) return DataType::Float32;
    if constexpr (std::is_same_v<T, double>) return DataType::Float64;
    if constexpr (std::is_integral_v<T>) {
        if constexpr (std::is_signed_v<T>) {
            return sizeof(T) == 1 ? DataType::Int8 : sizeof(T) == 2 ? DataType::Int16 : sizeof(T) == 4 ? DataType::Int32 : DataType::Int64;
        } else {
            return sizeof(T) == 1 ? DataType::UInt8 : sizeof(T) == 2 ? DataType::UInt16 : sizeof(T) == 4 ? DataType::UInt32 : DataType::UInt64;
        }
    }
}

}  // namespace detail

/// Copies share one value.  A default-constructed tensor holds none and may only be assigned to.
/// Metadata never waits; what reads values does, and throws when the operator that makes them failed.
class Tensor {
public:
    Tensor() noexcept = default;
    /// Takes over a handle of the C ABI; throws the thread's error for NULL.
    static Tensor adopt(clikart_tensor* handle) {
        Tensor tensor;
        tensor.shared_ = Handle(detail::check(handle));
        return tensor;
    }
    /// Copies row-major elements.  T is bool, float, double or an integer type.
    template <class T>
    static Tensor from_data(const T* data, const Shape& shape) {
        return adopt(clikart_tensor_from_data(data, static_cast<clikart_dtype>(detail::data_type<T>()), shape.data(), shape.size()));
    }

    DataType dtype() const noexcept { return static_cast<DataType>(clikart_tensor_dtype(handle())); }
    Shape shape() const {
        const std::int64_t* sizes = clikart_tensor_shape(handle());
        return Shape(sizes, sizes + clikart_tensor_rank(handle()));
    }
    std::int64_t numel() const noexcept { return clikart_tensor_numel(handle()); }
    /// The stream the tensor's operator rode.
    Stream stream() const { return Stream::adopt(clikart_tensor_stream(handle())); }

    /// Waits for the value.
    void synchronize() const { detail::check(clikart_tensor_wait(handle(), -1)); }
    /// All values in row-major order.  Throws TypeError unless T is the dtype's C++ type.
    template <class T>
    std::vector<T> item_as_vec() const {
        require<T>("item_as_vec");
        std::vector<Stored<T>> values(static_cast<std::size_t>(numel()));
        detail::check(clikart_tensor_copy_to(handle(), values.data(), values.size() * sizeof(T)));
        if constexpr (std::is_same_v<T, Stored<T>>) {
            return values;
        } else {
            return std::vector<T>(values.begin(), values.end());
        }
    }
    /// The value of a tensor with one element.  Throws Error for more or fewer.
    template <class T>
    T item() const {
        if (numel() != 1) throw Error(ErrorKind::Runtime, "item: needs one element, got " + shape_text());
        return item_as_vec<T>()[0];
    }
    /// "Tensor(shape=[2, 3], dtype=Float32, device=CPU, numel=6, data=[...])" with at most six values.
    std::string to_string() const;

    inline Tensor reshape(const Shape& shape) const;
    inline Tensor permute(const Shape& dims) const;

    clikart_tensor* handle() const noexcept { return shared_.get(); }

private:
    using Handle = detail::Shared<clikart_tensor, clikart_tensor_retain, clikart_tensor_release>;
    template <class T>
    using Stored = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;  // std::vector<bool> has no memory to fill

    template <class T>
    void require(const char* who) const {
        if (detail::data_type<T>() != dtype()) {
            throw TypeError(std::string(who) + ": the tensor is " + ClikaRT::to_string(dtype()) + ", not " + ClikaRT::to_string(detail::data_type<T>()));
        }
    }
    std::string shape_text() const {
        std::string text = "[";
        for (const std::int64_t size : shape()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
        return text + "]";
    }
    template <class T>
    std::string values_text() const {
        std::string text;
        const std::vector<T> values = item_as_vec<T>();
        for (std::size_t i = 0; i < values.size() && i < 6; ++i) {
            char number[32];
            if constexpr (std::is_floating_point_v<T>) {
                std::snprintf(number, sizeof number, "%g", static_cast<double>(values[i]));
            } else {
                std::snprintf(number, sizeof number, "%lld", static_cast<long long>(values[i]));
            }
            text += (i ? ", " : "") + std::string(number);
        }
        return text + (values.size() > 6 ? ", ..." : "");
    }

    Handle shared_;
};

inline std::string Tensor::to_string() const {
    std::string values;
    switch (dtype()) {
        case DataType::Bool: values = values_text<bool>(); break;
        case DataType::UInt8: values = values_text<std::uint8_t>(); break;
        case DataType::UInt16: values = values_text<std::uint16_t>(); break;
        case DataType::UInt32: values = values_text<std::uint32_t>(); break;
        case DataType::UInt64: values = values_text<std::uint64_t>(); break;
        case DataType::Int8: values = values_text<std::int8_t>(); break;
        case DataType::Int16: values = values_text<std::int16_t>(); break;
        case DataType::Int32: values = values_text<std::int32_t>(); break;
        case DataType::Int64: values = values_text<std::int64_t>(); break;
        case DataType::Float32: values = values_text<float>(); break;
        case DataType::Float64: values = values_text<double>(); break;
        default:
            synchronize();
            values = "...";
            break;
    }
    return "Tensor(shape=" + shape_text() + ", dtype=" + ClikaRT::to_string(dtype()) + ", device=CPU, numel=" + std::to_string(numel()) + ", data=[" + values +
           "])";
}

/// What an operator takes for a tensor: one, or a number that gives way to tensors in type promotion.
class Operand {
public:
    Operand(const Tensor& tensor) : tensor_(tensor) {}
    template <class T>
        requires std::is_arithmetic_v<T>
    Operand(T value) : tensor_(Tensor::adopt(make(value))) {}
    clikart_tensor* handle() const noexcept { return tensor_.handle(); }

private:
    template <class T>
    static clikart_tensor* make(T value) {
        if constexpr (std::is_same_v<T, bool>) {
            return clikart_scalar_bool(value);
        } else if constexpr (std::is_integral_v<T>) {
            return clikart_scalar_int(static_cast<std::int64_t>(value));
        } else {
            return clikart_scalar_float(static_cast<double>(value));
        }
    }
    Tensor tensor_;
};

namespace detail {

inline std::vector<const clikart_tensor*> handles(const std::vector<Tensor>& tensors) {
    std::vector<const clikart_tensor*> list;
    for (const Tensor& tensor : tensors) list.push_back(tensor.handle());
    return list;
}

/// NULL for an absent list; an empty list is there and so is not NULL.
inline const std::int64_t* data_or_null(const std::optional<Shape>& list) {
    static const std::int64_t empty = 0;
    if (!list) return nullptr;
    return list->empty() ? &empty : list->data();
}

}  // namespace detail
}  // namespace v1
}  // namespace ClikaRT
