#include "graph/model_graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/common.h"
#include "graph/passes/epilogues.h"
#include "ops/call.h"
#include "ops/recorder.h"
#include "ops/rules.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart {
namespace {

void check_unique(const std::vector<std::string>& names, const char* what) {
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : names) {
        if (!seen.insert(name).second) fail(ErrorKind::Value, "trace: two {} are named '{}'", what, name);
    }
}

std::string listed(const std::vector<std::string>& names) {
    return fmt::format("['{}']", fmt::join(names, "', '"));
}

}  // namespace

ModelGraph::ModelGraph(std::span<const Ref<Tensor>> inputs, std::vector<std::string> input_names, std::span<const Ref<Tensor>> effects,
                       std::span<Tensor* const> outputs, std::vector<std::string> output_names, uint64_t capture, const GraphOptions& options)
    : Object(ObjectKind::Graph), input_names_(std::move(input_names)), output_names_(std::move(output_names)), any_sizes_(options.any_sizes) {
    check_unique(input_names_, "inputs");
    check_unique(output_names_, "outputs");
    if (options.optimize < 0 || options.optimize > 2) fail(ErrorKind::Value, "trace: optimize is 0, 1 or 2, got {}", options.optimize);
    std::vector<Step>& steps = program_.steps;
    // Keyed by node for what was recorded and by tensor for what has a value.
    std::unordered_map<const Object*, int32_t> numbers;
    const auto key_of = [](const Tensor& t) -> const Object* { return t.node ? t.node.get() : static_cast<const Object*>(&t); };
    const auto add = [&](const Tensor& t, Step step) {
        const auto number = static_cast<int32_t>(steps.size());
        numbers.emplace(key_of(t), number);
        steps.push_back(std::move(step));
        return number;
    };
    const auto none = std::make_shared<const Attributes>();
    for (const Ref<Tensor>& input : inputs) {
        program_.inputs.push_back(add(*input, {OpCode::Input, NodeKind::Input, none, {}, input->dtype(), input->shape(), {}, {}, {}, {}}));
    }

    // What is needed, found with a stack of its own: chains may be long.
    std::vector<Tensor*> stack(outputs.begin(), outputs.end()), needed;
    for (const Ref<Tensor>& effect : effects) stack.push_back(effect.get());
    std::unordered_set<const Object*> seen;
    while (!stack.empty()) {
        Tensor* const t = stack.back();
        stack.pop_back();
        if (!t->node || numbers.contains(key_of(*t)) || !seen.insert(key_of(*t)).second) continue;
        const auto& node = static_cast<const Node&>(*t->node);
        if (node.capture != capture) fail(ErrorKind::Value, "trace: the tensor {} belongs to another capture", describe(*t));
        needed.push_back(t);
        for (const Ref<Tensor>& input : node.inputs) stack.push_back(input.get());
    }
    const auto number_of = [&](Tensor& t) {
        if (const auto it = numbers.find(key_of(t)); it != numbers.end()) return it->second;
        const NodeKind kind = t.number ? NodeKind::Constant : NodeKind::External;  // the only ones that are not there yet
        return add(t, {t.number ? OpCode::Constant : OpCode::External, kind, none, {}, t.dtype(), t.shape(), Ref<Tensor>::share(&t), {}, {}, {}});
    };
    const auto node_of = [](const Tensor* t) -> const Node& { return static_cast<const Node&>(*t->node); };
    std::sort(needed.begin(), needed.end(), [&](const Tensor* a, const Tensor* b) { return node_of(a).order < node_of(b).order; });
    for (const Tensor* t : needed) {
        const Node& node = node_of(t);
        Step step{node.op, node.kind, std::make_shared<const Attributes>(node.attributes), {}, t->dtype(), t->shape(), {}, node.generator, {}, {}};
        for (const Ref<Tensor>& input : node.inputs) step.inputs.push_back(number_of(*input));
        add(*t, std::move(step));
    }
    for (Tensor* output : outputs) program_.outputs.push_back(number_of(*output));

    if (options.optimize > 0) {
        for (const auto pass : {&passes::merge_common, &passes::fold_epilogues}) {
            pass(program_);
            program_.verify();
        }
    }
    program_.find_ends();
}

