#include "graph/model_graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/call.h"
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

ModelGraph::ModelGraph(std::span<const Ref<Tensor>> inputs, std::vector<std::string> input_names, std::span<Tensor* const> outputs,
                       std::vector<std::string> output_names, uint64_t capture)
    : Object(ObjectKind::Graph), input_names_(std::move(input_names)), output_names_(std::move(output_names)) {
    check_unique(input_names_, "inputs");
    check_unique(output_names_, "outputs");
    // Keyed by node for what was recorded and by tensor for what has a value.
    std::unordered_map<const Object*, int32_t> numbers;
    const auto add = [&](const Object* key, Step step) {
        const auto number = static_cast<int32_t>(steps_.size());
        numbers.emplace(key, number);
        steps_.push_back(std::move(step));
        return number;
    };
    for (const Ref<Tensor>& input : inputs) {
        input_steps_.push_back(add(input->node.get(), {OpCode::Input, NodeKind::Input, {}, {}, input->dtype(), input->shape(), nullptr, nullptr, {}}));
    }
    const auto key_of = [](const Tensor& t) -> const Object* { return t.node ? t.node.get() : static_cast<const Object*>(&t); };

    // Depth first with a stack of its own; a node is added when all its inputs have been.
    std::vector<Tensor*> stack;
    for (Tensor* output : outputs) {
        stack.push_back(output);
        while (!stack.empty()) {
            Tensor* t = stack.back();
            if (numbers.contains(key_of(*t))) {
                stack.pop_back();
                continue;
            }
            if (!t->node) {
                const bool constant = t->number;
                add(t, {constant ? OpCode::Constant : OpCode::External,
                        constant ? NodeKind::Constant : NodeKind::External,
                        {},
                        {},
                        t->dtype(),
                        t->shape(),
                        Ref<Tensor>::share(t),
                        nullptr,
                        {}});
                stack.pop_back();
                continue;
            }
            const auto& node = static_cast<const Node&>(*t->node);
            if (node.capture != capture) fail(ErrorKind::Value, "trace: the tensor {} belongs to another capture", describe(*t));
            bool ready = true;
            for (const Ref<Tensor>& input : node.inputs) {
                if (numbers.contains(key_of(*input))) continue;
                stack.push_back(input.get());
                ready = false;
            }
            if (!ready) continue;
            Step step{node.op, node.kind, node.attributes, {}, t->dtype(), t->shape(), nullptr, node.generator, {}};
            for (const Ref<Tensor>& input : node.inputs) step.inputs.push_back(numbers.at(key_of(*input)));
            add(&node, std::move(step));
            stack.pop_back();
        }
        output_values_.push_back(numbers.at(key_of(*output)));
    }

    // A value ends after its last reader, unless it goes out.
    std::vector<int32_t> last(steps_.size(), -1);
    for (size_t i = 0; i < steps_.size(); ++i) {
        for (const int32_t value : steps_[i].inputs) last[static_cast<size_t>(value)] = static_cast<int32_t>(i);
    }
    for (const int32_t value : output_values_) last[static_cast<size_t>(value)] = -1;
    for (size_t value = 0; value < last.size(); ++value) {
        if (last[value] >= 0) steps_[static_cast<size_t>(last[value])].ends.push_back(static_cast<int32_t>(value));
    }
}

std::vector<Ref<Tensor>> ModelGraph::run(std::span<Tensor* const> inputs) const {
    if (inputs.size() != input_steps_.size()) {
        fail(ErrorKind::Value, "run: {} inputs given, the graph has {}: {}", inputs.size(), input_steps_.size(), listed(input_names_));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i]->node && thread_mode() != Mode::Capture) require_value(*inputs[i], "run");
        settle_size(*inputs[i], "run");
        const Step& expected = steps_[static_cast<size_t>(input_steps_[i])];
        if (inputs[i]->dtype() == expected.dtype && inputs[i]->shape() == expected.shape) continue;
        const bool shape = inputs[i]->dtype() == expected.dtype;
        fail(shape ? ErrorKind::Value : ErrorKind::Type, "run: input '{}' is {}, the graph was traced for {} {}", input_names_[i], describe(*inputs[i]),
             name_of(expected.dtype), to_string(expected.shape));
    }
    std::vector<Ref<Tensor>> values(steps_.size());
    std::unordered_map<int32_t, Ref<Tensor>> second;  // results, by the step that made both
    for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(input_steps_[i])] = Ref<Tensor>::share(inputs[i]);
    SmallVector<Tensor*, 4> arguments;
    for (size_t i = 0; i < steps_.size(); ++i) {
        const Step& step = steps_[i];
        if (step.kind == NodeKind::Input) continue;
        if (step.value) {
            values[i] = step.value;
            continue;
        }
        if (step.op == OpCode::Result) {
            values[i] = second.at(step.inputs[0]);
        } else {
            arguments.clear();
            for (const int32_t value : step.inputs) arguments.push_back(values[static_cast<size_t>(value)].get());
            Results results = call_many(step.op, {arguments.data(), arguments.size()}, step.attributes, {}, step.generator.get());
            values[i] = std::move(results[0]);
            if (results[1]) second.emplace(static_cast<int32_t>(i), std::move(results[1]));
        }
        for (const int32_t value : step.ends) values[static_cast<size_t>(value)] = nullptr;
    }
    std::vector<Ref<Tensor>> outputs;
    for (const int32_t value : output_values_) outputs.push_back(values[static_cast<size_t>(value)]);
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
