// One float32 convolution through oneDNN, computed by the calling thread alone.
#pragma once

#include <memory>

#include "backends/cpu/convolution.h"

namespace clikart::cpu {

/// A compiled kernel for one shape, operands contiguous and channels last.  Immutable, usable from many threads at once, kept in
/// a bounded cache.
class Convolution {
public:
    /// Called by whoever submits convolutions, before the first one; see onednn::Waking.
    static void wake();
    /// Null where oneDNN has none but its slow reference.
    static std::shared_ptr<const Convolution> find(const ConvolutionShape& shape);
    virtual ~Convolution() = default;
    /// Whether weights that were packed for the other one do for this one.
    virtual bool packs_like(const Convolution& other) const = 0;
    virtual size_t packed_bytes() const = 0;
    virtual void pack(const float* weight, void* packed) const = 0;
    virtual void run(const float* x, const void* packed, const float* bias, float* out) const = 0;
    /// oneDNN's name of what it chose.
    virtual const char* implementation() const = 0;
};

}  // namespace clikart::cpu
