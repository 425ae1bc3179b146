// What a recorded call leaves behind: a node that knows its inputs.  Stand-in tensors point at the node they come from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/origin.h"
#include "graph/sizes.h"
#include "ops/generator.h"
#include "ops/op_info.h"

namespace clikart {

struct Program;

class Node final : public Chained {
public:
    Node(OpCode op, NodeKind kind, uint64_t capture, uint64_t order, const Attributes& attributes = {}) noexcept
        : Chained(ObjectKind::Node), op(op), kind(kind), capture(capture), order(order), attributes(attributes) {}

    const OpCode op;
    const NodeKind kind;
    const uint64_t capture;  // which capture recorded it,
    const uint64_t order;    // after how many others
    const Attributes attributes;
    std::vector<SizeUse> sizes;  // what of them comes from sizes
    std::vector<Ref<Tensor>> inputs;
    std::vector<std::shared_ptr<const Program>> regions;  // of a control node
    bool in_place = false;                                // it writes over its first input
    Ref<Generator> generator;                             // of a random operator that was given one
    Ref<Origin> place;                                    // where the call was made; null where nobody tells

private:
    ~Node() override = default;
};

}  // namespace clikart
