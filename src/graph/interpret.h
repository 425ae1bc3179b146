// Running a program step by step, each as a call of its own.
#pragma once

#include <functional>

#include "graph/program.h"

namespace clikart {

/// Makes the calls of all steps, as the thread's mode says; returns the outputs.  `inputs` fit the program.  With `over`, epilogues
/// are written over the result that they follow, else that is done where the calls compute.  `before` is told each step.
/// `sizes`: what a program that was made of a recorded one uses; of a recorded one they become those of this run, null where nobody
/// wants to know them.
std::vector<Ref<Tensor>> interpret(const Program& program, std::span<Tensor* const> inputs, SizeValues* sizes = nullptr, bool over = false,
                                   const std::function<void(size_t)>& before = nullptr);

}  // namespace clikart
