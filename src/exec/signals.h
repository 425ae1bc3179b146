// Signals and the threads that run oneDNN's kernels.
//
// Some of those point the stack pointer into a block of the heap while they run, where a signal's frame would overwrite what the
// allocator keeps beside it.  So nothing is delivered meanwhile; what arrives then waits, or goes to another thread.
#pragma once

#include <csignal>

namespace clikart {

/// Holds back, on the calling thread, all signals but those its own instructions raise.
class SignalsHeld {
public:
    SignalsHeld() noexcept;
    ~SignalsHeld();
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;

private:
    bool restores_ = false;
    sigset_t before_;
};

/// For threads of ours, which spares them the system calls; they were started with signals held.
void signals_stay_held() noexcept;

}  // namespace clikart
