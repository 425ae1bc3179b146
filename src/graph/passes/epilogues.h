// What follows a product becomes part of its step: bias, activation, residual, scale, norms and softmaxes of its rows.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Folds a step that looks at the same elements or rows into the product that makes its first operand, if nobody else reads that and the result has the
/// same shape and dtype, and nothing is written over that the product reads.  Those that follow it are folded as well, in their order.
void fold_epilogues(Program& program);

}  // namespace clikart::passes
