#include "exec/shutdown.h"

#include <chrono>
#include <cstdlib>

#include "base/log.h"
#include "core/history.h"
#include "exec/callbacks.h"
#include "exec/schedule.h"
#include "exec/thread_pool.h"

namespace clikart {

namespace {

/// A callback that never returns must not keep the process from ending.
constexpr int64_t kCallbackNanoseconds = 5'000'000'000;

void move_gate(int by) noexcept {
    std::lock_guard lock(submission());
    Schedule::instance().gate_closed += by;
}

bool drain(int64_t timeout_ns) {
    if (!drain_streams(timeout_ns)) return false;
    if (CallbackPool::instance().drain(timeout_ns < 0 ? kCallbackNanoseconds : timeout_ns)) return true;
    if (timeout_ns < 0) log(LogLevel::Warning, "a callback of on_complete is still running, the end does not wait for it any longer");
    return timeout_ns < 0;
}

}  // namespace

bool drain_streams(int64_t timeout_ns) {
    Schedule& all = Schedule::instance();
    std::unique_lock lock(submission());
    if (ThreadPool::orphaned()) return true;  // a fork's child that computed nothing: what is queued is its parent's
    const auto over = [&] { return all.unfinished == 0; };
    ++all.draining;
    bool done = true;
    if (timeout_ns >= 0) {
        done = all.nothing_unfinished.wait_for(lock, std::chrono::nanoseconds(timeout_ns), over);
    } else {
        all.nothing_unfinished.wait(lock, over);
    }
    --all.draining;
    return done;
}

void cancel_queued() noexcept {
    std::lock_guard lock(submission());
    Schedule& all = Schedule::instance();
    if (all.unfinished > 0) all.cancelling = true;
}

bool finish_work(int64_t timeout_ns) {
    move_gate(1);
    const bool over = drain(timeout_ns);
    move_gate(-1);
    return over;
}

void shut_down() {
    move_gate(1);
    drain(-1);
}

void shut_down_at_exit() {
    std::atexit(&shut_down);
}

}  // namespace clikart
