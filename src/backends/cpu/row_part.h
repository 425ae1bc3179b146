// Operators that look at whole rows, or at channels, as parts of a fused step.
#pragma once

#include <memory>

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// Reads its first operand, contiguous in its lanes, and makes as many elements or one of each row; with the bits of the operator's kernel.
class RowPart {
public:
    RowPart(DType in, DType out) noexcept : in(in), out(out) {}
    virtual ~RowPart() = default;
    RowPart(const RowPart&) = delete;
    RowPart& operator=(const RowPart&) = delete;

    const DType in, out;  // lanes
    /// What a run needs to know of the other operands.
    virtual std::shared_ptr<const void> start(std::span<const View>) const { return nullptr; }
    /// The n elements from `x` on, which are whole rows and the elements from `first` on of their tensor.  `to` may be `x` unless
    /// one element of each row is made.
    virtual void run(const void* state, const void* x, int64_t first, int64_t n, void* to) const = 0;
};

/// The part that an operator is on rows of `row` elements; `x` is its first operand's view.  Null: it is none.
std::unique_ptr<const RowPart> find_row_part(const FusedPart& part, const View& x, int64_t row);

// Of each file.
std::unique_ptr<const RowPart> find_fold_part(const FusedPart& part, const View& x, int64_t row);
std::unique_ptr<const RowPart> find_softmax_part(const FusedPart& part, const View& x, int64_t row);
std::unique_ptr<const RowPart> find_norm_part(const FusedPart& part, const View& x, int64_t row);
std::unique_ptr<const RowPart> find_channel_part(const FusedPart& part, const View& x, int64_t row);

}  // namespace clikart::cpu
