// What a capture leaves behind, and the program that is made of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/node.h"
#include "graph/program.h"
#include "graph/recorded_sizes.h"

namespace clikart {

/// What was recorded of a function's calls; stand-ins know the nodes they come from.
struct Recording {
    uint64_t capture;
    std::vector<Ref<Tensor>> inputs;
    std::vector<std::string> input_names;
    std::vector<Ref<Tensor>> effects;                             // what is computed even if nobody needs it: a generator goes on, memory is written over
    std::vector<std::pair<Ref<Tensor>, Ref<Tensor>>> own_copies;  // tensors, and what stands for them in the graph
    std::vector<Ref<Tensor>> checked;                             // under any sizes: what belongs to the program as it was recorded even if nobody needs it
    RecordedSizes sizes;
};

/// The program that the outputs, effects, and what is checked depend on, in the order of recording; its inputs are the recording's, which may be any values:
/// what these depend on is no part of it.  Without `any_sizes` sizes are what they were.  Throws ValueError when an output comes from another
/// capture.
Program program_of(const Recording& recording, std::span<Tensor* const> outputs, bool any_sizes);

}  // namespace clikart
