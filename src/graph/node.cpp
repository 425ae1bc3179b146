#include "graph/node.h"

namespace clikart {
namespace {

// A chain of nodes is released in a loop: one stack frame per node would overflow on a long one.
thread_local std::vector<Ref<Tensor>>* releasing = nullptr;

}  // namespace

Node::~Node() {
    if (releasing) {
        for (auto& input : inputs) releasing->push_back(std::move(input));
        return;
    }
    std::vector<Ref<Tensor>> pending = std::move(inputs);
    releasing = &pending;
    while (!pending.empty()) {
        const Ref<Tensor> last = std::move(pending.back());
        pending.pop_back();
    }
    releasing = nullptr;
}

}  // namespace clikart
