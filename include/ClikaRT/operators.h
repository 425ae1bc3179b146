// C++'s operators on tensors.  Each is the function of ops that is named, with its errors.
#pragma once

#include <concepts>
#include <ostream>
#include <type_traits>

#include <ClikaRT/ops.h>

namespace ClikaRT {
inline namespace v1 {

/// A number on one side of an operator.
template <class T>
concept Number = std::is_arithmetic_v<T>;

// The remainder has the sign of the divisor, as in Python.  Comparisons give tensors of bools.
#define CLIKART_BINARY_OPERATOR(symbol, function)                     \
    inline Tensor operator symbol(const Tensor& a, const Tensor& b) { \
        return ops::function(a, b);                                   \
    }                                                                 \
    template <Number T>                                               \
    Tensor operator symbol(const Tensor& a, T b) {                    \
        return ops::function(a, b);                                   \
    }                                                                 \
    template <Number T>                                               \
    Tensor operator symbol(T a, const Tensor& b) {                    \
        return ops::function(a, b);                                   \
    }
CLIKART_BINARY_OPERATOR(+, add)
CLIKART_BINARY_OPERATOR(-, sub)
CLIKART_BINARY_OPERATOR(*, mul)
CLIKART_BINARY_OPERATOR(/, div)
CLIKART_BINARY_OPERATOR(%, remainder)
CLIKART_BINARY_OPERATOR(&, bitwise_and)
CLIKART_BINARY_OPERATOR(|, bitwise_or)
CLIKART_BINARY_OPERATOR(^, bitwise_xor)
CLIKART_BINARY_OPERATOR(==, eq)
CLIKART_BINARY_OPERATOR(!=, ne)
CLIKART_BINARY_OPERATOR(<, lt)
CLIKART_BINARY_OPERATOR(<=, le)
CLIKART_BINARY_OPERATOR(>, gt)
CLIKART_BINARY_OPERATOR(>=, ge)
#undef CLIKART_BINARY_OPERATOR

// Written over the left side, which may be a view that nobody holds: x[0] += 1.
#define CLIKART_IN_PLACE_OPERATOR(symbol, function)                           \
    inline const Tensor& operator symbol(const Tensor& a, const Operand& b) { \
        return ops::function(a, b);                                           \
    }
CLIKART_IN_PLACE_OPERATOR(+=, add_)
CLIKART_IN_PLACE_OPERATOR(-=, sub_)
CLIKART_IN_PLACE_OPERATOR(*=, mul_)
CLIKART_IN_PLACE_OPERATOR(/=, div_)
CLIKART_IN_PLACE_OPERATOR(%=, remainder_)
CLIKART_IN_PLACE_OPERATOR(&=, bitwise_and_)
CLIKART_IN_PLACE_OPERATOR(|=, bitwise_or_)
CLIKART_IN_PLACE_OPERATOR(^=, bitwise_xor_)
#undef CLIKART_IN_PLACE_OPERATOR

inline Tensor operator-(const Tensor& x) {
    return ops::neg(x);
}
inline Tensor operator~(const Tensor& x) {
    return ops::bitwise_not(x);
}

/// As Tensor::to_string(); waits.
inline std::ostream& operator<<(std::ostream& stream, const Tensor& x) {
    return stream << x.to_string();
}

inline Tensor Tensor::operator[](std::int64_t index) const {
    return ops::select(*this, 0, index);
}

}  // namespace v1
}  // namespace ClikaRT
