#include "graph/recording.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace clikart {
namespace {

/// Of the terms of a recording those that the graph uses, in their order.
class SizesOfUse {
public:
    explicit SizesOfUse(const RecordedSizes& all) : recorded(all), used_(recorded.terms.size(), -1) {}

    /// Marks a term and what it is computed of; need_value(tensor) is told what facts are about.
    template <class F>
    void need(int32_t term, F&& need_value) {
        std::vector<int32_t> stack{term};
        while (!stack.empty()) {
            const auto at = static_cast<size_t>(stack.back());
            stack.pop_back();
            if (used_[at] >= 0) continue;
            used_[at] = 0;
            const SizeTerm& t = recorded.terms[at];
            if (t.is_fact()) need_value(*recorded.values[static_cast<size_t>(t.a)]);
            if (t.op == SizeTerm::Op::Shared) need_value(*recorded.values[static_cast<size_t>(t.b)]);
            if (t.is_computed()) stack.insert(stack.end(), {static_cast<int32_t>(t.a), static_cast<int32_t>(t.b)});
        }
    }

    /// The number of a term that is needed, once all are.
    int32_t number_of(int32_t term) {
        if (numbers_.empty()) {
            int32_t count = 0;
            for (const int32_t used : used_) numbers_.push_back(used < 0 ? -1 : count++);
        }
        return numbers_[static_cast<size_t>(term)];
    }

    /// The terms themselves; number_of_value(tensor) is the value of the program that it is.
    template <class F>
    std::vector<SizeTerm> terms(F&& number_of_value) {
        std::vector<SizeTerm> result;
        for (size_t i = 0; i < used_.size(); ++i) {
            if (used_[i] < 0) continue;
            SizeTerm term = recorded.terms[i];
            if (term.is_fact()) term.a = number_of_value(*recorded.values[static_cast<size_t>(term.a)]);
            if (term.op == SizeTerm::Op::Shared) term.b = number_of_value(*recorded.values[static_cast<size_t>(term.b)]);
            if (term.is_computed()) term.a = number_of(static_cast<int32_t>(term.a)), term.b = number_of(static_cast<int32_t>(term.b));
            result.push_back(term);
        }
        return result;
    }

    const RecordedSizes& recorded;

private:
    std::vector<int32_t> used_;     // by term: 0 where it is, else -1
    std::vector<int32_t> numbers_;  // by term
};

}  // namespace

Program program_of(const Recording& recording, std::span<Tensor* const> outputs, bool any_sizes) {
    Program program;
    std::vector<Step>& steps = program.steps;
    // Keyed by node for what was recorded and by tensor for what has a value.
    std::unordered_map<const Object*, int32_t> numbers;
    const auto key_of = [](const Tensor& t) -> const Object* { return t.node ? t.node.get() : static_cast<const Object*>(&t); };
    const auto add = [&](const Tensor& t, Step step) {
        const auto number = static_cast<int32_t>(steps.size());
        step.recorded = number;
        numbers.emplace(key_of(t), number);
        steps.push_back(std::move(step));
        return number;
    };
    const auto none = std::make_shared<const Attributes>();
    for (const Ref<Tensor>& input : recording.inputs) {
        program.inputs.push_back(add(*input, {OpCode::Input, NodeKind::Input, none, {}, input->dtype(), input->shape(), {}, {}, {}, {}}));
    }

    // What is needed, found with a stack of its own: chains may be long.
    std::vector<Tensor*> stack, needed;
    std::unordered_map<const Tensor*, Tensor*> own;
    for (const auto& [tensor, copy] : recording.own_copies) own.emplace(tensor.get(), copy.get());
    const auto meant = [&](Tensor* t) {
        const auto it = own.find(t);
        return it == own.end() ? t : it->second;
    };
    for (Tensor* output : outputs) stack.push_back(meant(output));
    for (const Ref<Tensor>& effect : recording.effects) stack.push_back(effect.get());
    for (const Ref<Tensor>& checked : recording.checked) stack.push_back(checked.get());
    const RecordedSizes fixed;
    SizesOfUse sizes(any_sizes ? recording.sizes : fixed);
    const auto need_value = [&](Tensor& value) { stack.push_back(meant(&value)); };
    for (const Condition& condition : sizes.recorded.conditions) sizes.need(condition.term, need_value);
    for (size_t i = 0; i < sizes.recorded.terms.size(); ++i) {  // a division by zero is one even if nobody needs what it makes
        if (sizes.recorded.terms[i].divides()) sizes.need(static_cast<int32_t>(i), need_value);
    }
    const auto sizes_of = [&](const Node& node) { return any_sizes ? std::span<const SizeUse>(node.sizes) : std::span<const SizeUse>(); };
    std::unordered_set<const Object*> seen;
    while (!stack.empty()) {
        Tensor* const t = stack.back();
        stack.pop_back();
        if (const int32_t followed = sizes.recorded.followed_by(*t); followed >= 0) sizes.need(followed, need_value);
        if (!t->node || numbers.contains(key_of(*t)) || !seen.insert(key_of(*t)).second) continue;
        const auto& node = static_cast<const Node&>(*t->node);
        if (node.capture != recording.capture) fail(ErrorKind::Value, "trace: the tensor {} belongs to another capture", describe(*t));
        if (node.kind == NodeKind::Input) fail(ErrorKind::Value, "trace: the tensor {} is a parameter of a branch or a loop that is over", describe(*t));
        needed.push_back(t);
        for (const SizeUse& use : sizes_of(node)) sizes.need(use.term, need_value);
        for (const Ref<Tensor>& input : node.inputs) stack.push_back(node.order == 0 ? input.get() : meant(input.get()));
    }
    const auto number_of = [&](Tensor& t) {
        if (const auto it = numbers.find(key_of(t)); it != numbers.end()) return it->second;
        const int32_t followed = sizes.recorded.followed_by(t);
        const NodeKind kind = t.number ? NodeKind::Constant : NodeKind::External;  // the only ones that are not there yet
        Step step{t.number ? OpCode::Constant : OpCode::External, kind, none, {}, t.dtype(), t.shape(), Ref<Tensor>::share(&t), {}, {}, {}};
        if (followed >= 0) step.sizes.push_back({SizeUse::kValue, sizes.number_of(followed)});
        return add(t, std::move(step));
    };
    const auto node_of = [](const Tensor* t) -> const Node& { return static_cast<const Node&>(*t->node); };
    std::sort(needed.begin(), needed.end(), [&](const Tensor* a, const Tensor* b) { return node_of(a).order < node_of(b).order; });
    for (const Tensor* t : needed) {
        const Node& node = node_of(t);
        Step step{node.op, node.kind, std::make_shared<const Attributes>(node.attributes), {}, t->dtype(), t->shape(), {}, node.generator, {}, {}};
        step.in_place = node.in_place;
        step.place = node.place;
        step.regions = node.regions;
        for (const SizeUse& use : sizes_of(node)) step.sizes.push_back({use.place, sizes.number_of(use.term)});
        for (const Ref<Tensor>& input : node.inputs) step.inputs.push_back(number_of(node.order == 0 ? *input : *meant(input.get())));
        add(*t, std::move(step));
    }
    for (Tensor* output : outputs) program.outputs.push_back(number_of(*meant(output)));
    program.any_sizes = any_sizes;
    program.sizes = sizes.terms([&](Tensor& value) { return number_of(*meant(&value)); });
    for (const Condition& condition : sizes.recorded.conditions) {
        program.conditions.push_back({sizes.number_of(condition.term), condition.value, condition.place});
    }
    program.find_ends();
    program.verify();
    return program;
}

}  // namespace clikart
