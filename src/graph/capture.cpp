#include "graph/capture.h"

#include <memory>

#include "graph/graph_recorder.h"
#include "ops/call_site.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart::capture {
namespace {

/// The calling thread's; a thread that ends in the middle of a capture drops it.
struct Current {
    ~Current() {
        while (recorder) cancel();
    }
    std::unique_ptr<GraphRecorder> recorder;
};
thread_local Current current;

GraphRecorder& require() {
    if (!current.recorder) fail(ErrorKind::Runtime, "capture: the calling thread is not recording a graph");
    return *current.recorder;
}

GraphRecorder& start(bool running, bool strict, bool any_sizes) {
    if (current.recorder && (running || !current.recorder->running)) fail(ErrorKind::Runtime, "capture: the calling thread is already recording a graph");
    if (current.recorder) current.recorder->give_up("another graph is recorded");
    auto recorder = std::make_unique<GraphRecorder>(running, strict, any_sizes);
    recorder->outer = std::move(current.recorder);
    current.recorder = std::move(recorder);
    thread_recorder() = current.recorder.get();
    thread_settings.recording = running;
    return *current.recorder;
}

std::unique_ptr<GraphRecorder> stop() noexcept {
    while (current.recorder->end_region()) {  // they end with it
    }
    std::unique_ptr<GraphRecorder> done = std::move(current.recorder);
    current.recorder = std::move(done->outer);
    thread_recorder() = current.recorder.get();
    thread_settings.in_region = current.recorder && current.recorder->in_region();
    thread_settings.recording = current.recorder && current.recorder->running && !thread_settings.in_region;
    if (!done->running) set_thread_mode(done->mode_before);  // which was possible then
    return done;
}

Ref<Tensor> add_input(GraphRecorder& recorder, DType dtype, const Dims& shape, std::string name) {
    Ref<Tensor> stand_in = make_tensor(dtype, shape, Device{});
    stand_in->node = make_ref<Node>(OpCode::Input, NodeKind::Input, recorder.id, 0);
    recorder.recording.inputs.push_back(stand_in);
    recorder.recording.input_names.push_back(std::move(name));
    return stand_in;
}

}  // namespace

void begin(bool any_sizes) {
    start(false, true, any_sizes);
    set_thread_mode(Mode::Capture);
}

void begin_running(bool strict, bool any_sizes) {
    if (thread_mode() == Mode::Capture) fail(ErrorKind::Runtime, "capture: the calling thread is already recording a graph");
    start(true, strict, any_sizes);
}

Ref<Tensor> input(DType dtype, const Dims& shape, std::string name) {
    GraphRecorder& recorder = require();
    if (recorder.running) fail(ErrorKind::Runtime, "capture: calls are run, so inputs need values");
    checked_numel(shape, "capture");
    return add_input(recorder, dtype, shape, std::move(name));
}

Ref<Tensor> input(const Tensor& value, std::string name) {
    GraphRecorder& recorder = require();
    if (!recorder.running) fail(ErrorKind::Runtime, "capture: calls are not run, so inputs have no values");
    if (value.node) require_value(value, "compile");
    settle_size(value, "compile");
    Ref<Tensor> own = make_view(value, value.dtype(), value.shape(), value.strides(), value.offset());
    recorder.know(*own, add_input(recorder, value.dtype(), value.shape(), std::move(name)));
    return own;
}

bool active() noexcept {
    return current.recorder != nullptr;
}

std::string obstacle() {
    return require().obstacle();
}

bool sizes_asked() {
    return require().sizes_asked;
}

std::string size_place() {
    return require().size_place();
}

void give_up(std::string why) {
    require().give_up(std::move(why));
}

void begin_region() {
    require().begin_region();
}

Ref<Tensor> region_input(DType dtype, const Dims& shape) {
    checked_numel(shape, "region");
    return require().region_input(dtype, shape);
}

Ref<Region> end_region(std::span<Tensor* const> outputs) {
    GraphRecorder& recorder = require();
    if (!recorder.in_region()) fail(ErrorKind::Runtime, "region: none is open");
    try {
        for (Tensor* output : outputs) recorder.add_region_output(recorder.region_output(output));
    } catch (...) {
        recorder.end_region();
        throw;
    }
    return recorder.end_region();
}

void cancel_region() noexcept {
    if (current.recorder) current.recorder->end_region();
}

std::vector<Ref<Tensor>> control(OpCode op, std::span<Tensor* const> operands, std::span<Region* const> regions) {
    return require().control(op, operands, regions);
}

int64_t fact(SizeTerm::Op op, const Tensor& tensor, int64_t dim, const Tensor* other) {
    settle_size(tensor, "capture_size");
    if ((op == SizeTerm::Op::Size || op == SizeTerm::Op::Stride) && (dim < 0 || dim >= tensor.rank())) {
        fail(ErrorKind::Index, "capture_size: dimension {} is out of range for {} dimensions", dim, tensor.rank());
    }
    return require().fact(op, tensor, static_cast<int>(dim), other);
}

int64_t computed_size(SizeTerm::Op op, int64_t a, int64_t b) {
    RecordedSizes& sizes = require().sizes();
    const int32_t first = sizes.term_of(a), second = sizes.term_of(b);
    return RecordedSizes::code_of(sizes.add_computed(op, first, second));
}

int64_t require_size(int64_t code) {
    RecordedSizes& sizes = require().sizes();
    const int32_t term = sizes.term_of(code);
    sizes.require(term, current_origin());
    return sizes.number_of(term);
}

Ref<Tensor> size_number(int64_t code) {
    RecordedSizes& sizes = require().sizes();
    return sizes.make_number(sizes.term_of(code));
}

Ref<ModelGraph> end(std::span<Tensor* const> outputs, std::vector<std::string> output_names, const GraphOptions& options) {
    require();
    const std::unique_ptr<GraphRecorder> done = stop();
    if (!done->why.empty()) fail(ErrorKind::Runtime, "compile: {}, which cannot be recorded into a graph", done->obstacle());
    done->sizes();  // throws where something is lacking
    std::vector<Ref<Tensor>> kept;
    std::vector<Tensor*> results;
    for (Tensor* output : outputs) results.push_back(kept.emplace_back(done->output(output)).get());
    return make_ref<ModelGraph>(std::move(done->recording), results, std::move(output_names), options);
}

void cancel() noexcept {
    if (current.recorder) stop();
}

}  // namespace clikart::capture
