// Errors as shared objects.
// An Error's kind and message never change, so one object can poison many results and be read from any thread.
// Inside the library errors travel as the C++ exception `Failure`; at the C ABI they become a thread-local object.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <string>
#include <utility>

#include "base/error_kind.h"
#include "base/object.h"
#include "base/origin.h"

namespace clikart {

class Error final : public Object {
public:
    /// Bytes of the message that are not UTF-8 become '?': they may come from a file or its name.
    Error(ErrorKind kind, std::string message, Ref<Origin> origin = nullptr)
        : Object(ObjectKind::Error), kind_(kind), message_(valid_utf8(std::move(message))), origin_(std::move(origin)) {}
    ErrorKind kind() const noexcept { return kind_; }
    /// With the place of the call, once that is known.
    const std::string& message() const noexcept;

    /// Whether somebody was told, by an exception or through the C ABI.
    bool reported() const noexcept { return reported_.load(std::memory_order_relaxed); }
    void report() const noexcept { reported_.store(true, std::memory_order_relaxed); }

private:
    ~Error() override { delete placed_.load(std::memory_order_relaxed); }
    static std::string valid_utf8(std::string text);
    const ErrorKind kind_;
    const std::string message_;
    const Ref<Origin> origin_;
    mutable std::atomic<const std::string*> placed_{nullptr};  // the message with the place, made when first asked for
    mutable std::atomic<bool> reported_{false};
};

class Failure final : public std::exception {
public:
    explicit Failure(Ref<Error> error) noexcept : error_(std::move(error)) {}
    Failure(ErrorKind kind, std::string message) : error_(make_ref<Error>(kind, std::move(message))) {}
    const char* what() const noexcept override { return error_->message().c_str(); }
    const Ref<Error>& error() const noexcept { return error_; }

private:
    Ref<Error> error_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
    throw Failure(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// The exception in flight as an Error.  Call inside a catch block.  Never throws: when even the error object cannot
/// be had, a static out-of-memory error comes back.
Ref<Error> current_error() noexcept;

}  // namespace clikart
