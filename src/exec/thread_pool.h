// The one pool of worker threads: it runs streams, and the pieces of parallel loops.
// Streams and user threads are many, workers are as many as cores.  Idle workers spin briefly and then park.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

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

/// A loop body: called once for each piece, from any of the threads that take part, never twice for a piece.
using LoopBody = void (*)(void* context, int64_t piece);

class ThreadPool {
public:
    /// The process's pool; started at first use and never destroyed.  Throws when not even one thread can be started.
    static ThreadPool& instance();

    /// How many threads compute at most, the caller of a loop included.
    int threads() const noexcept { return threads_; }

    /// Queues `work`, which must stay valid until it ran and is not queued already.  A worker calls run().
    void enqueue(Runnable& work) noexcept;

    /// Calls body(context, i) for every i in [0, pieces) and returns when all are done.  The caller takes part.
    /// Called from inside a loop's body it runs the pieces one after the other.
    /// The first exception of a body is rethrown here; the pieces not yet taken are then dropped.
    void parallel_for(int64_t pieces, LoopBody body, void* context);

    template <class F>
    void parallel_for(int64_t pieces, F&& f) {
        using Body = std::remove_reference_t<F>;
        parallel_for(pieces, [](void* context, int64_t piece) { (*static_cast<Body*>(context))(piece); }, const_cast<void*>(static_cast<const void*>(&f)));
    }

private:
    struct Loop;
    ThreadPool();
    void worker() noexcept;
    bool has_work() const noexcept { return pending_.load(std::memory_order_relaxed) > 0; }
    Loop* joinable_loop() noexcept;

    int threads_ = 0;                  // set by the constructor
    std::atomic<int64_t> pending_{0};  // queued runnables and joinable loops: what spinning workers look at
    std::mutex mutex_;                 // guards all below
    std::condition_variable wake_;
    Runnable* first_ = nullptr;
    Runnable* last_ = nullptr;
    std::vector<Loop*> loops_;
    int parked_ = 0;
};

}  // namespace clikart
