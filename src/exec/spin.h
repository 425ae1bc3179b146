// What a thread does between two looks at something that is about to change.
#pragma once

namespace clikart {

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace clikart
