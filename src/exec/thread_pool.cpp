#include "exec/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/float_mode.h"
#include "exec/parking.h"
#include "exec/signals.h"
#include "exec/spin.h"
#include "exec/usable_threads.h"

namespace clikart {
namespace {

// Long enough to bridge the gap between two operators of a chain, short enough to cost no CPU that anyone notices:
// a parked worker needs about 25 us to wake on the machine this was measured on.
constexpr int kSpins = 2000;

thread_local bool inside_loop = false;
thread_local Crew* crew_of_thread = nullptr;

std::atomic<bool> fork_child_without_workers{false};

}  // namespace

struct ThreadPool::Loop {
    LoopBody body;
    void* context;
    int64_t pieces;
    Crew* crew;
    // Guarded by the pool's mutex.
    int helpers_wanted;
    int kept = 0;                        // of those wanted: the room for waiters, which workers leave alone
    int helpers = 0;                     // threads inside run(), but for the caller
    static constexpr size_t kLine = 64;  // of the cache: what different threads write lies on different ones
    alignas(kLine) std::atomic<int64_t> taken{0};
    // The caller takes pieces from the front and its helpers from the back: so each core mostly sees neighbouring pieces, and the
    // same ones when the next loop runs over the same memory.
    alignas(kLine) std::atomic<int64_t> front{0};
    alignas(kLine) std::atomic<int64_t> back{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // written by the one thread that set `failed` first

    /// Takes pieces until there are none, or until the deadline is over.
    void run(bool helping, const Deadline& deadline) noexcept {
        const bool before = std::exchange(inside_loop, true);
        while (!deadline.over() && taken.fetch_add(1, std::memory_order_relaxed) < pieces) {
            const int64_t piece = helping ? pieces - 1 - back.fetch_add(1, std::memory_order_relaxed) : front.fetch_add(1, std::memory_order_relaxed);
            try {
                body(context, piece);
            } catch (...) {
                if (!failed.exchange(true)) error = std::current_exception();
                taken.store(pieces, std::memory_order_relaxed);
            }
        }
        inside_loop = before;
    }
    bool has_pieces() const noexcept { return taken.load(std::memory_order_relaxed) < pieces; }
};

ThreadPool& ThreadPool::instance() noexcept {
    static ThreadPool& pool = *new ThreadPool;
    return pool;
}

ThreadPool::ThreadPool() noexcept : threads_(std::min(usable_threads(), kMaxThreads)) {}

void ThreadPool::start_workers() {
    std::lock_guard lock(mutex_);
    for (int started = started_.load(std::memory_order_relaxed); started < threads(); ++started) {
        try {
            const SignalsHeld held;  // which the thread inherits
            std::thread thread([this, started] { worker(started); });
            pthread_setname_np(thread.native_handle(), "clikart");
            thread.detach();  // nothing joins them: shutdown drains the streams instead
        } catch (const std::system_error&) {
            if (started == 0) throw;
            threads_.store(started, std::memory_order_relaxed);  // fewer threads than cores is better than none
            break;
        }
        started_.store(started + 1, std::memory_order_release);
    }
    fork_child_without_workers.store(false, std::memory_order_relaxed);
}

void ThreadPool::set_threads(int threads) {
    if (threads < 1 || threads > kMaxThreads) fail(ErrorKind::Value, "set_num_threads: from 1 to {} are possible, got {}", kMaxThreads, threads);
    {
        std::lock_guard lock(mutex_);
        threads_.store(threads, std::memory_order_relaxed);
        more_.notify_all();
        wake_.notify_all();  // those beyond the number go to sleep elsewhere, where no work is announced
    }
    ensure_workers();
}

bool ThreadPool::orphaned() noexcept {
    return fork_child_without_workers.load(std::memory_order_relaxed);
}

void ThreadPool::before_fork() noexcept {
    instance().mutex_.lock();
}
void ThreadPool::after_fork_parent() noexcept {
    instance().mutex_.unlock();
}
void ThreadPool::after_fork_child() noexcept {
    ThreadPool& pool = instance();
    pool.first_ = pool.last_ = nullptr;  // the streams are scheduled again
    pool.loops_.clear();
    pool.waiters_ = nullptr;
    pool.pending_ = 0;
    pool.parked_ = 0;
    pool.started_ = 0;
    forget_waiters(pool.wake_);
    forget_waiters(pool.more_);
    fork_child_without_workers = true;
    pool.mutex_.unlock();
}

void ThreadPool::enqueue(Runnable& work, bool at_front) noexcept {
    std::lock_guard lock(mutex_);
    if (at_front) {
        work.next_ = first_;
        first_ = &work;
        if (!last_) last_ = &work;
    } else {
        work.next_ = nullptr;
        (last_ ? last_->next_ : first_) = &work;
        last_ = &work;
    }
    pending_.fetch_add(1, std::memory_order_relaxed);
    if (parked_ > 0) wake_.notify_one();
}

bool ThreadPool::take(Runnable& work) noexcept {
    if (!has_work()) return false;
    std::lock_guard lock(mutex_);
    Runnable* before = nullptr;
    for (Runnable* r = first_; r; before = r, r = r->next_) {
        if (r != &work) continue;
        (before ? before->next_ : first_) = r->next_;
        if (last_ == r) last_ = before;
        pending_.fetch_sub(1, std::memory_order_relaxed);
        return true;
    }
    return false;
}

ThreadPool::Loop* ThreadPool::joinable_loop() noexcept {
    for (Loop* loop : loops_) {
        if (loop->helpers_wanted > loop->kept && loop->has_pieces()) return loop;
    }
    return nullptr;
}

void ThreadPool::parallel_for(int64_t pieces, LoopBody body, void* context) {
    const int threads = this->threads();
    if (pieces <= 1 || threads == 1 || inside_loop) {
        for (int64_t i = 0; i < pieces; ++i) body(context, i);
        return;
    }
    try {
        ensure_workers();
    } catch (const std::system_error&) {  // then nobody helps
    }
    Loop loop{body, context, pieces, crew_of_thread, static_cast<int>(std::min<int64_t>(pieces, threads)) - 1};
    {
        std::lock_guard lock(mutex_);
        loops_.push_back(&loop);
        pending_.fetch_add(1, std::memory_order_relaxed);
        loop.kept = std::min(room_for(loop.crew), loop.helpers_wanted);
        if (loop.crew) loop.crew->wanted_.store(true, std::memory_order_relaxed);
        for (int i = 0; i < std::min(parked_, loop.helpers_wanted - loop.kept); ++i) wake_.notify_one();
    }
    loop.run(false, Deadline(-1));
    std::unique_lock lock(mutex_);
    std::erase(loops_, &loop);
    if (loop.crew) loop.crew->wanted_.store(false, std::memory_order_relaxed);
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

int ThreadPool::room_for(const Crew* crew) const noexcept {
    int room = 0;
    for (const Waiter* waiter = waiters_; waiter; waiter = waiter->next_) room += &waiter->crew_ == crew && waiter->has_room_;
    return room;
}

ThreadPool::Waiter::Waiter(Crew& crew, const Timeline& timeline, uint64_t value, const Deadline& deadline) noexcept
    : crew_(crew), timeline_(timeline), value_(value), deadline_(deadline) {
    ThreadPool& pool = instance();
    std::lock_guard lock(pool.mutex_);
    next_ = pool.waiters_;
    pool.waiters_ = this;
}

ThreadPool::Waiter::~Waiter() {
    ThreadPool& pool = instance();
    std::lock_guard lock(pool.mutex_);
    Waiter** link = &pool.waiters_;
    while (*link != this) link = &(*link)->next_;
    *link = next_;
    release_room();
}

/// Under the pool's mutex: what was kept for it is for workers again.
void ThreadPool::Waiter::release_room() noexcept {
    if (!std::exchange(has_room_, false)) return;
    ThreadPool& pool = instance();
    for (Loop* loop : pool.loops_) {
        if (loop->crew != &crew_ || loop->kept == 0) continue;
        --loop->kept;
        if (pool.parked_ > 0) pool.wake_.notify_one();
    }
}

void ThreadPool::Waiter::give_up_room() noexcept {
    std::lock_guard lock(instance().mutex_);
    release_room();
}

bool ThreadPool::Waiter::take_part() noexcept {
    if (!crew_.wanted_.load(std::memory_order_relaxed)) return false;
    ThreadPool& pool = instance();
    std::unique_lock lock(pool.mutex_);
    // Looked at here, because the next loop of the crew may be of what comes behind the point: it is announced under the mutex
    // after the point was reached.
    if (timeline_.completed() >= value_) return false;
    const auto found = std::find_if(pool.loops_.begin(), pool.loops_.end(),
                                    [this](const Loop* loop) { return loop->crew == &crew_ && loop->helpers_wanted > 0 && loop->has_pieces(); });
    if (found == pool.loops_.end()) {
        crew_.wanted_.store(false, std::memory_order_relaxed);
        return false;
    }
    Loop& loop = **found;
    --loop.helpers_wanted;
    if (loop.kept > 0) --loop.kept;
    ++loop.helpers;
    lock.unlock();
    {
        const DefaultFloatMode mode;
        loop.run(true, deadline_);
    }
    lock.lock();
    if (loop.has_pieces()) {  // the deadline is over: somebody else may take its place
        ++loop.helpers_wanted;
        crew_.wanted_.store(true, std::memory_order_relaxed);
        if (pool.parked_ > 0) pool.wake_.notify_one();
    }
    --loop.helpers;  // the loop is gone once its owner sees this
    has_room_ = true;
    return true;
}

ThreadPool::Serving::Serving(Crew& crew) noexcept : before_(std::exchange(crew_of_thread, &crew)) {}

ThreadPool::Serving::~Serving() {
    crew_of_thread = before_;
}

void ThreadPool::worker(int index) noexcept {
    signals_stay_held();
    const DefaultFloatMode mode;  // a new thread has its creator's
    std::unique_lock lock(mutex_);
    for (;;) {
        if (index >= threads()) {
            more_.wait(lock);
        } else if (Loop* loop = joinable_loop()) {
            --loop->helpers_wanted;
            ++loop->helpers;
            lock.unlock();
            loop->run(true, Deadline(-1));
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
            if (index < threads() && !first_ && !joinable_loop()) {
                ++parked_;
                wake_.wait(lock);
                --parked_;
            }
        }
    }
}

}  // namespace clikart
