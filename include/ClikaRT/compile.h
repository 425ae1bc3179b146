// compile: capture a callable while it runs, and replay the graph from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ClikaRT/graph.h>

namespace ClikaRT {
inline namespace v1 {

/// What an input of a compiled callable is.
struct TensorSpec {
    std::string name;
    DataType dtype;
    Shape shape;
};

/// What a compiled callable does when it is called.
enum class State {
    Pending,   ///< nothing is captured yet
    Compiled,  ///< it replays a graph, and captures another for inputs of other sizes
    Fallback,  ///< it calls the callable: what that does cannot be recorded
};

struct CompileOptions {
    bool dynamic = false;    ///< keep one graph for all sizes for which the shapes that the callable looks at are what they were
    bool fullgraph = false;  ///< throw RuntimeError at what cannot be recorded, instead of falling back
    int optimize = 2;        ///< 0: steps as they were recorded; the results have the same bits for 0, 1 and 2
};

/// What compile() makes of a callable; copies share it, and any number of threads may call it.
class Compiled {
public:
    using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

    Compiled(Function function, std::vector<TensorSpec> specs, CompileOptions options)
        : shared_(std::make_shared<Shared>(std::move(function), std::move(specs), options)) {}

    /// Runs and records the callable, or replays a graph.  Throws ValueError for a wrong number of inputs or a wrong rank, TypeError
    /// for a wrong dtype, and what the callable throws.
    std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
        check(inputs);
        if (clikart_capturing()) return shared_->function(inputs);  // it is recorded with what is recorded
        Key sizes;
        for (const Tensor& input : inputs) add_layout(sizes, input);
        std::unique_ptr<ModelGraph> graph;
        std::vector<std::pair<Key, ModelGraph>> others;  // for other sizes, which may hold for these as well
        bool fallback = false;
        std::uint64_t resets = 0;
        {
            const std::lock_guard<std::mutex> lock(shared_->mutex);
            resets = shared_->resets;
            fallback = !shared_->why.empty();
            if (Kept* const kept = fallback ? nullptr : shared_->find(sizes)) {
                kept->used = ++shared_->clock;
                graph = std::make_unique<ModelGraph>(kept->graph);
            } else if (shared_->options.dynamic && !fallback) {
                for (const auto& entry : shared_->graphs) others.emplace_back(entry.first, entry.second.graph);
            }
        }
        if (graph) return graph->run(inputs);
        for (const auto& [captured_for, other] : others) {
            if (!other.holds(inputs)) continue;
            shared_->remember(sizes, captured_for, resets);
            return other.run(inputs);
        }
        return fallback ? shared_->function(inputs) : capture(inputs, sizes, resets);
    }

    State state() const {
        const std::lock_guard<std::mutex> lock(shared_->mutex);
        return !shared_->why.empty() ? State::Fallback : shared_->captures > 0 ? State::Compiled : State::Pending;
    }
    /// How many captures came after the first.
    std::size_t recapture_count() const {
        const std::lock_guard<std::mutex> lock(shared_->mutex);
        return shared_->captures > 0 ? shared_->captures - 1 : 0;
    }
    /// What could not be recorded; empty unless the state is Fallback.
    std::string fallback_reason() const {
        const std::lock_guard<std::mutex> lock(shared_->mutex);
        return shared_->why;
    }
    /// The graph that was captured last.  Throws RuntimeError when nothing is captured.
    ModelGraph take_graph() const {
        const std::lock_guard<std::mutex> lock(shared_->mutex);
        if (!shared_->last) throw RuntimeError("take_graph: nothing is captured" + (shared_->why.empty() ? " yet" : ": " + shared_->why));
        return *shared_->last;
    }
    /// Forgets all graphs, and that something could not be recorded: the next call captures.
    void reset() const {
        std::map<Key, Kept> graphs;  // released after the lock, as they may hold tensors of the user's
        std::unique_ptr<ModelGraph> last;
        const std::lock_guard<std::mutex> lock(shared_->mutex);
        graphs.swap(shared_->graphs);
        shared_->found.clear();
        last.swap(shared_->last);
        shared_->captures = 0;
        shared_->why.clear();
        ++shared_->resets;
    }

private:
    using Key = std::vector<std::int64_t>;  // ranks, sizes, and strides where they are not those of a contiguous tensor
    static constexpr std::size_t kGraphs = 64, kFound = 256;

    struct Kept {
        ModelGraph graph;
        std::uint64_t used;
    };

    struct Shared {
        Shared(Function function, std::vector<TensorSpec> specs, CompileOptions options)
            : function(std::move(function)), specs(std::move(specs)), options(options) {}
        const Function function;
        const std::vector<TensorSpec> specs;
        const CompileOptions options;
        std::mutex mutex;  // guards what follows
        std::map<Key, Kept> graphs;
        std::map<Key, Key> found;  // under dynamic: for which sizes the graph was captured that holds for others
        std::unique_ptr<ModelGraph> last;
        std::size_t captures = 0;
        std::uint64_t clock = 0, resets = 0;
        std::string why;

        /// The graph for these sizes, or null.
        Kept* find(const Key& sizes) {
            const auto other = found.find(sizes);
            const auto it = graphs.find(other == found.end() ? sizes : other->second);
            return it == graphs.end() ? nullptr : &it->second;
        }
        /// Notes that the graph for some sizes holds for others.
        void remember(const Key& sizes, const Key& captured_for, std::uint64_t at_reset) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (resets != at_reset) return;
            if (found.size() >= kFound) found.clear();
            found[sizes] = captured_for;
        }
    };

