// One tile of a product of float32 or bfloat16 through oneDNN, computed by the calling thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/dtype.h"

namespace clikart::cpu {

/// C[m, n] = A[m, k] B[k, n].  Strides in elements; of each pair one is 1.
struct OneDnnShape {
    DType operands, result;
    int64_t m, n, k;
    int64_t a_row, a_column;
    int64_t b_row, b_column;
    int64_t c_row;       // C's columns are adjacent
    int64_t packed_for;  // B was packed by the product of this many rows, whose layout all others follow; 0: plain
    friend bool operator==(const OneDnnShape&, const OneDnnShape&) = default;
};

/// A compiled kernel for one shape.  Immutable, usable from many threads at once, kept in a bounded cache.
class OneDnnProduct {
public:
    /// Called by whoever submits products, before the first one: oneDNN makes static objects when a kernel is first made, packs
    /// and runs, and what is registered for the end of the process after that comes first.  So work that is queued is finished
    /// before those objects go, whichever thread ends the process, and whenever.  Takes some 80 ms, once; the first product
    /// would otherwise take most of them where it runs.
    static void wake();
    /// Whether oneDNN multiplies large matrices of the dtype faster than we do: float32, and bfloat16 where the processor has AMX.
    static bool is_fast(DType dtype);
    /// The name oneDNN gives to the kernel it chose; "ref" at its beginning is a plain loop, thousands of times as slow.
    virtual std::string_view name() const = 0;
    /// Throws Failure when oneDNN cannot make one.
    static std::shared_ptr<const OneDnnProduct> find(const OneDnnShape& shape);
    /// Whether the product of a shape with a packed right side comes to the same bits as without.  For long sums it often does not: they
    /// are then cut in other places.  Found out by trying, once for each shape.
    static bool packs_exactly(const OneDnnShape& packed);
    virtual ~OneDnnProduct() = default;
    /// Bytes of B in packed form.
    virtual size_t packed_bytes() const = 0;
    /// Brings B, with the strides of `shape`, into the form that run() wants when it was made for packed ones.
    virtual void pack(const void* b, void* packed) const = 0;
    virtual void run(const void* a, const void* b, void* c) const = 0;
};

}  // namespace clikart::cpu
