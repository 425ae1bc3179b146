// Graphs as files: a safetensors file with the tensors from outside, and the program, as JSON, in its metadata.
// docs/graph_files.md describes the format.
#pragma once

#include <string>

#include "graph/model_graph.h"

namespace clikart {

/// Writes the program as it was recorded.  All or nothing; waits for the tensors.  Throws OSError, and NotImplementedError for what
/// a file cannot hold: a generator that a random operator was given, memory that is written over and shared by several tensors.
void save_graph(const ModelGraph& graph, const std::string& path);

/// Nothing in the file is trusted: its calls are checked as a caller's.  Tensors are mapped, but for those that the graph writes over.
/// Throws OSError when it cannot be read, ValueError or TypeError for a file that is none of these or is of a later version.
Ref<ModelGraph> load_graph(const std::string& path, int optimize);

}  // namespace clikart
