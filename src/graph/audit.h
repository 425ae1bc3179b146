// Whether a graph computes what its operators compute one by one.
#pragma once

#include "graph/model_graph.h"

namespace clikart {

/// Runs the graph as always and as it was recorded, operator by operator, and compares all bits.  Empty when they agree; else what
/// differs first: a node, with its place in the program, or the memory of the run.  Throws NotImplementedError for graphs that write
/// over memory or draw random numbers, which cannot be run twice for the same, and what run() throws.
std::string audit(const ModelGraph& graph, std::span<Tensor* const> inputs);

/// Whether that is possible.
bool can_be_audited(const Program& program) noexcept;

}  // namespace clikart
