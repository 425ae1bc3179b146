// The tensor: a shared handle to a value that may still be on its way.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ClikaRT/enums.h>
#include <ClikaRT/error.h>
#include <ClikaRT/operand.h>
#include <ClikaRT/stream.h>
#include <ClikaRT/tensor_methods.h>

namespace ClikaRT {
inline namespace v1 {

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
/// The operators are methods too: x.relu() is ops::relu(x).
class Tensor : public detail::TensorMethods {
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

    /// Over memory of the caller's, row-major, without a copy; `release` is called once, on any thread, when it is needed no
    /// more, and must not throw.  See clikart_tensor_borrow for what the caller must not do meanwhile.
    template <class T>
    static Tensor borrow(T* data, const Shape& shape, std::function<void()> release = {}) {
        clikart_borrow what{};
        what.struct_size = sizeof what;
        what.data = const_cast<std::remove_const_t<T>*>(data);
        what.shape = shape.data();
        what.rank = shape.size();
        what.dtype = static_cast<clikart_dtype>(detail::data_type<std::remove_const_t<T>>());
        what.writable = !std::is_const_v<T>;
        auto kept = std::make_unique<std::function<void()>>(std::move(release));
        what.user_data = kept.get();
        what.release = [](void* user_data) {
            const std::unique_ptr<std::function<void()>> last(static_cast<std::function<void()>*>(user_data));
            if (*last) (*last)();
        };
        Tensor tensor = adopt(clikart_tensor_borrow(&what));
        static_cast<void>(kept.release());  // the library's now
        return tensor;
    }

    DataType dtype() const noexcept { return static_cast<DataType>(clikart_tensor_dtype(handle())); }
    /// Of a result whose size depends on data, this waits for the operator, as does numel().
    Shape shape() const {
        const std::int64_t* const sizes = detail::check(clikart_tensor_shape(handle()));
        return Shape(sizes, sizes + clikart_tensor_rank(handle()));
    }
    std::int64_t numel() const {
        const std::int64_t count = clikart_tensor_numel(handle());
        if (count < 0) detail::throw_error();
        return count;
    }
    Device device() const { return Device(clikart_tensor_device(handle())); }
    /// The stream the tensor's operator rode.
    Stream stream() const { return Stream::adopt(clikart_tensor_stream(handle())); }

    enum class Status : std::int32_t {
        Unscheduled = CLIKART_STATUS_UNSCHEDULED,  ///< nothing computes it yet: deferred, standing in for a value, without storage
        Evaluated = CLIKART_STATUS_EVALUATED,      ///< submitted or computed
        Available = CLIKART_STATUS_AVAILABLE,      ///< born with data
    };
    Status status() const { return static_cast<Status>(detail::check(clikart_tensor_status(handle()))); }
    /// Whether reading would not wait.
    bool is_ready() const { return detail::check(clikart_tensor_is_ready(handle())) == 1; }
    /// Submits the deferred operators that the value waits for; does not wait.
    void start() const { detail::check(clikart_tensor_start(handle())); }
    /// Waits for the value, computing it first if it was deferred.
    void synchronize() const { detail::check(clikart_tensor_wait(handle(), -1)); }
    /// The same for a limited time; false when it is not there then.
    bool wait_for(std::chrono::nanoseconds timeout) const {
        return detail::check(clikart_tensor_wait(handle(), std::max<std::int64_t>(0, timeout.count()))) == 1;
    }
    /// Calls `callback` with this tensor, once, when its value is there or its computation failed: on a thread of the
    /// library's callback pool, or here and now if that is already so.  The storage is kept until then.  What is thrown
    /// goes to the log hook.  Keep callbacks short: they share the pool.
    template <class F>
        requires std::is_invocable_v<F&, const Tensor&>
    void on_complete(F&& callback) const {
        using Kept = std::decay_t<F>;
        auto kept = std::make_unique<Kept>(std::forward<F>(callback));
        detail::check(clikart_tensor_on_complete(
            handle(),
            [](const clikart_tensor* tensor, const clikart_error*, void* user_data) {
                try {
                    clikart_tensor_retain(tensor);
                    const Tensor settled = adopt(const_cast<clikart_tensor*>(tensor));
                    (*static_cast<Kept*>(user_data))(settled);
                } catch (const std::exception& error) {
                    clikart_log(CLIKART_LOG_ERROR, (std::string("on_complete: the callback threw: ") + error.what()).c_str());
                } catch (...) {
                    clikart_log(CLIKART_LOG_ERROR, "on_complete: the callback threw something that is no std::exception");
                }
            },
            kept.release(), [](void* user_data) { delete static_cast<Kept*>(user_data); }));
    }
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
    /// "Tensor(shape=[2, 3], dtype=Float32, device=CPU, numel=6, data=[...])" with at most six values, each with four significant digits.
    std::string to_string() const;

    /// The part at one place of the first dimension, which counts from the end when negative: a view.
    inline Tensor operator[](std::int64_t index) const;

    clikart_tensor* handle() const noexcept { return shared_.get(); }

private:
    friend class Operand;
    using Handle = detail::TensorHandle;
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
    /// "CPU"
    std::string device_text() const {
        std::string text = device().name();
        for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        return text;
    }
    template <class T>
    std::string values_text() const {
        std::string text;
        const std::vector<T> values = item_as_vec<T>();
        for (std::size_t i = 0; i < values.size() && i < 6; ++i) {
            char number[32];
            if constexpr (std::is_floating_point_v<T>) {
                std::snprintf(number, sizeof number, "%.4g", static_cast<double>(values[i]));
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
    if (clikart_tensor_status(handle()) == CLIKART_STATUS_UNSCHEDULED) synchronize();  // also throws where there is no value
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
    return "Tensor(shape=" + shape_text() + ", dtype=" + ClikaRT::to_string(dtype()) + ", device=" + device_text() + ", numel=" + std::to_string(numel()) +
           ", data=[" + values + "])";
}

inline Operand::Operand(const Tensor& tensor) : shared_(tensor.shared_) {}

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
