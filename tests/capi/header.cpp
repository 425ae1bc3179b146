// The public C headers are C++ too.
#include <clikart/clikart.h>
#include <clikart/ops.h>

int main() {
    return clikart_version() == CLIKART_VERSION ? 0 : 1;
}
