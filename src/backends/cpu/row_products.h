// Products of rows with rows: what a right side that is contiguous along the sum, and is used by few left rows, is read for where
// it lies.  Nothing is packed.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// Elements that are added up together: `length` from `left` in each of left rows [begin, end), from `right` in each right row.  What
/// other left rows have there are zeros, which nobody looks at.
struct Stretch {
    int64_t left, right, length, begin, end;
    int64_t ahead;  // what is asked for meanwhile: from where on right rows are read next, or `right`, which is there; kNextRows: the next
                    // right rows, from their first stretch on
};
constexpr int64_t kNextRows = INT64_MAX;

/// out[i, j] = the sum over all stretches of left row i times right row j, by the calling thread alone.  Vectors of products are
/// added up within a stretch, stretch by stretch after that, so how rows are cut into calls never shows in the bits as long
/// as right rows are cut at multiples of kRowsAbreast.
struct RowProducts {
    const float* const* left;  // m rows
    float* const* out;         // where the results of each go
    int64_t m;
    const float* right;  // n rows, right_row elements apart
    int64_t right_row, n;
    const Stretch* stretches;
    int64_t n_stretches;
    int64_t first;  // of a row of results: where that of the first right row goes
};

constexpr int64_t kRowsAbreast = 4;
/// Of a stretch: right rows that are computed together then stay in the first-level cache.
constexpr int64_t kLongestStretch = 1536;

using RowProductsFn = void (*)(const RowProducts& products);
RowProductsFn find_row_products();

}  // namespace clikart::cpu
