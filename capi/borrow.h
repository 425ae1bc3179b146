// Tensors over memory of somebody else's.
#pragma once

#include "boundary.h"

namespace clikart {

/// Memory that is offered, as clikart_borrow describes it, in the library's own types.
struct Offer {
    void* data;
    Dims shape;
    Dims strides;  // in elements
    DType dtype;
    bool writable;
    void (*release)(void* user_data);
    void* user_data;
    uint64_t token;
};

/// A tensor over the memory.  Throws ValueError for an address that is not aligned and for strides that reach further than
/// memory can, TypeError where there is none; the memory stays the caller's then.
Ref<Tensor> borrow(const Offer& offer, const char* who);

}  // namespace clikart
