#include "graph/plan.h"

#include <algorithm>
#include <unordered_map>

#include "graph/arena.h"
#include "graph/interpret.h"
#include "graph/reach.h"
#include "graph/stand_ins.h"
#include "ops/rules.h"

namespace clikart {
namespace {

constexpr double kLongLoop = 1e9;  // nanoseconds, which is no work for a caller's own thread

/// Receives the calls of a program that runs over stand-ins, and writes them down.
class Planner final : public StandIns {
public:
    Planner(Plan& plan, bool keeps) noexcept : plan_(plan), keeps_(keeps) {}

    Ref<Tensor> add_input(DType dtype, const Layout& layout) {
        const Ref<Tensor> dense = make_tensor(dtype, layout.shape, Device{});
        slot_of(*dense, Plan::Slot::Kind::Input, n_inputs_++);
        return make_view(*dense, dtype, layout.shape, layout.strides, 0);
    }

    /// What follows are the calls of this step of the program.
    void begin_step(size_t step) {
        fuse();
        step_ = static_cast<uint32_t>(step);
        first_call_ = plan_.calls.size();
    }

    /// The calls at the end of a step that look at the same elements or rows become one, where the backend can do that.
    void fuse();

    Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) override {
        Results results = StandIns::record(call, dtypes, spec);
        if (call.info.kind == NodeKind::View) return results;
        const bool copies_over = call.over && call.info.code == OpCode::Copy;
        const OpInfo& info = copies_over ? converting(call.inputs[0]->dtype(), call.over->dtype()) : call.info;
        const DType compute = copies_over ? call.over->dtype() : dtypes.compute;
        Plan::Call planned{{&info, kernel_for(info, compute, call.info.name), compute},
                           std::make_shared<const Attributes>(call.attributes),
                           static_cast<uint32_t>(plan_.operands.size()),
                           static_cast<uint32_t>(call.inputs.size()),
                           1,
                           call.over != nullptr,
                           -1,
                           step_,
                           -1,
                           {},
                           {}};
        for (const Tensor* input : call.inputs) add_operand(*input);
        if (call.info.kind == NodeKind::Random) {
            planned.random = static_cast<int32_t>(plan_.random.size());
            plan_.random.push_back({Ref<Generator>::share(call.generator), random_blocks(call.inputs, spec.shape)});
        }
        if (call.over) {
            add_operand(*call.over);
            const int32_t slot = plan_.operands.back().slot;
            if (outside(slot) && std::find(plan_.written.begin(), plan_.written.end(), slot) == plan_.written.end()) plan_.written.push_back(slot);
        } else {
            planned.n_outputs = static_cast<uint32_t>(call.info.n_outputs);
            for (int32_t i = 0; i < call.info.n_outputs; ++i) {
                slot_of(*results[static_cast<size_t>(i)], Plan::Slot::Kind::Arena, 0);
                add_operand(*results[static_cast<size_t>(i)]);
            }
        }
        if (call.info.kind == NodeKind::Product && keeps_) {
            const uint32_t weight = call.info.code == OpCode::Addmm || call.info.code == OpCode::Baddbmm ? 2 : 1;
            if (plan_.slots[static_cast<size_t>(plan_.operands[planned.first + weight].slot)].kind == Plan::Slot::Kind::Held) {
                planned.kept = static_cast<int32_t>(plan_.kept.size());
                plan_.kept.emplace_back();
            }
        }
        plan_.cost += estimate_cost(info, call.inputs, call.over ? call.over->shape() : spec.shape);
        plan_.calls.push_back(std::move(planned));
        return results;
    }

