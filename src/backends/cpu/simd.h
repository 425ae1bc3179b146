// Which instruction sets kernels are compiled for.  Include before any header of Highway.
// Three targets: the baseline every x86-64 has, AVX2 with FMA, and AVX-512; AVX2 alone in a sanitizer build (see meson.build).
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

namespace clikart::cpu {

/// The instruction set that kernels run with: "baseline", "avx2" or "avx512".
const char* simd_name();
/// Restricts it; for tests.  Returns false when this machine or build does not have it.  No kernel may be running.
bool set_simd(const char* name);

}  // namespace clikart::cpu
