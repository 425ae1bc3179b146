// The orderly end: work that was submitted is finished before the process's static objects go.
#pragma once

namespace clikart {

/// Returns when all that was submitted is over; refuses further work meanwhile, so that it does return.
void finish_work();

/// Refuses further work from now on, and returns when all that was submitted is over.
void shut_down();

/// Registers shut_down with the C library's exit.  Called again after a library with static objects of its own came to
/// life, so that it runs before those are destroyed.
void shut_down_at_exit();

}  // namespace clikart
