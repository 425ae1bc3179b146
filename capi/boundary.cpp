#include "boundary.h"

#include <cstdlib>

namespace clikart {
namespace {

// Released with the thread, and replaced by the next failure.
thread_local Ref<Error> thread_error;

}  // namespace

void store_current_error() noexcept {
    thread_error = current_error();
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
    if (where->stream) placement.stream = Ref<Stream>::share(&checked<Stream>(where->stream, ObjectKind::Timeline, "placement", "the stream"));
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
