// Moving bytes: what copies, transposes and fills are made of.  Elements have 1, 2, 4 or 8 bytes.
#pragma once

#include <cstdint>

namespace clikart::cpu {

/// Copies `rows` stretches of `bytes`, `to_step` and `from_step` bytes apart, past the caches.  They do not overlap, or are
/// the same.  A thread that did so calls finish_streams() before anybody may count on what it wrote.
void stream(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t rows, int64_t bytes) noexcept;
void finish_streams() noexcept;

/// to[i][j] = from[j][i] for i < rows, j < columns: `to` has rows `to_step` bytes apart, `from` columns `from_step` bytes apart.
void transpose(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows, int64_t columns, int64_t element) noexcept;

/// n elements, `stride` elements apart on each side.
using RunFn = void (*)(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n);
/// The function for these strides.  `streamed`: where it can, it writes past the caches; see finish_streams().
RunFn find_run(int64_t element, int64_t from_stride, int64_t to_stride, bool streamed) noexcept;

}  // namespace clikart::cpu
