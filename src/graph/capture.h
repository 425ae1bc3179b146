// Recording the calling thread's operators into a ModelGraph.
// One capture per thread at a time; begin, input, end and cancel act on the calling thread's.
#pragma once

#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace clikart::capture {

/// From now on the thread's calls are recorded and no kernel runs for them.  Throws ClikaRTError when they already are.
void begin();
/// The stand-in for the graph's next input.  Throws ValueError for a bad shape, ClikaRTError without a capture.
Ref<Tensor> input(DType dtype, const Dims& shape, std::string name);
/// Ends the capture and freezes what the outputs depend on; the thread computes again, also when this throws.
Ref<ModelGraph> end(std::span<Tensor* const> outputs, std::vector<std::string> output_names);
/// Ends the capture, if there is one, and drops what it recorded.
void cancel() noexcept;

}  // namespace clikart::capture