    std::vector<Ref<Tensor>> record_control(const ControlCall& call) override {
        std::vector<Ref<Tensor>> results = StandIns::record_control(call), dense;
        std::vector<Tensor*> operands(call.operands.begin(), call.operands.end());
        const bool loops = call.op == OpCode::WhileLoop;
        for (size_t i = 0; loops && i < results.size(); ++i) {  // later ones are dense
            if (!operands[i]->is_contiguous()) operands[i] = dense.emplace_back(clikart::call(OpCode::Copy, {&operands[i], 1}, Attributes{})).get();
        }
        std::vector<Layout> layouts;
        for (const Tensor* operand : operands) layouts.push_back({operand->shape(), operand->strides()});
        Plan::Call planned{{&op_info(call.op), nullptr, DType::Bool},
                           std::make_shared<const Attributes>(),
                           0,
                           0,
                           static_cast<uint32_t>(results.size()) + 1,
                           false,
                           -1,
                           step_,
                           -1,
                           {},
                           {}};
        size_t workspace = 0;
        std::vector<Ref<Tensor>> held;  // in regions; operands as well, so that they are waited for and their failures seen
        for (const auto& region : call.regions) {
            planned.regions.push_back(make_plan(*region, layouts, false));
            const Plan& plan = *planned.regions.back();
            workspace = std::max(workspace, plan.region_bytes());
            held.insert(held.end(), plan.held.begin(), plan.held.end());
            plan_.cost += loops ? std::max(plan.cost, kLongLoop) : plan.cost;
        }
        if (loops) workspace += LoopMemory(*planned.regions[1]).bytes;
        planned.first = static_cast<uint32_t>(plan_.operands.size());
        for (const Tensor* operand : operands) add_operand(*operand);
        for (const Ref<Tensor>& tensor : held) add_operand(*tensor);
        planned.n_inputs = static_cast<uint32_t>(operands.size() + held.size());
        const auto add_result = [&](const Tensor& result) {
            slot_of(result, Plan::Slot::Kind::Arena, 0);
            add_operand(result);
        };
        for (const Ref<Tensor>& result : results) add_result(*result);
        add_result(*make_tensor(DType::UInt8, Dims{static_cast<int64_t>(workspace)}, Device{}));
        plan_.calls.push_back(std::move(planned));
        return results;
    }

    void add_output(Tensor& output, std::span<const Ref<Tensor>> inputs) {
        Plan::Output planned{nullptr, -1, false, output.dtype(), {output.shape(), output.strides()}, output.offset()};
        const auto known = slots_.find(&output.storage());
        if (known == slots_.end()) {  // no call has to do with it
            planned.itself = Ref<Tensor>::share(&output);
            return plan_.outputs.push_back(std::move(planned));
        }
        planned.slot = known->second;
        Plan::Slot& slot = plan_.slots[static_cast<size_t>(planned.slot)];
        switch (slot.kind) {
            case Plan::Slot::Kind::Input: planned.whole = &output == inputs[static_cast<size_t>(slot.place)].get(); break;
            case Plan::Slot::Kind::Held: planned.itself = Ref<Tensor>::share(&output); break;
            case Plan::Slot::Kind::Arena: {
                const Tensor& whole = *wholes_[static_cast<size_t>(planned.slot)];
                slot = {Plan::Slot::Kind::Output, static_cast<int64_t>(plan_.fresh.size()), slot.bytes};
                plan_.fresh.push_back({whole.dtype(), whole.shape(), planned.slot});
                [[fallthrough]];
            }
            case Plan::Slot::Kind::Output: {
                const Tensor& whole = *wholes_[static_cast<size_t>(planned.slot)];
                planned.whole =
                    output.dtype() == whole.dtype() && output.offset() == 0 && output.shape() == whole.shape() && output.strides() == whole.strides();
            }
        }
        plan_.outputs.push_back(std::move(planned));
    }

    /// Finds places in the arena, by the calls that use each slot first and last.
    void lay_out();

private:
    const Plan::Operand& output_of(const Plan::Call& call) const;
    Reach reach_of_call(const Plan::Call& call) const;
    /// Whether a call that goes over `whole` can work on the result of this one as its pieces are made; `inputs` are its.
    bool can_lead(const Plan::Call& call, const Dims& whole, std::span<const Plan::Operand> inputs) const;
    /// Makes one call of [first, end), if that can be.
    bool fuse_calls(size_t first, size_t end);

