// What ran when: operators, and the nodes of graphs, while somebody wants to know.
// Any thread may call any of these.
#pragma once

#include <atomic>
#include <string>

#include "base/origin.h"

namespace clikart::profile {

inline std::atomic<bool> wanted{false};
inline bool is_on() noexcept {
    return wanted.load(std::memory_order_relaxed);
}

/// From now on what runs is noted.  Throws RuntimeError when it is already.
void begin();
/// No more is noted; writes what was as a trace in the JSON form that Perfetto and Chrome read: a span for each operator, on the row of
/// the thread that ran it.  Throws RuntimeError when nothing is noted, OSError when the file cannot be written.
void end(const std::string& path);

/// Notes the time between its beginning and its end, where is_on() was true then.
class Span {
public:
    /// `node`: of a graph; -1: none.  `bytes`: what is read and written.
    Span(std::string name, int32_t node, int64_t bytes, Ref<Origin> place);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

private:
    std::string name_;
    const int32_t node_;
    const int64_t bytes_;
    Ref<Origin> place_;
    const int64_t begin_;
};

}  // namespace clikart::profile
