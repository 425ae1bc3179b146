// Elementwise operators that only work on each other's results become one step, whose values in between never see memory.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Fuses an elementwise step with those that make its operands, if nobody else reads these and their results have the same shape,
/// and if nothing is written over that they read.  The step then is the first operator's, the others are epilogues.
void fuse_elementwise(Program& program);

}  // namespace clikart::passes
