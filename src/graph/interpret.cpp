#include "graph/interpret.h"

#include <unordered_map>

#include "graph/control.h"
#include "ops/call.h"
#include "ops/rules.h"
#include "ops/settings.h"

namespace clikart {
namespace {

using Values = std::vector<Ref<Tensor>>;

/// Whether the result of an elementwise operator with these operands has the shape of the first, so that it can be written over it.
bool keeps_shape(std::span<Tensor* const> operands) {
    for (const Tensor* operand : operands) {
        Dims both;
        if (!operand->size_known() || !broadcast_shapes(operands[0]->shape(), operand->shape(), both) || !(both == operands[0]->shape())) return false;
    }
    return true;
}

/// The attributes of a step for the sizes of this run.
Attributes attributes_of(const Step& step, SizeValues& sizes) {
    Attributes attributes = *step.attributes;
    for (const SizeUse& use : step.sizes) attributes.values[use.place] = sizes.of(use.term);
    return attributes;
}

/// What a step makes of its operands.
Results run_step(const Step& step, const Values& values, const Attributes& attributes, bool over) {
    SmallVector<Tensor*, 4> operands;
    const auto input = [&](size_t k) { return values[static_cast<size_t>(step.inputs[k])].get(); };
    for (size_t k = 0; k < step.own_inputs(); ++k) operands.push_back(input(k));
    const auto all = [&] { return std::span<Tensor* const>(operands.data(), operands.size()); };
    if (step.in_place) {
        if (step.op == OpCode::Copy) {
            copy_into(*operands[0], *operands[1]);
        } else {
            call_in_place(step.op, all(), attributes, step.generator.get());
        }
        return {};
    }
    Results results = call_many(step.op, all(), attributes, {}, step.generator.get());
    if (step.epilogues.empty()) return results;
    std::vector<Ref<Tensor>> made{std::move(results[0])};
    for (const Epilogue& epilogue : step.epilogues) {
        operands.clear();
        for (const int32_t operand : epilogue.operands)
            operands.push_back(operand >= 0 ? input(static_cast<size_t>(operand)) : made[static_cast<size_t>(~operand)].get());
        // What a product made is known to nobody but what follows it.
        if (over && step.kind == NodeKind::Product && op_info(epilogue.op).in_place && operands[0] == made.back().get() && keeps_shape(all())) {
            call_in_place(epilogue.op, all(), *epilogue.attributes);
            made.push_back(made.back());
        } else {
            made.push_back(call(epilogue.op, all(), *epilogue.attributes));
        }
    }
    results[0] = std::move(made.back());
    return results;
}

}  // namespace

std::vector<Ref<Tensor>> interpret(const Program& program, std::span<Tensor* const> inputs, SizeValues* sizes, bool over,
                                   const std::function<void(size_t)>& before) {
    const bool recorded = !program.sizes.empty();
    SizeValues own(program.sizes);
    if (!sizes) sizes = &own;
    over = over || (thread_mode() == Mode::Eager && !thread_settings.recording);  // elsewhere writing would need a record
    const std::vector<Step>& steps = program.steps;
    Values values(steps.size());
    std::unordered_map<int32_t, std::vector<Ref<Tensor>>> results_of;  // of steps with several, but for the first where that is their value
    const auto note = [&](size_t i) {
        if (recorded) sizes->note(static_cast<int32_t>(i), *values[i]);
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
        values[static_cast<size_t>(program.inputs[i])] = Ref<Tensor>::share(inputs[i]);
        note(static_cast<size_t>(program.inputs[i]));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        if (step.kind == NodeKind::Input) continue;
        if (before) before(i);
        if (step.value) {
            values[i] = step.sizes.empty() ? step.value : scalar(sizes->of(step.sizes[0].term));
            note(i);
            continue;
        }
        if (step.op == OpCode::Result) {
            values[i] = results_of.at(step.inputs[0])[step.result()];
        } else if (step.kind == NodeKind::Control) {
            std::vector<Tensor*> operands;
            for (const int32_t value : step.inputs) operands.push_back(values[static_cast<size_t>(value)].get());
            results_of.emplace(static_cast<int32_t>(i), run_control(step.op, step.regions, operands));
        } else {
            Results results = step.sizes.empty() ? run_step(step, values, *step.attributes, over)  // no copy where there need be none
                                                 : run_step(step, values, attributes_of(step, *sizes), over);
            values[i] = std::move(results[0]);
            if (results[1]) results_of[static_cast<int32_t>(i)] = {nullptr, std::move(results[1])};
        }
        if (values[i]) note(i);
        for (const int32_t value : step.ends) values[static_cast<size_t>(value)] = nullptr;
    }
    std::vector<Ref<Tensor>> outputs;
    for (const int32_t value : program.outputs) outputs.push_back(values[static_cast<size_t>(value)]);
    return outputs;
}

}  // namespace clikart
