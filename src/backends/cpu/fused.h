// Operators that are computed together, tile by tile; see Backend in backends/api.h.
#pragma once

#include "backends/api.h"

namespace clikart::cpu {

void* prepare_fused(const FusedPart* parts, int32_t n_parts, const View* inputs, int32_t n_inputs, const View* over, int64_t row, int64_t* piece);
int32_t start_fused(const void* prepared, void* const* inputs, void** state, char* message, size_t size);
int32_t run_fused(const void* prepared, const void* state, void* const* inputs, void* output, int64_t begin, int64_t end, char* message, size_t size);
void finish_fused(void* state);
void release_fused(void* prepared);

}  // namespace clikart::cpu
