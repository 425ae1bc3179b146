// What a thread has of its own: its lane, and the timeline of its reads.
#pragma once

#include "exec/stream.h"

namespace clikart {

struct Lane {
    const Ref<Stream> stream = make_ref<Stream>(Device{});  // for unplaced work
    const Ref<Stream> host = make_ref<Stream>(Device{});    // see host_timeline()
    ~Lane();
};

/// The calling thread's.  Throws ClikaRTError while the thread's own objects are being destroyed.
const Lane& lane_of_thread();

/// For what the thread reads itself, see HostRead; also while its own objects are being destroyed.
Ref<Stream> host_timeline();

/// Registers what happens at fork and at exit; called before the first work.
void watch_process();

}  // namespace clikart
