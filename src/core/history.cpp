#include "core/history.h"

#include <cstdlib>

namespace clikart {
namespace {

#ifdef CLIKART_SANITIZED
// A fault for the stress test to find: writers do not wait for those that still read.
const bool reads_are_forgotten = std::getenv("CLIKA_PLANTED_FAULT") != nullptr;
#else
constexpr bool reads_are_forgotten = false;
#endif

template <class List>
bool settled(const List& tickets) noexcept {
    for (const Ticket& ticket : tickets) {
        if (!ticket.settled()) return false;
    }
    return true;
}

}  // namespace

std::mutex& submission() noexcept {
    static std::mutex& mutex = *new std::mutex;  // never destroyed: static destructors of the program may release tensors
    return mutex;
}

bool History::writes_settled() const noexcept {
    return settled(writes);
}

bool History::reads_settled() const noexcept {
    return settled(reads);
}

void History::record_read(const Ref<Timeline>& stream, uint64_t ticket) noexcept {
    if (reads_are_forgotten) return;
    for (size_t i = 0; i < reads.size();) {
        Ticket& read = reads[i];
        if (read.timeline == stream) {
            read.value = ticket;
            return;
        }
        if (read.settled()) {
            reads.remove_unordered(i);
        } else {
            ++i;
        }
    }
    reads.push_back({stream, ticket});
}

void History::record_write(const Ref<Timeline>& stream, uint64_t ticket) noexcept {
    reads.clear();
    writes.clear();
    writes.push_back({stream, ticket});  // there is always room for one
}

}  // namespace clikart
