// Waiting for values.
#pragma once

#include <span>

#include "exec/stream.h"

namespace clikart {

/// What is known of a tensor's value without waiting.
enum class Status : int32_t {
    Unscheduled = 0,  // nothing computes it yet: it is deferred, stands in for a value, or has no memory (device meta)
    Evaluated = 1,    // submitted or computed
    Available = 2,    // born with data
};
Status status_of(const Tensor& tensor);

/// Whether reading the tensor would return at once, with its value or its failure.
bool is_ready(const Tensor& tensor);

/// Submits what the tensor's value waits for, if it is deferred; does not wait.
void start(const Tensor& tensor, const char* who);

/// Blocks until the tensor has its value.  Throws the failure it was poisoned with, and ClikaRTError, naming `who`,
/// for a tensor that only stands for a value.
void settle(const Tensor& tensor, const char* who);
/// The same for at most `timeout_ns` nanoseconds (negative: without end); false when it still has none then.
bool settle_within(const Tensor& tensor, const char* who, int64_t timeout_ns);
/// Throws what spoiled a tensor that is settled.
void throw_failure(const Tensor& tensor);
/// As settle_within(), and also until what reads the tensor's memory now is over, so that its owner may write there.
bool settle_for_writing(const Tensor& tensor, const char* who, int64_t timeout_ns);
/// Blocks until the size of the tensor is known; at once for all but the results of operators whose size depends on data.
void settle_size(const Tensor& tensor, const char* who);

/// The same for the operands of a call.  Throws where calls are deferred or recorded, and the data is not there.
void require_sizes(std::span<Tensor* const> operands, const char* who);

/// Throws as settle() does for a tensor that stands for a value or has no memory, without waiting.
void require_value(const Tensor& tensor, const char* who);
/// The tensor, or a contiguous copy of it that was submitted now, whatever the thread does with its calls otherwise.
Ref<Tensor> dense_now(Tensor& tensor, const char* who);
/// Copies all elements in row-major order to host memory; waits for them, and holds off writers meanwhile.
void copy_to_host(Tensor& tensor, void* to, const char* who);

}  // namespace clikart
