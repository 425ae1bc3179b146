#include "graph/model_graph.h"

#include <algorithm>
#include <unordered_set>

#include "exec/fork.h"
#include "graph/interpret.h"
#include "graph/optimize.h"
#include "graph/passes/dead.h"
#include "graph/replay.h"
#include "graph/stand_ins.h"
#include "ops/call.h"
#include "ops/recorder.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart {
namespace {

void check_unique(const std::vector<std::string>& names, const char* what) {
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : names) {
        if (!seen.insert(name).second) fail(ErrorKind::Value, "trace: two {} are named '{}'", what, name);
    }
}

// Guards all graphs' plans but those that are published (has_first_).
std::mutex& planning = []() -> std::mutex& {
    auto& made = *new std::mutex;
    hold_at_fork(made);
    return made;
}();

bool lies_as_planned(const Plan& plan, std::span<Tensor* const> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (!(inputs[i]->shape() == plan.layouts[i].shape && inputs[i]->strides() == plan.layouts[i].strides)) return false;
    }
    return true;
}

std::string listed(const std::vector<std::string>& names) {
    return fmt::format("['{}']", fmt::join(names, "', '"));
}

}  // namespace

ModelGraph::ModelGraph(Recording recording, std::span<Tensor* const> outputs, std::vector<std::string> output_names, const GraphOptions& options)
    : Object(ObjectKind::Graph), input_names_(std::move(recording.input_names)), output_names_(std::move(output_names)), any_sizes_(options.any_sizes) {
    check_unique(input_names_, "inputs");
    check_unique(output_names_, "outputs");
    if (options.optimize < 0 || options.optimize > 2) fail(ErrorKind::Value, "trace: optimize is 0, 1 or 2, got {}", options.optimize);
    recorded_ = program_of(recording, outputs, any_sizes_);
    program_ = recorded_;
    program_.sizes.clear();
    looks_at_sharing_ = std::any_of(recorded_.sizes.begin(), recorded_.sizes.end(), [](const SizeTerm& term) { return term.op == SizeTerm::Op::Shared; });
    program_.conditions.clear();
    std::vector<Step>& steps = program_.steps;
    const bool writes = std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.in_place; });
    if (any_sizes_) passes::remove_dead(program_);  // what only checks sizes
    program_.find_ends();
    if (options.optimize > 0) optimize(program_);
    plannable_ = can_be_planned(program_);
    const std::vector<bool> written = program_.find_written();
    for (size_t i = 0; i < steps.size(); ++i) {
        if (!written[i]) continue;
        const auto input = std::find(program_.inputs.begin(), program_.inputs.end(), static_cast<int32_t>(i));
        if (input != program_.inputs.end()) written_inputs_.push_back(static_cast<size_t>(input - program_.inputs.begin()));
        if (steps[i].value) written_outside_.push_back(steps[i].value);
    }
    for (const Step& step : steps) {
        if (writes && step.kind == NodeKind::External) outside_.push_back(step.value);
    }
}

ModelGraph::ModelGraph(const Program& region, const Program& recorded)
    : Object(ObjectKind::Graph), program_(region), recorded_(recorded), plannable_(can_be_planned(region)), any_sizes_(false) {
    for (size_t i = 0; i < region.inputs.size(); ++i) input_names_.push_back(fmt::format("input_{}", i));
    for (size_t i = 0; i < region.outputs.size(); ++i) output_names_.push_back(fmt::format("output_{}", i));
}

void ModelGraph::check_inputs(std::span<Tensor* const> inputs) const {
    if (inputs.size() != program_.inputs.size()) {
        fail(ErrorKind::Value, "run: {} inputs given, the graph has {}: {}", inputs.size(), program_.inputs.size(), listed(input_names_));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i]->node && thread_mode() != Mode::Capture) require_value(*inputs[i], "run");
        settle_size(*inputs[i], "run");
        if (!any_sizes_ || !recorded_.sizes.empty()) note_asked(Recorder::Fact::Strides, *inputs[i]);
        const Step& expected = program_.steps[static_cast<size_t>(program_.inputs[i])];
        const bool fits = any_sizes_ ? inputs[i]->rank() == expected.shape.rank() : inputs[i]->shape() == expected.shape;
        if (inputs[i]->dtype() == expected.dtype && fits) continue;
        const bool shape = inputs[i]->dtype() == expected.dtype;
        fail(shape ? ErrorKind::Value : ErrorKind::Type, "run: input '{}' is {}, the graph was traced for {} {}", input_names_[i], describe(*inputs[i]),
             name_of(expected.dtype), any_sizes_ ? fmt::format("of rank {}", expected.shape.rank()) : to_string(expected.shape));
    }
}

/// Whether memory is written over that another input, or a tensor from outside, shares, or that may not be written: plans and passes
/// count on that not being so, and the calls one by one do, or refuse, what is right.
bool ModelGraph::has_doubtful_writes(std::span<Tensor* const> inputs) const {
    for (const size_t w : written_inputs_) {
        if (!is_writable(*inputs[w])) return true;
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (i != w && overlaps(*inputs[i], *inputs[w])) return true;
        }
        for (const Ref<Tensor>& tensor : outside_) {
            if (overlaps(*tensor, *inputs[w])) return true;
        }
    }
    for (const Ref<Tensor>& tensor : written_outside_) {
        for (const Tensor* input : inputs) {
            if (overlaps(*input, *tensor)) return true;
        }
    }
    return false;
}

