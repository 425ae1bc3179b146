/* The public headers are C11, whatever else is included. */
#include <clikart/ops.h>

#include <clikart/clikart.h>

_Static_assert(sizeof(clikart_dtype) == 4, "enums of the ABI have 32 bits");
_Static_assert(sizeof(clikart_error_kind) == 4, "enums of the ABI have 32 bits");
_Static_assert(sizeof(clikart_op_code) == 4, "enums of the ABI have 32 bits");
_Static_assert(sizeof(clikart_node_kind) == 4, "enums of the ABI have 32 bits");

int main(void) {
    return clikart_version() == CLIKART_VERSION ? 0 : 1;
}
