#include "boundary.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/log.h"
#include "ops/call_site.h"

namespace clikart {
namespace {

// Released with the thread, and replaced by the next failure.
thread_local Ref<Error> thread_error;

}  // namespace

void store_current_error() noexcept {
    thread_error = current_error();
}

ErrorPutAside::ErrorPutAside() noexcept : error_(std::move(thread_error)) {}
ErrorPutAside::~ErrorPutAside() {
    thread_error = std::move(error_);
}

const char* device_text(Device device) {
    if (device.type == DeviceType::Cpu) return "cpu";
    if (device.type == DeviceType::Meta) return "meta";
    static std::mutex& mutex = *new std::mutex;  // guards the next
    static auto& texts = *new std::map<std::pair<DeviceType, int32_t>, std::string>;
    std::lock_guard lock(mutex);
    return texts.try_emplace({device.type, device.index}, to_string(device)).first->second.c_str();
}

Dims checked_shape(const int64_t* shape, size_t rank, const char* who) {
    if (rank > kMaxRank) fail(ErrorKind::Value, "{}: a tensor has at most {} dimensions, got {}", who, kMaxRank, rank);
    if (rank > 0 && !shape) fail(ErrorKind::Type, "{}: the shape is NULL", who);
    Dims dims(std::span(shape, rank));
    checked_numel(dims, who);
    return dims;
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
    return reinterpret_cast<clikart_error*>(std::exchange(thread_error, nullptr).leak());
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

int clikart_set_log_hook(clikart_log_hook hook, void* user_data, void (*destroy)(void* user_data)) {
    return guarded([&] {
        // The level is an int32_t on both sides.
        set_log_hook(reinterpret_cast<LogHook>(hook), user_data, destroy);
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
