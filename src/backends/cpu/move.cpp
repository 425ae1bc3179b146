#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/move.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backends/cpu/move.h"
#include "backends/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void stream_bytes(uint8_t* to, const uint8_t* from, int64_t bytes) {
    const hn::ScalableTag<uint8_t> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = static_cast<int64_t>((uintptr_t{0} - reinterpret_cast<uintptr_t>(to)) % static_cast<uintptr_t>(step));
    if (i > 0) {
        i = std::min(i, bytes);
        std::memmove(to, from, static_cast<size_t>(i));
    }
    for (; i + 4 * step <= bytes; i += 4 * step) {
        const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + i + step), c = hn::LoadU(d, from + i + 2 * step), e = hn::LoadU(d, from + i + 3 * step);
        hn::Stream(a, d, to + i);
        hn::Stream(b, d, to + i + step);
        hn::Stream(c, d, to + i + 2 * step);
        hn::Stream(e, d, to + i + 3 * step);
    }
    for (; i + step <= bytes; i += step) hn::Stream(hn::LoadU(d, from + i), d, to + i);
    if (i < bytes) std::memmove(to + i, from + i, static_cast<size_t>(bytes - i));
}

void stream_rows(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t rows, int64_t bytes) {
    for (int64_t i = 0; i < rows; ++i)
        stream_bytes(reinterpret_cast<uint8_t*>(to + i * to_step), reinterpret_cast<const uint8_t*>(from + i * from_step), bytes);
}

template <class T>
const T* element_at(const char* from, int64_t step, int64_t row, int64_t column) {
    return reinterpret_cast<const T*>(from + row * step) + column;
}
template <class T>
T* element_at(char* to, int64_t step, int64_t row, int64_t column) {
    return reinterpret_cast<T*>(to + row * step) + column;
}

/// Squares of 16 bytes a side in registers, what is left over element by element.
template <class T>
void transpose_of(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows, int64_t columns) {
    int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
    constexpr int N = 16 / sizeof(T);
    const hn::FixedTag<T, N> d;
    whole_rows = rows / N * N, whole_columns = columns / N * N;
    for (int64_t j = 0; j < whole_columns; j += N) {
        for (int64_t i = 0; i < whole_rows; i += N) {
            hn::Vec<decltype(d)> v[N], w[N];
            // Without the loops all of these are registers.
            HWY_UNROLL(16)
            for (int k = 0; k < N; ++k) v[k] = hn::LoadU(d, element_at<T>(from, from_step, j + k, i));
            HWY_UNROLL(4)
            for (int round = 1; round < N; round *= 2) {  // each halves the distance of what belongs together
                HWY_UNROLL(8)
                for (int k = 0; k < N / 2; ++k) {
                    w[2 * k] = hn::InterleaveLower(d, v[k], v[k + N / 2]);
                    w[2 * k + 1] = hn::InterleaveUpper(d, v[k], v[k + N / 2]);
                }
                HWY_UNROLL(16)
                for (int k = 0; k < N; ++k) v[k] = w[k];
            }
            HWY_UNROLL(16)
            for (int k = 0; k < N; ++k) hn::StoreU(v[k], d, element_at<T>(to, to_step, i + k, j));
        }
    }
#endif
    for (int64_t j = 0; j < whole_columns; ++j) {
        for (int64_t i = whole_rows; i < rows; ++i) *element_at<T>(to, to_step, i, j) = *element_at<T>(from, from_step, j, i);
    }
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = whole_columns; j < columns; ++j) *element_at<T>(to, to_step, i, j) = *element_at<T>(from, from_step, j, i);
    }
}

void transpose_block(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows, int64_t columns, int64_t element) {
    switch (element) {
        case 1: return transpose_of<uint8_t>(from, from_step, to, to_step, rows, columns);
        case 2: return transpose_of<uint16_t>(from, from_step, to, to_step, rows, columns);
        case 4: return transpose_of<uint32_t>(from, from_step, to, to_step, rows, columns);
        default: return transpose_of<uint64_t>(from, from_step, to, to_step, rows, columns);
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(stream_rows);
HWY_EXPORT(transpose_block);

constexpr int64_t kBlock = 4096;  // bytes of what is streamed again and again

template <class T>
void copy_run(const char* from, int64_t, char* to, int64_t, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
}
template <class T>
void stream_run(const char* from, int64_t, char* to, int64_t, int64_t n) {
    stream(to, 0, from, 0, 1, n * static_cast<int64_t>(sizeof(T)));
}
template <class T>
void fill_run(const char* from, int64_t, char* to, int64_t, int64_t n) {
    std::fill_n(reinterpret_cast<T*>(to), n, *reinterpret_cast<const T*>(from));
}
template <class T>
void stream_fill_run(const char* from, int64_t, char* to, int64_t, int64_t n) {
    alignas(64) char block[kBlock];
    fill_run<T>(from, 0, block, 1, kBlock / static_cast<int64_t>(sizeof(T)));
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < bytes; i += kBlock) stream(to + i, 0, block, 0, 1, std::min(kBlock, bytes - i));
}
template <class T>
void reverse_run(const char* from, int64_t, char* to, int64_t, int64_t n) {
    const auto* const in = reinterpret_cast<const T*>(from);
    auto* const out = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) out[i] = in[-i];
}
template <class T>
void gather_run(const char* from, int64_t from_stride, char* to, int64_t, int64_t n) {
    gather_as<T>(from, from_stride, to, n);
}
template <class T>
void scatter_run(const char* from, int64_t, char* to, int64_t to_stride, int64_t n) {
    scatter_as<T>(from, to, to_stride, n);
}
template <class T>
void strided_run(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n) {
    const auto* const in = reinterpret_cast<const T*>(from);
    auto* const out = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) out[i * to_stride] = in[i * from_stride];
}

template <class T>
RunFn run_for(int64_t from_stride, int64_t to_stride, bool streamed) noexcept {
    if (to_stride != 1) return from_stride == 1 ? &scatter_run<T> : &strided_run<T>;
    switch (from_stride) {
        case 1: return streamed ? &stream_run<T> : &copy_run<T>;
        case 0: return streamed ? &stream_fill_run<T> : &fill_run<T>;
        case -1: return &reverse_run<T>;
        default: return &gather_run<T>;
    }
}

}  // namespace

void stream(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t rows, int64_t bytes) noexcept {
    HWY_DYNAMIC_DISPATCH(stream_rows)(to, to_step, from, from_step, rows, bytes);
}

void finish_streams() noexcept {
    hwy::FlushStream();
}

void transpose(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows, int64_t columns, int64_t element) noexcept {
    HWY_DYNAMIC_DISPATCH(transpose_block)(from, from_step, to, to_step, rows, columns, element);
}

RunFn find_run(int64_t element, int64_t from_stride, int64_t to_stride, bool streamed) noexcept {
    switch (element) {
        case 1: return run_for<uint8_t>(from_stride, to_stride, streamed);
        case 2: return run_for<uint16_t>(from_stride, to_stride, streamed);
        case 4: return run_for<uint32_t>(from_stride, to_stride, streamed);
        default: return run_for<uint64_t>(from_stride, to_stride, streamed);
    }
}

}  // namespace clikart::cpu
#endif
