#include <algorithm>
#include <cstddef>
#include <cstring>

#include "boundary.h"
#include "graph/audit.h"
#include "graph/capture.h"
#include "graph/graph_file.h"
#include "layouts.h"
#include "ops/kernel.h"

using namespace clikart;

namespace {

const ModelGraph& checked_graph(const clikart_graph* graph, const char* who) {
    return checked<ModelGraph>(graph, ObjectKind::Graph, who, "the graph");
}

const char* name_at(const std::vector<std::string>& names, size_t index, const char* who) {
    if (index >= names.size()) fail(ErrorKind::Index, "{}: index {} is out of range, there are {}", who, index, names.size());
    return names[index].c_str();
}

int hand_out(std::vector<Ref<Tensor>> results, clikart_tensor** outputs) {
    for (size_t i = 0; i < results.size(); ++i) outputs[i] = to_handle(std::move(results[i]));
    return 0;
}

void check_size(const char* who, size_t given, size_t least) {
    if (given < least) fail(ErrorKind::Value, "{}: struct_size is {}, expected {}", who, given, least);
}

void check_room(const ModelGraph& graph, clikart_tensor** outputs, size_t n_outputs) {
    const size_t count = graph.output_names().size();
    if (n_outputs != count) fail(ErrorKind::Value, "graph_run: room for {} outputs given, the graph has {}", n_outputs, count);
    if (count > 0 && !outputs) fail(ErrorKind::Type, "graph_run: the array of outputs is NULL");
}

}  // namespace

int clikart_capture_begin(void) {
    return guarded([] {
        capture::begin();
        return 0;
    });
}

clikart_tensor* clikart_capture_input(const char* name, clikart_dtype dtype, const int64_t* shape, size_t rank) {
    return guarded([&] {
        const auto type = static_cast<DType>(dtype);
        name_of(type);  // throws for a code outside the table
        return to_handle(capture::input(type, checked_shape(shape, rank, "capture_input"), checked_text(name, "capture_input", "the name")));
    });
}

int clikart_capture_begin_running(bool strict) {
    return guarded([&] {
        capture::begin_running(strict);
        return 0;
    });
}

clikart_tensor* clikart_capture_value(const char* name, const clikart_tensor* value) {
    return guarded([&] { return to_handle(capture::input(checked_tensor(value, "capture_value"), checked_text(name, "capture_value", "the name"))); });
}

int clikart_capture_begin_any_sizes(bool strict) {
    return guarded([&] {
        capture::begin_running(strict, true);
        return 0;
    });
}

int64_t clikart_capture_size(const clikart_tensor* tensor, size_t dim, int64_t* now) {
    return guarded([&] {
        const Tensor& of = checked_tensor(tensor, "capture_size");
        const int64_t size = capture::fact(SizeTerm::Op::Size, of, static_cast<int64_t>(dim));
        if (now) *now = of.shape()[static_cast<int>(dim)];
        return size;
    });
}

int64_t clikart_capture_computed_size(clikart_size_operation operation, int64_t a, int64_t b) {
    return guarded([&] {
        constexpr SizeTerm::Op kOps[] = {SizeTerm::Op::Add, SizeTerm::Op::Sub,   SizeTerm::Op::Mul, SizeTerm::Op::FloorDiv,
                                         SizeTerm::Op::Mod, SizeTerm::Op::Equal, SizeTerm::Op::Less};
        if (operation < 0 || static_cast<size_t>(operation) >= std::size(kOps)) {
            fail(ErrorKind::Value, "capture_computed_size: {} is no operation", operation);
        }
        return capture::computed_size(kOps[operation], a, b);
    });
}

int clikart_capture_require_size(int64_t size) {
    return guarded([&] {
        capture::require_size(size);
        return 0;
    });
}

clikart_tensor* clikart_capture_size_number(int64_t size) {
    return guarded([&] { return to_handle(capture::size_number(size)); });
}

int clikart_capture_give_up(const char* why) {
    return guarded([&] {
        capture::give_up(checked_text(why, "capture_give_up", "the reason"));
        return 0;
    });
}

const char* clikart_capture_obstacle(void) {
    return guarded([]() -> const char* {
        thread_local std::string why;
        why = capture::obstacle();
        return why.c_str();
    });
}

int clikart_capture_sizes_asked(void) {
    return guarded([] { return static_cast<int>(capture::sizes_asked()); });
}

const char* clikart_capture_size_place(void) {
    return guarded([]() -> const char* {
        thread_local std::string place;
        place = capture::size_place();
        return place.c_str();
    });
}

clikart_graph* clikart_capture_end(const clikart_tensor* const* outputs, const char* const* names, size_t n_outputs) {
    return clikart_capture_end_with(outputs, names, n_outputs, nullptr);
}