    /// Not through Tensor::shape(): sizes that are asked for while something else is recorded would count.
    static void add_layout(Key& key, const Tensor& input) {
        const auto rank = clikart_tensor_rank(input.handle());
        const std::int64_t* const shape = detail::check(clikart_tensor_shape(input.handle()));
        const bool dense = clikart_tensor_is_contiguous(input.handle());
        key.push_back(static_cast<std::int64_t>(2 * rank + (dense ? 0 : 1)));
        key.insert(key.end(), shape, shape + rank);
        if (dense) return;
        const std::int64_t* const strides = clikart_tensor_strides(input.handle());
        key.insert(key.end(), strides, strides + rank);
    }

    void check(const std::vector<Tensor>& inputs) const {
        const auto& specs = shared_->specs;
        if (inputs.size() != specs.size()) {
            throw ValueError("compile: " + std::to_string(inputs.size()) + " inputs given, there are specs of " + std::to_string(specs.size()));
        }
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            if (inputs[i].dtype() != specs[i].dtype) throw TypeError("compile: input '" + specs[i].name + "' has another dtype than its spec");
            if (clikart_tensor_rank(inputs[i].handle()) != specs[i].shape.size())
                throw ValueError("compile: input '" + specs[i].name + "' has another rank than its spec");
        }
    }
    std::vector<Tensor> capture(const std::vector<Tensor>& inputs, const Key& sizes, std::uint64_t resets) const {
        const bool any_sizes = shared_->options.dynamic, strict = shared_->options.fullgraph;
        graph::detail::Recording recording(any_sizes ? clikart_capture_begin_any_sizes(strict) : clikart_capture_begin_running(strict));
        std::vector<Tensor> given;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            given.push_back(Tensor::adopt(clikart_capture_value(shared_->specs[i].name.c_str(), inputs[i].handle())));
        }
        std::vector<Tensor> results = shared_->function(given);
        if (const std::string why = detail::check(clikart_capture_obstacle()); !why.empty()) {
            const std::lock_guard<std::mutex> lock(shared_->mutex);
            if (shared_->resets == resets) shared_->why = why;
            return results;
        }
        const ModelGraph graph = recording.end(results, graph::detail::default_names({}, results.size(), "output"), any_sizes, shared_->options.optimize);
        std::vector<Kept> dropped;  // these are released after the lock, as in reset()
        auto last = std::make_unique<ModelGraph>(graph);
        const std::lock_guard<std::mutex> lock(shared_->mutex);
        if (shared_->resets != resets) return results;
        const auto [place, fresh] = shared_->graphs.try_emplace(sizes, Kept{graph, 0});
        shared_->found.erase(sizes);
        place->second.used = ++shared_->clock;
        if (!fresh) return results;  // another thread captured the same meanwhile
        if (shared_->graphs.size() > kGraphs) {
            const auto oldest =
                std::min_element(shared_->graphs.begin(), shared_->graphs.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
            dropped.push_back(oldest->second);
            shared_->graphs.erase(oldest);
        }
        shared_->last.swap(last);
        ++shared_->captures;
        return results;
    }

    std::shared_ptr<Shared> shared_;
};

/// Wraps a callable from std::vector<Tensor> to std::vector<Tensor>: its first call runs and is recorded as a graph, later ones
/// replay the graph.  What it encloses is part of the graph, tensors as what they hold when it is replayed.  What it writes in place
/// is written at each replay.  A callable that reads a value or calls an operator whose result's size depends on data is called every time.
template <class F>
Compiled compile(F&& callable, std::vector<TensorSpec> specs, CompileOptions options = {}) {
    std::set<std::string> names;
    for (const TensorSpec& spec : specs) {
        if (!names.insert(spec.name).second) throw ValueError("compile: two inputs are named '" + spec.name + "'");
    }
    if (options.optimize < 0 || options.optimize > 2) throw ValueError("compile: optimize is 0, 1 or 2, got " + std::to_string(options.optimize));
    return Compiled(std::forward<F>(callable), std::move(specs), options);
}

}  // namespace v1
}  // namespace ClikaRT
