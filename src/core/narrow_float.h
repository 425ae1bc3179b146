// Floating-point types that C++ has no name for.  Kernels compute with them as float; here is how they become one and back.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace clikart {

/// A sign, `ExponentBits` and `MantissaBits`.  With `FiniteOnly` there is no infinity and only one NaN, all ones (the "fn" of
/// the OCP specification of 8-bit floats); otherwise it is built as IEEE 754 builds its types.
template <class Bits, int ExponentBits, int MantissaBits, bool FiniteOnly = false>
struct NarrowFloat {
    Bits bits;

    static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
    static constexpr uint32_t kSign = 1u << (ExponentBits + MantissaBits);
    static constexpr uint32_t kInfinity = ((1u << ExponentBits) - 1) << MantissaBits;  // the largest exponent
    static constexpr uint32_t kNaN = FiniteOnly ? kSign - 1 : kInfinity | 1u << (MantissaBits - 1);
    static constexpr bool kKeepsPayload = ExponentBits == 5 && MantissaBits == 10;  // of a NaN: float16's instructions do, and make it quiet
    static constexpr uint32_t kOverflow = FiniteOnly ? kNaN - 1 : kInfinity;        // what is too large becomes this

    NarrowFloat() noexcept = default;
    /// To the nearest, ties to even.
    explicit NarrowFloat(float value) noexcept : bits(encode(value)) {}
    explicit operator float() const noexcept { return decode(bits); }

    static Bits encode(float value) noexcept {
        constexpr int shift = 23 - MantissaBits;
        constexpr uint32_t least_normal = static_cast<uint32_t>(127 - kBias + 1) << 23;
        const auto all = std::bit_cast<uint32_t>(value);
        const uint32_t sign = (all >> 31) * kSign;
        uint32_t u = all & 0x7fffffffu, r;
        if (u > 0x7f800000u) {
            r = kNaN | (kKeepsPayload ? u >> shift & (kInfinity ^ (kSign - 1)) : 0);
        } else if (kBias < 127 && u < least_normal) {
            // The sum's last bit has the weight of the type's smallest number, so adding rounds where it has to.
            constexpr auto magic = std::bit_cast<float>(static_cast<uint32_t>(127 - kBias + 1 + shift) << 23);
            r = std::bit_cast<uint32_t>(std::bit_cast<float>(u) + magic) - std::bit_cast<uint32_t>(magic);
        } else {
            u += ((u >> shift) & 1) + ((1u << (shift - 1)) - 1);
            r = (u - (static_cast<uint32_t>(127 - kBias) << 23)) >> shift;
            if (r >= kOverflow) r = kOverflow;
        }
        return static_cast<Bits>(sign | r);
    }

    static float decode(Bits from) noexcept {
        constexpr int shift = 23 - MantissaBits;
        const uint32_t sign = (uint32_t{from} & kSign) << (31 - ExponentBits - MantissaBits), magnitude = from & (kSign - 1);
        if (magnitude >= (FiniteOnly ? kNaN : kInfinity)) {
            constexpr uint32_t quiet = 1u << 22;
            const uint32_t fraction = FiniteOnly ? quiet : (magnitude - kInfinity) << shift | (kKeepsPayload && magnitude > kInfinity ? quiet : 0);
            return std::bit_cast<float>(sign | 0x7f800000u | fraction);
        }
        if (kBias < 127 && magnitude < (1u << MantissaBits)) {  // denormal
            constexpr auto least = std::bit_cast<float>(static_cast<uint32_t>(127 - kBias + 1 - MantissaBits) << 23);
            return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * least));
        }
        return std::bit_cast<float>(sign | ((magnitude << shift) + (static_cast<uint32_t>(127 - kBias) << 23)));
    }
};

using Half = NarrowFloat<uint16_t, 5, 10>;
using BFloat16 = NarrowFloat<uint16_t, 8, 7>;
using Float8E4M3 = NarrowFloat<uint8_t, 4, 3, true>;
using Float8E5M2 = NarrowFloat<uint8_t, 5, 2>;

/// float for the types above, else the type itself: what an element is computed with.
template <class T>
struct Wide {
    using type = T;
};
template <class B, int E, int M, bool F>
struct Wide<NarrowFloat<B, E, M, F>> {
    using type = float;
};
template <class T>
inline constexpr bool is_narrow_float = !std::is_same_v<typename Wide<T>::type, T>;

}  // namespace clikart
