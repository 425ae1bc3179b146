// Where random operators draw from.
#pragma once

#include <clikart/clikart.h>

#include <cstdint>
#include <memory>

#include <ClikaRT/error.h>

namespace ClikaRT {
inline namespace v1 {

/// A sequence of random numbers: the same from the same seed, on any machine and for any number of threads.  Copies draw from
/// one sequence; any thread may use one.
class Generator {
public:
    struct State {
        std::uint64_t seed;
        std::uint64_t offset;  // in blocks of four 32-bit numbers
    };
    explicit Generator(std::uint64_t seed) : handle_(detail::check(clikart_generator_create(seed)), &clikart_generator_release) {}
    /// The process's own, which operators draw from unless they are given another.
    static Generator of_process() { return Generator(nullptr); }

    State state() const {
        State state{};
        detail::check(clikart_generator_state(handle(), &state.seed, &state.offset));
        return state;
    }
    void set_state(const State& state) const { detail::check(clikart_generator_set_state(handle(), state.seed, state.offset)); }
    void manual_seed(std::uint64_t seed) const { set_state({seed, 0}); }
    clikart_generator* handle() const noexcept { return handle_.get(); }

private:
    explicit Generator(std::nullptr_t) {}
    std::shared_ptr<clikart_generator> handle_;
};

/// Seeds the process's own generator.
inline void manual_seed(std::uint64_t seed) {
    Generator::of_process().manual_seed(seed);
}

}  // namespace v1
}  // namespace ClikaRT
