// Timeouts in nanoseconds, as the C ABI has them: negative means without end.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace clikart {

/// What is left of a timeout.
class Deadline {
public:
    explicit Deadline(int64_t timeout_ns) noexcept : forever_(timeout_ns < 0 || timeout_ns >= kForever) {
        if (!forever_) end_ = Clock::now() + std::chrono::nanoseconds(timeout_ns);
    }
    bool over() const noexcept { return !forever_ && Clock::now() >= end_; }
    /// Negative when there is no end.
    int64_t left() const noexcept {
        if (forever_) return -1;
        return std::max<int64_t>(0, std::chrono::nanoseconds(end_ - Clock::now()).count());
    }
    /// Waits until `over` holds; false when it does not at the end.
    template <class Over>
    bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Over&& over) const {
        if (!forever_) return changed.wait_until(lock, end_, over);
        changed.wait(lock, over);
        return true;
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr int64_t kForever = int64_t{1} << 60;  // 36 years; more would overflow the clock

    const bool forever_;
    Clock::time_point end_;
};

}  // namespace clikart