std::string ModelGraph::text_of(const Condition& condition) const {
    const auto value = [&](int64_t number) {
        const auto input = std::find(recorded_.inputs.begin(), recorded_.inputs.end(), static_cast<int32_t>(number));
        if (input != recorded_.inputs.end()) return input_names_[static_cast<size_t>(input - recorded_.inputs.begin())];
        const Step& step = recorded_.steps[static_cast<size_t>(number)];
        return fmt::format("{}(...)", op_info(step.op == OpCode::Result ? recorded_.steps[static_cast<size_t>(step.inputs[0])].op : step.op).name);
    };
    const std::string text = clikart::text_of(recorded_.sizes, condition, value);
    const std::string* const place = condition.place ? condition.place->text() : nullptr;
    return place ? fmt::format("{}, at {}", text, *place) : text;
}

const Condition* ModelGraph::broken_by(std::span<Tensor* const> inputs, SizeValues& sizes) const {
    {
        const StandIns nothing;
        interpret(recorded_, inputs, &sizes);
    }
    for (const Condition& condition : recorded_.conditions) {
        if (sizes.of(condition.term) != condition.value) return &condition;
    }
    if (!recorded_.sizes.empty()) sizes.of(static_cast<int32_t>(recorded_.sizes.size()) - 1);  // all of them
    return nullptr;
}

SizeValues ModelGraph::sizes_for(std::span<Tensor* const> inputs) const {
    SizeValues sizes(recorded_.sizes);
    if (!any_sizes_) return sizes;
    if (const Condition* const broken = broken_by(inputs, sizes)) {
        std::string given;
        for (size_t i = 0; i < inputs.size(); ++i) given += fmt::format("{}{} is {}", i == 0 ? "" : ", ", input_names_[i], describe(*inputs[i]));
        fail(ErrorKind::Value, "run: the graph is for inputs where {}; here {}", text_of(*broken), given);
    }
    return sizes;
}

std::string ModelGraph::mismatch(std::span<Tensor* const> inputs) const {
    check_inputs(inputs);
    if (!any_sizes_) return "";
    if (!looks_at_sharing_) {
        std::lock_guard lock(planning);
        if (known_plan(inputs)) return "";
    }
    try {
        SizeValues sizes(recorded_.sizes);
        const Condition* const broken = broken_by(inputs, sizes);
        return broken ? "holds where " + text_of(*broken) : "";
    } catch (const Failure& failure) {
        return "does not take that: " + failure.error()->message();
    }
}

/// The plan that was made for inputs that lie so, if it is still there.  With the lock on plans.
std::shared_ptr<const Plan> ModelGraph::known_plan(std::span<Tensor* const> inputs) const {
    if (has_first_.load(std::memory_order_relaxed) && lies_as_planned(*first_, inputs)) return first_;
    const auto it = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) { return lies_as_planned(*plan, inputs); });
    if (it == plans_.end()) return nullptr;
    std::rotate(it, it + 1, plans_.end());
    return plans_.back();
}

std::shared_ptr<const Plan> ModelGraph::plan_for(std::span<Tensor* const> inputs) const {
    if (looks_at_sharing_) sizes_for(inputs);  // which layouts do not tell
    if (has_first_.load(std::memory_order_acquire) && lies_as_planned(*first_, inputs)) return first_;
    std::lock_guard lock(planning);
    if (std::shared_ptr<const Plan> known = known_plan(inputs)) return known;
    SizeValues sizes = sizes_for(inputs);
    std::vector<Layout> layouts;
    for (const Tensor* input : inputs) layouts.push_back({input->shape(), input->strides()});
    // A weight is kept in one form, or batches of many sizes would fill the memory.
    std::shared_ptr<const Plan> plan = make_plan(program_, std::move(layouts), !has_first_.load(std::memory_order_relaxed), &sizes);
    if (!has_first_.load(std::memory_order_relaxed)) {
        first_ = plan;
        has_first_.store(true, std::memory_order_release);
        return plan;
    }
    if (plans_.size() == kPlans) plans_.erase(plans_.begin());
    plans_.push_back(plan);
    return plan;
}

/// Whether the run can be one piece of work; else its calls are made one by one.
bool ModelGraph::is_planned(std::span<Tensor* const> inputs) const {
    const auto on_meta = [](const Tensor* input) { return input->storage().is_meta(); };
    return plannable_ && thread_mode() == Mode::Eager && !thread_settings.recording && thread_device().type == DeviceType::Cpu &&
           std::none_of(inputs.begin(), inputs.end(), on_meta);
}

