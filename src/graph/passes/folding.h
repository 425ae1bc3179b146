// What is the same at every run is computed once.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Replaces steps that depend on numbers and attributes alone (`arange`, `zeros`, masks made of them) by their values, as tensors from
/// outside: not random ones, not what is written over or goes out, of which each run has its own, and none above a megabyte.
void fold_constants(Program& program);

}  // namespace clikart::passes
