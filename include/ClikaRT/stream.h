// Devices, streams, and where an operator is to run.
#pragma once

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
    /// The calling thread's own stream, on which unplaced operators run.
    static Stream current() { return Stream(detail::check(clikart_stream_current())); }
    /// Takes over a handle of the C ABI.
    static Stream adopt(clikart_stream* handle) { return Stream(detail::check(handle)); }

    /// Waits until all that was submitted is over.
    void synchronize() const { detail::check(clikart_stream_synchronize(handle())); }
    /// Whether all that was submitted is over; does not wait.
    bool query_idle() const { return detail::check(clikart_stream_is_idle(handle())) == 1; }

    clikart_stream* handle() const noexcept { return shared_.get(); }
    friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.handle() == b.handle(); }

private:
    explicit Stream(clikart_stream* handle) noexcept : shared_(handle) {}
    detail::Shared<clikart_stream, clikart_stream_retain, clikart_stream_release> shared_;
};

/// A placement: a stream, which is used as given, or a device, or nothing.
class StreamOrDevice {
public:
    StreamOrDevice() noexcept : placement_{} {}
    StreamOrDevice(const Stream& stream) : placement_{sizeof(clikart_placement), nullptr, stream.handle()} {}
    StreamOrDevice(const Device& device) : name_(device.name()), placement_{sizeof(clikart_placement), nullptr, nullptr} {}
    /// Valid as long as this object and the stream it was made of.
    const clikart_placement* c_placement() const noexcept {
        if (placement_.struct_size == 0) return nullptr;
        if (!name_.empty()) placement_.device = name_.c_str();
        return &placement_;
    }

private:
    std::string name_;
    mutable clikart_placement placement_;
};

}  // namespace v1
}  // namespace ClikaRT
