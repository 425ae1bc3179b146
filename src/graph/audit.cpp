#include "graph/audit.h"

#include <algorithm>
#include <cstring>

#include "graph/interpret.h"
#include "graph/replay.h"
#include "ops/settle.h"

namespace clikart {
namespace {

/// The values of a program's steps, all of them kept.
Program with_outputs(const Program& program, std::vector<int32_t> outputs) {
    Program all = program;
    all.outputs = std::move(outputs);
    all.find_ends();
    return all;
}

double element_of(Tensor& tensor, int64_t i) {
    Attributes attributes;
    attributes.add(static_cast<int64_t>(DType::Float64));
    Tensor* const operands[] = {&tensor};
    const Ref<Tensor> as_double = call(OpCode::Cast, operands, attributes);
    settle(*as_double, "audit");
    return static_cast<const double*>(as_double->data())[i];
}

/// What differs in two tensors of one shape and dtype; empty when nothing does.
std::string difference(Tensor& got, Tensor& wanted) {
    const Ref<Tensor> a = dense_now(got, "audit"), b = dense_now(wanted, "audit");
    settle(*a, "audit");
    settle(*b, "audit");
    const auto bytes = static_cast<size_t>(bytes_of(a->dtype(), a->numel()));
    if (a->dtype() != b->dtype() || !(a->shape() == b->shape())) return fmt::format("is {}, not {}", describe(*a), describe(*b));
    const auto *x = static_cast<const char*>(a->data()), *y = static_cast<const char*>(b->data());
    if (bytes == 0 || std::memcmp(x, y, bytes) == 0) return "";
    if (is_packed(a->dtype()) || is_complex(a->dtype())) return "has other bits";
    const int64_t i = (std::mismatch(x, x + bytes, y).first - x) / size_of(a->dtype());
    return fmt::format("has {} as element {} of {}, not {}", element_of(*a, i), i, describe(*a), element_of(*b, i));
}

}  // namespace

bool can_be_audited(const Program& program) noexcept {
    return std::none_of(program.steps.begin(), program.steps.end(), [](const Step& step) { return step.in_place || step.kind == NodeKind::Random; });
}

std::string audit(const ModelGraph& graph, std::span<Tensor* const> inputs) {
    const Program &program = graph.program(), &recorded = graph.recorded();
    if (!can_be_audited(recorded)) {
        fail(ErrorKind::NotImplemented, "audit: the graph writes over memory or draws random numbers, so it cannot be run twice for the same");
    }
    const std::vector<Ref<Tensor>> got = graph.run(inputs), wanted = interpret(recorded, inputs);
    size_t output = 0;
    std::string differs;
    for (; output < got.size() && differs.empty(); ++output) differs = difference(*got[output], *wanted[output]);
    if (differs.empty()) return "";
    differs = fmt::format("output '{}' {}", graph.output_names()[output - 1], differs);

    // Once more with all values kept, to see where that begins.
    std::vector<int32_t> steps, as_recorded;
    for (size_t i = 0; i < program.steps.size(); ++i) {
        if (!program.steps[i].is_call() || program.steps[i].recorded < 0) continue;
        steps.push_back(static_cast<int32_t>(i));
        as_recorded.push_back(program.steps[i].recorded);
    }
    const Program all = with_outputs(program, steps);
    SizeValues sizes = graph.sizes_for(inputs);
    std::vector<Layout> layouts;
    for (const Tensor* input : inputs) layouts.push_back({input->shape(), input->strides()});
    const std::vector<Ref<Tensor>> values =
        can_be_planned(all) ? submit_run(make_plan(all, std::move(layouts), false, &sizes), inputs) : interpret(all, inputs, &sizes);
    const std::vector<Ref<Tensor>> right = interpret(with_outputs(recorded, as_recorded), inputs);
    for (size_t i = 0; i < values.size(); ++i) {
        const std::string here = difference(*values[i], *right[i]);
        if (here.empty()) continue;
        const Step& step = program.steps[static_cast<size_t>(steps[i])];
        const std::string* const place = step.place ? step.place->text() : nullptr;
        return fmt::format("{}; the first node that differs is {} ({}{}): it {}", differs, steps[i], title_of(step), place ? ", at " + *place : "", here);
    }
    return differs + "; each node alone is right, so values lie in each other's memory";
}

}  // namespace clikart
