#include "boundary.h"
#include "exec/shutdown.h"
#include "ops/mode.h"

using namespace clikart;

namespace {

clikart_stream* to_stream_handle(Ref<Stream> stream) noexcept {
    return reinterpret_cast<clikart_stream*>(static_cast<Object*>(stream.leak()));
}

}  // namespace

int clikart_is_available(const char* device) {
    return guarded([&] { return is_available(parse_device(checked_text(device, "is_available", "the device"))) ? 1 : 0; });
}

clikart_stream* clikart_stream_create(const char* device) {
    return guarded([&] {
        const Device place = parse_device(checked_text(device, "stream_create", "the device"));
        require_available(place, "stream_create");
        return to_stream_handle(make_ref<Stream>(place));
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
        checked<Stream>(stream, ObjectKind::Timeline, "stream_synchronize", "the stream").synchronize();
        return 0;
    });
}

int clikart_stream_is_idle(const clikart_stream* stream) {
    return guarded([&] { return checked<Stream>(stream, ObjectKind::Timeline, "stream_is_idle", "the stream").idle() ? 1 : 0; });
}

void clikart_drain(void) {
    Stream::drain_all();
}

void clikart_finish(void) {
    finish_work();
}

void clikart_shutdown(void) {
    shut_down();
}

bool clikart_set_synchronous(bool synchronous) {
    return std::exchange(thread_is_synchronous(), synchronous);
}

int32_t clikart_num_threads(void) {
    return guarded([] { return int32_t{ThreadPool::instance().threads()}; });
}
