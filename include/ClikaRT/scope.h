// Settings of the calling thread for the length of a C++ scope.
#pragma once

#include <clikart/clikart.h>

namespace ClikaRT {
inline namespace v1 {

/// Inside, every operator of the calling thread is over before its call returns, and its failure is thrown there.
class SynchronousScope {
public:
    SynchronousScope() noexcept : before_(clikart_set_synchronous(true)) {}
    ~SynchronousScope() { clikart_set_synchronous(before_); }
    SynchronousScope(const SynchronousScope&) = delete;
    SynchronousScope& operator=(const SynchronousScope&) = delete;

private:
    const bool before_;
};

}  // namespace v1
}  // namespace ClikaRT
