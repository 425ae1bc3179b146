// Following what a program does to shapes, strides and memory, where nothing is computed.
#pragma once

#include <algorithm>

#include "graph/control.h"
#include "ops/recorder.h"
#include "ops/settings.h"

namespace clikart {

/// While it lives, the thread's calls are answered with stand-ins for their results, and nothing else happens.
class StandIns : public Recorder {
public:
    StandIns() noexcept : mode_(thread_settings.mode), recording_(thread_settings.recording), before_(thread_recorder()) {
        thread_recorder() = this;
        thread_settings.mode = Mode::Capture;
        thread_settings.recording = false;
    }
    ~StandIns() override {
        thread_recorder() = before_;
        thread_settings.mode = mode_;
        thread_settings.recording = recording_;
    }
    StandIns(const StandIns&) = delete;
    StandIns& operator=(const StandIns&) = delete;

    Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) override {
        Results results;
        if (call.over) return results;
        if (call.info.kind == NodeKind::View) {
            results[0] = make_view(*call.inputs[0], dtypes.result, spec.shape, spec.strides, spec.offset);
            return results;
        }
        const auto place = std::find_if(call.inputs.begin(), call.inputs.end(), [](const Tensor* input) { return !input->number; });
        const Device device = place == call.inputs.end() ? thread_device() : (*place)->device();
        results[0] = make_tensor(dtypes.result, spec.shape, device);
        if (call.info.n_outputs > 1) results[1] = make_tensor(dtypes.second, spec.shape, device);
        return results;
    }
    std::vector<Ref<Tensor>> record_control(const ControlCall& call) override { return stand_ins_of(call); }
    void note_control(const ControlCall&, const std::vector<Ref<Tensor>>&) override {}
    bool keeps_views() const noexcept override { return false; }
    bool keep_composite(const OpCall&, const std::function<Ref<Tensor>()>&, Ref<Tensor>&) override { return false; }
    void note(const OpCall&, const Results&) override {}
    void before_write(Tensor&) override {}
    void give_up(std::string) override {}
    void born(Tensor&) noexcept override {}
    void value_read(const Tensor&) override {}
    void fact_asked(Fact, const Tensor&, const Tensor*, uint32_t) noexcept override {}
    void refused(const OpCall&) noexcept override {}
    std::optional<Attributes> decode(const OpInfo&, const Attributes&) override { return std::nullopt; }

private:
    const Mode mode_;
    const bool recording_;
    Recorder* const before_;
};

}  // namespace clikart
