// Which call the thread is in, for failures that come late.
#pragma once

#include "base/origin.h"

namespace clikart {

/// The origin for work that the thread submits now: the thread's tag if it has one, or, where a host language finds out
/// afterwards, one that waits to be told.  Null when nobody will tell.
Ref<Origin> current_origin();
/// Sets the place of all the thread's calls that still wait to be told theirs.
void tell_origin(const char* text);

/// While it lives, the thread's calls are made at this place; an empty text changes nothing.
class CallPlace {
public:
    explicit CallPlace(const std::string& text);
    ~CallPlace();
    CallPlace(const CallPlace&) = delete;
    CallPlace& operator=(const CallPlace&) = delete;

private:
    Ref<Origin> before_;
    bool changed_;
};

/// What a host language looks at after each call, so that it need not ask: how many threads have calls that wait to be
/// told their place, and how many borrowed memories were given back and not collected.  The first is counted only from
/// the time `watch` was called.
struct Attention {
    std::atomic<int32_t> origins{0};
    std::atomic<int32_t> returned{0};
};
Attention& attention() noexcept;
void watch_origins() noexcept;

}  // namespace clikart
