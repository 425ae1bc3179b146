// The one pool of worker threads: it runs streams, and the pieces of parallel loops.
// Streams and user threads are many, workers are as many as the process may use cores.  Idle workers spin briefly and
// then park.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/deadline.h"
#include "core/timeline.h"

namespace clikart {

/// Something a worker runs once.
class Runnable {
public:
    virtual void run() noexcept = 0;

protected:
    ~Runnable() = default;

private:
    friend class ThreadPool;
    Runnable* next_ = nullptr;  // in the pool's queue; guarded by its mutex
};

/// Those who wait for one stream, and take part in the loops of what it runs instead of keeping a core from them.
class Crew {
    friend class ThreadPool;
    std::atomic<bool> wanted_{false};  // a loop has room for one; written under the pool's mutex
};

/// A loop body: called once for each piece, from any of the threads that take part, never twice for a piece.
using LoopBody = void (*)(void* context, int64_t piece);

class ThreadPool {
public:
    /// The process's pool; never destroyed.
    static ThreadPool& instance() noexcept;

    /// How many threads compute a loop at most, its caller included, and how many workers there are; threads that wait may compute
    /// besides them.  At first what CPU affinity and the control group's
    /// quota allow, or CLIKA_NUM_THREADS.
    int threads() const noexcept { return threads_.load(std::memory_order_relaxed); }
    /// From 1 to kMaxThreads; throws ValueError otherwise.  Takes effect at once, for what runs already with its next piece.
    void set_threads(int threads);
    static constexpr int kMaxThreads = 1024;

    /// Starts the workers that are missing.  Throws when not even one can be started.
    void ensure_workers() {
        if (started_.load(std::memory_order_acquire) < threads()) start_workers();
    }
    /// True in the child of a fork that has computed nothing yet.
    static bool orphaned() noexcept;

    /// Queues `work`, which must stay valid until it ran and is not queued already.  A worker calls run().  At the front goes what
    /// somebody took and gives back.
    void enqueue(Runnable& work, bool at_front = false) noexcept;

    /// Takes `work` back from the queue, to be run by the caller; false when a worker has it, or it was never queued.
    bool take(Runnable& work) noexcept;

    /// Calls body(context, i) for every i in [0, pieces) and returns when all are done.  The caller takes part.
    /// Called from inside a loop's body it runs the pieces one after the other.
    /// The first exception of a body is rethrown here; the pieces not yet taken are then dropped.
    void parallel_for(int64_t pieces, LoopBody body, void* context);

    template <class F>
    void parallel_for(int64_t pieces, F&& f) {
        using Body = std::remove_reference_t<F>;
        parallel_for(pieces, [](void* context, int64_t piece) { (*static_cast<Body*>(context))(piece); }, const_cast<void*>(static_cast<const void*>(&f)));
    }

    /// A thread that waits, as one of a crew, for a point of a timeline: for as long as this lives.  Loops keep room for it, which no
    /// worker takes, as long as it looks at take_part() all the time.
    class Waiter {
    public:
        Waiter(Crew& crew, const Timeline& timeline, uint64_t value, const Deadline& deadline) noexcept;
        ~Waiter();
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        /// Takes pieces of a loop of the crew's, until there are none or the deadline is over; false when no loop has room, or the
        /// point was reached.
        bool take_part() noexcept;
        /// To be called before it looks less often.
        void give_up_room() noexcept;

    private:
        friend class ThreadPool;
        void release_room() noexcept;
        Crew& crew_;
        const Timeline& timeline_;
        const uint64_t value_;
        const Deadline& deadline_;
        // Guarded by the pool's mutex.
        bool has_room_ = true;
        Waiter* next_;
    };

    /// While it lives, the loops of this thread are the crew's.
    class Serving {
    public:
        explicit Serving(Crew& crew) noexcept;
        ~Serving();
        Serving(const Serving&) = delete;
        Serving& operator=(const Serving&) = delete;

    private:
        Crew* const before_;
    };

    // For fork: the pool stands still between the first and one of the others.  In the child it is empty.
    static void before_fork() noexcept;
    static void after_fork_parent() noexcept;
    static void after_fork_child() noexcept;

private:
    struct Loop;
    ThreadPool() noexcept;
    void start_workers();
    void worker(int index) noexcept;
    bool has_work() const noexcept { return pending_.load(std::memory_order_relaxed) > 0; }
    Loop* joinable_loop() noexcept;
    int room_for(const Crew* crew) const noexcept;

    std::atomic<int> threads_;
    std::atomic<int> started_{0};      // written under the mutex
    std::atomic<int64_t> pending_{0};  // queued runnables and joinable loops: what spinning workers look at
    std::mutex mutex_;                 // guards all below
    std::condition_variable wake_;
    std::condition_variable more_;  // the number of threads grew; those beyond it wait here
    Runnable* first_ = nullptr;
    Runnable* last_ = nullptr;
    std::vector<Loop*> loops_;
    Waiter* waiters_ = nullptr;
    int parked_ = 0;
};

}  // namespace clikart
