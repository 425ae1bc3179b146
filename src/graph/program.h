// What a graph computes: steps in the order they run, each of which makes one value.  Passes rewrite it, ModelGraph runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/origin.h"
#include "graph/sizes.h"
#include "ops/generator.h"
#include "ops/op_info.h"

namespace clikart {

/// An operator that is computed with a step, while what it works on is at hand: it looks at the same elements or rows (graph/reach.h).
struct Epilogue {
    OpCode op;
    std::shared_ptr<const Attributes> attributes;
    /// Positions among the step's inputs, or ~k for what the step's operator (k = 0) or its epilogue number k, from 1 on, makes.
    std::vector<int32_t> operands;
    DType dtype;  // of its result
};

struct Program;

/// What the value of a step is: a tensor, the results of a control step one after the other, which only Result steps read, or nothing
/// that could be read.
enum class ValueKind { Tensor, Sequence, Nothing };

/// One step.  Steps run in their order; those that write in place have effects, all others only make a value.  The result is the value with the step's own
/// number, and no step reads a later one.  Further results of an operator, and all of a control step, are steps of their own, with
/// OpCode::Result, whose input is that step.
struct Step {
    OpCode op;
    NodeKind kind;
    std::shared_ptr<const Attributes> attributes;  // never null
    std::vector<int32_t> inputs;                   // values; see also Epilogue
    DType dtype;
    Dims shape;
    Ref<Tensor> value;                                         // of an External or Constant
    Ref<Generator> generator;                                  // of a random operator that was given one
    std::vector<Epilogue> epilogues;                           // the last one's result is the step's
    std::vector<int32_t> ends;                                 // values nobody needs after this step; see find_ends()
    int32_t recorded = -1;                                     // the step of the program as it was recorded that makes the same value; -1: none does
    size_t extra = 0;                                          // inputs behind the operator's own, which only epilogues read
    Ref<Origin> place = nullptr;                               // where the call was recorded; null where nobody told
    bool in_place = false;                                     // it writes over its first input, and nobody reads what it makes itself
    std::vector<std::shared_ptr<const Program>> regions = {};  // what a control step runs; see graph/control.h
    std::vector<SizeUse> sizes = {};                           // what of its attributes, or of a Constant's value, comes from sizes of the inputs

    /// Whether it calls an operator.
    bool is_call() const noexcept { return kind != NodeKind::Input && !value && op != OpCode::Result && kind != NodeKind::Control; }
    /// Which result of a step a Result is; that step's own value is the first one, unless it is a sequence.
    size_t result() const noexcept { return static_cast<size_t>(attributes->integer(0)); }
    ValueKind value_kind() const noexcept {
        return in_place ? ValueKind::Nothing : kind == NodeKind::Control && op != OpCode::Result ? ValueKind::Sequence : ValueKind::Tensor;
    }
    /// How many of the inputs are the operator's own operands.
    size_t own_inputs() const noexcept { return inputs.size() - extra; }
};

/// Its operator and those that are computed with it: "matmul + add + relu".
std::string title_of(const Step& step);

/// Whether it reads one of the values that are marked.
bool reads_any(const Step& step, const std::vector<bool>& marked);

struct Program {
    std::vector<Step> steps;
    std::vector<int32_t> inputs;   // values
    std::vector<int32_t> outputs;  // values
    bool any_sizes = false;        // shapes are those of an example
    std::vector<SizeTerm> sizes;   // of the program as it was recorded; steps of those that passes made of it use its numbers
    std::vector<Condition> conditions;

    /// How often each value is read; going out counts.
    std::vector<int32_t> count_uses() const;
    /// The value whose memory each value is: itself, but for views and for tensors from outside that share a storage.
    std::vector<int32_t> find_roots() const;
    /// Whether some step writes over the memory of each value.
    std::vector<bool> find_written() const;
    /// Whether each value goes out, or a view of it does.
    std::vector<bool> find_escaping() const;
    /// Whether it shows how each value lies in memory: it goes out, or something reads it, itself or as a view, whose bits or errors depend
    /// on strides (products choose their engine by them).
    std::vector<bool> find_layout_bound() const;
    /// Takes out the steps that are marked; nobody may read them.
    void remove(const std::vector<bool>& gone);
    /// Fills in `ends`: after its last reader a value is over, unless it goes out.
    void find_ends();
    /// Throws ClikaRTError where the program is none, which would be a pass's fault.
    void verify() const;
};

}  // namespace clikart
