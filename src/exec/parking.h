// Where threads sleep that wait for a stream.  A few lots serve all streams, so that a stream stays small and a fork can
// take all their locks.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>

namespace clikart {

struct ParkingLot {
    std::mutex mutex;  // guards nothing: pairs with `moved`
    std::condition_variable moved;

    static ParkingLot& of(const void* stream) noexcept { return all()[(reinterpret_cast<uintptr_t>(stream) >> 6) % all().size()]; }
    static std::array<ParkingLot, 32>& all() noexcept {
        static auto& lots = *new std::array<ParkingLot, 32>;
        return lots;
    }
};

/// In the child of a fork: whoever waited there is gone.
inline void forget_waiters(std::condition_variable& variable) noexcept {
    new (&variable) std::condition_variable;
}

}  // namespace clikart
