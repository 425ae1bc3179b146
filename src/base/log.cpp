#include "base/log.h"

#include <cstdio>
#include <memory>
#include <mutex>

namespace clikart {
namespace {

struct Hook {
    const LogHook call;
    void* const context;
    void (*const destroy)(void*);
    ~Hook() {
        if (destroy) destroy(context);
    }
};

std::mutex& mutex = *new std::mutex;  // guards the pointer; never destroyed, as the next
std::shared_ptr<const Hook>& current = *new std::shared_ptr<const Hook>;

}  // namespace

void set_log_hook(LogHook call, void* context, void (*destroy)(void*)) {
    std::shared_ptr<const Hook> hook;
    if (call) {
        try {
            hook = std::make_shared<const Hook>(call, context, destroy);
        } catch (...) {
            if (destroy) destroy(context);
            throw;
        }
    } else if (destroy) {
        destroy(context);
    }
    std::lock_guard lock(mutex);
    hook.swap(current);
    // The old one ends after the lock, or with its last call.
}

void log(LogLevel level, const std::string& message) noexcept {
    std::shared_ptr<const Hook> hook;
    {
        std::lock_guard lock(mutex);
        hook = current;
    }
    if (hook) {
        hook->call(level, message.c_str(), hook->context);
    } else if (level >= LogLevel::Warning) {
        std::fprintf(stderr, "clikart: %s\n", message.c_str());
    }
}

void lock_log() noexcept {
    mutex.lock();
}
void unlock_log() noexcept {
    mutex.unlock();
}

}  // namespace clikart
