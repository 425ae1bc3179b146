// The orderly end: work that was submitted is finished before the process's static objects go.
#pragma once

namespace clikart {

/// Registers a drain of all streams with the C library's exit.  Called again after a library with static objects of
/// its own came to life, so that the drain runs before those are destroyed.
void drain_at_exit();

}  // namespace clikart
