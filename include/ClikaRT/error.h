// Errors of the library as exceptions.
#pragma once

#include <clikart/clikart.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include <ClikaRT/enums.h>

namespace ClikaRT {
inline namespace v1 {

/// Base of everything this API throws.  The text starts with the operator and shows shapes and dtypes.
class Error : public std::runtime_error {
public:
    Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const noexcept { return kind_; }

private:
    ErrorKind kind_;
};

/// One class for each kind, so that a catch clause can choose.
template <ErrorKind K>
class ErrorOf : public Error {
public:
    explicit ErrorOf(const std::string& message) : Error(K, message) {}

protected:
    ErrorOf(ErrorKind kind, const std::string& message) : Error(kind, message) {}
};
using ValueError = ErrorOf<ErrorKind::Value>;
using TypeError = ErrorOf<ErrorKind::Type>;
using IndexError = ErrorOf<ErrorKind::Index>;
using MemoryError = ErrorOf<ErrorKind::Memory>;
using NotImplementedError = ErrorOf<ErrorKind::NotImplemented>;
using RuntimeError = ErrorOf<ErrorKind::Runtime>;
using FileError = ErrorOf<ErrorKind::File>;
/// A number that is too large for where it is to go.
class OverflowError : public ValueError {
public:
    explicit OverflowError(const std::string& message) : ValueError(ErrorKind::Overflow, message) {}
};

namespace detail {

/// Throws the calling thread's error.
[[noreturn]] inline void throw_error() {
    clikart_error* error = clikart_error_take();
    const auto kind = static_cast<ErrorKind>(clikart_error_get_kind(error));
    const std::string message = clikart_error_message(error);
    clikart_error_release(error);
    switch (kind) {
        case ErrorKind::Value: throw ValueError(message);
        case ErrorKind::Type: throw TypeError(message);
        case ErrorKind::Index: throw IndexError(message);
        case ErrorKind::Memory: throw MemoryError(message);
        case ErrorKind::NotImplemented: throw NotImplementedError(message);
        case ErrorKind::Runtime: throw RuntimeError(message);
        case ErrorKind::File: throw FileError(message);
        case ErrorKind::Overflow: throw OverflowError(message);
        default: throw Error(kind, message);
    }
}

inline int check(int status) {
    if (status < 0) throw_error();
    return status;
}
template <class T>
T* check(T* pointer) {
    if (!pointer) throw_error();
    return pointer;
}

/// A counted handle of the C ABI.
template <class Handle, void (*Retain)(const Handle*), void (*Release)(Handle*)>
class Shared {
public:
    Shared() noexcept = default;
    /// Takes over a reference the caller owns.
    explicit Shared(Handle* handle) noexcept : handle_(handle) {}
    Shared(const Shared& other) noexcept : handle_(other.handle_) { Retain(handle_); }
    Shared(Shared&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
    ~Shared() { Release(handle_); }
    Shared& operator=(Shared other) noexcept {
        Handle* const mine = handle_;
        handle_ = other.handle_;
        other.handle_ = mine;
        return *this;
    }
    Handle* get() const noexcept { return handle_; }

private:
    Handle* handle_ = nullptr;
};

}  // namespace detail

/// Where the calling thread makes its calls from now on: goes into the messages of failures that come late.
inline void set_tag(const std::string& tag) {
    detail::check(clikart_set_tag(tag.c_str()));
}

/// All that the library says outside of calls goes to the hook, on any thread; an empty one brings back the default, which
/// writes warnings and errors to stderr.  The levels are CLIKART_LOG_*.
inline void set_log_hook(std::function<void(int level, const char* message)> hook) {
    using Hook = std::function<void(int, const char*)>;
    if (!hook) {
        detail::check(clikart_set_log_hook(nullptr, nullptr, nullptr));
        return;
    }
    detail::check(clikart_set_log_hook(
        [](clikart_log_level level, const char* message, void* user_data) {
            try {
                (*static_cast<Hook*>(user_data))(level, message);
            } catch (...) {  // there is nobody left to tell
            }
        },
        new Hook(std::move(hook)), [](void* user_data) { delete static_cast<Hook*>(user_data); }));
}
}  // namespace v1
}  // namespace ClikaRT
