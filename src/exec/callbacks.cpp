#include "exec/callbacks.h"

#include <pthread.h>

#include <memory>
#include <system_error>
#include <thread>

#include "base/deadline.h"
#include "exec/parking.h"

namespace clikart {
namespace {

thread_local bool is_callback_thread = false;

}  // namespace

CallbackPool& CallbackPool::instance() noexcept {
    static CallbackPool& pool = *new CallbackPool;
    return pool;
}

bool CallbackPool::on_thread() noexcept {
    return is_callback_thread;
}

void CallbackPool::start_thread() {
    std::thread thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), "clikart callback");
    thread.detach();  // nothing joins them: the end of the process drains the queue instead
    ++threads_;
}

void CallbackPool::start() {
    std::lock_guard lock(mutex_);
    if (threads_ == 0) start_thread();
}

void CallbackPool::post(Callback* callback) noexcept {
    std::lock_guard lock(mutex_);
    callback->next_ = nullptr;
    (last_ ? last_->next_ : first_) = callback;
    last_ = callback;
    ++open_;
    wake_.notify_one();
}

void CallbackPool::run() noexcept {
    is_callback_thread = true;
    std::unique_lock lock(mutex_);
    for (;;) {
        ++idle_;
        wake_.wait(lock, [this] { return first_; });
        --idle_;
        std::unique_ptr<Callback> callback(first_);
        first_ = callback->next_;
        if (!first_) last_ = nullptr;
        if (idle_ == 0 && threads_ < kThreads) {  // this one may block: another stands ready
            try {
                start_thread();
            } catch (const std::system_error&) {  // then it does not
            }
        }
        lock.unlock();
        callback->call();
        callback.reset();
        lock.lock();
        --open_;
        drained_.notify_all();
    }
}

bool CallbackPool::drain(int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    return Deadline(timeout_ns).wait(drained_, lock, [this] { return open_ <= (is_callback_thread ? 1 : 0); });
}

void CallbackPool::before_fork() noexcept {
    mutex_.lock();
}
void CallbackPool::after_fork_parent() noexcept {
    mutex_.unlock();
}
void CallbackPool::after_fork_child() noexcept {
    first_ = last_ = nullptr;  // the parent calls them
    threads_ = idle_ = 0;
    open_ = 0;
    forget_waiters(wake_);
    forget_waiters(drained_);
    mutex_.unlock();
}

}  // namespace clikart
