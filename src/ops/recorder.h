// How dispatch hands a call to whoever records graphs, without knowing who that is.
#pragma once

#include "ops/call.h"

namespace clikart {

/// The calls of one thread go here instead of to a stream while it records a graph (Mode::Capture).
class Recorder {
public:
    virtual ~Recorder() = default;
    /// Notes the call and returns the stand-ins for its results.  Inputs may be stand-ins or tensors with values.
    virtual Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) = 0;
};

/// The calling thread's recorder, or null.
Recorder*& thread_recorder() noexcept;

}  // namespace clikart
