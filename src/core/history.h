// What happened to a piece of memory, and what is still to happen: the hazards that order operators.
#pragma once

#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/small_vector.h"
#include "core/timeline.h"

namespace clikart {

/// The submission lock.  Guards the histories of all storages, the queues, tokens and tickets of all streams, and the
/// links between deferred calls; so that the hazards of all that one call touches are looked up and replaced at once.
/// Nothing of the user's runs under it: what may end with a reference is released after it.
inline constinit std::mutex submission_lock;
inline std::mutex& submission() noexcept {
    return submission_lock;
}

/// Calls that were recorded and not submitted (see ops/deferred.h) and use a piece of memory.  Guarded by the submission lock.
struct DeferredUse {
    struct Read {
        Object* call;    // not kept alive: a deferred call takes itself off the list
        size_t operand;  // which of its operands this is
    };
    SmallVector<Ref<Object>, 1> writes;  // the last that writes; several after an overlap was found
    SmallVector<Read, 1> reads;          // those that read since
};

/// Guarded by the submission lock.
struct History {
    SmallVector<Ticket, 1> writes;  // the last write; several where memories that were apart turned out to overlap
    SmallVector<Ticket, 2> reads;   // who read since
    Ref<Error> error;               // what spoiled the value
    std::unique_ptr<DeferredUse> deferred;

    bool writes_settled() const noexcept { return settled(writes); }
    bool reads_settled() const noexcept { return settled(reads); }
    /// Makes room, so that record_read() cannot fail.
    void reserve_read() { reads.reserve(reads.size() + 1); }
    void record_read(const Ref<Timeline>& stream, uint64_t ticket) noexcept;
    /// What was there before is forgotten: whoever waits for this write waits for it.
    void record_write(const Ref<Timeline>& stream, uint64_t ticket) noexcept;
    DeferredUse& deferred_use() {
        if (!deferred) deferred = std::make_unique<DeferredUse>();
        return *deferred;
    }

private:
    template <class List>
    static bool settled(const List& tickets) noexcept {
        for (const Ticket& ticket : tickets) {
            if (!ticket.settled()) return false;
        }
        return true;
    }
};

/// The one history of memories that the host can see and that overlap.
class SharedHistory final : public Object, public History {
public:
    SharedHistory() noexcept : Object(ObjectKind::History) {}
};

}  // namespace clikart
