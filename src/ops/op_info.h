// The operator table, as the generator wrote it from src/ops/table/*.toml.
#pragma once

#include <span>

#include "backends/api.h"
#include "core/tensor.h"
#include "ops/op_code.h"

namespace clikart {

struct OpInfo;

/// The call that a rule looks at.  `inputs` are as the caller gave them, in shape rules cast to the computing dtype.
struct OpCall {
    const OpInfo& info;
    std::span<Tensor* const> inputs;
    const Attributes& attributes;
};

/// What a dtype rule answers: the dtype that inputs are cast to (Unspecified: left as they are) and the result's.
struct DTypes {
    DType compute;
    DType result;
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
    void (*shape)(const OpCall&, OutputSpec&);
    /// Nanoseconds of one core per result element (per input element for reductions), roughly.
    float cost;
    bool has_kernel;
    bool data_dependent;  // the first size of the result is found by the kernel
};

/// Throws ValueError for a code that names no operator.
const OpInfo& op_info(OpCode code);

}  // namespace clikart
