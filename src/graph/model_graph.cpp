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

ModelGraph::ModelGraph(std::span<const Ref<Tensor>> inputs, std::vector<std::string> input_names, std::span<const Ref<Tensor>> effects,
                       std::span<Tensor* const> outputs, std::vector<std::string> output_names, uint64_t capture, bool any_sizes)
    : Object(ObjectKind::Graph), input_names_(std::move(input_names)), output_names_(std::move(output_names)), any_sizes_(any_sizes) {
    check_unique(input_names_, "inputs");
    check_unique(output_names_, "outputs");
    // Keyed by node for what was recorded and by tensor for what has a value.
    std::unordered_map<const Object*, int32_t> numbers;
    const auto key_of = [](const Tensor& t) -> const Object* { return t.node ? t.node.get() : static_cast<const Object*>(&t); };
    const auto add = [&](const Tensor& t, Step step) {
        const auto number = static_cast<int32_t>(steps_.size());
        numbers.emplace(key_of(t), number);
        steps_.push_back(std::move(step));
        return number;
    };
    for (const Ref<Tensor>& input : inputs) {
        input_steps_.push_back(add(*input, {OpCode::Input, NodeKind::Input, {}, {}, input->dtype(), input->shape(), nullptr, nullptr, {}}));
    }

    // What is needed, found with a stack of its own: chains may be long.
    std::vector<Tensor*> stack(outputs.begin(), outputs.end()), needed;
    for (const Ref<Tensor>& effect : effects) stack.push_back(effect.get());
    std::unordered_set<const Object*> seen;
    while (!stack.empty()) {
        Tensor* const t = stack.back();
        stack.pop_back();
        if (numbers.contains(key_of(*t)) || !seen.insert(key_of(*t)).second) continue;
        if (!t->node) {
            const bool constant = t->number;
            const NodeKind kind = constant ? NodeKind::Constant : NodeKind::External;
            add(*t, {constant ? OpCode::Constant : OpCode::External, kind, {}, {}, t->dtype(), t->shape(), Ref<Tensor>::share(t), nullptr, {}});
            continue;
        }
        const auto& node = static_cast<const Node&>(*t->node);
        if (node.capture != capture) fail(ErrorKind::Value, "trace: the tensor {} belongs to another capture", describe(*t));
        needed.push_back(t);
        for (const Ref<Tensor>& input : node.inputs) stack.push_back(input.get());
    }
    const auto node_of = [](const Tensor* t) -> const Node& { return static_cast<const Node&>(*t->node); };
    std::sort(needed.begin(), needed.end(), [&](const Tensor* a, const Tensor* b) { return node_of(a).order < node_of(b).order; });
    for (const Tensor* t : needed) {
        const Node& node = node_of(t);
        Step step{node.op, node.kind, node.attributes, {}, t->dtype(), t->shape(), nullptr, node.generator, {}};
        for (const Ref<Tensor>& input : node.inputs) step.inputs.push_back(numbers.at(key_of(*input)));
        add(*t, std::move(step));
    }
    for (const Tensor* output : outputs) output_values_.push_back(numbers.at(key_of(*output)));

    // A value ends after its last reader, unless it goes out.
    std::vector<int32_t> last(steps_.size(), -1);
    for (size_t i = 0; i < steps_.size(); ++i) {
        for (const int32_t value : steps_[i].inputs) last[static_cast<size_t>(value)] = static_cast<int32_t>(i);
    }
    // What nobody reads, a random operator's result, ends with its own step.
    for (size_t i = 0; i < steps_.size(); ++i) {
        if (last[i] < 0 && steps_[i].kind == NodeKind::Random) last[i] = static_cast<int32_t>(i);
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
        const bool fits = any_sizes_ ? inputs[i]->rank() == expected.shape.rank() : inputs[i]->shape() == expected.shape;
        if (inputs[i]->dtype() == expected.dtype && fits) continue;
        const bool shape = inputs[i]->dtype() == expected.dtype;
        fail(shape ? ErrorKind::Value : ErrorKind::Type, "run: input '{}' is {}, the graph was traced for {} {}", input_names_[i], describe(*inputs[i]),
             name_of(expected.dtype), any_sizes_ ? fmt::format("of rank {}", expected.shape.rank()) : to_string(expected.shape));
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