    bool outside(int32_t slot) const noexcept {
        const auto kind = plan_.slots[static_cast<size_t>(slot)].kind;
        return kind == Plan::Slot::Kind::Input || kind == Plan::Slot::Kind::Held;
    }

    int32_t slot_of(const Tensor& tensor, Plan::Slot::Kind kind, int64_t place) {
        const auto [it, fresh] = slots_.emplace(&tensor.storage(), static_cast<int32_t>(plan_.slots.size()));
        if (fresh) {
            plan_.slots.push_back({kind, place, tensor.storage().bytes()});
            wholes_.push_back(Ref<Tensor>::share(const_cast<Tensor*>(&tensor)));
        }
        return it->second;
    }

    void add_operand(const Tensor& tensor) {
        auto known = slots_.find(&tensor.storage());
        int32_t slot;
        if (known != slots_.end()) {
            slot = known->second;
        } else {
            slot = slot_of(tensor, Plan::Slot::Kind::Held, static_cast<int64_t>(plan_.held.size()));
            plan_.held.push_back(Ref<Tensor>::share(const_cast<Tensor*>(&tensor)));
        }
        const Dims& shape = plan_.dims.emplace_back(tensor.shape());
        const Dims& strides = plan_.dims.emplace_back(tensor.strides());
        plan_.operands.push_back(
            {slot, bytes_of(tensor.dtype(), tensor.offset()), {nullptr, shape.data(), strides.data(), tensor.rank(), static_cast<int32_t>(tensor.dtype())}});
    }

    bool reads(const Plan::Call& call, int32_t slot) const {
        const auto* const operands = &plan_.operands[call.first];
        return std::any_of(operands, operands + call.n_inputs, [&](const Plan::Operand& input) { return input.slot == slot; });
    }
    /// The operand whose place the only result of a call can take, because it ends there and lies as the result does; null: there is none.
    const Plan::Operand* replaceable(const Plan::Call& call, const std::vector<size_t>& last, size_t now) const;

