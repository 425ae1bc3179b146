// Crossing the C ABI: exceptions become error objects, handles become checked references.
#pragma once

#include <clikart/clikart.h>

#include "base/error.h"
#include "ops/call.h"
#include "ops/generator.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart {

/// Stores the exception in flight as the calling thread's error.  Never throws.
void store_current_error() noexcept;

template <class R>
constexpr R failure_value() noexcept {
    if constexpr (std::is_pointer_v<R>) {
        return nullptr;
    } else {
        return static_cast<R>(-1);
    }
}

/// Runs the body of a C function; on an exception stores the error and returns NULL or -1.
template <class F>
auto guarded(F&& body) noexcept -> decltype(body()) {
    try {
        return body();
    } catch (...) {
        store_current_error();
        return failure_value<decltype(body())>();
    }
}

template <class T, class Handle>
T* from_handle(const Handle* handle) noexcept {
    return reinterpret_cast<T*>(const_cast<Handle*>(handle));
}

/// The object behind a handle.  Throws TypeError for NULL and for a handle of another kind.
template <class T, class Handle>
T& checked(const Handle* handle, ObjectKind kind, const char* who, const char* what) {
    if (!handle) fail(ErrorKind::Type, "{}: {} is NULL", who, what);
    T* object = from_handle<T>(handle);
    if (static_cast<const Object*>(object)->object_kind() != kind) fail(ErrorKind::Type, "{}: {} is a handle of another kind", who, what);
    return *object;
}
inline Tensor& checked_tensor(const clikart_tensor* handle, const char* who, const char* what = "the tensor") {
    return checked<Tensor>(handle, ObjectKind::Tensor, who, what);
}

inline clikart_tensor* to_handle(Ref<Tensor> tensor) noexcept {
    return reinterpret_cast<clikart_tensor*>(tensor.leak());
}

/// A C string that must be there.  Throws TypeError for NULL.
inline const char* checked_text(const char* text, const char* who, const char* what) {
    if (!text) fail(ErrorKind::Type, "{}: {} is NULL", who, what);
    return text;
}

/// Throws for a shape no tensor can have.
Dims checked_shape(const int64_t* shape, size_t rank, const char* who);

/// A number that must be one of an enum's, of which there are `count`.  Throws ValueError.
inline int64_t checked_choice(const char* op, const char* name, int32_t value, int32_t count) {
    if (value < 0 || value >= count) fail(ErrorKind::Value, "{}: {} is {}, which is none of its {} values", op, name, value, count);
    return value;
}

Placement placement_of(const clikart_placement* where);

/// The generator behind a handle; null, which is the process's own, for NULL.
inline Generator* checked_generator(const clikart_generator* generator) {
    return generator ? &checked<Generator>(generator, ObjectKind::Generator, "generator", "the generator") : nullptr;
}

/// The results of one call to where the caller wants them.
void hand_out(const char* op, Results results, clikart_tensor** outputs);

/// The name of a device that is there, as static text.
const char* device_text(Device device) noexcept;

inline clikart_stream* to_stream_handle(Ref<Stream> stream) noexcept {
    return reinterpret_cast<clikart_stream*>(static_cast<Object*>(stream.leak()));
}
inline Stream& checked_stream(const clikart_stream* stream, const char* who) {
    return checked<Stream>(stream, ObjectKind::Timeline, who, "the stream");
}

/// The calling thread's error is put aside for the length of a scope: while user code runs that may make errors of its own.
class ErrorPutAside {
public:
    ErrorPutAside() noexcept;
    ~ErrorPutAside();
    ErrorPutAside(const ErrorPutAside&) = delete;
    ErrorPutAside& operator=(const ErrorPutAside&) = delete;

private:
    Ref<Error> error_;
};

/// The tensor arguments of one call, checked.
class OperandList {
public:
    void add(const char* op, const clikart_tensor* handle, const char* name) { tensors_.push_back(&checked_tensor(handle, op, name)); }
    void add_list(const char* op, const clikart_tensor* const* handles, size_t n) {
        if (n > 0 && !handles) fail(ErrorKind::Type, "{}: the list of tensors is NULL", op);
        for (size_t i = 0; i < n; ++i) tensors_.push_back(&checked_tensor(handles[i], op, "a tensor of the list"));
    }
    std::span<Tensor* const> span() const noexcept { return {tensors_.data(), tensors_.size()}; }

private:
    SmallVector<Tensor*, 4> tensors_;
};

}  // namespace clikart
