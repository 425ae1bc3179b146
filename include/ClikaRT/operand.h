// What operators take.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include <ClikaRT/error.h>

namespace ClikaRT {
inline namespace v1 {

class Tensor;

using Shape = std::vector<std::int64_t>;

/// As the padding of a convolution: as many zeros as the result needs to have x's sizes, for which the stride must be 1; of an odd
/// number of them one more is at the end.
inline constexpr std::int64_t same_padding = CLIKART_PADDING_SAME;

/// Sizes or dimensions, or std::nullopt; also written as a list: x.sum({0, 1}).
class OptionalShape : public std::optional<Shape> {
public:
    using std::optional<Shape>::optional;
    OptionalShape(std::initializer_list<std::int64_t> list) : std::optional<Shape>(std::in_place, list) {}
};

namespace detail {
using TensorHandle = Shared<clikart_tensor, clikart_tensor_retain, clikart_tensor_release>;
}

/// What an operator takes for a tensor: one, or a number that gives way to tensors in type promotion.
class Operand {
public:
    Operand(const Tensor& tensor);
    template <class T>
        requires std::is_arithmetic_v<T>
    Operand(T value) : shared_(detail::check(make(value))) {}
    clikart_tensor* handle() const noexcept { return shared_.get(); }

private:
    template <class T>
    static clikart_tensor* make(T value) {
        if constexpr (std::is_same_v<T, bool>) {
            return clikart_scalar_bool(value);
        } else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>) {
            return clikart_scalar_uint(static_cast<std::uint64_t>(value));
        } else if constexpr (std::is_integral_v<T>) {
            return clikart_scalar_int(static_cast<std::int64_t>(value));
        } else {
            return clikart_scalar_float(static_cast<double>(value));
        }
    }
    detail::TensorHandle shared_;
};

}  // namespace v1
}  // namespace ClikaRT
