// Where random operators draw from: a seed, and how many numbers of its sequence were given away.
#pragma once

#include <mutex>

#include "base/object.h"

namespace clikart {

/// Philox 4x32-10 as Salmon et al. describe it ("Parallel random numbers: as easy as 1, 2, 3", 2011): the seed is the key, and
/// block i of the sequence is a function of both.  A call reserves its blocks when it is made, so what it draws does not
/// depend on when, where or by how many threads it runs.  Any thread may use one.
class Generator final : public Object {
public:
    struct State {
        uint64_t seed;
        uint64_t offset;  // in blocks of four 32-bit numbers
    };
    explicit Generator(uint64_t seed) noexcept : Object(ObjectKind::Generator), state_{seed, 0} {}
    /// The process's own.  Seeded by the operating system until somebody seeds it.
    static Generator& of_process();

    State state() const {
        std::lock_guard lock(mutex_);
        return state_;
    }
    void set_state(const State& state) {
        std::lock_guard lock(mutex_);
        state_ = state;
    }
    /// Gives away `blocks` blocks: from the offset of the state that is returned on.
    State reserve(uint64_t blocks) {
        std::lock_guard lock(mutex_);
        const State state = state_;
        state_.offset += blocks;
        return state;
    }

private:
    ~Generator() override = default;

    mutable std::mutex mutex_;  // guards state_
    State state_;
};

}  // namespace clikart
