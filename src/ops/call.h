// One operator call: check, convert, then record it or submit it to a stream.
#pragma once

#include "exec/stream.h"
#include "ops/op_info.h"

namespace clikart {

/// Where the caller wants a result.  Without a stream it is the calling thread's lane.
struct Placement {
    Ref<Stream> stream;
    Device device;
};

/// Checks the call on the calling thread, then records it (see Recorder) or submits it; returns the result, which may
/// not be computed yet.  Throws Failure for wrong shapes, dtypes and arguments; under a synchronous setting also for
/// what went wrong in the work itself.
Ref<Tensor> call(OpCode op, std::span<Tensor* const> inputs, const Attributes& attributes, const Placement& placement = {});

/// Blocks until the tensor has its value.  Throws the failure it was poisoned with, and ClikaRTError, naming `who`,
/// for a tensor that only stands for a value.
void settle(const Tensor& tensor, const char* who);
/// The same for at most `timeout_ns` nanoseconds (negative: without end); false when it still has none then.
bool settle_within(const Tensor& tensor, const char* who, int64_t timeout_ns);
/// The same, and also until what reads the tensor's memory now is over, so that its owner may write there.
bool settle_for_writing(const Tensor& tensor, const char* who, int64_t timeout_ns);
/// The tensor, or a contiguous copy of it, computed now even while the thread records a graph.  Not settled.
Ref<Tensor> contiguous_value(Tensor& tensor);
/// Throws as settle() does for a tensor without a value, without waiting.
void require_value(const Tensor& tensor, const char* who);

}  // namespace clikart
