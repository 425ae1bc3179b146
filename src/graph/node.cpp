#include "graph/node.h"

namespace clikart {
namespace {

// Nodes whose last reference went while the thread was already deleting one.
thread_local const Node* waiting = nullptr;
thread_local bool deleting = false;

}  // namespace

void Node::destroy() const noexcept {
    next_released_ = waiting;
    waiting = this;
    if (deleting) return;
    deleting = true;
    while (const Node* node = waiting) {
        waiting = node->next_released_;
        delete node;
    }
    deleting = false;
}

}  // namespace clikart
