// All passes, in their order.
#pragma once

#include "graph/program.h"

namespace clikart {

/// Rewrites a program, and those of its regions, into one that computes the same bits.
void optimize(Program& program);

}  // namespace clikart
