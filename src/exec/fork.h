// fork(): running kernels end before it, nothing starts during it, and the child rebuilds its threads when it computes.
#pragma once

#include <mutex>

namespace clikart {

/// Holds a lock during every fork from now on, so that no thread that the child lacks can own it.  For locks that no
/// kernel waits for another to give up, and that last for ever.
void hold_at_fork(std::mutex& mutex);

}  // namespace clikart
