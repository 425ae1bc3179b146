// How one element becomes another type: as torch converts, with every case defined.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace clikart {

/// Float to integer truncates; what does not fit, and NaN, becomes the smallest value, as x86 converts (torch leaves
/// it undefined).  Anything to bool is "is it not zero", so NaN is true.
template <class To, class From>
To convert(From value) noexcept {
    if constexpr (std::is_same_v<To, bool>) {
        return value != From(0);
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
        if (value >= low && value < -low) return static_cast<To>(value);
        return std::numeric_limits<To>::min();
    } else {
        return static_cast<To>(value);
    }
}

}  // namespace clikart
