// Elementwise operators that are computed together, tile by tile; see Backend in backends/api.h.
#pragma once

#include "backends/api.h"

namespace clikart::cpu {

void* prepare_fused(const FusedPart* parts, int32_t n_parts, const View* inputs, int32_t n_inputs, const View* output);
int32_t run_fused(const void* prepared, void* const* inputs, void* output, void (*parallel_for)(int64_t, PieceFn, void*), char* message, size_t size);
void release_fused(void* prepared);

}  // namespace clikart::cpu
