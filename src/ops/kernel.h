// A kernel that was chosen for a call, and running it on memory.
#pragma once

#include <memory>
#include <span>

#include "ops/generator.h"
#include "ops/op_info.h"

namespace clikart {

struct Kernel {
    const OpInfo* info;
    KernelFn run;
    DType compute;  // the dtype it computes in
};

/// The kernel of an operator for a dtype.  Throws NotImplementedError, which names `who`, where there is none.
KernelFn kernel_for(const OpInfo& info, DType dtype, const char* who);

/// What one core needs for a call, in nanoseconds, roughly.  `shape` is that of the result.
double estimate_cost(const OpInfo& info, std::span<Tensor* const> inputs, const Dims& shape);

/// How many blocks of numbers a random operator's call uses up: one for each element that goes in or comes out is enough.
uint64_t random_blocks(std::span<Tensor* const> inputs, const Dims& shape);
/// The attributes of its kernel: the call's, and where it draws from.
Attributes with_numbers(const Attributes& attributes, const Generator::State& state);

/// What a kernel's caller does for it; see KernelCall.
struct KernelHost {
    void (*find_size)(const KernelCall*, int64_t) = nullptr;  // for results of unknown size, else null
    decltype(KernelCall::keep) keep = nullptr;
    decltype(KernelCall::made) made = nullptr;
    void* self = nullptr;
};

/// Runs a kernel here and now; its loops go to the thread pool.  The views are of settled memory, and are as KernelCall wants them.
/// Throws what went wrong, without the operator's name.
void run_kernel(const Kernel& kernel, const Attributes& attributes, std::span<const View> inputs, std::span<View> outputs, bool in_place,
                const KernelHost& host = {});

/// Operators that the backend prepared to be computed together; see Backend::prepare_fused.
struct FusedKernel {
    std::shared_ptr<const void> prepared;  // null: there are none
    int64_t count = 0;                     // elements of the whole shape
    int64_t piece = 1;                     // elements of a piece of work
    bool aligned = false;                  // the result has all dimensions: it may lie where an input of its shape lies as it does
};

/// One run of them.  What is given outlives it.
class FusedRun {
public:
    FusedRun(const FusedKernel& kernel, void* const* inputs, void* output);
    ~FusedRun();
    FusedRun(const FusedRun&) = delete;
    FusedRun& operator=(const FusedRun&) = delete;
    /// Whole rows; from any thread.
    void part(int64_t begin, int64_t end) const;
    /// All of it, on the pool.
    void all() const;

private:
    const FusedKernel& kernel_;
    void* const* const inputs_;
    void* const output_;
    void* state_ = nullptr;
};

/// For testing: from now on a FusedRun makes something else, or what it should again.
void spoil_fused(bool spoil) noexcept;

/// The kernel of the operator fails in the call after the next `after` ones, whatever thread makes it: for testing what a
/// program does then.  -1: it does not any more.
void fail_kernel(OpCode op, int64_t after);

}  // namespace clikart
