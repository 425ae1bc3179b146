// Calls under tracing: recorded, and submitted when somebody needs what they make (I8).
//
// A deferred call is kept alive by the storage it writes, as long as anybody but deferred calls can reach that, and by the
// deferred calls that come after it; so one whose result nobody can reach any more never runs.  It keeps its inputs alive,
// and the deferred calls that have to be submitted before it: those that make its inputs, and, where it writes in place,
// those that still read or write the same memory.
#pragma once

#include "exec/stream.h"

namespace clikart {

/// Records work for later.  Its outputs, and what it writes in place, must not be among its inputs: `self` says at which
/// position of the inputs the first output is to be put when it is submitted (-1: it is none).
void defer(std::unique_ptr<Work> work, const Ref<Stream>& stream, std::span<const Ref<Tensor>> outputs, int self);

/// Submits the deferred calls that the value of a storage waits for, in an order that keeps what the program said; and,
/// before something else writes it, those that read it.
void submit_deferred_of(Storage& storage, bool for_writing);
inline void submit_deferred(Storage& storage) {
    if (storage.may_have_deferred()) submit_deferred_of(storage, false);
}
inline void submit_deferred_for_writing(Storage& storage) {
    if (storage.may_have_deferred()) submit_deferred_of(storage, true);
}

/// Whether the storage's value waits for a deferred call.
bool is_deferred(Storage& storage);

}  // namespace clikart
