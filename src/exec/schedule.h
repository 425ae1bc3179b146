// The state that all streams share.  Guarded by the submission lock (core/history.h), like everything the streams keep.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "core/device.h"

namespace clikart {

class Stream;

/// A failure that synchronize() has to tell, of a stream or of its device, unless somebody was told before.
struct UntoldFailure {
    Ref<Error> error;
    uint64_t stream;  // its number: an address may come again
    Device device;
};

struct Schedule {
    static Schedule& instance() noexcept {
        static auto& schedule = *new Schedule;  // never destroyed: the end of the process waits on it
        return schedule;
    }

    bool shut_down = false;  // no more work is taken
    bool finishing = false;  // nor while finish_work() has not returned true
    bool gate_closed() const noexcept { return shut_down || finishing; }
    uint64_t submissions = 0;  // works queued, ever
    uint64_t inherited = 0;    // those up to this one are a fork's parent's: the end of the child does not wait for them
    uint64_t cancelled = 0;    // those up to this one fail instead of running
    uint64_t unfinished = 0;   // calls submitted and not over, on all streams
    int draining = 0;          // threads that wait for the next
    std::condition_variable nothing_unfinished;
    int forking = 0;         // forks under way, by how many threads: nothing starts meanwhile
    uint64_t executing = 0;  // kernels and host reads under way
    std::condition_variable nothing_executing;
    uint64_t starved = 0;   // of those executing: that wait for memory of others
    uint64_t finished = 0;  // how many calls are over, ever
    std::condition_variable something_finished;
    std::vector<UntoldFailure> untold;  // in the order they happened, the last kMostUntold of them
    static constexpr size_t kMostUntold = 256;
    Stream* first_busy = nullptr;  // streams with something queued or running
};

}  // namespace clikart
