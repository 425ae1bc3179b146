// A part of a capture that becomes a program of its own, which a control step runs.
#pragma once

#include <memory>
#include <vector>

#include "graph/recording.h"

namespace clikart {

/// What was recorded between a begin and its end.  Values of the capture that it reads, and tensors from outside, are captured: a control
/// step hands them to its regions as operands.
class Region final : public Object {
public:
    Region(uint64_t capture, uint64_t start) noexcept : Object(ObjectKind::Region), capture(capture), start(start) {}

    const uint64_t capture;
    const uint64_t start;                 // the order of its first node
    std::vector<Ref<Tensor>> parameters;  // stand-ins for operands of its own
    std::vector<Ref<Tensor>> outputs;

    /// Those that it reads, in no particular order.
    std::vector<Tensor*> find_captured() const;
    /// With these inputs: its parameters, and all that it captures, perhaps others.
    std::shared_ptr<const Program> program(const std::vector<Ref<Tensor>>& inputs) const;

private:
    ~Region() override = default;
};

}  // namespace clikart
