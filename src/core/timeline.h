// A counter that only grows, and the tickets that name points on it.  Streams are timelines.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/object.h"

namespace clikart {

class Timeline : public Object {
public:
    Timeline() noexcept : Object(ObjectKind::Timeline) {}
    /// The last point that is over.  Everything written before it was advanced is visible to whoever reads it here.
    /// Sequentially consistent, as advance() is: a sleeper that announced itself before looking here is seen by whoever
    /// advances after that.
    uint64_t completed() const noexcept { return completed_.load(std::memory_order_seq_cst); }

protected:
    void advance(uint64_t to) noexcept { completed_.store(to, std::memory_order_seq_cst); }

private:
    std::atomic<uint64_t> completed_{0};
};

/// A point on a timeline; the empty ticket was always over.
struct Ticket {
    Ref<Timeline> timeline;
    uint64_t value = 0;
    bool settled() const noexcept { return !timeline || timeline->completed() >= value; }
};

}  // namespace clikart
