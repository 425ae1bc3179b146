// What nobody needs is not computed.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Removes steps whose values nobody reads, and writes over memory that nobody reads any more.  Inputs stay, and random steps: the
/// generator goes on.
void remove_dead(Program& program);

}  // namespace clikart::passes
