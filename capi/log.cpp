#include "base/log.h"

#include <algorithm>
#include <cstring>

#include "boundary.h"

using namespace clikart;

namespace {

/// A user's hook, which must not disturb the error of the thread that has something to say.
class UserHook final : public LogHook {
public:
    UserHook(clikart_log_hook hook, void* user_data, void (*destroy)(void*)) noexcept : hook_(hook), user_data_(user_data), destroy_(destroy) {}
    ~UserHook() override {
        const ErrorPutAside aside;
        if (destroy_) destroy_(user_data_);
    }
    void call(LogLevel level, const char* message) const override {
        const ErrorPutAside aside;
        hook_(static_cast<clikart_log_level>(level), message, user_data_);
    }

private:
    const clikart_log_hook hook_;
    void* const user_data_;
    void (*const destroy_)(void*);
};

}  // namespace

int clikart_set_log_hook(clikart_log_hook hook, void* user_data, void (*destroy)(void* user_data)) {
    return guarded([&] {
        std::shared_ptr<const LogHook> kept;
        try {
            kept = std::make_shared<const UserHook>(hook, user_data, destroy);
        } catch (...) {
            if (destroy) destroy(user_data);
            throw;
        }
        set_log_hook(hook ? std::move(kept) : nullptr);
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
