#include "graph/passes/elementwise.h"

#include <algorithm>

namespace clikart::passes {
namespace {

constexpr size_t kMostOperators = 32, kMostInputs = 12;  // in one step: what it works on has to stay in the first-level cache

constexpr int32_t kNobody = -1, kSeveral = -2;

bool is_fusible(const Step& step) {
    if (!step.is_call() || step.kind != NodeKind::Elementwise || step.in_place || !step.epilogues.empty() || step.inputs.empty()) return false;
    const OpInfo& info = op_info(step.op);
    return info.has_kernel && info.n_outputs == 1 && !is_packed(step.dtype) && !is_complex(step.dtype);
}

/// The members of one group, in order, as one step.
Step fused(const std::vector<Step>& steps, const std::vector<int32_t>& members) {
    const Step& first = steps[static_cast<size_t>(members.front())];
    const Step& last = steps[static_cast<size_t>(members.back())];
    Step step = first;
    step.dtype = last.dtype;
    step.place = last.place;
    step.recorded = last.recorded;
    const auto position = [&](int32_t value) {
        const auto member = std::lower_bound(members.begin(), members.end(), value);
        if (member != members.end() && *member == value) return ~static_cast<int32_t>(member - members.begin());
        const auto known = std::find(step.inputs.begin(), step.inputs.end(), value);
        if (known != step.inputs.end()) return static_cast<int32_t>(known - step.inputs.begin());
        step.inputs.push_back(value);
        ++step.extra;
        return static_cast<int32_t>(step.inputs.size() - 1);
    };
    for (size_t k = 1; k < members.size(); ++k) {
        const Step& member = steps[static_cast<size_t>(members[k])];
        Epilogue epilogue{member.op, member.attributes, {}, member.dtype};
        for (const int32_t value : member.inputs) epilogue.operands.push_back(position(value));
        step.epilogues.push_back(std::move(epilogue));
    }
    return step;
}

}  // namespace

void fuse_elementwise(Program& program) {
    std::vector<Step>& steps = program.steps;
    const std::vector<bool> written = program.find_written();
    // From the last step to the first: all that read a value are in a group before it is.
    std::vector<int32_t> readers(steps.size(), kNobody);  // the one group that reads a value
    std::vector<std::vector<int32_t>> members(steps.size());
    std::vector<size_t> inputs(steps.size(), 0);
    for (const int32_t value : program.outputs) readers[static_cast<size_t>(value)] = kSeveral;
    for (size_t i = steps.size(); i-- > 0;) {
        const Step& step = steps[i];
        auto group = static_cast<int32_t>(i);
        if (is_fusible(step) && readers[i] >= 0 && !written[i] && !reads_any(step, written)) {
            const auto reader = static_cast<size_t>(readers[i]);
            const bool fits = !members[reader].empty() && members[reader].size() < kMostOperators && inputs[reader] + step.inputs.size() <= kMostInputs + 1 &&
                              steps[reader].shape == step.shape;
            if (fits) group = readers[i];
        }
        if (is_fusible(step)) {
            members[static_cast<size_t>(group)].push_back(static_cast<int32_t>(i));
            inputs[static_cast<size_t>(group)] += step.inputs.size() - (group == static_cast<int32_t>(i) ? 0 : 1);
        }
        for (const int32_t value : step.inputs) {
            int32_t& reader = readers[static_cast<size_t>(value)];
            reader = reader == kNobody || reader == group ? group : kSeveral;
        }
    }
    std::vector<bool> gone(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
        if (members[i].size() < 2) continue;
        std::reverse(members[i].begin(), members[i].end());
        steps[i] = fused(steps, members[i]);
        for (const int32_t member : members[i]) gone[static_cast<size_t>(member)] = static_cast<size_t>(member) != i;
    }
    program.remove(gone);
}

}  // namespace clikart::passes
