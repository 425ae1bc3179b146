#include "graph/program.h"

namespace clikart {

std::vector<int32_t> Program::count_uses() const {
    std::vector<int32_t> uses(steps.size(), 0);
    for (const Step& step : steps) {
        for (const int32_t value : step.inputs) ++uses[static_cast<size_t>(value)];
    }
    for (const int32_t value : outputs) ++uses[static_cast<size_t>(value)];
    return uses;
}

void Program::remove(const std::vector<bool>& gone) {
    std::vector<int32_t> number(steps.size(), -1);
    size_t kept = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (gone[i]) continue;
        number[i] = static_cast<int32_t>(kept);
        if (kept != i) steps[kept] = std::move(steps[i]);
        ++kept;
    }
    steps.resize(kept);
    const auto renumber = [&](int32_t& value) { value = number[static_cast<size_t>(value)]; };
    for (Step& step : steps) {
        for (int32_t& value : step.inputs) renumber(value);
    }
    for (int32_t& value : inputs) renumber(value);
    for (int32_t& value : outputs) renumber(value);
}

void Program::find_ends() {
    std::vector<int32_t> last(steps.size(), -1);
    for (size_t i = 0; i < steps.size(); ++i) {
        steps[i].ends.clear();
        if (steps[i].kind == NodeKind::Random) last[i] = static_cast<int32_t>(i);  // perhaps nobody reads it
        for (const int32_t value : steps[i].inputs) last[static_cast<size_t>(value)] = static_cast<int32_t>(i);
    }
    for (const int32_t value : outputs) last[static_cast<size_t>(value)] = -1;
    for (size_t value = 0; value < last.size(); ++value) {
        if (last[value] >= 0) steps[static_cast<size_t>(last[value])].ends.push_back(static_cast<int32_t>(value));
    }
}

void Program::verify() const {
    const auto require = [](bool holds, size_t step, const char* what) {
        if (!holds) fail(ErrorKind::Error, "graph: step {} {}", step, what);
    };
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        for (const int32_t value : step.inputs) require(value >= 0 && static_cast<size_t>(value) < i, i, "reads a value that is not there yet");
        require(step.own_inputs() <= step.inputs.size(), i, "has epilogues of more operands than it has inputs");
        const bool leaf = step.kind == NodeKind::Input || step.kind == NodeKind::External || step.kind == NodeKind::Constant;
        require(!leaf || (step.inputs.empty() && step.epilogues.empty()), i, "has operands and is none that computes");
        require((step.kind == NodeKind::External || step.kind == NodeKind::Constant) == static_cast<bool>(step.value), i,
                "lacks its value, or has one too many");
        if (step.op == OpCode::Result) require(step.inputs.size() == 1 && step.epilogues.empty(), i, "is the second result of nothing");
    }
    for (const int32_t value : inputs) {
        require(value >= 0 && static_cast<size_t>(value) < steps.size() && steps[static_cast<size_t>(value)].kind == NodeKind::Input, steps.size(),
                "that is an input is none");
    }
    for (const int32_t value : outputs) require(value >= 0 && static_cast<size_t>(value) < steps.size(), steps.size(), "that goes out is not there");
}

}  // namespace clikart
