// What the calling thread asked for: separate settings, each changed by a scope of its own.
#pragma once

#include "exec/stream.h"

namespace clikart {

/// What becomes of a call.  The innermost scope wins.
enum class Mode : int32_t {
    Eager = 0,    // it is submitted to a stream
    Tracing = 1,  // it is deferred until somebody needs its result
    Capture = 2,  // it becomes a node of the graph that the thread records
};

/// What is read in every call, together, so that it is found once.
struct ThreadSettings {
    Mode mode = Mode::Eager;
    bool synchronous_was_set = false;
    bool synchronous = false;
    bool any_stream = false;
    bool ending = false;     // the thread's other settings are gone
    bool recording = false;  // calls are noted by the thread's recorder as well as run
    bool in_region = false;  // of a graph that is recorded: calls are not run, whatever they are elsewhere
    Device device{DeviceType::Unspecified, 0};
};
inline thread_local constinit ThreadSettings thread_settings;

inline Mode thread_mode() noexcept {
    return thread_settings.mode;
}
/// Throws ClikaRTError for Capture while the thread records no graph, ValueError for a number that is no mode.
void set_thread_mode(Mode mode);

/// True while every operator is to be over before its call returns.  At first as CLIKA_SYNC says (1: true).
bool synchronous_from_environment() noexcept;
inline bool thread_is_synchronous(const ThreadSettings& thread = thread_settings) noexcept {
    return thread.synchronous_was_set ? thread.synchronous : synchronous_from_environment();
}
void set_thread_synchronous(bool synchronous) noexcept;

/// Where tensors are made that have no inputs and no placement; the CPU unless it was set.
Device thread_device() noexcept;
/// DeviceType::Unspecified takes the setting back.  Throws NotImplementedError for a device that is not there.
void set_thread_device(Device device);
/// As it was set: may be Unspecified.
Device set_device_of_thread() noexcept;

/// The stream that work on a bare device goes to, if one was set for it; else null.
const Ref<Stream>& thread_stream(Device device) noexcept;
/// Null takes the setting back.
void set_thread_stream(Device device, const Ref<Stream>& stream);
/// The placement law: the stream set for the device, else the calling thread's lane.  Valid until the setting changes.
inline const Ref<Stream>& resolve(Device device, const ThreadSettings& thread = thread_settings) {
    if (thread.any_stream) {
        if (const Ref<Stream>& stream = thread_stream(device)) return stream;
    }
    return Stream::lane();
}

/// The text that says where the thread's calls are made; empty: unknown.
void set_thread_tag(std::string tag);

}  // namespace clikart
