// Steps whose result is, bit for bit, a value that is there already.
#pragma once

#include "graph/program.h"

namespace clikart::passes {

/// Takes out casts to the same dtype and back from a wider one, views that change nothing, negations of negations, factors of one and
/// the like, and lets a reshape look through others.  What goes out, is written over or looks at what is stays: the caller gets memory of
/// its own.  So does what makes a signalling NaN quiet, and what makes strided elements dense where that shows.
void remove_identities(Program& program);

}  // namespace clikart::passes
