#include "graph/capture.h"

#include <atomic>
#include <memory>

#include "ops/recorder.h"
#include "ops/settings.h"

namespace clikart::capture {
namespace {

class GraphRecorder final : public Recorder {
public:
    Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) override {
        auto node = make_ref<Node>(call.info.code, call.info.kind, id, call.attributes);
        for (Tensor* input : call.inputs) node->inputs.push_back(Ref<Tensor>::share(input));
        if (call.generator) node->generator = Ref<Generator>::share(call.generator);
        Results results;
        results[0] = call.info.kind == NodeKind::View ? make_ref<Tensor>(dtypes.result, spec.shape, spec.strides, spec.offset, call.inputs[0]->storage_ref())
                                                      : make_tensor(dtypes.result, spec.shape, Device{});
        results[0]->node = std::move(node);
        if (call.info.n_outputs > 1) {  // a node of its own, that refers to the first
            auto second = make_ref<Node>(OpCode::Result, call.info.kind, id);
            second->inputs.push_back(results[0]);
            results[1] = make_tensor(dtypes.second, spec.shape, Device{});
            results[1]->node = std::move(second);
        }
        return results;
    }

    static inline std::atomic<uint64_t> next_id{1};
    const uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
    std::vector<Ref<Tensor>> inputs;
    std::vector<std::string> names;
    const Mode mode_before = thread_mode();
};

thread_local std::unique_ptr<GraphRecorder> current;

GraphRecorder& require() {
    if (!current) fail(ErrorKind::Runtime, "capture: the calling thread is not recording a graph");
    return *current;
}

std::unique_ptr<GraphRecorder> stop() noexcept {
    thread_recorder() = nullptr;
    set_thread_mode(current->mode_before);  // which was possible then
    return std::move(current);
}

}  // namespace

void begin() {
    if (current) fail(ErrorKind::Runtime, "capture: the calling thread is already recording a graph");
    current = std::make_unique<GraphRecorder>();
    thread_recorder() = current.get();
    set_thread_mode(Mode::Capture);
}

Ref<Tensor> input(DType dtype, const Dims& shape, std::string name) {
    GraphRecorder& recorder = require();
    checked_numel(shape, "capture");
    auto node = make_ref<Node>(OpCode::Input, NodeKind::Input, recorder.id);
    Ref<Tensor> stand_in = make_tensor(dtype, shape, Device{});
    stand_in->node = std::move(node);
    recorder.inputs.push_back(stand_in);
    recorder.names.push_back(std::move(name));
    return stand_in;
}

Ref<ModelGraph> end(std::span<Tensor* const> outputs, std::vector<std::string> output_names) {
    require();
    const std::unique_ptr<GraphRecorder> done = stop();
    return make_ref<ModelGraph>(done->inputs, std::move(done->names), outputs, std::move(output_names), done->id);
}

void cancel() noexcept {
    if (current) stop();
}

}  // namespace clikart::capture
