// What the calling thread asked for: separate settings, each changed by a scope of its own.
#pragma once

namespace clikart {

/// True while every operator is to be over before its call returns.
bool& thread_is_synchronous() noexcept;

}  // namespace clikart
