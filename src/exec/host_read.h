// Reading results on a thread that is no stream's.
#pragma once

#include <span>

#include "exec/stream.h"

namespace clikart {

/// While it lives, calls that would write the storages wait: for whoever copies out of them beside all streams (I7).
/// One at a time in a thread.
class HostRead {
public:
    /// Waits until nothing writes.  Throws what spoiled a value.
    explicit HostRead(std::span<Storage* const> storages);
    ~HostRead();
    HostRead(const HostRead&) = delete;
    HostRead& operator=(const HostRead&) = delete;

private:
    Ref<Stream> stream_;
    uint64_t ticket_;
};

}  // namespace clikart
