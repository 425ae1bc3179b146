#include "boundary.h"
#include "graph/capture.h"
#include "ops/call.h"

using namespace clikart;

namespace {

Region& checked_region(const clikart_region* region, const char* who) {
    return checked<Region>(region, ObjectKind::Region, who, "a region");
}

/// Hands out the results of a control step, for which there is room.
int hand_out(const char* who, OpCode op, std::span<Tensor* const> operands, std::initializer_list<Region*> regions, clikart_tensor** outputs,
             size_t n_outputs) {
    const size_t count = (*(regions.end() - 1))->outputs.size();
    if (n_outputs != count) fail(ErrorKind::Value, "{}: room for {} outputs given, there are {}", who, n_outputs, count);
    if (!outputs) fail(ErrorKind::Type, "{}: the array of outputs is NULL", who);
    std::vector<Ref<Tensor>> results = capture::control(op, operands, {regions.begin(), regions.size()});
    for (size_t i = 0; i < results.size(); ++i) outputs[i] = to_handle(std::move(results[i]));
    return 0;
}

}  // namespace

int clikart_region_begin(void) {
    return guarded([] {
        capture::begin_region();
        return 0;
    });
}

clikart_tensor* clikart_region_input(const clikart_tensor* like) {
    return guarded([&] {
        const Tensor& of = checked_tensor(like, "region_input");
        return to_handle(capture::region_input(of.dtype(), of.shape()));
    });
}

clikart_region* clikart_region_end(const clikart_tensor* const* outputs, size_t n_outputs) {
    return guarded([&] {
        bool ended = false;
        try {
            OperandList list;
            list.add_list("region_end", outputs, n_outputs);
            ended = true;  // also when it throws
            return reinterpret_cast<clikart_region*>(capture::end_region(list.span()).leak());
        } catch (...) {
            if (!ended) capture::cancel_region();
            throw;
        }
    });
}

void clikart_region_cancel(void) {
    capture::cancel_region();
}

void clikart_region_retain(const clikart_region* region) {
    if (region) from_handle<Region>(region)->retain();
}

void clikart_region_release(clikart_region* region) {
    if (region) from_handle<Region>(region)->release();
}

int clikart_cond(const clikart_tensor* condition, const clikart_region* on_true, const clikart_region* on_false, clikart_tensor** outputs, size_t n_outputs) {
    return guarded([&] {
        Tensor* const operands[] = {&checked_tensor(condition, "cond", "the condition")};
        return hand_out("cond", OpCode::Cond, operands, {&checked_region(on_true, "cond"), &checked_region(on_false, "cond")}, outputs, n_outputs);
    });
}

int clikart_while_loop(const clikart_tensor* const* carried, const clikart_region* condition, const clikart_region* body, clikart_tensor** outputs,
                       size_t n_outputs) {
    return guarded([&] {
        OperandList list;
        list.add_list("while_loop", carried, n_outputs);
        std::vector<Ref<Tensor>> numbers;
        std::vector<Tensor*> operands;
        for (Tensor* t : list.span()) operands.push_back(t->number ? numbers.emplace_back(call(OpCode::Copy, {&t, 1}, Attributes{})).get() : t);
        return hand_out("while_loop", OpCode::WhileLoop, operands, {&checked_region(condition, "while_loop"), &checked_region(body, "while_loop")}, outputs,
                        n_outputs);
    });
}
