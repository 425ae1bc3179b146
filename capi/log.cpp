#include "base/log.h"

#include <algorithm>
#include <cstring>

#include "boundary.h"

using namespace clikart;

namespace {

/// A user's hook, which must not disturb the error of the thread that has something to say.
struct Hook {
    const clikart_log_hook call;
    void* const user_data;
    void (*const destroy)(void*);
    ~Hook() {
        const ErrorPutAside aside;
        if (destroy) destroy(user_data);
    }
};

void say(LogLevel level, const char* message, void* context) {
    const ErrorPutAside aside;
    const Hook& hook = *static_cast<const Hook*>(context);
    hook.call(static_cast<clikart_log_level>(level), message, hook.user_data);
}

}  // namespace

int clikart_set_log_hook(clikart_log_hook hook, void* user_data, void (*destroy)(void* user_data)) {
    return guarded([&] {
        std::unique_ptr<Hook> kept;
        try {
            kept.reset(new Hook{hook, user_data, destroy});
        } catch (...) {
            if (destroy) destroy(user_data);
            throw;
        }
        if (hook) {
            set_log_hook(&say, kept.release(), [](void* context) { delete static_cast<Hook*>(context); });
        } else {
            set_log_hook(nullptr, nullptr, nullptr);
        }
        return 0;
    });
}

void clikart_log(clikart_log_level level, const char* message) {
    if (message) log(static_cast<LogLevel>(level), message);
}

void clikart_log_keep(bool keep) {
    keep_log(keep);
}

int clikart_log_next(clikart_log_level* level, char* text, size_t room, int64_t timeout_ns) {
    return guarded([&] {
        if (!level || !text || room == 0) fail(ErrorKind::Type, "log_next: there is no room for the message");
        LogLevel found{};
        std::string message;
        const Next next = next_message(found, message, timeout_ns);
        if (next != Next::Message) return next == Next::Timeout ? 0 : -1;
        *level = static_cast<clikart_log_level>(found);
        const size_t n = std::min(room - 1, message.size());
        std::memcpy(text, message.data(), n);
        text[n] = 0;
        return 1;
    });
}
