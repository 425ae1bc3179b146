// Every reduction seen as three nested extents.
#pragma once

#include <memory>

#include "backends/cpu/copy.h"

namespace clikart::cpu {

/// The input of a reduction as [outer, extent, inner], dense; `extent` is reduced.  inner == 1: rows to be reduced;
/// otherwise columns.  Layouts that are neither are copied into scratch memory first.
class ReduceLayout {
public:
    ReduceLayout(const KernelCall& call, const View& in, const bool (&reduced)[kMaxRank]);

    const void* data = nullptr;
    int64_t outer = 1, extent = 1, inner = 1;

private:
    std::unique_ptr<Scratch> scratch_;
};

/// Which dimensions a `dims` attribute names; absent or empty means all, as in torch.
void reduced_dims(const Attributes& attributes, int dims_position, int rank, bool (&reduced)[kMaxRank]);

}  // namespace clikart::cpu
