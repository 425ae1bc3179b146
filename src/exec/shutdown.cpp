#include "exec/shutdown.h"

#include <cstdlib>

#include "exec/stream.h"

namespace clikart {

void finish_work() {
    Stream::close_gate();
    Stream::drain_all();
    Stream::open_gate();
}

void shut_down() {
    Stream::close_gate();
    Stream::drain_all();
}

void shut_down_at_exit() {
    std::atexit(&shut_down);
}

}  // namespace clikart
