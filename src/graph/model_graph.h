// A captured graph: nodes in the order they run, with inputs and outputs that have names.
// Immutable once made, so any number of threads may run it at the same time.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "graph/plan.h"
#include "graph/recording.h"
#include "ops/call.h"

namespace clikart {

struct GraphOptions {
    bool any_sizes = false;  // it holds for other sizes of the inputs than they had
    int optimize = 2;        // 0: as it was recorded; the results have the same bits for all
};

class ModelGraph final : public Object {
public:
    /// Freezes what the outputs and effects depend on, in the order of recording.  Throws ValueError when an output comes from
    /// another capture, and for names that are not unique.
    ModelGraph(Recording recording, std::span<Tensor* const> outputs, std::vector<std::string> output_names, const GraphOptions& options);

    /// A program that a control step of one runs, as a graph of its own.
    ModelGraph(const Program& region, const Program& recorded);

    const Program& program() const noexcept { return program_; }
    /// The same before the passes, which count on memories that are written over and others being apart.
    const Program& recorded() const noexcept { return recorded_; }
    /// Whether it holds for other sizes of the inputs than they had.
    bool any_sizes() const noexcept { return any_sizes_; }
    const std::vector<std::string>& input_names() const noexcept { return input_names_; }
    const std::vector<std::string>& output_names() const noexcept { return output_names_; }

    /// Submits all steps, as one call where the thread computes eagerly; returns one tensor for each output.  Throws ValueError for a
    /// wrong number of inputs or a wrong shape and TypeError for a wrong dtype, showing what was expected.
    std::vector<Ref<Tensor>> run(std::span<Tensor* const> inputs) const;
    /// The same; the results go to tensors of the caller's, of the outputs' shapes and dtypes.  Throws ValueError and TypeError for others,
    /// and for memory that cannot be written.
    void run_into(std::span<Tensor* const> inputs, std::span<Tensor* const> outputs) const;
    /// Why the program is not the right one for inputs of such sizes and strides, as what a sentence says of it: what it counts on that does
    /// not hold, or the call that does not take them.  Empty when it is.
    std::string mismatch(std::span<Tensor* const> inputs) const;
    /// What the numbers that come from sizes are for such inputs.  Throws ValueError where the program is not the right one for them.
    SizeValues sizes_for(std::span<Tensor* const> inputs) const;
    /// A condition of recorded() as a reader sees it, with the line that it comes from.
    std::string text_of(const Condition& condition) const;
    /// How many bytes a run takes from the pool, its results included, on dense inputs of these shapes; what kernels take for themselves
    /// for a while comes on top.  Throws as run() does, and NotImplementedError where that depends on more than shapes.
    int64_t peak(std::vector<Dims> shapes) const;
    /// The same with inputs by name.  Throws ValueError for unknown, missing and repeated names.
    std::vector<Ref<Tensor>> run_named(std::span<const std::string_view> names, std::span<Tensor* const> inputs) const;

private:
    void check_inputs(std::span<Tensor* const> inputs) const;
    /// The first condition that such inputs do not meet, or null; `sizes` learns what it needs for that, and all of them where it is null.
    /// Throws what a call throws that does not take them.
    const Condition* broken_by(std::span<Tensor* const> inputs, SizeValues& sizes) const;
    bool has_doubtful_writes(std::span<Tensor* const> inputs) const;
    void check_place(size_t output, DType dtype, const Dims& shape, const Tensor& to) const;
    bool is_planned(std::span<Tensor* const> inputs) const;
    std::shared_ptr<const Plan> known_plan(std::span<Tensor* const> inputs) const;
    std::shared_ptr<const Plan> plan_for(std::span<Tensor* const> inputs) const;

    Program program_, recorded_;
    bool plannable_ = false;
    bool looks_at_sharing_ = false;  // a condition is about inputs that share memory
    // Of a program that writes in place:
    std::vector<size_t> written_inputs_;
    std::vector<Ref<Tensor>> outside_, written_outside_;

    static constexpr size_t kPlans = 16;  // that are kept
    mutable std::atomic<bool> has_first_{false};
    mutable std::shared_ptr<const Plan> first_;               // for the first inputs; stays
    mutable std::vector<std::shared_ptr<const Plan>> plans_;  // for others; the one used last comes last

    std::vector<std::string> input_names_;
    std::vector<std::string> output_names_;
    const bool any_sizes_;
};

}  // namespace clikart
