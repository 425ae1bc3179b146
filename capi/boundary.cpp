#include "boundary.h"

#include <string>

#include "ops/call_site.h"

namespace clikart {
namespace {

// Released with the thread, and replaced by the next failure.
struct ErrorOfThread {
    Ref<Error> error;
    ~ErrorOfThread();
};
thread_local bool thread_is_over = false;  // outlives the error: objects that are destroyed after it may still fail
thread_local ErrorOfThread of_thread;

ErrorOfThread::~ErrorOfThread() {
    thread_is_over = true;
}

Ref<Error> exchange_thread_error(Ref<Error> next) noexcept {
    if (thread_is_over) return nullptr;
    return std::exchange(of_thread.error, std::move(next));
}

}  // namespace

void store_current_error() noexcept {
    exchange_thread_error(current_error());
}

ErrorPutAside::ErrorPutAside() noexcept : error_(exchange_thread_error(nullptr)) {}
ErrorPutAside::~ErrorPutAside() {
    exchange_thread_error(std::move(error_));
}

const char* device_text(Device device) noexcept {
    return device.type == DeviceType::Meta ? "meta" : "cpu";  // there are no others yet
}

Dims checked_shape(const int64_t* shape, size_t rank, const char* who) {
    if (rank > kMaxRank) fail(ErrorKind::Value, "{}: a tensor has at most {} dimensions, got {}", who, kMaxRank, rank);
    if (rank > 0 && !shape) fail(ErrorKind::Type, "{}: the shape is NULL", who);
    Dims dims(std::span(shape, rank));
    checked_numel(dims, who);
    return dims;
}

void hand_out(const char* op, Results results, clikart_tensor** outputs) {
    if (!outputs) fail(ErrorKind::Type, "{}: the place for the results is NULL", op);
    for (size_t i = 0; i < results.size() && results[i]; ++i) outputs[i] = to_handle(std::move(results[i]));
}

Placement placement_of(const clikart_placement* where) {
    if (!where) return {};
    if (where->struct_size < sizeof(clikart_placement)) {
        fail(ErrorKind::Value, "placement: struct_size is {}, expected {}", where->struct_size, sizeof(clikart_placement));
    }
    Placement placement;
    if (where->stream) placement.stream = Ref<Stream>::share(&checked_stream(where->stream, "placement"));
    if (where->device) placement.device = parse_device(where->device);
    return placement;
}

}  // namespace clikart

using namespace clikart;

clikart_error* clikart_error_take(void) {
    return reinterpret_cast<clikart_error*>(exchange_thread_error(nullptr).leak());
}

clikart_error_kind clikart_error_get_kind(const clikart_error* error) {
    return error ? static_cast<clikart_error_kind>(from_handle<Error>(error)->kind()) : CLIKART_ERROR_ERROR;
}

const char* clikart_error_message(const clikart_error* error) {
    return error ? from_handle<Error>(error)->message().c_str() : "";
}

void clikart_error_release(clikart_error* error) {
    if (error) from_handle<Error>(error)->release();
}

int clikart_set_tag(const char* tag) {
    return guarded([&] {
        set_thread_tag(tag ? tag : "");
        return 0;
    });
}

int clikart_tell_origin(const char* where) {
    return guarded([&] {
        tell_origin(checked_text(where, "tell_origin", "the place"));
        return 0;
    });
}

const int32_t* clikart_attention(void) {
    static_assert(sizeof(Attention) == 2 * sizeof(int32_t) && std::atomic<int32_t>::is_always_lock_free);
    watch_origins();
    return reinterpret_cast<const int32_t*>(&attention());
}
