// Copying between strided views.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// Copies `from`, broadcast to the shape of `to`, into `to`; one dtype.
void copy_view(const KernelCall& call, const View& from, const View& to);

}  // namespace clikart::cpu
