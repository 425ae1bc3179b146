#include "graph/passes/fusion.h"

#include <algorithm>

#include "graph/reach.h"

namespace clikart::passes {
namespace {

constexpr size_t kMostOperators = 32, kMostInputs = 12;  // in one step: what it works on has to stay in the first-level cache

constexpr int32_t kNobody = -1, kSeveral = -2;

/// Steps that become one.
struct Group {
    std::vector<int32_t> members;  // from the last to the first
    size_t inputs = 0;
    Dims whole;    // what all of them go over
    int dims = 0;  // the last ones that a row has; 0 while nobody asked

    /// Takes the step in if it goes over the same; `over` is the shape of its first operand.
    bool take(const Step& step, const Reach& reach, const Dims& over) {
        int rows = reach.dims;
        if (members.empty()) {
            whole = reach.kind == Reach::Kind::Fold ? over : step.shape;
        } else if (reach.kind == Reach::Kind::Fold) {
            if (!(step.shape == with_folded(over, rows))) return false;
            if (!(over == whole) && !(step.shape == whole && dims == 0)) return false;  // in the latter case all others have one element for each row
        } else if (!(step.shape == whole)) {
            rows = folded_dims(whole, step.shape);
            if (reach.kind != Reach::Kind::Element || rows <= 0) return false;
        }
        if (rows > 0 && ((dims > 0 && dims != rows) || !suits_rows(reach.kind == Reach::Kind::Fold ? over : whole, rows))) return false;
        if (reach.kind == Reach::Kind::Fold) whole = over;
        dims = std::max(dims, rows);
        return true;
    }
};

Reach reach_of_step(const std::vector<Step>& steps, const Step& step) {
    if (!step.is_call() || step.in_place || !step.epilogues.empty() || step.inputs.empty() || !step.sizes.empty()) return {};
    if (is_packed(step.dtype) || is_complex(step.dtype)) return {};
    const Step& first = steps[static_cast<size_t>(step.inputs[0])];
    const Reach reach = reach_of(op_info(step.op), *step.attributes, first.shape.rank());
    if (reach.kind == Reach::Kind::Fold && !(computes(first.dtype) && computes(step.dtype))) return {};
    return reach;
}

/// The members of one group, in order, as one step.
Step fused(const std::vector<Step>& steps, const std::vector<int32_t>& members) {
    const Step& first = steps[static_cast<size_t>(members.front())];
    const Step& last = steps[static_cast<size_t>(members.back())];
    Step step = first;
    step.dtype = last.dtype;
    step.shape = last.shape;
    step.place = last.place;
    step.recorded = last.recorded;
    const auto position = [&](int32_t value) {
        const auto member = std::lower_bound(members.begin(), members.end(), value);
        if (member != members.end() && *member == value) return ~static_cast<int32_t>(member - members.begin());
        const auto known = std::find(step.inputs.begin(), step.inputs.end(), value);
        if (known != step.inputs.end()) return static_cast<int32_t>(known - step.inputs.begin());
        step.inputs.push_back(value);
        ++step.extra;
        return static_cast<int32_t>(step.inputs.size() - 1);
    };
    for (size_t k = 1; k < members.size(); ++k) {
        const Step& member = steps[static_cast<size_t>(members[k])];
        Epilogue epilogue{member.op, member.attributes, {}, member.dtype};
        for (const int32_t value : member.inputs) epilogue.operands.push_back(position(value));
        step.epilogues.push_back(std::move(epilogue));
    }
    return step;
}

}  // namespace

void fuse_operators(Program& program) {
    std::vector<Step>& steps = program.steps;
    const std::vector<bool> written = program.find_written();
    // From the last step to the first: all that read a value are in a group before it is.
    std::vector<int32_t> readers(steps.size(), kNobody);  // the one group that reads a value
    std::vector<Group> groups(steps.size());
    for (const int32_t value : program.outputs) readers[static_cast<size_t>(value)] = kSeveral;
    for (size_t i = steps.size(); i-- > 0;) {
        const Step& step = steps[i];
        const Reach reach = reach_of_step(steps, step);
        auto group = static_cast<int32_t>(i);
        if (reach.kind != Reach::Kind::Other) {
            const Dims& over = steps[static_cast<size_t>(step.inputs[0])].shape;
            const auto self = static_cast<int32_t>(i);
            if (readers[i] >= 0 && !written[i] && !reads_any(step, written)) {
                Group& reader = groups[static_cast<size_t>(readers[i])];
                const bool fits = !reader.members.empty() && reader.members.size() < kMostOperators && reader.inputs + step.inputs.size() <= kMostInputs + 1;
                if (fits && reader.take(step, reach, over)) group = readers[i];
            }
            Group& own = groups[static_cast<size_t>(group)];
            if (group != self || own.take(step, reach, over)) {
                own.members.push_back(self);
                own.inputs += step.inputs.size() - (group == self ? 0 : 1);
            }
        }
        for (const int32_t value : step.inputs) {
            int32_t& reader = readers[static_cast<size_t>(value)];
            const bool weight = reach.kind != Reach::Kind::Element && value != step.inputs[0];  // is there before all else
            reader = !weight && (reader == kNobody || reader == group) ? group : kSeveral;
        }
    }
    std::vector<bool> gone(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
        std::vector<int32_t>& members = groups[i].members;
        if (members.size() < 2) continue;
        std::reverse(members.begin(), members.end());
        steps[i] = fused(steps, members);
        for (const int32_t member : members) gone[static_cast<size_t>(member)] = static_cast<size_t>(member) != i;
    }
    program.remove(gone);
}

}  // namespace clikart::passes