clikart_graph* clikart_capture_end_with(const clikart_tensor* const* outputs, const char* const* names, size_t n_outputs,
                                        const clikart_graph_options* options) {
    return guarded([&] {
        bool ended = false;
        try {
            GraphOptions wanted;
            if (options) {
                check_size("capture_end", options->struct_size, offsetof(clikart_graph_options, optimize) + sizeof options->optimize);
                wanted = {options->any_sizes, options->optimize};
            }
            OperandList list;
            list.add_list("capture_end", outputs, n_outputs);
            if (n_outputs > 0 && !names) fail(ErrorKind::Type, "capture_end: the list of names is NULL");
            std::vector<std::string> texts;
            for (size_t i = 0; i < n_outputs; ++i) texts.emplace_back(checked_text(names[i], "capture_end", "a name"));
            ended = true;  // also when it throws
            return reinterpret_cast<clikart_graph*>(capture::end(list.span(), std::move(texts), wanted).leak());
        } catch (...) {
            if (!ended) capture::cancel();
            throw;
        }
    });
}

bool clikart_capturing(void) {
    return capture::active();
}

void clikart_capture_cancel(void) {
    capture::cancel();
}

void clikart_graph_retain(const clikart_graph* graph) {
    if (graph) from_handle<ModelGraph>(graph)->retain();
}

void clikart_graph_release(clikart_graph* graph) {
    if (graph) from_handle<ModelGraph>(graph)->release();
}

size_t clikart_graph_input_count(const clikart_graph* graph) {
    return graph ? from_handle<ModelGraph>(graph)->input_names().size() : 0;
}

size_t clikart_graph_output_count(const clikart_graph* graph) {
    return graph ? from_handle<ModelGraph>(graph)->output_names().size() : 0;
}

const char* clikart_graph_input_name(const clikart_graph* graph, size_t index) {
    return guarded([&] { return name_at(checked_graph(graph, "graph_input_name").input_names(), index, "graph_input_name"); });
}

const char* clikart_graph_output_name(const clikart_graph* graph, size_t index) {
    return guarded([&] { return name_at(checked_graph(graph, "graph_output_name").output_names(), index, "graph_output_name"); });
}

int32_t clikart_graph_output_node(const clikart_graph* graph, size_t index) {
    return guarded([&] {
        const auto& outputs = checked_graph(graph, "graph_output_node").program().outputs;
        if (index >= outputs.size()) fail(ErrorKind::Index, "graph_output_node: index {} is out of range, there are {}", index, outputs.size());
        return outputs[index];
    });
}

size_t clikart_graph_node_count(const clikart_graph* graph) {
    return graph ? from_handle<ModelGraph>(graph)->program().steps.size() : 0;
}

int clikart_graph_node(const clikart_graph* graph, size_t index, clikart_node* node) {
    return guarded([&] {
        const auto& steps = checked_graph(graph, "graph_node").program().steps;
        if (!node) fail(ErrorKind::Type, "graph_node: the node is NULL");
        check_size("graph_node", node->struct_size, offsetof(clikart_node, n_epilogues));  // all that the first version had
        if (index >= steps.size()) fail(ErrorKind::Index, "graph_node: index {} is out of range, there are {}", index, steps.size());
        const Step& step = steps[index];
        const clikart_node all{node->struct_size,
                               static_cast<clikart_op_code>(step.op),
                               static_cast<clikart_node_kind>(step.kind),
                               static_cast<clikart_dtype>(step.dtype),
                               static_cast<uint32_t>(step.shape.rank()),
                               step.shape.data(),
                               step.inputs.data(),
                               step.inputs.size(),
                               step.epilogues.size(),
                               step.in_place,
                               step.place && step.place->text() ? step.place->text()->c_str() : nullptr,
                               step.regions.size()};
        std::memcpy(node, &all, std::min(node->struct_size, sizeof all));
        return 0;
    });
}

clikart_op_code clikart_graph_node_epilogue(const clikart_graph* graph, size_t index, size_t k) {
    return guarded([&] {
        const auto& steps = checked_graph(graph, "graph_node_epilogue").program().steps;
        if (index >= steps.size() || k >= steps[index].epilogues.size()) {
            fail(ErrorKind::Index, "graph_node_epilogue: node {} of {} has no epilogue {}", index, steps.size(), k);
        }
        return static_cast<clikart_op_code>(steps[index].epilogues[k].op);
    });
}

int clikart_graph_save(const clikart_graph* graph, const char* path) {
    return guarded([&] {
        save_graph(checked_graph(graph, "graph_save"), checked_text(path, "graph_save", "the path"));
        return 0;
    });
}

clikart_graph* clikart_graph_load(const char* path, int32_t optimize) {
    return guarded([&] { return reinterpret_cast<clikart_graph*>(load_graph(checked_text(path, "graph_load", "the path"), optimize).leak()); });
}

int clikart_graph_run(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, clikart_tensor** outputs, size_t n_outputs) {
    return guarded([&] {
        const ModelGraph& g = checked_graph(graph, "graph_run");
        check_room(g, outputs, n_outputs);
        OperandList list;
        list.add_list("graph_run", inputs, n_inputs);
        return hand_out(g.run(list.span()), outputs);
    });
}

