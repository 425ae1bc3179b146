// What the library has to say outside of any call: to a hook, or to stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace clikart {

enum class LogLevel : int32_t { Debug = 10, Info = 20, Warning = 30, Error = 40 };  // Python's numbers

/// Called on any thread, with no lock of the library held.
class LogHook {
public:
    virtual ~LogHook() = default;
    virtual void call(LogLevel level, const char* message) const = 0;
};

/// Replaces the hook; null brings back the default, which writes warnings and errors to stderr.  A hook ends when no call of
/// it is under way or to come.
void set_log_hook(std::shared_ptr<const LogHook> hook);

void log(LogLevel level, const char* message) noexcept;

/// For hosts that no thread of the library can call: messages are kept for next_message() instead of going to a hook or to
/// stderr, the last kKeptMessages of them; false ends that, and every wait.
inline constexpr size_t kKeptMessages = 1000;
void keep_log(bool keep);
enum class Next { Message, Timeout, NotKept };
/// Waits for a message, at most `timeout_ns` nanoseconds (negative: without end).
Next next_message(LogLevel& level, std::string& message, int64_t timeout_ns);

/// The lock of the hook, for fork; in the child nobody waits.
void lock_log() noexcept;
void unlock_log() noexcept;
void unlock_log_in_child() noexcept;

}  // namespace clikart
