// The orderly end: work that was submitted is finished before the process's static objects go.
#pragma once

#include <cstdint>

namespace clikart {

/// Blocks until a moment when no work is under way anywhere, on callers included, or until the timeout (negative: without
/// end); false when there was none.
bool drain_streams(int64_t timeout_ns = -1);

/// All that is queued now, on any stream, fails instead of running.
void cancel_queued() noexcept;

/// Returns when all that was submitted is over and all callbacks due were called; refuses further work meanwhile, so that
/// it does return.  Callbacks are waited for at most five seconds.
/// False when work is left after the timeout (negative: without end); then work is refused until a later call returns true.
bool finish_work(int64_t timeout_ns = -1);

/// Refuses further work from now on, and returns when all that was submitted is over.
void shut_down();

/// Registers shut_down with the C library's exit.  Called again after a library with static objects of its own came to
/// life, so that it runs before those are destroyed.
void shut_down_at_exit();

}  // namespace clikart
