// One float32 product tile through oneDNN, computed by the calling thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace clikart::cpu {

/// C[m, n] = A[m, k] B[k, n].  Strides in elements; of each pair one is 1.
struct ProductShape {
    int64_t m, n, k;
    int64_t a_row, a_column;
    int64_t b_row, b_column;
    int64_t c_row;       // C's columns are adjacent
    int64_t packed_for;  // B was packed by the product of this many rows, whose layout all others follow; 0: plain
    friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

/// A compiled kernel for one shape.  Immutable, usable from many threads at once, kept in a bounded cache.
class Product {
public:
    /// Called by whoever submits products, before the first one: oneDNN makes static objects when a kernel is first made, packs
    /// and runs, and what is registered for the end of the process after that comes first.  So work that is queued is finished
    /// before those objects go, whichever thread ends the process, and whenever.  Takes some 80 ms, once; the first product
    /// would otherwise take most of them where it runs.
    static void wake();
    /// Throws Failure when oneDNN cannot make one.
    static std::shared_ptr<const Product> find(const ProductShape& shape);
    virtual ~Product() = default;
    /// Bytes of B in packed form.
    virtual size_t packed_bytes() const = 0;
    /// Brings B, with the strides of `shape`, into the form that run() wants when shape.packed.
    virtual void pack(const float* b, void* packed) const = 0;
    virtual void run(const float* a, const void* b, float* c) const = 0;
};

}  // namespace clikart::cpu
