// How many threads this process may keep busy.
#pragma once

namespace clikart {

/// CLIKA_NUM_THREADS if it is set to a positive number; else the CPUs of the affinity mask, or fewer where the control
/// group's CPU quota (cgroup v1 or v2, the process's own and those above) allows less: half a CPU counts as one.
int usable_threads() noexcept;

}  // namespace clikart
