#include "exec/fork.h"

#include <pthread.h>

#include <vector>

#include "base/log.h"
#include "core/memory.h"
#include "exec/lane.h"
#include "exec/parking.h"
#include "exec/schedule.h"
#include "exec/stream.h"

namespace clikart {

void Stream::before_fork() noexcept {
    Schedule& all = Schedule::instance();
    std::unique_lock lock(submission());
    ++all.forking;
    all.nothing_executing.wait(lock, [&] { return all.executing == 0; });
    lock.release();  // the lock stays taken
}

void Stream::resume_all() noexcept {
    Schedule& all = Schedule::instance();
    if (all.forking > 0) return;
    for (Stream* s = all.first_busy; s;) {
        Stream* const next = s->next_busy_;
        const bool held = std::exchange(s->held_by_fork_, false);
        s->schedule();
        s->mark_idle();
        if (held) s->release();
        s = next;
    }
}

void Stream::after_fork_parent() noexcept {
    --Schedule::instance().forking;
    resume_all();
    submission().unlock();
}

void Stream::after_fork_child() noexcept {
    Schedule& all = Schedule::instance();
    all.forking = 0;  // other threads that fork are not here
    all.draining = 0;
    all.finishing = false;
    all.inherited = all.submissions;
    forget_waiters(all.nothing_unfinished);
    forget_waiters(all.nothing_executing);
    forget_waiters(all.something_finished);
    // Whoever had a stream in hand, on the way between two works of it, is gone; so are the pool's queue and threads.
    // A reference for each is lost with them.
    for (Stream* s = all.first_busy; s; s = s->next_busy_) {
        s->running_ = false;
        s->first_callback_ = nullptr;  // the parent calls them
    }
    resume_all();
    submission().unlock();
    renew_lane();
}

namespace {

struct Held {
    std::mutex registration;  // guards the next
    std::vector<std::mutex*> mutexes;
};
Held& held() {
    static Held& instance = *new Held;  // other files may register before this one's objects come to be
    return instance;
}

// The kernels end first: they need the locks that are taken then.
void before() {
    Stream::before_fork();
    CallbackPool::instance().before_fork();
    ThreadPool::before_fork();
    for (ParkingLot& lot : ParkingLot::all()) lot.mutex.lock();
    held().registration.lock();
    for (std::mutex* mutex : held().mutexes) mutex->lock();
    lock_memory();
    lock_log();
}

void release_locks() {
    unlock_memory();
    for (std::mutex* mutex : held().mutexes) mutex->unlock();
    held().registration.unlock();
    for (ParkingLot& lot : ParkingLot::all()) lot.mutex.unlock();
}

void after_in_parent() {
    unlock_log();
    release_locks();
    ThreadPool::after_fork_parent();
    CallbackPool::instance().after_fork_parent();
    Stream::after_fork_parent();
}

void after_in_child() {
    unlock_log_in_child();
    for (ParkingLot& lot : ParkingLot::all()) forget_waiters(lot.moved);
    release_locks();
    ThreadPool::after_fork_child();
    CallbackPool::instance().after_fork_child();
    Stream::after_fork_child();
}

// When the library is loaded.  What functions keep as static objects comes to be here as well: one that another thread was just
// making at a fork would never be made in the child.
[[maybe_unused]] const bool watched = [] {
    Schedule::instance();
    ThreadPool::instance();
    CallbackPool::instance();
    ParkingLot::all();
    Stream::default_stream(Device{});
    largest_block();
    pthread_atfork(&before, &after_in_parent, &after_in_child);
    return true;
}();

}  // namespace

void hold_at_fork(std::mutex& mutex) {
    std::lock_guard lock(held().registration);
    held().mutexes.push_back(&mutex);
}

}  // namespace clikart
