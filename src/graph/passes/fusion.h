// Operators that only work on each other's results become one step, whose values in between never see memory: elementwise ones, and
// those that look at rows (softmax, norms, sums over the last dimensions), so that norms and softmaxes written out become one pass.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Fuses a step with those that make its operands, if nobody else reads these, if all go over one shape or its rows, and if nothing is
/// written over that they read.  The step then is the first operator's, the others are epilogues.
void fuse_operators(Program& program);

}  // namespace clikart::passes
