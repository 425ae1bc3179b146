#include "graph/passes/epilogues.h"

#include "graph/reach.h"

namespace clikart::passes {

void fold_epilogues(Program& program) {
    std::vector<Step>& steps = program.steps;
    const std::vector<int32_t> uses = program.count_uses();
    const std::vector<bool> written = program.find_written();
    std::vector<bool> gone(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
        Step& step = steps[i];
        if (!step.is_call() || step.in_place || step.inputs.empty() || !step.sizes.empty()) continue;
        const Reach reach = reach_of(op_info(step.op), *step.attributes, steps[static_cast<size_t>(step.inputs[0])].shape.rank());
        if (!reach.keeps_shape() || !suits_rows(step.shape, reach.dims)) continue;
        // Only the first operand: of two NaN the first one's bits come out, so operands do not change places.
        const auto made = static_cast<size_t>(step.inputs[0]);
        Step& product = steps[made];
        if (product.kind != NodeKind::Product || uses[made] != 1 || !(product.dtype == step.dtype && product.shape == step.shape)) continue;
        if (reads_any(product, written)) continue;  // it would read later than it did
        Step folded = std::move(product);           // which moves down to where all operands are there
        Epilogue epilogue{step.op, step.attributes, {~static_cast<int32_t>(folded.epilogues.size())}, step.dtype};
        for (size_t k = 1; k < step.inputs.size(); ++k) epilogue.operands.push_back(static_cast<int32_t>(folded.inputs.size() + k - 1));
        folded.extra += step.inputs.size() - 1;
        folded.inputs.insert(folded.inputs.end(), step.inputs.begin() + 1, step.inputs.end());
        folded.epilogues.push_back(std::move(epilogue));
        folded.recorded = step.recorded;
        folded.place = step.place;
        step = std::move(folded);
        gone[made] = true;
    }
    program.remove(gone);
}

}  // namespace clikart::passes
