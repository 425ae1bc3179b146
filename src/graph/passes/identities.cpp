#include "graph/passes/identities.h"

#include <bit>

namespace clikart::passes {
namespace {

constexpr int32_t kNone = -1;

bool is_number(const Step& step, double number) {
    if (step.kind != NodeKind::Constant || step.value->numel() != 1 || !step.sizes.empty()) return false;
    switch (step.dtype) {
        case DType::Int64: return *static_cast<const int64_t*>(step.value->data()) == static_cast<int64_t>(number);
        case DType::Float64: return std::bit_cast<uint64_t>(*static_cast<const double*>(step.value->data())) == std::bit_cast<uint64_t>(number);
        default: return false;
    }
}

/// Whether no element can be a signalling NaN: most arithmetic makes quiet ones (`exp` and `tanh` pass them on).
bool is_quiet(const Step& step) {
    if (category_of(step.dtype) != DTypeCategory::Float || step.kind == NodeKind::Product) return true;
    switch (step.op) {
        case OpCode::Add:
        case OpCode::Sub:
        case OpCode::Mul:
        case OpCode::Div:
        case OpCode::Sqrt:
        case OpCode::Sigmoid:
        case OpCode::Sum:
        case OpCode::Mean:
        case OpCode::Softmax:
        case OpCode::LayerNorm:
        case OpCode::RmsNorm: return true;
        default: return false;
    }
}

/// Whether every value of a float dtype is one of the other.
bool holds(DType wide, DType narrow) {
    if (wide == DType::Float64) return narrow == DType::Float32 || narrow == DType::Float16 || narrow == DType::BFloat16;
    return wide == DType::Float32 && (narrow == DType::Float16 || narrow == DType::BFloat16);
}

bool is_reshape(OpCode op) {
    return op == OpCode::Reshape || op == OpCode::Flatten || op == OpCode::Unflatten || op == OpCode::Squeeze || op == OpCode::Unsqueeze;
}

/// The value that step `i` makes once more.
int32_t equal_to(const Program& program, size_t i) {
    const std::vector<Step>& steps = program.steps;
    const Step& step = steps[i];
    const auto value = [&](size_t k) -> const Step& { return steps[static_cast<size_t>(step.inputs[k])]; };
    const int32_t first = step.inputs[0];
    const Step& x = value(0);
    const bool same_dtype = x.dtype == step.dtype;
    const bool like_x = same_dtype && !program.any_sizes && x.shape == step.shape;
    // Unary operators that undo, or have already done, what they do.
    const bool narrow = step.dtype == DType::Float16 || step.dtype == DType::BFloat16;  // through float32, which makes NaN quiet
    switch (step.op) {
        case OpCode::Cast:
            if (same_dtype) return first;
            if (x.op == OpCode::Cast && x.epilogues.empty() && holds(x.dtype, step.dtype)) {
                const Step& inner = steps[static_cast<size_t>(x.inputs[0])];
                if (inner.dtype == step.dtype && is_quiet(inner)) return x.inputs[0];
            }
            return kNone;
        case OpCode::Copy: return same_dtype && x.is_call() && x.kind != NodeKind::View ? first : kNone;  // of a view it brings elements together
        case OpCode::Neg: return x.op == OpCode::Neg && same_dtype && !narrow ? x.inputs[0] : kNone;
        case OpCode::LogicalNot: return x.op == OpCode::LogicalNot && steps[static_cast<size_t>(x.inputs[0])].dtype == DType::Bool ? x.inputs[0] : kNone;
        case OpCode::Relu:
        case OpCode::Abs: return x.op == step.op && same_dtype ? first : kNone;
        case OpCode::Mul:
            if (like_x && is_quiet(x) && is_number(value(1), 1)) return first;
            if (value(1).dtype == step.dtype && !program.any_sizes && value(1).shape == step.shape && is_quiet(value(1)) && is_number(x, 1))
                return step.inputs[1];
            return kNone;
        case OpCode::Div: return like_x && is_quiet(x) && is_number(value(1), 1) ? first : kNone;
        case OpCode::Sub: return like_x && is_quiet(x) && is_number(value(1), 0) ? first : kNone;
        case OpCode::Expand:
        case OpCode::BroadcastTo: return like_x ? first : kNone;
        default: return is_reshape(step.op) && like_x ? first : kNone;
    }
}

}  // namespace

void remove_identities(Program& program) {
    std::vector<Step>& steps = program.steps;
    const std::vector<bool> escapes = program.find_escaping(), written = program.find_written(), bound = program.find_layout_bound();
    const auto is_dense = [&](int32_t value) {
        return steps[static_cast<size_t>(value)].is_call() && steps[static_cast<size_t>(value)].kind != NodeKind::View;
    };
    std::vector<int32_t> same(steps.size());
    std::vector<bool> gone(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
        Step& step = steps[i];
        same[i] = static_cast<int32_t>(i);
        for (int32_t& value : step.inputs) value = same[static_cast<size_t>(value)];
        if (!step.is_call() || step.in_place || step.inputs.empty() || escapes[i] || written[i] || reads_any(step, written)) continue;
        if (step.op == OpCode::Reshape) {
            int32_t base = step.inputs[0];
            while (is_reshape(steps[static_cast<size_t>(base)].op)) base = steps[static_cast<size_t>(base)].inputs[0];
            if (!bound[i] || is_dense(base)) step.inputs[0] = base;  // one of them may be a copy
        }
        const int32_t value = equal_to(program, i);
        if (value == kNone || written[static_cast<size_t>(value)]) continue;
        if (bound[i] && step.kind != NodeKind::View && !is_dense(value)) continue;  // what it makes is dense
        same[i] = value;
        gone[i] = true;
    }
    program.remove(gone);
}

}  // namespace clikart::passes
