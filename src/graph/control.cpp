#include "graph/control.h"

#include "graph/interpret.h"
#include "ops/recorder.h"
#include "ops/settle.h"

namespace clikart {
namespace {

using Regions = std::vector<std::shared_ptr<const Program>>;

bool truth_of(Tensor& condition, const char* who) {
    settle(condition, who);
    return *static_cast<const bool*>(condition.data());
}

std::vector<Ref<Tensor>> run(OpCode op, const Regions& regions, std::span<Tensor* const> operands) {
    if (op == OpCode::Cond) return interpret(*regions[truth_of(*operands[0], "cond") ? 0 : 1], operands);
    std::vector<Tensor*> given(operands.begin(), operands.end());
    std::vector<Ref<Tensor>> carried;
    for (size_t i = 0; i < regions[1]->outputs.size(); ++i) {  // results are never what was carried
        given[i] = carried.emplace_back(call(OpCode::Copy, {&operands[i], 1}, Attributes{})).get();
    }
    while (truth_of(*interpret(*regions[0], given)[0], "while_loop")) {
        carried = interpret(*regions[1], given);
        for (size_t i = 0; i < carried.size(); ++i) given[i] = carried[i].get();
    }
    return carried;
}

void require_truth(const char* who, DType dtype, const Dims& shape) {
    if (dtype != DType::Bool) fail(ErrorKind::Type, "{}: the condition is {}, not bool", who, name_of(dtype));
    if (shape.rank() != 0) fail(ErrorKind::Value, "{}: the condition has the shape {}, not []", who, to_string(shape));
}

void require_same(const char* who, const char* what, size_t i, DType dtype, const Dims& shape, DType other, const Dims& other_shape) {
    if (dtype == other && shape == other_shape) return;
    fail(dtype == other ? ErrorKind::Value : ErrorKind::Type, "{}: result {} is {} {}, {} {} {}", who, i, name_of(dtype), to_string(shape), what,
         name_of(other), to_string(other_shape));
}

}  // namespace

const Step& result_step(const Program& region, size_t output) {
    return region.steps[static_cast<size_t>(region.outputs[output])];
}

std::vector<Ref<Tensor>> stand_ins_of(const ControlCall& call) {
    std::vector<Ref<Tensor>> results;
    for (size_t i = 0; i < call.regions[1]->outputs.size(); ++i) {
        const Step& result = result_step(*call.regions[1], i);
        results.push_back(make_tensor(result.dtype, result.shape, Device{}));
    }
    return results;
}

std::vector<Ref<Tensor>> run_control(OpCode op, const Regions& regions, std::span<Tensor* const> operands) {
    for (const auto& region : regions) {  // its memory is laid out for these, and perhaps a file says so
        for (size_t i = 0; i < operands.size(); ++i) {
            const Step& expected = region->steps[static_cast<size_t>(region->inputs[i])];
            if (operands[i]->dtype() == expected.dtype && operands[i]->shape() == expected.shape) continue;
            fail(operands[i]->dtype() == expected.dtype ? ErrorKind::Value : ErrorKind::Type, "{}: operand {} is {}, the region takes {} {}", op_info(op).name,
                 i, describe(*operands[i]), name_of(expected.dtype), to_string(expected.shape));
        }
    }
    const ControlCall call{op, operands, regions};
    if (thread_mode() == Mode::Capture) return thread_recorder()->record_control(call);
    if (!thread_settings.recording) return run(op, regions, operands);
    const std::vector<Ref<Tensor>> results = [&] {
        const Unrecorded unrecorded;
        return run(op, regions, operands);
    }();
    thread_recorder()->note_control(call, results);
    return results;
}

void check_control(OpCode op, const Regions& regions, std::span<Tensor* const> operands) {
    const char* const who = op_info(op).name;
    const Program &first = *regions[0], &second = *regions[1];
    for (const auto& region : regions) {
        if (region->outputs.empty()) fail(ErrorKind::Value, "{}: nothing is returned", who);
        std::vector<bool> out(region->steps.size(), false);
        for (size_t i = 0; i < region->outputs.size(); ++i) {
            const Step& step = result_step(*region, i);
            const bool own = step.kind != NodeKind::View && (step.is_call() || step.op == OpCode::Result);
            if (!own || out[static_cast<size_t>(region->outputs[i])]) fail(ErrorKind::Value, "{}: result {} is not made there, or another one", who, i);
            out[static_cast<size_t>(region->outputs[i])] = true;
        }
        for (const Step& step : region->steps) {
            if (step.kind != NodeKind::Random && !step.in_place) continue;
            fail(ErrorKind::NotImplemented, "{}: {} in a region draws random numbers or writes over memory", who, op_info(step.op).name);
        }
    }
    if (op == OpCode::Cond) {
        if (operands.empty()) fail(ErrorKind::Value, "{}: there is no condition", who);
        require_truth(who, operands[0]->dtype(), operands[0]->shape());
        if (first.outputs.size() != second.outputs.size()) {
            fail(ErrorKind::Value, "{}: one branch has {} results, the other {}", who, first.outputs.size(), second.outputs.size());
        }
        for (size_t i = 0; i < first.outputs.size(); ++i) {
            const Step &a = result_step(first, i), &b = result_step(second, i);
            require_same(who, "in the other branch", i, a.dtype, a.shape, b.dtype, b.shape);
        }
        return;
    }
    if (first.outputs.size() != 1) fail(ErrorKind::Value, "{}: the condition has {} results, not one", who, first.outputs.size());
    require_truth(who, result_step(first, 0).dtype, result_step(first, 0).shape);
    if (second.outputs.size() > operands.size())
        fail(ErrorKind::Value, "{}: the body has {} results, {} are carried", who, second.outputs.size(), operands.size());
    for (size_t i = 0; i < second.outputs.size(); ++i) {
        const Step& result = result_step(second, i);
        require_same(who, "and before", i, result.dtype, result.shape, operands[i]->dtype(), operands[i]->shape());
    }
}

}  // namespace clikart
