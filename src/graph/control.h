// Steps with regions: programs that a step runs, as often as values say.
//
//   Cond       operands (condition, values...), regions (then, else).  One of them runs, on all operands; its outputs are the results.
//   WhileLoop  operands (carried..., values...), regions (condition, body).  Both take all operands, the latter with what the body made of
//              the carried ones before; while the condition's one output is true, the body makes them anew.  They are the results.
//
// Regions have as many inputs as the step has, outputs of one shape and dtype (of a body those of what is carried), each a tensor of
// its own, and neither effects nor random operators.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/program.h"
#include "ops/recorder.h"

namespace clikart {

/// Tensors without values in the place of its results.
std::vector<Ref<Tensor>> stand_ins_of(const ControlCall& call);

/// Runs the step as the thread's mode says; where it runs the condition's value is waited for.  Throws ValueError or TypeError for operands
/// of other shapes or dtypes than the regions take.
std::vector<Ref<Tensor>> run_control(OpCode op, const std::vector<std::shared_ptr<const Program>>& regions, std::span<Tensor* const> operands);

/// Throws ValueError or TypeError, starting with the step's name, where regions do not fit each other or the operands.
void check_control(OpCode op, const std::vector<std::shared_ptr<const Program>>& regions, std::span<Tensor* const> operands);

/// The step whose dtype and shape a result has.
const Step& result_step(const Program& region, size_t output);

}  // namespace clikart
