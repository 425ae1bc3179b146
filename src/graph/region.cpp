#include "graph/region.h"

#include <unordered_set>

namespace clikart {

std::vector<Tensor*> Region::find_captured() const {
    std::vector<Tensor*> captured, stack;
    std::unordered_set<const Object*> seen;
    for (const Ref<Tensor>& parameter : parameters) seen.insert(parameter->node.get());
    for (const Ref<Tensor>& output : outputs) stack.push_back(output.get());
    while (!stack.empty()) {
        Tensor* const t = stack.back();
        stack.pop_back();
        if (t->number || !seen.insert(t->node ? t->node.get() : static_cast<const Object*>(t)).second) continue;
        const auto* const node = static_cast<const Node*>(t->node.get());
        if (!node || node->capture != capture || node->order < start) {
            captured.push_back(t);
            continue;
        }
        for (const Ref<Tensor>& input : node->inputs) stack.push_back(input.get());
    }
    return captured;
}

std::shared_ptr<const Program> Region::program(const std::vector<Ref<Tensor>>& inputs) const {
    Recording recording{capture, inputs, {}, {}, {}, {}, {}};
    std::vector<Tensor*> results;
    for (const Ref<Tensor>& output : outputs) results.push_back(output.get());
    return std::make_shared<const Program>(program_of(recording, results, false));
}

}  // namespace clikart
