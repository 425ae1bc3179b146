// Callbacks: what a user wants called when a result is there, on threads of their own.
// They may block, submit work and read results: no lane waits for them, and they wait for no lane.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/small_vector.h"
#include "core/timeline.h"

namespace clikart {

/// Called once and then deleted, unless the process ends or forks before (then neither, in the child).
class Callback {
public:
    virtual ~Callback() = default;
    /// Never throws.
    virtual void call() noexcept = 0;

private:
    friend class CallbackPool;
    friend class Stream;
    Callback* next_ = nullptr;        // on a stream's list (guarded by the submission lock), then in the pool's queue
    SmallVector<Ticket, 1> awaited_;  // what must be over first
};

class CallbackPool {
public:
    static CallbackPool& instance() noexcept;

    /// Starts the first thread, so that post() need not.  Throws when there can be none.
    void start();
    /// Takes over the callback.
    void post(Callback* callback) noexcept;
    /// Waits until all that was posted has been called, or for at most `timeout_ns`; false when some has not.  On a
    /// callback's own thread that one does not count.
    bool drain(int64_t timeout_ns);
    /// Whether the calling thread is one of the pool's.
    static bool on_thread() noexcept;

    // For fork: no callback starts between the first and one of the others.  The child's pool is empty.
    void before_fork() noexcept;
    void after_fork_parent() noexcept;
    void after_fork_child() noexcept;

private:
    void run() noexcept;
    void start_thread();

    // Two work ahead of each other, the others stand in for those that block.
    static constexpr int kThreads = 4;
    std::mutex mutex_;  // guards all below
    std::condition_variable wake_, drained_;
    Callback* first_ = nullptr;
    Callback* last_ = nullptr;
    int threads_ = 0;
    int idle_ = 0;
    int64_t open_ = 0;  // posted and not over
};

}  // namespace clikart