std::vector<Ref<Tensor>> ModelGraph::run(std::span<Tensor* const> inputs) const {
    check_inputs(inputs);
    const bool doubtful = has_doubtful_writes(inputs);
    if (!doubtful && is_planned(inputs)) return submit_run(plan_for(inputs), inputs);
    SizeValues sizes = sizes_for(inputs);
    return doubtful ? interpret(recorded_, inputs) : interpret(program_, inputs, &sizes);
}

void ModelGraph::check_place(size_t output, DType dtype, const Dims& shape, const Tensor& to) const {
    if (to.dtype() == dtype && to.shape() == shape) return;
    fail(to.dtype() != dtype ? ErrorKind::Type : ErrorKind::Value, "run: output '{}' is {} {}, a tensor for it was given that is {}", output_names_[output],
         name_of(dtype), to_string(shape), describe(to));
}

void ModelGraph::run_into(std::span<Tensor* const> inputs, std::span<Tensor* const> outputs) const {
    if (outputs.size() != output_names_.size()) {
        fail(ErrorKind::Value, "run: {} outputs given, the graph has {}: {}", outputs.size(), output_names_.size(), listed(output_names_));
    }
    check_inputs(inputs);
    if (!has_doubtful_writes(inputs) && is_planned(inputs)) {
        const std::shared_ptr<const Plan> plan = plan_for(inputs);
        for (size_t i = 0; i < outputs.size(); ++i) {  // before anything is written
            const Plan::Output& planned = plan->outputs[i];
            check_place(i, planned.dtype, planned.layout.shape, *outputs[i]);
        }
        if (can_run_into(*plan, inputs, outputs)) {
            submit_run(plan, inputs, outputs);
            return;
        }
    }
    std::vector<Ref<Tensor>> results = run(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) check_place(i, results[i]->dtype(), results[i]->shape(), *outputs[i]);
    for (Ref<Tensor>& result : results) {  // one may be an input, which is also a place for another
        const bool is_place = std::any_of(outputs.begin(), outputs.end(), [&](const Tensor* to) { return overlaps(*to, *result); });
        Tensor* const operands[] = {result.get()};
        if (is_place) result = call(OpCode::Copy, operands, Attributes{});
    }
    for (size_t i = 0; i < outputs.size(); ++i) copy_into(*outputs[i], *results[i]);
}

int64_t ModelGraph::peak(std::vector<Dims> shapes) const {
    if (shapes.size() != program_.inputs.size()) {
        fail(ErrorKind::Value, "peak: {} shapes given, the graph has {} inputs: {}", shapes.size(), program_.inputs.size(), listed(input_names_));
    }
    if (!plannable_) fail(ErrorKind::NotImplemented, "peak: the memory of a run depends on more than the inputs' shapes");
    std::vector<Layout> layouts;
    for (size_t i = 0; i < shapes.size(); ++i) {
        const Step& expected = program_.steps[static_cast<size_t>(program_.inputs[i])];
        checked_numel(shapes[i], "peak");
        if (any_sizes_ ? shapes[i].rank() != expected.shape.rank() : !(shapes[i] == expected.shape)) {
            fail(ErrorKind::Value, "peak: input '{}' is given the shape {}, the graph was traced for {} {}", input_names_[i], to_string(shapes[i]),
                 name_of(expected.dtype), any_sizes_ ? fmt::format("of rank {}", expected.shape.rank()) : to_string(expected.shape));
        }
        layouts.push_back({shapes[i], contiguous_strides(shapes[i])});
    }
    std::vector<Ref<Tensor>> stand_ins;
    std::vector<Tensor*> inputs;
    for (size_t i = 0; i < shapes.size(); ++i) {
        const DType dtype = program_.steps[static_cast<size_t>(program_.inputs[i])].dtype;
        inputs.push_back(stand_ins.emplace_back(make_tensor(dtype, shapes[i], Device{})).get());
    }
    SizeValues sizes = sizes_for(inputs);
    const std::shared_ptr<const Plan> plan = make_plan(program_, std::move(layouts), false, &sizes);
    int64_t bytes = plan->arena_bytes;
    for (const Plan::Fresh& fresh : plan->fresh) bytes += bytes_of(fresh.dtype, numel(fresh.shape));
    return bytes;
}

std::vector<Ref<Tensor>> ModelGraph::run_named(std::span<const std::string_view> names, std::span<Tensor* const> inputs) const {
    std::vector<Tensor*> ordered(input_names_.size(), nullptr);
    for (size_t i = 0; i < names.size(); ++i) {
        const auto it = std::find(input_names_.begin(), input_names_.end(), names[i]);
        if (it == input_names_.end()) fail(ErrorKind::Value, "run: no input is named '{}'; the graph has {}", names[i], listed(input_names_));
        Tensor*& slot = ordered[static_cast<size_t>(it - input_names_.begin())];
        if (slot) fail(ErrorKind::Value, "run: input '{}' is given twice", names[i]);
        slot = inputs[i];
    }
    for (size_t i = 0; i < ordered.size(); ++i) {
        if (!ordered[i]) fail(ErrorKind::Value, "run: input '{}' is missing; the graph has {}", input_names_[i], listed(input_names_));
    }
    return run(ordered);
}

}  // namespace clikart
