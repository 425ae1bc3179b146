// The operator table, as the generator wrote it from src/ops/table/*.toml.
#pragma once

#include <span>
#include <string_view>

#include "backends/api.h"
#include "core/tensor.h"
#include "ops/op_code.h"

namespace clikart {

struct OpInfo;
class Generator;

/// The call that a rule looks at.  `inputs` are as the caller gave them, in shape rules cast to the computing dtype.
struct OpCall {
    const OpInfo& info;
    std::span<Tensor* const> inputs;
    const Attributes& attributes;
    Generator* generator = nullptr;     // of random operators
    Tensor* over = nullptr;             // what the result is written over; a Copy then has its source alone as input
    const Attributes* coded = nullptr;  // the attributes as they were given, where some are codes of sizes

    /// The tensor of parameter `i` of an operator with optional ones, whose attribute `given` is at `position`; or null.
    Tensor* optional(int i, int position) const noexcept {
        const int32_t at = attributes.input_of(i, position);
        return at < 0 ? nullptr : inputs[static_cast<size_t>(at)];
    }
    /// A list among the attributes.  Throws ValueError for more than a tensor has dimensions.
    Dims list(int position) const { return Dims(std::span(attributes.list(position), static_cast<size_t>(attributes.length(position)))); }
};

/// What a dtype rule answers.
struct DTypes {
    DType compute;  // what the kernel computes in
    DType result;
    DType second = DType::Unspecified;  // of another result
    /// Bit by bit the inputs that are cast to `compute` before the kernel sees them; those of elementwise operators never are:
    /// their kernels convert as they go.
    uint32_t cast = ~uint32_t{0};
};

/// What a shape rule answers; that the size can be addressed is checked after it.  Views also fill in strides and offset.
struct OutputSpec {
    Dims shape;
    Dims strides;
    int64_t offset = 0;
};

struct OpInfo {
    OpCode code;
    const char* name;
    NodeKind kind;
    DTypes (*dtype)(const OpCall&);
    void (*shape)(const OpCall&, OutputSpec&);  // of all results
    /// Made of other operators by this, which checks what it is given; null for all others.
    Ref<Tensor> (*composite)(const OpCall&);
    /// Nanoseconds of one core per result element (per input element for reductions), roughly.
    float cost;
    int32_t n_outputs;
    bool has_kernel;
    bool data_dependent;  // the first size of the result is found by the kernel
    bool in_place;        // there is a form that writes over the first operand
    /// A letter for each tensor parameter: T, ? for one that may be left out, * for a list, which is the last.
    const char* tensors;
    /// A letter for each attribute: i int, f float, l list of ints, capital where it may be absent; b bool; d dtype, D where it may be
    /// Unspecified; a digit for an enum of so many words; g for the bits of the tensors that were given.
    const char* attributes;

    /// Whether an attribute, or each of a list, is a whole number that may come from a size.
    bool has_sizes(int attribute) const noexcept {
        const char letter = attributes[attribute];
        return letter == 'i' || letter == 'I' || letter == 'l' || letter == 'L';
    }
};

/// Throws ValueError for a code that names no operator.
const OpInfo& op_info(OpCode code);
/// The operator of this name, or null.
const OpInfo* find_op(std::string_view name);

}  // namespace clikart