    Plan& plan_;
    const bool keeps_;
    uint32_t step_ = 0;
    size_t first_call_ = 0;  // of the step
    int64_t n_inputs_ = 0;
    std::unordered_map<const Storage*, int32_t> slots_;
    std::vector<Ref<Tensor>> wholes_;  // by slot; keeps its storage, whose address is the key
};

bool same_layout(const View& a, const View& b) {
    const auto same = [&](const int64_t* x, const int64_t* y) { return std::equal(x, x + a.rank, y); };
    return a.dtype == b.dtype && a.rank == b.rank && same(a.shape, b.shape) && same(a.strides, b.strides);
}

bool lies_as(const Plan::Operand& a, const Plan::Operand& b) {
    return a.slot == b.slot && a.offset == b.offset && same_layout(a.view, b.view);
}

bool is_dense(const View& view) {
    const auto rank = static_cast<size_t>(view.rank);
    return is_contiguous(Dims(std::span(view.shape, rank)), Dims(std::span(view.strides, rank)));
}

Dims shape_of(const View& view) {
    return Dims(std::span(view.shape, static_cast<size_t>(view.rank)));
}
Dims shape_of(const Plan::Operand& operand) {
    return shape_of(operand.view);
}

const Plan::Operand& Planner::output_of(const Plan::Call& call) const {
    return plan_.operands[call.first + call.n_inputs];
}

Reach Planner::reach_of_call(const Plan::Call& call) const {
    if (call.fused.prepared || call.n_outputs != 1 || call.random >= 0 || call.n_inputs == 0 || call.n_inputs > std::size(FusedPart{}.operands)) return {};
    return reach_of(*call.kernel.info, *call.attributes, plan_.operands[call.first].view.rank);
}

void Planner::fuse() {
    size_t end = plan_.calls.size(), first = end;
    while (first > first_call_ && reach_of_call(plan_.calls[first - 1]).kind != Reach::Kind::Other) --first;
    if (first == end || fuse_calls(first, end)) return;
    while (end > first) {  // then elementwise ones alone
        const auto is_elementwise = [&](size_t c) { return reach_of_call(plan_.calls[c]).kind == Reach::Kind::Element; };
        size_t begin = end;
        while (begin > first && is_elementwise(begin - 1)) --begin;
        if (begin > first || end < plan_.calls.size()) fuse_calls(begin, end);
        end = begin == end ? end - 1 : begin;
    }
}

bool Planner::can_lead(const Plan::Call& call, const Dims& whole, std::span<const Plan::Operand> inputs) const {
    const auto rule = call.kernel.info->shape;
    if (rule != &shape_convolution && rule != &shape_transposed_convolution) return false;  // the kernels of others do not tell
    const Plan::Operand& result = output_of(call);
    const auto of_it = [&](const Plan::Operand& input) { return input.slot == result.slot; };
    return is_dense(result.view) && shape_of(result) == whole && std::any_of(inputs.begin(), inputs.end(), of_it) &&
           std::all_of(inputs.begin(), inputs.end(), [&](const Plan::Operand& input) { return !of_it(input) || lies_as(input, result); });
}

bool Planner::fuse_calls(size_t first, size_t end) {
    const bool follows = first > first_call_ && plan_.calls[first - 1].kernel.info->kind == NodeKind::Product && !plan_.calls[first - 1].fused.prepared;
    if (end - first < (follows ? 1 : 2)) return false;
    const auto read_later = [&](int32_t slot) {
        return std::any_of(plan_.calls.begin() + static_cast<std::ptrdiff_t>(end), plan_.calls.end(),
                           [&](const Plan::Call& call) { return reads(call, slot); });
    };
    for (size_t c = first; c + 1 < end; ++c) {  // what is made on the way is nowhere
        const int32_t slot = output_of(plan_.calls[c]).slot;
        if (slot != output_of(plan_.calls[end - 1]).slot && read_later(slot)) return false;
    }

    // What all of them go over, and the dimensions of a row.
    const View* over = nullptr;
    int dims = 0;
    for (size_t c = first; c < end; ++c) {
        const Reach reach = reach_of_call(plan_.calls[c]);
        const Plan::Operand& whole = reach.kind == Reach::Kind::Fold ? plan_.operands[plan_.calls[c].first] : output_of(plan_.calls[c]);
        if (!over || numel(shape_of(whole)) > numel(shape_of(*over))) over = &whole.view;
        if (reach.dims > 0 && dims > 0 && reach.dims != dims) return false;
        dims = std::max(dims, reach.dims);
    }
    const Dims whole = shape_of(*over);
    for (size_t c = first; c < end && dims == 0; ++c) dims = std::max(0, folded_dims(whole, shape_of(output_of(plan_.calls[c]))));
    const Dims rows = with_folded(whole, dims);
    const int64_t row = numel(rows) > 0 ? numel(whole) / numel(rows) : 0;
    if (row == 0 || !suits_rows(whole, dims)) return false;

    std::vector<FusedPart> parts;
    std::vector<Plan::Operand> inputs;
    std::unordered_map<int32_t, int32_t> made;  // by slot: the part whose result is there
    for (size_t c = first; c < end; ++c) {
        const Plan::Call& call = plan_.calls[c];
        const Plan::Operand& to = output_of(call);
        const Reach reach = reach_of_call(call);
        const bool fold = reach.kind == Reach::Kind::Fold, last = c + 1 == end;
        const bool per_row = fold || !(shape_of(to) == whole);
        if (!is_dense(to.view) || (reach.kind != Reach::Kind::Element && !(shape_of(plan_.operands[call.first]) == whole))) return false;
        if (per_row && !(shape_of(to) == rows) && !(fold && last)) return false;  // the last may leave the dimensions out
        FusedPart part{static_cast<int32_t>(call.kernel.info->code),
                       static_cast<int32_t>(call.kernel.compute),
                       to.view.dtype,
                       per_row,
                       static_cast<int32_t>(call.n_inputs),
                       {},
                       call.attributes.get()};
        for (uint32_t k = 0; k < call.n_inputs; ++k) {
            const Plan::Operand& operand = plan_.operands[call.first + k];
            if (const auto it = made.find(operand.slot); it != made.end()) {
                if (!lies_as(operand, output_of(plan_.calls[first + static_cast<size_t>(it->second)]))) return false;
                part.operands[k] = ~it->second;
                continue;
            }
            const auto known = std::find_if(inputs.begin(), inputs.end(), [&](const Plan::Operand& input) { return lies_as(input, operand); });
            part.operands[k] = static_cast<int32_t>(known - inputs.begin());
            if (known == inputs.end()) inputs.push_back(operand);
        }
        made[to.slot] = static_cast<int32_t>(parts.size());
        parts.push_back(part);
    }
    std::vector<View> views;
    for (const Plan::Operand& input : inputs) views.push_back(input.view);
    const Backend& backend = cpu_backend();
    FusedKernel fused{nullptr, numel(whole), 1, output_of(plan_.calls[end - 1]).view.rank == over->rank};
    void* const prepared =
        backend.prepare_fused(parts.data(), static_cast<int32_t>(parts.size()), views.data(), static_cast<int32_t>(views.size()), over, row, &fused.piece);
    if (!prepared) return false;
    fused.prepared = std::shared_ptr<const void>(prepared, backend.release_fused);
    const Plan::Operand output = output_of(plan_.calls[end - 1]);
    Plan::Call call = plan_.calls[end - 1];
    call.fused = std::move(fused);
    for (const FusedPart& part : parts) call.title += fmt::format("{}{}", call.title.empty() ? "" : " + ", op_info(static_cast<OpCode>(part.op)).name);
    call.in_place = plan_.calls[first].in_place && output.slot == output_of(plan_.calls[first]).slot;
    call.n_inputs = static_cast<uint32_t>(inputs.size());
    if (follows) {
        plan_.calls[first - 1].leads = row == 1 && can_lead(plan_.calls[first - 1], whole, inputs);
        if (!plan_.calls[first - 1].leads && parts.size() < 2) return false;
    }
    call.first = static_cast<uint32_t>(plan_.operands.size());  // the others stay where they are, and nobody looks at them
    for (const Plan::Operand& input : inputs) plan_.operands.push_back(input);
    plan_.operands.push_back(output);
    plan_.calls[first] = std::move(call);
    plan_.calls.erase(plan_.calls.begin() + static_cast<std::ptrdiff_t>(first) + 1, plan_.calls.begin() + static_cast<std::ptrdiff_t>(end));
    return true;
}

const Plan::Operand* Planner::replaceable(const Plan::Call& call, const std::vector<size_t>& last, size_t now) const {
    const Plan::Operand* const operands = &plan_.operands[call.first];
    for (uint32_t i = 0; i < call.n_inputs; ++i) {
        const auto slot = static_cast<size_t>(operands[i].slot);
        if (plan_.slots[slot].kind != Plan::Slot::Kind::Arena || last[slot] != now || !plan_.can_replace(call, i)) continue;
        const bool alone = std::count_if(operands, operands + call.n_inputs, [&](const Plan::Operand& other) { return other.slot == operands[i].slot; }) == 1;
        if (alone && plan_.slots[slot].bytes == plan_.slots[static_cast<size_t>(operands[call.n_inputs].slot)].bytes) return &operands[i];
    }
    return nullptr;
}

void Planner::lay_out() {
    std::vector<size_t> last(plan_.slots.size(), 0);
    for (size_t c = 0; c < plan_.calls.size(); ++c) {
        const Plan::Call& call = plan_.calls[c];
        for (uint32_t i = 0; i < call.n_inputs + call.n_outputs; ++i) last[static_cast<size_t>(plan_.operands[call.first + i].slot)] = c;
    }
    Arena arena;
    const auto in_arena = [&](const Plan::Operand& operand) -> Plan::Slot* {
        Plan::Slot& slot = plan_.slots[static_cast<size_t>(operand.slot)];
        return slot.kind == Plan::Slot::Kind::Arena ? &slot : nullptr;
    };
    int32_t replaced = -1;  // the slot whose place a result took
    const auto take_place = [&](size_t c, const Plan::Call* leader) {
        const Plan::Call& call = plan_.calls[c];
        const Plan::Operand* const operands = &plan_.operands[call.first];
        for (uint32_t i = call.n_inputs; !call.in_place && i < call.n_inputs + call.n_outputs; ++i) {
            Plan::Slot* const slot = in_arena(operands[i]);
            if (!slot) continue;
            const Plan::Operand* const in = replaceable(call, last, c);
            if (in && !(leader && reads(*leader, in->slot))) {
                replaced = in->slot;
                slot->place = plan_.slots[static_cast<size_t>(replaced)].place;
            } else {
                slot->place = arena.take(slot->bytes);
            }
        }
    };
    for (size_t c = 0; c < plan_.calls.size(); ++c) {
        const Plan::Call& call = plan_.calls[c];
        const bool led = c > 0 && plan_.calls[c - 1].leads;
        if (!led) {
            replaced = -1;
            take_place(c, nullptr);
            if (call.leads) take_place(c + 1, &call);  // it is written while this one still reads
        }
        const Plan::Operand* const operands = &plan_.operands[call.first];
        for (uint32_t i = 0; i < call.n_inputs + call.n_outputs; ++i) {
            const auto of = static_cast<size_t>(operands[i].slot);
            Plan::Slot* const slot = in_arena(operands[i]);
            if (!slot || last[of] != c || operands[i].slot == replaced) continue;
            arena.give_back(slot->place, slot->bytes);
            last[of] = SIZE_MAX;  // it may be several operands
        }
    }
    plan_.arena_bytes = arena.size();
}

}  // namespace

