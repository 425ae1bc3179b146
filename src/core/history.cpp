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

}  // namespace

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
