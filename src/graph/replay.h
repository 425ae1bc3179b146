// Running a plan: all its calls as one piece of work of a stream.
#pragma once

#include "graph/plan.h"

namespace clikart {

/// Submits a run of the plan to the stream that the calling thread's work goes to, and returns the outputs, which may not be
/// computed yet.  `inputs` lie as the plan says.  Throws as calls do: what is refused at once, and what failed where the thread waits.
/// With `into`, for which can_run_into() holds, these are the outputs.
std::vector<Ref<Tensor>> submit_run(const std::shared_ptr<const Plan>& plan, std::span<Tensor* const> inputs, std::span<Tensor* const> into = {});

/// Whether the outputs can be computed in memory of the caller's: each has one of its own, that is dense, may be written and is no other
/// operand's, but for an input that is not read any more when its place is written.
bool can_run_into(const Plan& plan, std::span<Tensor* const> inputs, std::span<Tensor* const> outputs);

}  // namespace clikart
