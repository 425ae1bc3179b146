#include "graph/passes/folding.h"

#include "ops/call.h"
#include "ops/recorder.h"

namespace clikart::passes {
namespace {

constexpr int64_t kLargest = 1 << 20;  // bytes

bool is_foldable(const Step& step, const std::vector<bool>& known) {
    if (!step.is_call() || step.kind == NodeKind::Random || step.in_place || !step.epilogues.empty()) return false;
    const OpInfo& info = op_info(step.op);
    if (info.data_dependent || info.n_outputs != 1 || bytes_of(step.dtype, numel(step.shape)) > kLargest) return false;
    for (const int32_t value : step.inputs) {
        if (!known[static_cast<size_t>(value)]) return false;
    }
    return true;
}

}  // namespace

void fold_constants(Program& program) {
    std::vector<Step>& steps = program.steps;
    const std::vector<bool> written = program.find_written(), escapes = program.find_escaping();
    std::vector<bool> known(steps.size(), false), wanted(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
        known[i] = !written[i] && steps[i].sizes.empty() && (steps[i].kind == NodeKind::Constant || is_foldable(steps[i], known));
        if (known[i] && !escapes[i]) continue;
        for (const int32_t value : steps[i].inputs) wanted[static_cast<size_t>(value)] = true;
    }
    const Unrecorded unrecorded;
    std::vector<Ref<Tensor>> values(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
        Step& step = steps[i];
        if (!known[i]) continue;
        if (step.value) {
            values[i] = step.value;
            continue;
        }
        SmallVector<Tensor*, 4> operands;
        bool there = true;
        for (const int32_t value : step.inputs) {
            operands.push_back(values[static_cast<size_t>(value)].get());
            there = there && operands[operands.size() - 1];
        }
        if (!there) continue;
        try {
            values[i] = call(step.op, {operands.data(), operands.size()}, *step.attributes);
        } catch (const Failure&) {  // which the run then has as well
            continue;
        }
        if (!wanted[i] || escapes[i]) continue;
        step.op = OpCode::External;
        step.kind = NodeKind::External;
        step.inputs.clear();
        step.value = values[i];
    }
}

}  // namespace clikart::passes
