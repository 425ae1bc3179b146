// Settings of the calling thread for the length of a C++ scope.  The innermost scope of a kind wins; an exception ends it
// like any other end.  A scope ends in the thread that began it.
#pragma once

#include <ClikaRT/error.h>
#include <ClikaRT/stream.h>

namespace ClikaRT {
inline namespace v1 {

/// Inside, every operator of the calling thread is over when its call returns, and its failure is thrown there.
class SynchronousStreamScope {
public:
    SynchronousStreamScope() noexcept : before_(clikart_set_synchronous(true)) {}
    /// For the operators of a stream; those on the thread's other streams are over as well.
    explicit SynchronousStreamScope(const Stream&) noexcept : SynchronousStreamScope() {}
    ~SynchronousStreamScope() { clikart_set_synchronous(before_); }
    SynchronousStreamScope(const SynchronousStreamScope&) = delete;
    SynchronousStreamScope& operator=(const SynchronousStreamScope&) = delete;

private:
    const bool before_;
};

namespace detail {

class ModeScope {
public:
    explicit ModeScope(clikart_mode mode) : before_(detail::check(clikart_set_mode(mode))) {}
    ~ModeScope() { clikart_set_mode(before_); }
    ModeScope(const ModeScope&) = delete;
    ModeScope& operator=(const ModeScope&) = delete;

private:
    const clikart_mode before_;
};

}  // namespace detail

/// Inside, operators of the calling thread are deferred: their results are Unscheduled, and are computed, with what they
/// depend on, when one of them is synchronized or read, or used by an operator outside.
class TracingScope : detail::ModeScope {
public:
    TracingScope() : ModeScope(CLIKART_MODE_TRACING) {}
};

/// Inside, operators are submitted at once: the default again, within a TracingScope.
class EagerScope : detail::ModeScope {
public:
    EagerScope() : ModeScope(CLIKART_MODE_EAGER) {}
};

/// Inside, work of the calling thread on the stream's bare device goes to the stream.
class StreamScope {
public:
    explicit StreamScope(const Stream& stream) : device_(stream.device()) {
        detail::check(clikart_set_stream(device_.name().c_str(), stream.handle(), &before_));
    }
    ~StreamScope() {
        clikart_set_stream(device_.name().c_str(), before_, nullptr);
        clikart_stream_release(before_);
    }
    StreamScope(const StreamScope&) = delete;
    StreamScope& operator=(const StreamScope&) = delete;

private:
    const Device device_;
    clikart_stream* before_ = nullptr;
};

/// Inside, tensors of the calling thread that have neither inputs nor a placement are made on the device.
class DeviceScope {
public:
    explicit DeviceScope(const Device& device) : before_(clikart_get_device()) { detail::check(clikart_set_device(device.name().c_str())); }
    ~DeviceScope() { clikart_set_device(before_); }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

private:
    const char* const before_;  // static text
};

}  // namespace v1
}  // namespace ClikaRT
