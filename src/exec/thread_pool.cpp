#include "exec/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>

#include "exec/spin.h"

namespace clikart {
namespace {

// Long enough to bridge the gap between two operators of a chain, short enough to cost no CPU that anyone notices:
// a parked worker needs about 25 us to wake on the machine this was measured on.
constexpr int kSpins = 2000;

thread_local bool inside_loop = false;

int usable_cpus() noexcept {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

struct ThreadPool::Loop {
    LoopBody body;
    void* context;
    int64_t pieces;
    int helpers_wanted;  // guarded by the pool's mutex, as is `helpers`
    int helpers = 0;     // workers inside run()
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // written by the one thread that set `failed` first

    void run() noexcept {
        inside_loop = true;
        for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
            try {
                body(context, piece);
            } catch (...) {
                if (!failed.exchange(true)) error = std::current_exception();
                next.store(pieces, std::memory_order_relaxed);
            }
        }
        inside_loop = false;
    }
};

ThreadPool& ThreadPool::instance() {
    static ThreadPool& pool = *new ThreadPool;
    return pool;
}

ThreadPool::ThreadPool() {
    // The count is what workers and callers see, so it is complete before any of them looks.
    std::lock_guard lock(mutex_);
    for (const int wanted = usable_cpus(); threads_ < wanted; ++threads_) {
        try {
            std::thread thread([this] { worker(); });
            pthread_setname_np(thread.native_handle(), "clikart");
            thread.detach();  // nothing joins them: shutdown drains the streams instead
        } catch (const std::system_error&) {
            if (threads_ == 0) throw;
            break;  // fewer threads than cores is better than none
        }
    }
}

void ThreadPool::enqueue(Runnable& work) noexcept {
    std::lock_guard lock(mutex_);
    work.next_ = nullptr;
    (last_ ? last_->next_ : first_) = &work;
    last_ = &work;
    pending_.fetch_add(1, std::memory_order_relaxed);
    if (parked_ > 0) wake_.notify_one();
}

ThreadPool::Loop* ThreadPool::joinable_loop() noexcept {
    for (Loop* loop : loops_) {
        if (loop->helpers_wanted > 0 && loop->next.load(std::memory_order_relaxed) < loop->pieces) return loop;
    }
    return nullptr;
}

void ThreadPool::parallel_for(int64_t pieces, LoopBody body, void* context) {
    if (pieces <= 1 || threads_ == 1 || inside_loop) {
        for (int64_t i = 0; i < pieces; ++i) body(context, i);
        return;
    }
    Loop loop{body, context, pieces, static_cast<int>(std::min<int64_t>(pieces, threads_)) - 1};
    {
        std::lock_guard lock(mutex_);
        loops_.push_back(&loop);
        pending_.fetch_add(1, std::memory_order_relaxed);
        for (int i = 0; i < std::min(parked_, loop.helpers_wanted); ++i) wake_.notify_one();
    }
    loop.run();
    std::unique_lock lock(mutex_);
    std::erase(loops_, &loop);
    pending_.fetch_sub(1, std::memory_order_relaxed);
    for (int spins = 0; loop.helpers > 0; ++spins) {  // a helper is in its last piece
        lock.unlock();
        if (spins < kSpins) {
            cpu_relax();
        } else {
            std::this_thread::yield();
        }
        lock.lock();
    }
    lock.unlock();
    if (loop.error) std::rethrow_exception(loop.error);
}

void ThreadPool::worker() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        if (Loop* loop = joinable_loop()) {
            --loop->helpers_wanted;
            ++loop->helpers;
            lock.unlock();
            loop->run();
            lock.lock();
            --loop->helpers;  // the loop is gone once its owner sees this
        } else if (Runnable* work = first_) {
            first_ = work->next_;
            if (!first_) last_ = nullptr;
            pending_.fetch_sub(1, std::memory_order_relaxed);
            lock.unlock();
            work->run();
            lock.lock();
        } else {
            lock.unlock();
            for (int spins = 0; spins < kSpins && !has_work(); ++spins) cpu_relax();
            lock.lock();
            if (!first_ && !joinable_loop()) {
                ++parked_;
                wake_.wait(lock);
                --parked_;
            }
        }
    }
}

}  // namespace clikart
