// What reductions share: how the input is cut, and walked whatever its strides.
//
// The order of operations depends on the extent and the dtype alone, not on threads, layout or instruction set: the
// reduced elements, in row-major order, are cut into blocks of kReduceBlock; a block's elements go to kReduceLanes lanes,
// element i to lane i mod kReduceLanes; lanes are folded in halves, and the blocks' results in pairs of neighbours.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

inline constexpr int64_t kReduceBlock = 1024;
inline constexpr int64_t kReduceLanes = 16;

/// Blocks that are handed to a reducer together.
struct BlockCall {
    const void* in;      // elements of the reducer's lane dtype
    int64_t row_stride;  // elements
    int64_t n;           // elements of a block, at most kReduceBlock; 0 where nothing is reduced
    int64_t count;       // of blocks, which is of partial results
    int64_t first;       // the position of the first block's first element in the extent,
    int64_t first_step;  // and how much later the next block's is
    void* partial;
    void* work;  // BlockReducer::work bytes for each block
    double parameter;
};

/// What an operator does with blocks; a block's partial result is whatever it wants to know of it.
struct BlockReducer {
    DType lane = DType::Unspecified;  // what `in` is read as
    int64_t partial_bytes = 0;
    int64_t work_bytes = 0;  // of columns(), for each block
    /// Block r is the n elements from in + r * row_stride on.
    void (*rows)(const BlockCall&) = nullptr;
    /// Block c is column c of n rows, `count` wide and row_stride apart.
    void (*columns)(const BlockCall&) = nullptr;
    /// a[i] = a[i] and b[i], which stand for what comes before and after.
    void (*combine)(void* a, const void* b, int64_t n) = nullptr;
    /// n partial results to n elements of each result, of `results` dtypes.
    void (*finish)(const void* partial, int64_t n, int64_t extent, double parameter, void* const* results) = nullptr;
    DType results[2] = {DType::Unspecified, DType::Unspecified};
    double parameter = 0;
    bool counts_nonzero = false;  // elements are read as 1 or 0
    bool any_order = false;       // makes no difference to the bits: memory's is taken
    bool wants_wide_columns = false;
};

/// Reduces the call's input over `reduced` dimensions to its outputs.
void reduce_blocks(const KernelCall& call, const BlockReducer& reducer, const bool (&reduced)[kMaxRank]);

/// The same of n contiguous elements of the reducer's lane dtype, at most kMostRowBlocks blocks, by the calling thread alone.
void reduce_row(const BlockReducer& reducer, const void* row, int64_t n, void* const* results);
inline constexpr int64_t kMostRowBlocks = 64;

/// The same over the dimensions that the attribute at `dims_position` names; absent or empty means all, as in torch.
void reduce_blocks(const KernelCall& call, const BlockReducer& reducer, int dims_position);

}  // namespace clikart::cpu
