// How the processor rounds, and what it does with denormals: the same for all that is computed, whichever thread does it.  Libraries
// built for fast mathematics change it for the thread that loads them.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace clikart {

/// The default, on the calling thread, for as long as it lives.
class DefaultFloatMode {
public:
#if defined(__x86_64__)
    DefaultFloatMode() noexcept : before_(_mm_getcsr()) {
        if (differs()) _mm_setcsr(kDefault);
    }
    ~DefaultFloatMode() {
        if (differs()) _mm_setcsr(before_);
    }

private:
    static constexpr unsigned kDefault = 0x1F80, kRaised = 0x3F;  // exceptions that happened are no mode
    bool differs() const noexcept { return (before_ & ~kRaised) != kDefault; }
    const unsigned before_;
#else  // nothing of the kind is known of other processors' libraries
    DefaultFloatMode() noexcept {}
#endif

public:
    DefaultFloatMode(const DefaultFloatMode&) = delete;
    DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
};

}  // namespace clikart
