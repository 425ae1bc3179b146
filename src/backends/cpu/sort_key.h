// Elements as unsigned integers in their order: how everything that sorts compares.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/narrow_float.h"

namespace clikart::cpu {

/// Unsigned integers of the element's width whose order is the elements': -0 and 0 are one key, every NaN is the largest.
template <class T>
struct SortKey {
    static constexpr bool kIsFloat = std::is_floating_point_v<T> || is_narrow_float<T>;
    using Bits =
        std::conditional_t<sizeof(T) == 1, uint8_t, std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
    static constexpr int kBits = 8 * static_cast<int>(sizeof(T));
    static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (kBits - 1)), kNaN = static_cast<Bits>(~Bits{0});

    static constexpr Bits infinity() noexcept {
        if constexpr (is_narrow_float<T>) {
            return static_cast<Bits>(T::kInfinity);
        } else {
            return std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
        }
    }

    /// The key, with all bits turned where `flip` is all ones: the opposite order.
    static Bits of(T value, Bits flip) noexcept {
        auto bits = std::bit_cast<Bits>(value);
        if constexpr (kIsFloat) {
            const bool is_nan = static_cast<Bits>(bits & ~kSign) > infinity();
            bits = bits == kSign ? Bits{0} : bits;
            bits = static_cast<Bits>(bits & kSign ? ~bits : bits | kSign);
            bits = is_nan ? kNaN : bits;
        } else if constexpr (std::is_signed_v<T>) {
            bits = static_cast<Bits>(bits ^ kSign);
        }
        return static_cast<Bits>(bits ^ flip);
    }
    /// The element, where the key does not stand for several.
    static T value(Bits key, Bits flip) noexcept {
        auto bits = static_cast<Bits>(key ^ flip);
        if constexpr (kIsFloat) {
            bits = static_cast<Bits>(bits & kSign ? bits ^ kSign : ~bits);
        } else if constexpr (std::is_signed_v<T>) {
            bits = static_cast<Bits>(bits ^ kSign);
        }
        return std::bit_cast<T>(bits);
    }
    /// Whether it may stand for several: the zeros and NaN.
    static bool is_ambiguous(Bits key, Bits flip) noexcept { return kIsFloat && (is_nan(key, flip) || static_cast<Bits>(key ^ flip) == kSign); }
    static bool is_nan(Bits key, Bits flip) noexcept { return kIsFloat && static_cast<Bits>(key ^ flip) == kNaN; }
};

/// An element's key, and its place in the line it came from.
template <class Key, class Place>
struct Keyed {
    Key key;
    Place place;

    friend bool operator<(const Keyed& a, const Keyed& b) noexcept { return a.key < b.key || (a.key == b.key && a.place < b.place); }
};

}  // namespace clikart::cpu
