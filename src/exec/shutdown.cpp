#include "exec/shutdown.h"

#include <cstdlib>

#include "exec/stream.h"

namespace clikart {

void shut_down() {
    Stream::close_gate();
    Stream::drain_all();
}

void shut_down_at_exit() {
    std::atexit(&shut_down);
}

}  // namespace clikart
