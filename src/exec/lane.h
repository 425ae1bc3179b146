// What a thread has of its own: its lane, and the timeline of its reads.
#pragma once

#include "exec/stream.h"

namespace clikart {

struct Lane {
    Ref<Stream> stream = make_ref<Stream>(Device{});      // for unplaced work
    const Ref<Stream> host = make_ref<Stream>(Device{});  // see host_timeline()
    ~Lane();
};

/// The calling thread's.  Throws ClikaRTError while the thread's own objects are being destroyed.
Lane& lane_of_thread();

/// For what the thread reads itself, see HostRead; also while its own objects are being destroyed.
Ref<Stream> host_timeline();

/// In the child of a fork: what the thread submits there does not queue behind what its parent had queued.
void renew_lane() noexcept;

/// Registers what happens at exit; called before the first work.
void watch_process();

}  // namespace clikart
