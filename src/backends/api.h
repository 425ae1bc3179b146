// What a backend is: a table of functions.  CPU stands behind it like any other.
// Plain data and function pointers only, because plug-ins are separate shared libraries; the table only grows at its
// end, and a backend that ends earlier is read up to its struct_size.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace clikart {

/// A tensor as kernels see it.  Strides are in elements and may be zero or negative.
struct View {
    void* data;
    const int64_t* shape;
    const int64_t* strides;
    int32_t rank;
    int32_t dtype;
};

/// The non-tensor arguments of an operator call, in the order of its signature.
struct Attributes {
    static constexpr int kMaxItems = 12;
    static constexpr int kMaxValues = 64;
    static constexpr size_t kMaxEntries = 16;  // of a list, unless the operator's row says otherwise: one for each dimension
    struct Item {
        int32_t offset;
        int32_t length;  // -1: absent
    };
    int32_t count = 0;
    int32_t used = 0;
    Item items[kMaxItems];
    int64_t values[kMaxValues];

    Attributes() noexcept = default;
    Attributes(const Attributes& other) noexcept : count(other.count), used(other.used) {  // only what is in use
        std::copy_n(other.items, count, items);
        std::copy_n(other.values, used, values);
    }
    Attributes& operator=(const Attributes&) = delete;

    bool present(int i) const noexcept { return items[i].length >= 0; }
    int64_t integer(int i) const noexcept { return values[items[i].offset]; }
    double real(int i) const noexcept { return std::bit_cast<double>(integer(i)); }
    int64_t length(int i) const noexcept { return items[i].length; }
    const int64_t* list(int i) const noexcept { return values + items[i].offset; }
    /// Which input is the tensor of parameter `parameter`, of an operator whose attribute `given` is at `i`; -1: it was left out.
    int32_t input_of(int parameter, int i) const noexcept {
        const auto given = static_cast<uint64_t>(integer(i));
        return given >> parameter & 1 ? std::popcount(given & ((uint64_t{1} << parameter) - 1)) : -1;
    }
    /// Entry `k` of a list whose only entry counts for all.
    int64_t entry(int i, int64_t k) const noexcept { return list(i)[length(i) == 1 ? 0 : k]; }

    /// Appends the next argument.  Throws ValueError for a list of more than `limit` entries.
    void add(int64_t value);
    void add(double value);
    void add_optional(const int64_t* value);
    void add_optional(const double* value);
    void add_list(const char* op, const char* name, const int64_t* values, size_t n, size_t limit = kMaxEntries);
    void add_optional_list(const char* op, const char* name, const int64_t* values, size_t n);
};

/// The padding of a convolution whose result has the sizes of its input; nobody comes to it by a calculation.
inline constexpr int64_t kSamePadding = -INT32_MAX;

/// One piece of a loop; see KernelCall::parallel_for.
using PieceFn = void (*)(void* context, int64_t piece);

/// One call of a kernel.  The views are valid, their shapes and dtypes follow the operator's rules, and no output
/// overlaps an input except exactly.  Outputs may have any strides where the operator has an in-place form.
struct KernelCall {
    const View* inputs;
    int32_t n_inputs;
    int32_t n_outputs;
    View* outputs;
    const Attributes* attributes;
    /// Runs all pieces on the pool and returns when they are over.  Borders between pieces must not depend on the
    /// number of threads.  Rethrows what a piece threw.
    void (*parallel_for)(int64_t pieces, PieceFn piece, void* context);
    /// For operators whose result's first size depends on data: outputs[0] has no memory until the kernel calls this with
    /// its call and the size it found; then shape and data are set.  Throws when there is no memory.
    void (*find_size)(const KernelCall* call, int64_t size);
    void* host;  // the caller's
    /// The dtype to compute in.  Inputs that the operator's dtype rule does not have cast come in their own.
    int32_t compute;
    /// Null, or: memory of `bytes` that lasts from one run of the same call to the next, filled by `fill` with what the kernel makes
    /// of input `input` before it computes.  Null is answered for inputs that do not stay what they are, or where there is no memory.
    const void* (*keep)(const KernelCall* call, int32_t input, size_t bytes, void (*fill)(void* context, void* to), void* context) = nullptr;
    /// Null, or told by whoever made them that elements [begin, end) of the contiguous first output are as they will be, while they are
    /// still in that core's caches.  The caller may write over them.  A kernel tells all elements, each once, or none.
    void (*made)(const KernelCall* call, int64_t begin, int64_t end) = nullptr;
};

/// Returns 0, or an ErrorKind with a message of at most `size` bytes, zero included.  Never throws.
using KernelFn = int32_t (*)(const KernelCall* call, char* message, size_t size);

/// One operator of several that are computed together.
struct FusedPart {
    int32_t op;
    int32_t compute;  // the dtype it computes in
    int32_t dtype;    // of its result, to which it is rounded
    int32_t per_row;  // its result has one element for each row, else the whole shape
    int32_t n_operands;
    int32_t operands[5];  // inputs by number, or ~k for the result of part k
    const Attributes* attributes;
};

struct Backend {
    uint32_t struct_size;
    const char* name;
    /// Devices of this kind that can be used now.
    int32_t (*device_count)();
    /// The kernel for an operator computing in a dtype (OpCode, DType), or null.
    KernelFn (*find_kernel)(int32_t op, int32_t dtype);
    /// Prepares operators to be computed together, one part of their results after another; null where it cannot.  Elementwise ones,
    /// and those that look at rows: of the last dimensions of `over`, `row` elements together, 1 where nobody does.  Of `over` only the
    /// shape counts.  The views have no data yet, what they point to outlives what is prepared; all inputs broadcast to `over`, but for
    /// weights.  The last part's result is the output, which is contiguous, and may lack the dimensions of rows where it has one element for
    /// each.  Its bits are those that the kernels come to one by one.  `piece`: see run_fused().
    void* (*prepare_fused)(const FusedPart* parts, int32_t n_parts, const View* inputs, int32_t n_inputs, const View* over, int64_t row, int64_t* piece);
    /// What a run needs to know of its weights, which are complete and lie at these places, before any part of it; null where that is nothing.
    int32_t (*start_fused)(const void* prepared, void* const* inputs, void** state, char* message, size_t size);
    /// Elements [begin, end) of the whole shape, which are whole rows.  Any order will do, and many threads at once; a good piece of work
    /// is `piece` elements.  The output may be the same memory as inputs of its very shape that lie as it does, if it has all dimensions.
    int32_t (*run_fused)(const void* prepared, const void* state, void* const* inputs, void* output, int64_t begin, int64_t end, char* message, size_t size);
    void (*finish_fused)(void* state);
    void (*release_fused)(void* prepared);
};

/// The backend that is part of the library.
const Backend& cpu_backend();

}  // namespace clikart
