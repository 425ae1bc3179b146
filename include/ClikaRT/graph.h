// Graphs: recording a callable's operators once, and running them again.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ClikaRT/tensor.h>

namespace ClikaRT {
inline namespace v1 {
namespace graph {

/// One node of a graph.
struct Node {
    OpCode op_code;
    NodeKind kind;
    DataType dtype;
    Shape shape;
    std::vector<std::int32_t> inputs;  ///< numbers of the nodes it reads
    std::vector<OpCode> epilogues;     ///< operators that are computed with it on the spot; its last inputs are operands of theirs
    bool in_place = false;             ///< it writes over its first input, and nobody reads what it makes itself
    std::string place;                 ///< where the call was made that it comes from, see set_tag(); empty: unknown
};

/// A runnable graph; copies share it, and any number of threads may run it at once.
class ModelGraph {
public:
    /// Takes over a handle of the C ABI; throws the thread's error for NULL.
    static ModelGraph adopt(clikart_graph* handle) { return ModelGraph(detail::check(handle)); }

    std::vector<std::string> input_names() const { return names(clikart_graph_input_count(handle()), clikart_graph_input_name); }
    std::vector<std::string> output_names() const { return names(clikart_graph_output_count(handle()), clikart_graph_output_name); }

    std::vector<Node> nodes() const {
        std::vector<Node> found;
        for (std::size_t i = 0; i < clikart_graph_node_count(handle()); ++i) {
            clikart_node node{};
            node.struct_size = sizeof node;
            detail::check(clikart_graph_node(handle(), i, &node));
            std::vector<OpCode> epilogues;
            for (std::size_t k = 0; k < node.n_epilogues; ++k) {
                epilogues.push_back(static_cast<OpCode>(detail::check(clikart_graph_node_epilogue(handle(), i, k))));
            }
            found.push_back({static_cast<OpCode>(node.op_code),
                             static_cast<NodeKind>(node.kind),
                             static_cast<DataType>(node.dtype),
                             Shape(node.shape, node.shape + node.rank),
                             {node.inputs, node.inputs + node.n_inputs},
                             std::move(epilogues),
                             node.in_place,
                             node.place ? node.place : ""});
        }
        return found;
    }

    /// A program that a node runs, as a graph of its own whose inputs are the node's: the branches of a Cond, condition and body of a WhileLoop.
    ModelGraph region(std::size_t node, std::size_t k) const { return adopt(clikart_graph_region(handle(), node, k)); }

    /// Runs on inputs in order; the results go to tensors of the caller's, one for each output, of its shape and dtype.  They may be inputs, which
    /// are then written over, without other memory where the graph allows it.
    void run_into(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const {
        const auto given = detail::handles(inputs), into = detail::handles(outputs);
        detail::check(clikart_graph_run_into(handle(), given.data(), given.size(), const_cast<clikart_tensor* const*>(into.data()), into.size()));
    }
    /// How many bytes a run takes, its results included, for the shapes it was recorded for; what kernels take for a while comes on top.
    std::int64_t peak() const { return detail::check(clikart_graph_peak(handle(), nullptr, nullptr, 0)); }
    /// Runs the graph as always and operator by operator, and compares all bits: empty when they agree, else what differs first.
    std::string audit(const std::vector<Tensor>& inputs) const {
        const auto given = detail::handles(inputs);
        return detail::check(clikart_graph_audit(handle(), given.data(), given.size()));
    }

    /// Whether a graph for any sizes is the right one for such inputs; of others true.  A run where it is not throws ValueError.
    bool holds(const std::vector<Tensor>& inputs) const {
        const auto given = detail::handles(inputs);
        return detail::check(clikart_graph_holds(handle(), given.data(), given.size())) == 1;
    }
    /// What it counts on then, with the lines that comes from.
    std::vector<std::string> conditions() const {
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < clikart_graph_condition_count(handle()); ++i) texts.emplace_back(detail::check(clikart_graph_condition(handle(), i)));
        return texts;
    }

    /// Writes the graph, with the tensors it holds, to a file.  Throws OsError.
    void save(const std::string& path) const { detail::check(clikart_graph_save(handle(), path.c_str())); }
    /// Reads one.  Nothing in the file is trusted; it has to stay as it is while the graph lives.  Throws OsError, ValueError.
    static ModelGraph load(const std::string& path, int optimize = 2) { return adopt(clikart_graph_load(path.c_str(), optimize)); }

    /// Runs on inputs in the order of input_names().  Throws ValueError or TypeError for inputs that do not fit.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs) const {
        std::vector<clikart_tensor*> outputs(clikart_graph_output_count(handle()));
        const auto list = detail::handles(inputs);
        detail::check(clikart_graph_run(handle(), list.data(), list.size(), outputs.data(), outputs.size()));
        return adopt_all(outputs);
    }
    std::vector<Tensor> run(std::initializer_list<Tensor> inputs) const { return run(std::vector<Tensor>(inputs)); }
    /// Runs on inputs by name.
    std::vector<Tensor> run(const std::map<std::string, Tensor>& inputs) const {
        std::vector<const char*> input_names;
        std::vector<const clikart_tensor*> list;
        for (const auto& [name, tensor] : inputs) {
            input_names.push_back(name.c_str());
            list.push_back(tensor.handle());
        }
        std::vector<clikart_tensor*> outputs(clikart_graph_output_count(handle()));
        detail::check(clikart_graph_run_named(handle(), input_names.data(), list.data(), list.size(), outputs.data(), outputs.size()));
        return adopt_all(outputs);
    }

    clikart_graph* handle() const noexcept { return shared_.get(); }

private:
    explicit ModelGraph(clikart_graph* handle) noexcept : shared_(handle) {}
    std::vector<std::string> names(std::size_t count, const char* (*name)(const clikart_graph*, std::size_t)) const {
        std::vector<std::string> list;
        for (std::size_t i = 0; i < count; ++i) list.emplace_back(detail::check(name(handle(), i)));
        return list;
    }
    static std::vector<Tensor> adopt_all(const std::vector<clikart_tensor*>& handles) {
        std::vector<Tensor> tensors(handles.size());
        for (std::size_t i = 0; i < handles.size(); ++i) tensors[i] = Tensor::adopt(handles[i]);
        return tensors;
    }
    detail::Shared<clikart_graph, clikart_graph_retain, clikart_graph_release> shared_;
};

namespace detail {

inline std::vector<std::string> default_names(std::vector<std::string> names, std::size_t count, const std::string& what) {
    if (names.empty()) {
        for (std::size_t i = 0; i < count; ++i) names.push_back(what + "_" + std::to_string(i));
    }
    if (names.size() != count) throw ValueError("trace: " + std::to_string(names.size()) + " " + what + " names given for " + std::to_string(count));
    return names;
}

}  // namespace detail

namespace detail {

/// The calling thread's capture: ended, or dropped.
class Recording {
public:
    explicit Recording(int begun) { v1::detail::check(begun); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording() {
        if (open_) clikart_capture_cancel();
    }
    ModelGraph end(const std::vector<Tensor>& results, const std::vector<std::string>& output_names, bool any_sizes, int optimize) {
        std::vector<const char*> names;
        for (const std::string& name : output_names) names.push_back(name.c_str());
        const auto list = v1::detail::handles(results);
        const clikart_graph_options options{sizeof options, any_sizes, optimize};
        open_ = false;
        return ModelGraph::adopt(clikart_capture_end_with(list.data(), names.data(), list.size(), &options));
    }

private:
    bool open_ = true;
};

}  // namespace detail

/// Records what `callable`, from std::vector<Tensor> to std::vector<Tensor>, does to inputs of the examples' shapes
/// and dtypes.  It runs once, over stand-ins without values: reading one throws.
/// `optimize`: 0 keeps the steps as they were recorded; the results have the same bits for 0, 1 and 2.
template <class F>
ModelGraph trace(F&& callable, const std::vector<Tensor>& example_inputs, std::vector<std::string> input_names = {}, std::vector<std::string> output_names = {},
                 int optimize = 2) {
    input_names = detail::default_names(std::move(input_names), example_inputs.size(), "input");
    detail::Recording recording(clikart_capture_begin());
    std::vector<Tensor> stand_ins;
    for (std::size_t i = 0; i < example_inputs.size(); ++i) {
        const Shape shape = example_inputs[i].shape();
        stand_ins.push_back(
            Tensor::adopt(clikart_capture_input(input_names[i].c_str(), static_cast<clikart_dtype>(example_inputs[i].dtype()), shape.data(), shape.size())));
    }
    const std::vector<Tensor> results = std::forward<F>(callable)(std::as_const(stand_ins));
    return recording.end(results, detail::default_names(std::move(output_names), results.size(), "output"), false, optimize);
}

}  // namespace graph

using graph::ModelGraph;

}  // namespace v1
}  // namespace ClikaRT
