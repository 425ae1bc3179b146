// Short contiguous stretches of strided operands, for kernels whose inner loop wants contiguous elements.
#pragma once

#include <cstdint>
#include <cstring>

namespace clikart::cpu {

inline constexpr int64_t kTile = 256;  // elements: a few of these stay in the first-level cache
inline constexpr int64_t kWidest = 8;  // bytes of the widest element

template <class T>
void gather_as(const char* from, int64_t stride, char* to, int64_t n) noexcept {
    const auto* in = reinterpret_cast<const T*>(from);
    auto* out = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
}
template <class T>
void scatter_as(const char* from, char* to, int64_t stride, int64_t n) noexcept {
    const auto* in = reinterpret_cast<const T*>(from);
    auto* out = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) out[i * stride] = in[i];
}

/// n elements of 1, 2, 4 or 8 bytes, `stride` elements apart, to a contiguous place.
inline void gather(const char* from, int64_t stride, char* to, int64_t n, int64_t element) noexcept {
    if (stride == 1) {
        std::memcpy(to, from, static_cast<size_t>(n * element));
    } else if (element == 8) {
        gather_as<uint64_t>(from, stride, to, n);
    } else if (element == 4) {
        gather_as<uint32_t>(from, stride, to, n);
    } else if (element == 2) {
        gather_as<uint16_t>(from, stride, to, n);
    } else {
        gather_as<uint8_t>(from, stride, to, n);
    }
}

/// The way back.
inline void scatter(const char* from, char* to, int64_t stride, int64_t n, int64_t element) noexcept {
    if (stride == 1) {
        std::memcpy(to, from, static_cast<size_t>(n * element));
    } else if (element == 8) {
        scatter_as<uint64_t>(from, to, stride, n);
    } else if (element == 4) {
        scatter_as<uint32_t>(from, to, stride, n);
    } else if (element == 2) {
        scatter_as<uint16_t>(from, to, stride, n);
    } else {
        scatter_as<uint8_t>(from, to, stride, n);
    }
}

}  // namespace clikart::cpu