int clikart_graph_run_like(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, const int64_t* layouts, size_t n_layouts,
                           clikart_tensor** outputs, size_t n_outputs) {
    return guarded([&] {
        const ModelGraph& g = checked_graph(graph, "graph_run_like");
        if (capture::active()) return 0;
        check_room(g, outputs, n_outputs);
        OperandList list;
        list.add_list("graph_run_like", inputs, n_inputs);
        if (n_layouts > 0 && !layouts) fail(ErrorKind::Type, "graph_run_like: the layouts are NULL");
        size_t at = 0;
        bool same = true;
        visit_layouts(list.span(), "graph_run_like", [&](int64_t number) {
            same = same && at < n_layouts && layouts[at] == number;
            ++at;
        });
        if (!same || at != n_layouts) return 0;
        hand_out(g.run(list.span()), outputs);
        return 1;
    });
}

int clikart_graph_run_into(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, clikart_tensor* const* outputs, size_t n_outputs) {
    return guarded([&] {
        const ModelGraph& g = checked_graph(graph, "graph_run_into");
        OperandList list, into;
        list.add_list("graph_run_into", inputs, n_inputs);
        into.add_list("graph_run_into", const_cast<const clikart_tensor* const*>(outputs), n_outputs);
        g.run_into(list.span(), into.span());
        return 0;
    });
}

int64_t clikart_graph_peak(const clikart_graph* graph, const int64_t* sizes, const size_t* ranks, size_t n_inputs) {
    return guarded([&] {
        const ModelGraph& g = checked_graph(graph, "graph_peak");
        std::vector<Dims> shapes;
        if (!ranks) {
            for (const int32_t input : g.program().inputs) shapes.push_back(g.program().steps[static_cast<size_t>(input)].shape);
            return g.peak(std::move(shapes));
        }
        for (size_t i = 0; i < n_inputs; ++i) {
            if (ranks[i] > 0 && !sizes) fail(ErrorKind::Type, "graph_peak: the sizes are NULL");
            shapes.emplace_back(std::span(sizes, ranks[i]));
            sizes += ranks[i];
        }
        return g.peak(std::move(shapes));
    });
}

const char* clikart_graph_audit(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs) {
    return guarded([&]() -> const char* {
        thread_local std::string differs;
        OperandList list;
        list.add_list("graph_audit", inputs, n_inputs);
        differs = audit(checked_graph(graph, "graph_audit"), list.span());
        return differs.c_str();
    });
}

clikart_graph* clikart_graph_region(const clikart_graph* graph, size_t node, size_t k) {
    return guarded([&] {
        const ModelGraph& of = checked_graph(graph, "graph_region");
        const std::vector<Step>& steps = of.program().steps;
        if (node >= steps.size() || k >= steps[node].regions.size()) fail(ErrorKind::Index, "graph_region: node {} has no region {}", node, k);
        const Step& recorded = of.recorded().steps[static_cast<size_t>(steps[node].recorded)];
        return reinterpret_cast<clikart_graph*>(make_ref<ModelGraph>(*steps[node].regions[k], *recorded.regions[k]).leak());
    });
}

int clikart_graph_holds(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs) {
    return guarded([&] {
        OperandList list;
        list.add_list("graph_holds", inputs, n_inputs);
        return static_cast<int>(checked_graph(graph, "graph_holds").mismatch(list.span()).empty());
    });
}

const char* clikart_graph_mismatch(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs) {
    return guarded([&]() -> const char* {
        OperandList list;
        list.add_list("graph_mismatch", inputs, n_inputs);
        thread_local std::string text;
        text = checked_graph(graph, "graph_mismatch").mismatch(list.span());
        return text.c_str();
    });
}

size_t clikart_graph_condition_count(const clikart_graph* graph) {
    return graph ? from_handle<ModelGraph>(graph)->recorded().conditions.size() : 0;
}

const char* clikart_graph_condition(const clikart_graph* graph, size_t index) {
    return guarded([&]() -> const char* {
        const ModelGraph& of = checked_graph(graph, "graph_condition");
        const auto& conditions = of.recorded().conditions;
        if (index >= conditions.size()) fail(ErrorKind::Index, "graph_condition: index {} is out of range, there are {}", index, conditions.size());
        thread_local std::string text;
        text = of.text_of(conditions[index]);
        return text.c_str();
    });
}

bool clikart_graph_can_be_audited(const clikart_graph* graph) {
    return graph && can_be_audited(from_handle<ModelGraph>(graph)->recorded());
}

void clikart_spoil_fused(bool spoil) {
    spoil_fused(spoil);
}

int clikart_graph_run_named(const clikart_graph* graph, const char* const* names, const clikart_tensor* const* inputs, size_t n_inputs,
                            clikart_tensor** outputs, size_t n_outputs) {
    return guarded([&] {
        const ModelGraph& g = checked_graph(graph, "graph_run_named");
        check_room(g, outputs, n_outputs);
        OperandList list;
        list.add_list("graph_run_named", inputs, n_inputs);
        if (n_inputs > 0 && !names) fail(ErrorKind::Type, "graph_run_named: the list of names is NULL");
        std::vector<std::string_view> texts;
        for (size_t i = 0; i < n_inputs; ++i) texts.emplace_back(checked_text(names[i], "graph_run_named", "a name"));
        return hand_out(g.run_named(texts, list.span()), outputs);
    });
}
