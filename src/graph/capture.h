// Recording the calling thread's operators into a ModelGraph.
// All functions act on the calling thread's.
#pragma once

#include <string>
#include <vector>

#include "graph/model_graph.h"
#include "graph/region.h"

namespace clikart::capture {

/// From now on the thread's calls are recorded and no kernel runs for them.  Throws RuntimeError when they already are.  A capture
/// that runs its calls is given up, and goes on when this one has ended.  With `any_sizes` what the functions below tell of sizes
/// follows the inputs' sizes at each run, and the graph counts on all else that is asked of shapes and strides being as it is now.
void begin(bool any_sizes = false);
/// The same, but the calls are run as well.  What cannot be recorded ends the recording, not the program: see obstacle().  Where
/// that is to be `strict`, it throws instead.
void begin_running(bool strict, bool any_sizes = false);

/// The stand-in for the graph's next input.  Throws ValueError for a bad shape, RuntimeError without a capture.
Ref<Tensor> input(DType dtype, const Dims& shape, std::string name);
/// The graph's next input where calls are run: a tensor of its own over the memory of `value`.
Ref<Tensor> input(const Tensor& value, std::string name);

/// Whether there is a capture.
bool active() noexcept;
/// Why the graph was given up, and where, as far as that was told; empty when it was not.
std::string obstacle();
/// Whether somebody asked for sizes of what is computed from inputs, so that the graph may hold only for them.
bool sizes_asked();
/// Where that was first, as far as it was told, else empty.
std::string size_place();

/// A fact about a tensor, such as a size: where it may be otherwise for other inputs, a code that stands for it in arguments of calls
/// (ops/recorder.h), else the number.  `other` is what memory may be shared with.  Throws IndexError for a dimension that is not there.
int64_t fact(SizeTerm::Op op, const Tensor& tensor, int64_t dim, const Tensor* other = nullptr);
/// What is computed of two of these, or of one and a plain number.  Throws ValueError for codes that were not given out, and as compute().
int64_t computed_size(SizeTerm::Op op, int64_t a, int64_t b);
/// What a code stands for now; the graph counts on its being that.
int64_t require_size(int64_t code);
/// A weak number that is at each run what the code stands for then.
Ref<Tensor> size_number(int64_t code);

/// The graph is given up, or RuntimeError thrown where the capture is strict.  Throws RuntimeError without a capture, as all that follows.
void give_up(std::string why);

// Regions (graph/control.h): what is called between a begin and its end is not run, and becomes a program of its own.

/// Throws RuntimeError where the graph was given up.
void begin_region();
/// A stand-in for the next operand of a control step.  Without any, a region gets the operands themselves.
Ref<Tensor> region_input(DType dtype, const Dims& shape);
/// Ends the region, also when it throws.
Ref<Region> end_region(std::span<Tensor* const> outputs);
/// Ends it and drops it, if there is one.
void cancel_region() noexcept;
/// A control step with these regions; where calls are run, it is as well.  Throws as check_control(), ValueError for regions of another
/// capture.
std::vector<Ref<Tensor>> control(OpCode op, std::span<Tensor* const> operands, std::span<Region* const> regions);

/// Ends the capture and freezes what the outputs depend on; the thread computes again, also when this throws.
/// Throws RuntimeError for a graph that was given up.
Ref<ModelGraph> end(std::span<Tensor* const> outputs, std::vector<std::string> output_names, const GraphOptions& options);
/// Ends the capture, if there is one, and drops what it recorded.
void cancel() noexcept;

}  // namespace clikart::capture
