// What calls look at of the tensors they are given, as numbers; see clikart_tensor_layouts.
#pragma once

#include <span>

#include "ops/recorder.h"
#include "ops/settle.h"

namespace clikart {

/// Calls f(number) for each of them.  Waits for open sizes; `who` names the function in errors.
template <class F>
void visit_layouts(std::span<Tensor* const> tensors, const char* who, F&& f) {
    for (const Tensor* t : tensors) {
        settle_size(*t, who);
        note_asked(Recorder::Fact::Strides, *t);
        const bool dense = t->strides() == contiguous_strides(t->shape());
        f(static_cast<int64_t>(t->dtype()));
        f(static_cast<int64_t>(t->device().type));
        f(static_cast<int64_t>(t->device().index));
        f(static_cast<int64_t>(t->rank()));
        f(static_cast<int64_t>(dense));
        for (const int64_t size : t->shape()) f(size);
        if (dense) continue;
        for (const int64_t stride : t->strides()) f(stride);
    }
}

}  // namespace clikart
