#include "base/object.h"

namespace clikart {
namespace {

// Objects whose last reference went while the thread was already deleting one.
thread_local const Chained* waiting = nullptr;
thread_local bool deleting = false;

}  // namespace

void Chained::destroy() const noexcept {
    next_released_ = waiting;
    waiting = this;
    if (deleting) return;
    deleting = true;
    while (const Chained* object = waiting) {
        waiting = object->next_released_;
        delete object;
    }
    deleting = false;
}

}  // namespace clikart
