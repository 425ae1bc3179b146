// What operators look at to make one element, which says whether they can be computed together part by part.
#pragma once

#include "ops/op_info.h"

namespace clikart {

struct Reach {
    enum class Kind {
        Other,    // more than that: it is computed alone
        Element,  // the elements at the same place of all operands
        Row,      // a whole row of the first operand, to make a whole row; the other operands are weights
        Fold,     // the same, to make one element
    } kind = Kind::Other;
    int dims = 0;  // the last dimensions, which a row has; 0 where it may be any

    bool keeps_shape() const noexcept { return kind == Kind::Element || kind == Kind::Row; }
};

/// Of a call that passed the operator's shape rule; `rank` is that of the first operand.
Reach reach_of(const OpInfo& info, const Attributes& attributes, int rank);

/// Whether rows of the last `dims` dimensions are worth working on whole: calls for shorter ones cost more than they save, longer ones
/// do not stay in the caches.
bool suits_rows(const Dims& over, int dims);

/// How many of the last dimensions of `shape` are 1 where `over`, of the same rank, has more, if that is all they differ in; -1: it is not.
int folded_dims(const Dims& over, const Dims& shape);

/// The shape whose last `dims` dimensions are 1.
Dims with_folded(Dims shape, int dims);

}  // namespace clikart
