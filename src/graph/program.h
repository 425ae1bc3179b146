// What a graph computes: steps in the order they run, each of which makes one value.  Passes rewrite it, ModelGraph runs it.
#pragma once

#include <memory>
#include <vector>

#include "ops/generator.h"
#include "ops/op_info.h"

namespace clikart {

/// An elementwise operator that is applied to a step's result while that is at hand: it is its first operand.
struct Epilogue {
    OpCode op;
    std::shared_ptr<const Attributes> attributes;
    size_t operands;  // how many others there are: behind the step's own inputs, those of one epilogue after another
};

/// One step; its result is the value with the step's own number, and no step reads a later one.  The second result of an
/// operator is a step of its own, with OpCode::Result, whose input is the first.
struct Step {
    OpCode op;
    NodeKind kind;
    std::shared_ptr<const Attributes> attributes;  // never null
    std::vector<int32_t> inputs;                   // values; see also Epilogue
    DType dtype;
    Dims shape;
    Ref<Tensor> value;         // of an External or Constant
    Ref<Generator> generator;  // of a random operator that was given one
    std::vector<Epilogue> epilogues;
    std::vector<int32_t> ends;  // values nobody needs after this step; see find_ends()

    /// How many of the inputs are the operator's own operands.
    size_t own_inputs() const noexcept {
        size_t count = inputs.size();
        for (const Epilogue& epilogue : epilogues) count -= epilogue.operands;
        return count;
    }
};

struct Program {
    std::vector<Step> steps;
    std::vector<int32_t> inputs;   // values
    std::vector<int32_t> outputs;  // values

    /// How often each value is read; going out counts.
    std::vector<int32_t> count_uses() const;
    /// Takes out the steps that are marked; nobody may read them.
    void remove(const std::vector<bool>& gone);
    /// Fills in `ends`: after its last reader a value is over, unless it goes out.
    void find_ends();
    /// Throws ClikaRTError where the program is none, which would be a pass's fault.
    void verify() const;
};

}  // namespace clikart