bool Plan::can_replace(const Call& call, uint32_t input) const {
    const Operand &in = operands[call.first + input], &out = operands[call.first + call.n_inputs];
    const bool by_place = call.fused.prepared ? call.fused.aligned : call.kernel.info->kind == NodeKind::Elementwise;
    // What is packed has its last byte cleared before the kernel runs.
    return by_place && call.n_outputs == 1 && in.offset == 0 && out.offset == 0 && !is_packed(static_cast<DType>(out.view.dtype)) &&
           same_layout(in.view, out.view);
}

LoopMemory::LoopMemory(const Plan& body) : bytes(kMemoryAlignment) {
    for (const Plan::Output& output : body.outputs) {
        places.push_back(bytes);
        const auto size = static_cast<size_t>(bytes_of(output.dtype, numel(output.layout.shape)));
        bytes += (size + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
    }
}

bool can_be_planned(const Program& program) {
    const std::vector<int32_t> roots = program.find_roots();
    for (size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        const bool looks_at_storage = step.op == OpCode::AsStrided || step.op == OpCode::ViewDtype;
        if (looks_at_storage && program.steps[static_cast<size_t>(roots[i])].kind == NodeKind::Input) return false;
        if (step.value && step.value->storage().is_meta()) return false;
        if (step.is_call() && op_info(step.op).data_dependent) return false;
        for (const auto& region : step.regions) {
            if (!can_be_planned(*region)) return false;
        }
    }
    return true;
}

std::shared_ptr<const Plan> make_plan(const Program& program, std::vector<Layout> layouts, bool keeps, SizeValues* sizes) {
    auto plan = std::make_shared<Plan>();
    Planner planner(*plan, keeps);
    std::vector<Ref<Tensor>> inputs;
    std::vector<Tensor*> pointers;
    for (size_t i = 0; i < layouts.size(); ++i) {
        inputs.push_back(planner.add_input(program.steps[static_cast<size_t>(program.inputs[i])].dtype, layouts[i]));
        pointers.push_back(inputs.back().get());
    }
    const auto outputs = interpret(program, pointers, sizes, true, [&](size_t step) { planner.begin_step(step); });
    planner.fuse();
    for (const Ref<Tensor>& output : outputs) planner.add_output(*output, inputs);
    planner.lay_out();
    for (const Step& step : program.steps) plan->places.push_back(step.place);
    plan->layouts = std::move(layouts);
    return plan;
}

}  // namespace clikart
