// A captured graph: nodes in the order they run, with inputs and outputs that have names.
// Immutable once made, so any number of threads may run it at the same time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"
#include "graph/program.h"
#include "ops/call.h"

namespace clikart {

struct GraphOptions {
    bool any_sizes = false;  // it holds for other sizes of the inputs than they had
    int optimize = 2;        // 0: as it was recorded; the results have the same bits for all
};

class ModelGraph final : public Object {
public:
    /// Freezes what `outputs` and `effects` depend on, in the order of recording.  `inputs` are the stand-ins of the capture, in order.
    /// Throws ValueError when an output comes from another capture, and for names that are
    /// not unique.
    ModelGraph(std::span<const Ref<Tensor>> inputs, std::vector<std::string> input_names, std::span<const Ref<Tensor>> effects,
               std::span<Tensor* const> outputs, std::vector<std::string> output_names, uint64_t capture, const GraphOptions& options);

    const Program& program() const noexcept { return program_; }
    const std::vector<std::string>& input_names() const noexcept { return input_names_; }
    const std::vector<std::string>& output_names() const noexcept { return output_names_; }

    /// Runs all steps; returns one tensor for each output.  Throws ValueError for a wrong number of inputs or a wrong
    /// shape and TypeError for a wrong dtype, showing what was expected.
    std::vector<Ref<Tensor>> run(std::span<Tensor* const> inputs) const;
    /// The same with inputs by name.  Throws ValueError for unknown, missing and repeated names.
    std::vector<Ref<Tensor>> run_named(std::span<const std::string_view> names, std::span<Tensor* const> inputs) const;

private:
    Results run_step(const Step& step, const std::vector<Ref<Tensor>>& values) const;

    Program program_;
    std::vector<std::string> input_names_;
    std::vector<std::string> output_names_;
    const bool any_sizes_;
};

}  // namespace clikart
