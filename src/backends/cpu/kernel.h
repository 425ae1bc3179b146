// What every CPU kernel file needs: the wrapper that turns exceptions into status codes, loops over pieces, scratch
// memory.  Kernels may assume valid input; shapes and dtypes were checked where the call was made.
#pragma once

#include <cstring>
#include <optional>
#include <span>

#include "backends/api.h"
#include "base/error.h"
#include "core/dims.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "ops/op_code.h"

namespace clikart::cpu {

/// What f() throws as a status with a message, as the backend table has them.
template <class F>
int32_t caught(F&& f, char* message, size_t size) noexcept {
    try {
        f();
        return 0;
    } catch (...) {
        const Ref<Error> error = current_error();
        const size_t n = std::min(size - 1, error->message().size());
        std::memcpy(message, error->message().data(), n);
        message[n] = 0;
        return static_cast<int32_t>(error->kind());
    }
}

/// Adapts a kernel that throws to the backend table.
template <void (*F)(const KernelCall&)>
int32_t kernel(const KernelCall* call, char* message, size_t size) {
    return caught([&] { F(*call); }, message, size);
}

template <class F>
void parallel_for(const KernelCall& call, int64_t pieces, F&& f) {
    using Body = std::remove_reference_t<F>;
    call.parallel_for(pieces, [](void* context, int64_t piece) { (*static_cast<Body*>(context))(piece); }, const_cast<void*>(static_cast<const void*>(&f)));
}

/// The tensor of parameter `i`, or null where it was left out; `given`: the position of the attribute that says what was not.
inline const View* optional_input(const KernelCall& call, int i, int given) noexcept {
    const int32_t at = call.attributes->input_of(i, given);
    return at < 0 ? nullptr : &call.inputs[at];
}

/// The kernel of an operator that computes in all dtypes but those that are only stored.
inline KernelFn if_computed(DType dtype, KernelFn kernel) {
    return category_of(dtype) != DTypeCategory::Float || computes(dtype) ? kernel : nullptr;
}
/// Of one that computes in floats.
inline KernelFn if_floats(DType dtype, KernelFn kernel) {
    return computes(dtype) ? kernel : nullptr;
}

inline int64_t ceil_div(int64_t a, int64_t b) noexcept {
    return (a + b - 1) / b;
}

/// Memory for the length of a scope.
using Scratch = Block;

/// What a kernel makes of an input before it computes: kept from run to run where the input stays what it is, else for the length of a
/// scope.  `fill` is given the place.
class Prepared {
public:
    template <class F>
    Prepared(const KernelCall& call, int32_t input, size_t bytes, F&& fill) : data_(kept(call, input, bytes, fill)) {
        if (data_) return;
        room_.emplace(bytes);
        fill(room_->as<char>());
        data_ = room_->as<char>();
    }
    /// Null where nothing is kept.
    template <class F>
    static const char* kept(const KernelCall& call, int32_t input, size_t bytes, F&& fill) {
        using Fill = std::remove_reference_t<F>;
        if (!call.keep) return nullptr;
        const auto run = [](void* context, void* to) { (*static_cast<Fill*>(context))(static_cast<char*>(to)); };
        return static_cast<const char*>(call.keep(&call, input, bytes, run, const_cast<void*>(static_cast<const void*>(&fill))));
    }
    const char* data() const noexcept { return data_; }

private:
    std::optional<Scratch> room_;
    const char* data_;
};

inline Dims shape_of(const View& view) {
    return Dims(std::span(view.shape, static_cast<size_t>(view.rank)));
}
inline Dims strides_of(const View& view) {
    return Dims(std::span(view.strides, static_cast<size_t>(view.rank)));
}
inline DType dtype_of(const View& view) {
    return static_cast<DType>(view.dtype);
}

}  // namespace clikart::cpu
