// Steps that compute the same from the same become one.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Merges steps of the same operator with the same attributes and operands, and constants of the same number.  Random steps stay
/// apart, and so does what is written over or reads what is, and what goes out, itself or as a view: the caller gets memory of its
/// own for each.
void merge_common(Program& program);

}  // namespace clikart::passes
