// How a program runs on inputs of certain sizes and strides: its calls with their kernels chosen, and where their operands lie.
// Immutable once made.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "core/memory.h"
#include "graph/program.h"
#include "ops/kernel.h"

namespace clikart {

/// How one input lies in memory.
struct Layout {
    Dims shape;
    Dims strides;
    bool operator==(const Layout&) const = default;
};

class Plan {
public:
    /// A piece of memory that calls read or write.
    struct Slot {
        enum class Kind {
            Input,   // that of an input; `place` is which one
            Held,    // that of a tensor from outside; which one of `held`
            Arena,   // from `place` on in a block that lives as long as the run
            Output,  // fresh, and the caller's; which one of `fresh`
        } kind;
        int64_t place;
        int64_t bytes;
    };
    struct Operand {
        int32_t slot;
        int64_t offset;  // bytes from the slot's start
        View view;       // without data
    };
    struct Call {
        Kernel kernel;
        std::shared_ptr<const Attributes> attributes;
        uint32_t first;  // of its operands: the inputs, and behind them the outputs
        uint32_t n_inputs, n_outputs;
        bool in_place;
        int32_t random;                                         // which one of `random`; -1: it draws no numbers
        uint32_t step;                                          // of the program
        int32_t kept;                                           // which one of `kept`; -1: none of its inputs stays what it is
        FusedKernel fused;                                      // several operators, as the backend prepared them; then there is no kernel to run
        std::string title;                                      // the operators, where they are several
        std::vector<std::shared_ptr<const Plan>> regions = {};  // of a control step, whose last output is their workspace
        bool leads = false;                                     // the next call, which is fused, can work on what this one makes as it comes
    };
    struct Random {
        Ref<Generator> generator;  // null: the process's own
        uint64_t blocks;
    };
    struct Fresh {
        DType dtype;
        Dims shape;
        int32_t slot;
    };
    struct Output {
        Ref<Tensor> itself;  // what it is at every run; else a view of
        int32_t slot;
        bool whole;  // it is the input or the fresh tensor itself
        DType dtype;
        Layout layout;
        int64_t offset;  // elements from the slot's start
    };

    /// What a run of it takes as a region: its arena, and behind that the starts of its slots.
    size_t region_bytes() const noexcept { return static_cast<size_t>(arena_bytes) + slots.size() * sizeof(char*); }

    /// Whether the only result of a call may be written over input `input`: each element of it is made of the elements at its own place,
    /// or of its own row, and it lies as the result does.
    bool can_replace(const Call& call, uint32_t input) const;

    std::vector<Ref<Origin>> places;  // where the program's steps come from
    std::vector<Layout> layouts;      // of the inputs it is for
    std::vector<Slot> slots;
    std::vector<Operand> operands;
    std::vector<Call> calls;
    std::vector<Random> random;
    std::vector<Ref<Tensor>> held;
    std::vector<Fresh> fresh;
    std::vector<Output> outputs;
    std::vector<int32_t> written;  // slots of inputs and held tensors that are written over
    int64_t arena_bytes = 0;
    double cost = 0;  // what one core needs for a run, in nanoseconds

    /// What a call's kernel made of an input, for further runs.
    struct Made {
        Made(size_t bytes, uint64_t version) : block(bytes), version(version) {}
        const Block block;
        const uint64_t version;  // of the input's storage
    };
    struct Kept {
        std::mutex lock;  // guards made
        std::shared_ptr<const Made> made;
    };
    mutable std::deque<Kept> kept;

    // The sizes and strides that views point to.
    std::deque<Dims> dims;
};

/// What a loop needs beside its regions, from the start of its workspace on: the condition's value, and a second place for each
/// carried value.
struct LoopMemory {
    explicit LoopMemory(const Plan& body);
    std::vector<size_t> places;  // offsets, by result
    size_t bytes;
};

/// Whether runs of the program can be planned; what depends on more than sizes and strides cannot.
bool can_be_planned(const Program& program);

/// With `keeps`, what kernels make of weights is kept from run to run.  `sizes`: see interpret().  Throws Failure as the program's calls
/// do for such inputs.
std::shared_ptr<const Plan> make_plan(const Program& program, std::vector<Layout> layouts, bool keeps, SizeValues* sizes = nullptr);

}  // namespace clikart
