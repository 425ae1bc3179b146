#include "base/log.h"

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <new>

#include "base/deadline.h"

namespace clikart {
namespace {

std::mutex& mutex = *new std::mutex;  // guards all that follows; never destroyed, as that
std::shared_ptr<const LogHook>& current = *new std::shared_ptr<const LogHook>;
bool kept = false;
std::deque<std::pair<LogLevel, std::string>>& messages = *new std::deque<std::pair<LogLevel, std::string>>;
std::condition_variable& changed = *new std::condition_variable;

}  // namespace

void set_log_hook(std::shared_ptr<const LogHook> hook) {
    std::lock_guard lock(mutex);
    hook.swap(current);
    // The old one ends after the lock, or with its last call.
}

void log(LogLevel level, const char* message) noexcept {
    std::shared_ptr<const LogHook> hook;
    {
        std::lock_guard lock(mutex);
        if (kept) {
            try {
                messages.emplace_back(level, message);
                if (messages.size() > kKeptMessages) messages.pop_front();
                changed.notify_one();
            } catch (...) {  // no memory to keep it
            }
            return;
        }
        hook = current;
    }
    if (hook) {
        hook->call(level, message);
    } else if (level >= LogLevel::Warning) {
        std::fprintf(stderr, "clikart: %s\n", message);
    }
}

void keep_log(bool keep) {
    std::lock_guard lock(mutex);
    kept = keep;
    if (!keep) messages.clear();
    changed.notify_all();
}

Next next_message(LogLevel& level, std::string& message, int64_t timeout_ns) {
    std::unique_lock lock(mutex);
    const auto over = [] { return !kept || !messages.empty(); };
    if (!Deadline(timeout_ns).wait(changed, lock, over)) return Next::Timeout;
    if (!kept) return Next::NotKept;
    level = messages.front().first;
    message = std::move(messages.front().second);
    messages.pop_front();
    return Next::Message;
}

void lock_log() noexcept {
    mutex.lock();
}
void unlock_log() noexcept {
    mutex.unlock();
}

void unlock_log_in_child() noexcept {
    new (&changed) std::condition_variable;
    messages.clear();  // the parent's
    mutex.unlock();
}

}  // namespace clikart
