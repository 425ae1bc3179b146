#include "graph/passes/layout.h"

#include <algorithm>
#include <unordered_map>

#include "ops/rules.h"

namespace clikart::passes {
namespace {

/// Dimension d of what comes out is dimension order[d] of what goes in; none where nothing moves.
using Order = Dims;

Order inverse_of(const Order& order) {
    Order inverse = order;
    for (int d = 0; d < order.rank(); ++d) inverse[static_cast<int>(order[d])] = d;
    return inverse;
}

Order unless_trivial(const Order& order) {
    for (int d = 0; d < order.rank(); ++d) {
        if (order[d] != d) return order;
    }
    return {};
}

/// `first`, then `second`.
Order composed(const Order& first, const Order& second) {
    if (first.rank() == 0 || second.rank() == 0) return first.rank() == 0 ? second : first;
    Order both = second;
    for (int d = 0; d < both.rank(); ++d) both[d] = first[static_cast<int>(second[d])];
    return unless_trivial(both);
}

Dims permuted(const Dims& shape, const Order& order) {
    Dims result = shape;
    for (int d = 0; d < order.rank(); ++d) result[d] = shape[static_cast<int>(order[d])];
    return result;
}

bool permutes(const Step& step) {
    return step.is_call() && step.sizes.empty() && (step.op == OpCode::Permute || step.op == OpCode::Transpose);
}

Order order_of(const Step& step) {
    const int rank = step.shape.rank();
    const auto dim = [&](int64_t given) { return static_cast<int>(given < 0 ? given + rank : given); };
    Order order;
    for (int d = 0; d < rank; ++d) order.push_back(step.op == OpCode::Permute ? dim(step.attributes->list(attribute::permute_dims)[d]) : d);
    if (step.op == OpCode::Transpose && rank > 0) {
        std::swap(order[dim(step.attributes->integer(attribute::transpose_dim0))], order[dim(step.attributes->integer(attribute::transpose_dim1))]);
    }
    return unless_trivial(order);
}

/// Writes the program anew.  Values are known by what lies in memory and in which order it is to be seen; a permutation becomes a step
/// only where something else than an elementwise operator reads it.
class Sinking {
public:
    explicit Sinking(Program& program) : old_(program), escapes_(program.find_escaping()), movable_(program.steps.size(), false) {
        const std::vector<bool> bound = program.find_layout_bound();
        const std::vector<Step>& steps = program.steps;
        std::vector<bool> is_read(steps.size(), false), by_others(steps.size(), false);
        for (size_t i = steps.size(); i-- > 0;) {
            movable_[i] = is_read[i] && !by_others[i] && !bound[i] && works_anywhere(steps[i]);
            const bool passes_on = movable_[i] || (permutes(steps[i]) && !escapes_[i]);
            for (const int32_t value : steps[i].inputs) {
                is_read[static_cast<size_t>(value)] = true;
                if (!passes_on) by_others[static_cast<size_t>(value)] = true;
            }
        }
    }

    Program run() {
        for (size_t i = 0; i < old_.steps.size(); ++i) seen_.push_back(move(i));
        for (const int32_t value : old_.inputs) new_.inputs.push_back(seen_[static_cast<size_t>(value)].value);
        for (const int32_t value : old_.outputs) new_.outputs.push_back(step_for(value));
        new_.any_sizes = old_.any_sizes;
        return std::move(new_);
    }

private:
    struct Seen {
        int32_t value;  // of the new program
        Order order;
    };

    static bool works_anywhere(const Step& step) {
        if (!step.is_call() || step.kind != NodeKind::Elementwise || !step.epilogues.empty() || step.inputs.empty()) return false;
        const OpInfo& info = op_info(step.op);
        return info.n_outputs == 1 && (info.shape == &shape_broadcast || info.shape == &shape_same);
    }

    Seen move(size_t i) {
        const Step& step = old_.steps[i];
        if (permutes(step) && !escapes_[i]) {
            const Seen& from = seen_[static_cast<size_t>(step.inputs[0])];
            return {from.value, composed(from.order, order_of(step))};
        }
        if (movable_[i]) {
            if (const Order order = order_among(step); order.rank() > 0) return {add_moved(step, order), order};
        }
        Step same = step;
        for (int32_t& value : same.inputs) value = step_for(value);
        return {add(std::move(same)), {}};
    }

    /// How its operands are seen, where it can work on them as they lie; none: it cannot, or they are not seen otherwise.
    Order order_among(const Step& step) const {
        Order order;
        for (const int32_t value : step.inputs) {
            const Step& input = old_.steps[static_cast<size_t>(value)];
            if (input.shape.rank() == 0) continue;
            if (input.shape.rank() != step.shape.rank()) return {};
            if (order.rank() == 0) order = seen_[static_cast<size_t>(value)].order;
        }
        return order;
    }

    int32_t add_moved(const Step& step, const Order& order) {
        const Order back = inverse_of(order);
        Step moved = step;
        moved.shape = permuted(step.shape, back);
        moved.recorded = -1;  // nothing was recorded that lies so
        for (int32_t& value : moved.inputs) {
            const bool one = old_.steps[static_cast<size_t>(value)].shape.rank() == 0;
            value = one ? step_for(value) : step_for(value, composed(seen_[static_cast<size_t>(value)].order, back));
        }
        return add(std::move(moved));
    }

    int32_t add(Step step) {
        new_.steps.push_back(std::move(step));
        return static_cast<int32_t>(new_.steps.size() - 1);
    }

    int32_t step_for(int32_t value) { return step_for(value, seen_[static_cast<size_t>(value)].order); }
    /// The new value that is what lies behind the old one, in this order.
    int32_t step_for(int32_t value, const Order& order) {
        const int32_t base = seen_[static_cast<size_t>(value)].value;
        if (order.rank() == 0) return base;
        auto& made = made_[base];
        const auto known = std::find_if(made.begin(), made.end(), [&](const Seen& seen) { return seen.order == order; });
        if (known != made.end()) return known->value;
        Attributes attributes;
        attributes.add_list("permute", "dims", order.data(), static_cast<size_t>(order.rank()));
        const Step& from = new_.steps[static_cast<size_t>(base)];
        Step step{
            OpCode::Permute, NodeKind::View, std::make_shared<const Attributes>(attributes), {base}, from.dtype, permuted(from.shape, order), {}, {}, {}, {}};
        const Step& before = old_.steps[static_cast<size_t>(value)];
        step.place = before.place;
        if (permutes(before) && order == seen_[static_cast<size_t>(value)].order) step.recorded = before.recorded;
        const int32_t result = add(std::move(step));
        made.push_back({result, order});
        return result;
    }

    const Program& old_;
    const std::vector<bool> escapes_;
    std::vector<bool> movable_;  // elementwise, and read by such or by permutations alone
    Program new_;
    std::vector<Seen> seen_;  // by old value
    std::unordered_map<int32_t, std::vector<Seen>> made_;
};

}  // namespace

void sink_permutations(Program& program) {
    const std::vector<Step>& steps = program.steps;
    if (std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.in_place; })) return;
    if (std::none_of(steps.begin(), steps.end(), permutes)) return;
    program = Sinking(program).run();
}

}  // namespace clikart::passes
