#include "exec/shutdown.h"

#include <algorithm>
#include <cstdlib>

#include "base/deadline.h"
#include "base/log.h"
#include "core/history.h"
#include "exec/callbacks.h"
#include "exec/schedule.h"
#include "exec/thread_pool.h"

namespace clikart {
namespace {

/// A callback that never returns must not keep the process from ending.
constexpr int64_t kCallbackNanoseconds = 5'000'000'000;

void call_callbacks() {
    if (CallbackPool::instance().drain(kCallbackNanoseconds)) return;
    log(LogLevel::Warning, "a callback of on_complete is still running, the end does not wait for it any longer");
}

/// The end of a fork's child does not wait for what its parent had queued; the parent computes it.
void forget_inherited() noexcept {
    std::lock_guard lock(submission());
    Schedule& all = Schedule::instance();
    all.cancelled = std::max(all.cancelled, all.inherited);
}

}  // namespace

bool drain_streams(int64_t timeout_ns) {
    Schedule& all = Schedule::instance();
    const Deadline deadline(timeout_ns);
    std::unique_lock lock(submission());
    if (ThreadPool::orphaned()) return true;  // a fork's child that computed nothing: what is queued is its parent's
    ++all.draining;
    const bool done = deadline.wait(all.nothing_unfinished, lock, [&] { return all.unfinished == 0; });
    --all.draining;
    return done;
}

void cancel_queued() noexcept {
    std::lock_guard lock(submission());
    Schedule& all = Schedule::instance();
    all.cancelled = all.submissions;
}

bool finish_work(int64_t timeout_ns) {
    Schedule& all = Schedule::instance();
    {
        std::lock_guard lock(submission());
        all.finishing = true;
    }
    forget_inherited();
    if (!drain_streams(timeout_ns)) return false;
    call_callbacks();
    std::lock_guard lock(submission());
    all.finishing = false;
    return true;
}

void shut_down() {
    {
        std::lock_guard lock(submission());
        Schedule::instance().shut_down = true;
    }
    forget_inherited();
    drain_streams();
    call_callbacks();
}

void shut_down_at_exit() {
    std::atexit(&shut_down);
}

}  // namespace clikart
