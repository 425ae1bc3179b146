#include "graph/passes/dead.h"

namespace clikart::passes {

void remove_dead(Program& program) {
    const std::vector<Step>& steps = program.steps;
    const std::vector<int32_t> roots = program.find_roots();
    std::vector<bool> live(steps.size(), false), memory_is_read(steps.size(), false);  // the latter by root, from here on
    const auto need = [&](int32_t value) {
        live[static_cast<size_t>(value)] = true;
        memory_is_read[static_cast<size_t>(roots[static_cast<size_t>(value)])] = true;
    };
    for (size_t i = 0; i < steps.size(); ++i) {  // what others can see
        if (steps[i].kind == NodeKind::Input || steps[i].value) memory_is_read[static_cast<size_t>(roots[i])] = true;
    }
    for (const int32_t value : program.outputs) need(value);
    for (size_t i = steps.size(); i-- > 0;) {
        const Step& step = steps[i];
        if (step.kind == NodeKind::Input || step.kind == NodeKind::Random || (step.in_place && memory_is_read[static_cast<size_t>(roots[i])])) live[i] = true;
        if (!live[i]) continue;
        for (const int32_t value : step.inputs) need(value);
    }
    live.flip();
    program.remove(live);
}

}  // namespace clikart::passes
