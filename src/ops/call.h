// One operator call: check, convert, then submit it to a stream, defer it or record it.
#pragma once

#include <array>

#include "exec/stream.h"
#include "ops/op_info.h"

namespace clikart {

/// Where the caller wants a result: on a stream, which is used as given, or on a bare device.  With neither the call
/// follows its inputs, or the calling thread's device when it has none.
struct Placement {
    Ref<Stream> stream;
    Device device{DeviceType::Unspecified, 0};
};

/// Checks the call on the calling thread, then does with it what the thread's mode says; returns the result, which may
/// not be computed yet.  Throws Failure for wrong shapes, dtypes and arguments; under a synchronous setting and on a
/// default stream also for what went wrong in the work itself.
/// `generator` is what a random operator draws from; null: the process's own.
Ref<Tensor> call(OpCode op, std::span<Tensor* const> inputs, const Attributes& attributes, const Placement& placement = {}, Generator* generator = nullptr);

/// The results of one call; those past the last are null.
using Results = std::array<Ref<Tensor>, 2>;
/// The same for operators with several.
Results call_many(OpCode op, std::span<Tensor* const> inputs, const Attributes& attributes, const Placement& placement = {}, Generator* generator = nullptr);

/// The same, written over the first input, whose shape and dtype the result must have or be converted to.  Throws
/// ValueError for a shape that does not fit and for memory that cannot be written, TypeError where the dtype would lose
/// its kind (a float result into integers).
void call_in_place(OpCode op, std::span<Tensor* const> inputs, const Attributes& attributes, Generator* generator = nullptr);

/// While it lives, the thread's calls are parts of a call of `name`: a kernel that they lack is lacking there.  Of several around each
/// other the outermost counts.
class CallOfParts {
public:
    explicit CallOfParts(const char* name) noexcept;
    ~CallOfParts();
    CallOfParts(const CallOfParts&) = delete;
    CallOfParts& operator=(const CallOfParts&) = delete;
    /// Throws on what a part threw, with the name in front.  Call inside a catch block.
    [[noreturn]] void refuse(const Failure& failure) const;

private:
    const char* const name_;
    const bool outermost_;
};

/// The result of parts(), whose failures begin with `name`.
template <class F>
Ref<Tensor> made_of_parts(const char* name, F&& parts) {
    const CallOfParts whole(name);
    try {
        return parts();
    } catch (const Failure& failure) {
        whole.refuse(failure);
    }
}

/// Copies `from`, broadcast and converted, over `to`.  Throws as call_in_place.
void copy_into(Tensor& to, Tensor& from);
/// The operator whose kernel does that.
const OpInfo& converting(DType from, DType to);

/// Whether an element of `to` would be written before it was read as one of `from`.
bool overlaps_otherwise(const Tensor& from, const Tensor& to);
/// Whether it may be written, and no two of its elements share memory.
bool is_writable(const Tensor& to);
/// Whether the two reach memory that is the same, as far as can be told from their extents.
bool overlaps(const Tensor& a, const Tensor& b);

}  // namespace clikart
