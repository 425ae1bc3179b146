// What the library has to say outside of any call: to a hook, or to stderr.
#pragma once

#include <string>

namespace clikart {

enum class LogLevel : int32_t { Debug = 10, Info = 20, Warning = 30, Error = 40 };  // Python's numbers

/// Called on any thread, with no lock of the library held.
using LogHook = void (*)(LogLevel level, const char* message, void* context);

/// Replaces the hook; null brings back the default, which writes warnings and errors to stderr.  `destroy` (may be null)
/// is called with the context once, when no call of the hook is under way or to come.
void set_log_hook(LogHook hook, void* context, void (*destroy)(void*));

void log(LogLevel level, const std::string& message) noexcept;

/// The lock of the hook, for fork.
void lock_log() noexcept;
void unlock_log() noexcept;

}  // namespace clikart
