#include "exec/shutdown.h"

#include <cstdlib>

#include "exec/stream.h"

namespace clikart {

void drain_at_exit() {
    std::atexit(&Stream::drain_all);
}

}  // namespace clikart
