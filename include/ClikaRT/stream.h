// Devices, streams, and where an operator is to run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <ClikaRT/error.h>

namespace ClikaRT {
inline namespace v1 {

/// Where tensors live.
class Device {
public:
    /// "cpu", "cuda:0", ...; what the text means is checked where the device is used.
    explicit Device(std::string name) : name_(std::move(name)) {}
    static Device cpu() { return Device("cpu"); }
    /// Tensors with shape and dtype and no storage.
    static Device meta() { return Device("meta"); }
    const std::string& name() const noexcept { return name_; }
    /// Whether tensors can live there in this process.  Throws ValueError when the text names no device.
    bool is_available() const { return detail::check(clikart_is_available(name_.c_str())) == 1; }
    friend bool operator==(const Device&, const Device&) = default;

private:
    std::string name_;
};

/// A queue of work that runs in order, beside the work of other streams.  Copies name the same stream.
class Stream {
public:
    static Stream create(const Device& device) { return Stream(detail::check(clikart_stream_create(device.name().c_str()))); }
    /// The device's synchronous stream: an operator placed on it is over when its call returns.
    static Stream default_stream(const Device& device) { return Stream(detail::check(clikart_stream_default(device.name().c_str()))); }
    /// The calling thread's own asynchronous stream, on which unplaced operators run unless a StreamScope is open.
    static Stream current() { return Stream(detail::check(clikart_stream_current())); }
    /// Takes over a handle of the C ABI.
    static Stream adopt(clikart_stream* handle) { return Stream(detail::check(handle)); }

    /// Waits until all that was submitted is over.  Throws the first failure of its work that nobody was told of yet.
    void synchronize() const { detail::check(clikart_stream_synchronize(handle())); }
    /// The same for a limited time; false when it is not over then.
    bool wait_for(std::chrono::nanoseconds timeout) const {
        return detail::check(clikart_stream_wait(handle(), std::max<std::int64_t>(0, timeout.count()))) == 1;
    }
    /// Whether all that was submitted is over; does not wait.
    bool query_idle() const { return detail::check(clikart_stream_is_idle(handle())) == 1; }

    bool is_default() const noexcept { return clikart_stream_is_default(handle()); }
    Device device() const { return Device(clikart_stream_device(handle())); }

    clikart_stream* handle() const noexcept { return shared_.get(); }
    friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.handle() == b.handle(); }

private:
    explicit Stream(clikart_stream* handle) noexcept : shared_(handle) {}
    detail::Shared<clikart_stream, clikart_stream_retain, clikart_stream_release> shared_;
};

/// A placement: a stream, which is used as given; or a bare device, which means the stream of the innermost StreamScope
/// for it, else the calling thread's stream; or nothing, which follows an operator's inputs.
class StreamOrDevice {
public:
    StreamOrDevice() noexcept = default;
    StreamOrDevice(const Stream& stream) : stream_(stream) {}
    StreamOrDevice(const Device& device) : device_(device) {}

    /// The stream that an operator placed here would ride now.
    Stream resolve() const {
        if (stream_) return *stream_;
        return Stream::adopt(clikart_resolve(device_ ? device_->name().c_str() : "cpu"));
    }

    /// For the C ABI; valid to the end of the expression, and as long as the object it came from.
    class CPlacement {
    public:
        explicit CPlacement(const StreamOrDevice& where) noexcept
            : value_{sizeof value_, where.device_ ? where.device_->name().c_str() : nullptr, where.stream_ ? where.stream_->handle() : nullptr} {}
        operator const clikart_placement*() const noexcept { return value_.device || value_.stream ? &value_ : nullptr; }

    private:
        const clikart_placement value_;
    };
    CPlacement c_placement() const noexcept { return CPlacement(*this); }

private:
    std::optional<Stream> stream_;
    std::optional<Device> device_;
};

}  // namespace v1
}  // namespace ClikaRT
