// How one element becomes another type: as torch converts, with every case defined.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/narrow_float.h"

namespace clikart {

/// Integers narrow by dropping bits.  Float to integer truncates to the next signed type that x86 has instructions for, 32 or
/// 64 bits, where NaN and what does not fit become the smallest number (torch leaves that undefined, and does the same), and
/// drops the bits that are too many; unsigned 64-bit numbers also take what only they can hold.  Anything to bool is "is it
/// not zero", so NaN is true.
template <class To, class From>
inline To convert(From value) noexcept {
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else if constexpr (is_narrow_float<From>) {
        return convert<To>(static_cast<float>(value));
    } else if constexpr (is_narrow_float<To>) {
        return To(static_cast<float>(value));
    } else if constexpr (std::is_same_v<To, bool>) {
        return value != From(0);
    } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, uint64_t>) {
        constexpr From border = static_cast<From>(uint64_t{1} << 63);
        if (value >= border && value < 2 * border) return static_cast<uint64_t>(value - border) + (uint64_t{1} << 63);
        return static_cast<uint64_t>(convert<int64_t>(value));
    } else if constexpr (std::is_floating_point_v<From> && (std::is_same_v<To, int64_t> || std::is_same_v<To, int32_t>)) {
        constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
        if (value >= low && value < -low) return static_cast<To>(value);
        return std::numeric_limits<To>::min();
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        return static_cast<To>(convert<std::conditional_t<sizeof(To) < 4, int32_t, int64_t>>(value));
    } else {
        return static_cast<To>(value);
    }
}

}  // namespace clikart
