// Where elements lie: a program whose operators want channels last, written with channels first, permutes before and behind each of
// them.  Elementwise operators in between work on elements as they lie, and permutations meet and cancel.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Moves permutations behind the elementwise steps that read them, where others follow there, and makes one of those that meet, or none.
/// What goes out lies as it did, and so does what something reads that depends on strides; programs that write over memory stay as they
/// are.
void sink_permutations(Program& program);

}  // namespace clikart::passes
