#include "boundary.h"
#include "exec/shutdown.h"

using namespace clikart;

namespace {

void require_streams(Device device, const char* who) {
    require_available(device, who);
    if (device.type == DeviceType::Meta) fail(ErrorKind::NotImplemented, "{}: device meta computes nothing and has no streams", who);
}

Device device_with_streams(const char* device, const char* who) {
    const Device place = parse_device(checked_text(device, who, "the device"));
    require_streams(place, who);
    return place;
}

}  // namespace

int clikart_is_available(const char* device) {
    return guarded([&] { return is_available(parse_device(checked_text(device, "is_available", "the device"))) ? 1 : 0; });
}

clikart_stream* clikart_stream_create(const char* device) {
    return guarded([&] { return to_stream_handle(make_ref<Stream>(device_with_streams(device, "stream_create"))); });
}

clikart_stream* clikart_stream_default(const char* device) {
    return guarded([&] { return to_stream_handle(Stream::default_stream(device_with_streams(device, "stream_default"))); });
}

bool clikart_stream_is_default(const clikart_stream* stream) {
    return stream && from_handle<Stream>(stream)->is_default();
}

const char* clikart_stream_device(const clikart_stream* stream) {
    return guarded([&]() -> const char* { return stream ? device_text(from_handle<Stream>(stream)->device()) : nullptr; });
}

clikart_stream* clikart_resolve(const char* device) {
    return guarded([&] { return to_stream_handle(resolve(device_with_streams(device, "resolve"))); });
}

int clikart_set_stream(const char* device, const clikart_stream* stream, clikart_stream** previous) {
    return guarded([&] {
        const Device place = device_with_streams(device, "set_stream");
        Ref<Stream> before = thread_stream(place);
        set_thread_stream(place, stream ? Ref<Stream>::share(&checked_stream(stream, "set_stream")) : nullptr);
        if (previous) *previous = before ? to_stream_handle(std::move(before)) : nullptr;
        return 0;
    });
}

int clikart_set_device(const char* device) {
    return guarded([&] {
        set_thread_device(device ? parse_device(device) : Device{DeviceType::Unspecified, 0});
        return 0;
    });
}

const char* clikart_get_device(void) {
    return guarded([]() -> const char* {
        const Device device = set_device_of_thread();
        return device.type == DeviceType::Unspecified ? nullptr : device_text(device);
    });
}

clikart_mode clikart_get_mode(void) {
    return static_cast<clikart_mode>(thread_mode());
}

clikart_mode clikart_set_mode(clikart_mode mode) {
    return guarded([&] {
        const auto before = static_cast<clikart_mode>(thread_mode());
        set_thread_mode(static_cast<Mode>(mode));
        return before;
    });
}

clikart_stream* clikart_stream_current(void) {
    return guarded([&] { return to_stream_handle(Stream::lane()); });
}

clikart_stream* clikart_tensor_stream(const clikart_tensor* tensor) {
    return guarded([&] {
        const Tensor& t = checked_tensor(tensor, "stream");
        return to_stream_handle(t.stream ? Ref<Stream>::share(static_cast<Stream*>(t.stream.get())) : Stream::lane());
    });
}

void clikart_stream_retain(const clikart_stream* stream) {
    if (stream) from_handle<Stream>(stream)->retain();
}

void clikart_stream_release(clikart_stream* stream) {
    if (stream) from_handle<Stream>(stream)->release();
}

int clikart_stream_synchronize(const clikart_stream* stream) {
    return guarded([&] {
        checked_stream(stream, "stream_synchronize").synchronize();
        return 0;
    });
}

int clikart_stream_wait(const clikart_stream* stream, int64_t timeout_ns) {
    return guarded([&] { return checked_stream(stream, "stream_wait").synchronize(timeout_ns) ? 1 : 0; });
}

int clikart_device_wait(const char* device, int64_t timeout_ns) {
    return guarded([&] { return Stream::synchronize(parse_device(checked_text(device, "device_wait", "the device")), timeout_ns) ? 1 : 0; });
}

int clikart_stream_is_idle(const clikart_stream* stream) {
    return guarded([&] { return checked_stream(stream, "stream_is_idle").idle() ? 1 : 0; });
}

void clikart_drain(void) {
    drain_streams();
}

void clikart_finish(void) {
    finish_work();
}

int clikart_finish_within(int64_t timeout_ns) {
    return guarded([&] { return finish_work(timeout_ns) ? 1 : 0; });
}

void clikart_cancel_queued(void) {
    cancel_queued();
}

void clikart_shutdown(void) {
    shut_down();
}

bool clikart_set_synchronous(bool synchronous) {
    const bool before = thread_is_synchronous();
    set_thread_synchronous(synchronous);
    return before;
}

int32_t clikart_num_threads(void) {
    return ThreadPool::instance().threads();
}

int clikart_set_num_threads(int32_t threads) {
    return guarded([&] {
        ThreadPool::instance().set_threads(threads);
        return 0;
    });
}
