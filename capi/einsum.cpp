#include "ops/composite/einsum.h"

#include "boundary.h"

using namespace clikart;

clikart_tensor* clikart_einsum(const char* equation, const clikart_tensor* const* operands, size_t n) {
    return guarded([&] {
        OperandList inputs;
        inputs.add_list("einsum", operands, n);
        return to_handle(einsum(checked_text(equation, "einsum", "the equation"), inputs.span()));
    });
}