/// What a step makes of its operands.
Results ModelGraph::run_step(const Step& step, const std::vector<Ref<Tensor>>& values) const {
    SmallVector<Tensor*, 4> arguments;
    auto next = step.inputs.begin();
    const auto take = [&](size_t count) {
        for (; count > 0; --count) arguments.push_back(values[static_cast<size_t>(*next++)].get());
    };
    take(step.own_inputs());
    Results results = call_many(step.op, {arguments.data(), arguments.size()}, *step.attributes, {}, step.generator.get());
    for (const Epilogue& epilogue : step.epilogues) {
        Tensor& result = *results[0];
        arguments.clear();
        arguments.push_back(&result);
        take(epilogue.operands);
        // Nobody else knows the result, so it is written over, where it stays what it is and writing needs no record.
        bool in_place = thread_mode() == Mode::Eager && !thread_settings.recording;
        for (const Tensor* operand : arguments) {
            Dims both;
            in_place = in_place && operand->size_known() && broadcast_shapes(result.shape(), operand->shape(), both) && both == result.shape();
        }
        if (in_place) {
            call_in_place(epilogue.op, {arguments.data(), arguments.size()}, *epilogue.attributes);
        } else {
            results[0] = call(epilogue.op, {arguments.data(), arguments.size()}, *epilogue.attributes);
        }
    }
    return results;
}

std::vector<Ref<Tensor>> ModelGraph::run(std::span<Tensor* const> inputs) const {
    if (inputs.size() != program_.inputs.size()) {
        fail(ErrorKind::Value, "run: {} inputs given, the graph has {}: {}", inputs.size(), program_.inputs.size(), listed(input_names_));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i]->node && thread_mode() != Mode::Capture) require_value(*inputs[i], "run");
        settle_size(*inputs[i], "run");
        if (!any_sizes_) note_size_asked(*inputs[i]);
        const Step& expected = program_.steps[static_cast<size_t>(program_.inputs[i])];
        const bool fits = any_sizes_ ? inputs[i]->rank() == expected.shape.rank() : inputs[i]->shape() == expected.shape;
        if (inputs[i]->dtype() == expected.dtype && fits) continue;
        const bool shape = inputs[i]->dtype() == expected.dtype;
        fail(shape ? ErrorKind::Value : ErrorKind::Type, "run: input '{}' is {}, the graph was traced for {} {}", input_names_[i], describe(*inputs[i]),
             name_of(expected.dtype), any_sizes_ ? fmt::format("of rank {}", expected.shape.rank()) : to_string(expected.shape));
    }
    const std::vector<Step>& steps = program_.steps;
    std::vector<Ref<Tensor>> values(steps.size());
    std::unordered_map<int32_t, Ref<Tensor>> second;  // results, by the step that made both
    for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(program_.inputs[i])] = Ref<Tensor>::share(inputs[i]);
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        if (step.kind == NodeKind::Input) continue;
        if (step.value) {
            values[i] = step.value;
            continue;
        }
        if (step.op == OpCode::Result) {
            values[i] = second.at(step.inputs[0]);
        } else {
            Results results = run_step(step, values);
            values[i] = std::move(results[0]);
            if (results[1]) second.emplace(static_cast<int32_t>(i), std::move(results[1]));
        }
        for (const int32_t value : step.ends) values[static_cast<size_t>(value)] = nullptr;
    }
    std::vector<Ref<Tensor>> outputs;
    for (const int32_t value : program_.outputs) outputs.push_back(values[static_cast<size_t>(value)]);
    return outputs;
}

std::vector<Ref<Tensor>> ModelGraph::run_named(std::span<const std::string_view> names, std::span<Tensor* const> inputs) const {
    std::vector<Tensor*> ordered(input_names_.size(), nullptr);
    for (size_t i = 0; i < names.size(); ++i) {
        const auto it = std::find(input_names_.begin(), input_names_.end(), names[i]);
        if (it == input_names_.end()) fail(ErrorKind::Value, "run: no input is named '{}'; the graph has {}", names[i], listed(input_names_));
        Tensor*& slot = ordered[static_cast<size_t>(it - input_names_.begin())];
        if (slot) fail(ErrorKind::Value, "run: input '{}' is given twice", names[i]);
        slot = inputs[i];
    }
    for (size_t i = 0; i < ordered.size(); ++i) {
        if (!ordered[i]) fail(ErrorKind::Value, "run: input '{}' is missing; the graph has {}", input_names_[i], listed(input_names_));
    }
    return run(ordered);
}

}  // namespace clikart
