#include "graph/capture.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <unordered_set>

#include "graph/stand_ins.h"
#include "ops/call_site.h"
#include "ops/recorder.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart::capture {
namespace {

class GraphRecorder final : public Recorder {
public:
    GraphRecorder(bool running, bool strict, bool any_sizes) noexcept : running(running), any_sizes(any_sizes), strict_(strict) {}

    Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) override {
        Results results;
        if (call.over) {
            add_write(call);
            return results;
        }
        const bool views = call.info.kind == NodeKind::View && spec.strides.rank() == spec.shape.rank();
        results[0] = views ? make_ref<Tensor>(dtypes.result, spec.shape, spec.strides, spec.offset, call.inputs[0]->storage_ref())
                           : make_tensor(dtypes.result, spec.shape, Device{});
        if (call.info.n_outputs > 1) results[1] = make_tensor(dtypes.second, spec.shape, Device{});
        add(call, results);
        return results;
    }

    bool keeps_views() const noexcept override { return true; }

    bool keep_composite(const OpCall& call, const std::function<Ref<Tensor>()>& parts, Ref<Tensor>& result) override {
        if (!any_sizes || !why.empty()) return false;
        const auto on_meta = [](const Tensor* input) { return input->storage().is_meta(); };
        bool whole = call.info.kind == NodeKind::Composite && std::none_of(call.inputs.begin(), call.inputs.end(), on_meta);
        if (whole) {
            if (running) {
                const Unrecorded unrecorded;
                result = parts();
            } else {
                const StandIns nothing;
                result = parts();
            }
            // A view is one of the graph as well.
            whole = std::none_of(call.inputs.begin(), call.inputs.end(), [&](Tensor* input) { return &input->storage() == &result->storage(); });
        }
        if (!whole) {
            for (const SizeUse& use : sizes_in(call)) sizes_.require(use.term, current_origin());
            return false;
        }
        if (running) {
            note(call, {result});
        } else {
            Results results{make_tensor(result->dtype(), result->shape(), Device{})};
            add(call, results);
            result = results[0];
        }
        return true;
    }

    void note(const OpCall& call, const Results& results) override {
        if (!why.empty()) return;
        if (call.over) return add_write(call);
        Results twins;
        for (size_t i = 0; i < results.size() && results[i]; ++i) twins[i] = make_tensor(results[i]->dtype(), results[i]->shape(), Device{});
        add(call, twins);
        for (size_t i = 0; i < results.size() && results[i]; ++i) know(*results[i], std::move(twins[i]));
    }

    void before_write(Tensor& tensor) override {
        if (!why.empty()) return;
        keep_if_born(base_of(&tensor));
        if (!running) written_.insert(&tensor.storage());
    }

    void value_read(const Tensor& tensor) override {
        if (running) return give_up(fmt::format("the value of {} is read", describe(tensor)));
        if (!written_.contains(&tensor.storage())) return;
        fail(ErrorKind::Runtime, "trace: the value of {} is read after the function wrote over it, which only a run of the graph does", describe(tensor));
    }

    void give_up(std::string reason) override {
        const bool first = why.empty();
        if (first) why = reason, where_ = current_origin();
        const auto dropped = std::exchange(twins_, {});  // their ends may run user code, which may come here again
        if (strict_) fail(ErrorKind::Runtime, "compile: {}, which cannot be recorded into a graph", reason);
    }

    void born(Tensor& tensor) noexcept override { tensor.recorded = {id, kBorn}; }

    void fact_asked(Fact fact, const Tensor& tensor, const Tensor* other) noexcept override {
        if (!any_sizes && sizes_asked) return;
        if (!known_value(tensor) && sizes_.followed_by(tensor) < 0) return;
        sizes_asked = true;
        try {
            Ref<Origin> place = current_origin();
            if (!size_place_) size_place_ = place;
            if (any_sizes) require_fact(fact, tensor, other, place);
        } catch (...) {
            lost_ = true;
        }
    }
    /// Where that was first, as far as it was told.
    std::string size_place() const {
        const std::string* const place = size_place_ ? size_place_->text() : nullptr;
        return place ? *place : "";
    }

    std::optional<Attributes> decode(const OpInfo& info, const Attributes& given) override {
        std::optional<Attributes> plain;
        for (int i = 0; info.attributes[i]; ++i) {
            for (int64_t k = 0; info.has_sizes(i) && k < given.length(i); ++k) {
                const int32_t at = given.items[i].offset + static_cast<int32_t>(k);
                if (!sizes_.knows(given.values[at])) continue;
                if (!plain) plain.emplace(given);
                plain->values[at] = sizes_.number_of(sizes_.term_of(given.values[at]));
            }
        }
        return plain;
    }

    /// The code of a fact, or its number where that is always the same.
    int64_t fact(SizeTerm::Op op, const Tensor& tensor, int dim, const Tensor* other) {
        const int64_t number = op == SizeTerm::Op::Size     ? tensor.shape()[dim]
                               : op == SizeTerm::Op::Stride ? tensor.strides()[dim]
                               : op == SizeTerm::Op::Dense  ? tensor.is_contiguous()
                                                            : &tensor.storage() == &other->storage();
        Tensor *const value = any_sizes ? known_value(tensor) : nullptr, *const second = value && other ? known_value(*other) : nullptr;
        if (!value || (other && !second)) return number;
        const NodeKind kind = static_cast<const Node&>(*value->node).kind;
        if (op == SizeTerm::Op::Dense && kind != NodeKind::View && kind != NodeKind::Input) return number;  // what is computed always is
        return RecordedSizes::code_of(other ? sizes_.add_fact(op, *value, *second, number) : sizes_.add_fact(op, *value, dim, number));
    }
    RecordedSizes& sizes() {
        if (lost_) fail(ErrorKind::Memory, "capture: there was no memory to note what was asked of a shape");
        return sizes_;
    }

    /// Why the graph was given up, and where, as far as that was told; empty when it was not.
    std::string obstacle() const {
        const std::string* place = where_ ? where_->text() : nullptr;
        return place ? fmt::format("{}, at {}", why, *place) : why;
    }

    /// From now on `tensor` is what `twin` stands for.
    void know(Tensor& tensor, Ref<Tensor> twin) {
        tensor.recorded = {id, twins_.size()};
        twins_.push_back(std::move(twin));
    }
    /// The stand-in of a tensor that was recorded, else the tensor.
    Tensor* twin_of(Tensor* tensor) const noexcept {
        const bool known = tensor->recorded.capture == id && tensor->recorded.place != kBorn && why.empty();
        return known ? twins_[tensor->recorded.place].get() : tensor;
    }

    /// What goes out: the caller's from now on, and another one at each run.
    Ref<Tensor> output(Tensor* tensor) {
        keep_if_born(base_of(tensor));
        return Ref<Tensor>::share(twin_of(tensor));
    }

    static inline std::atomic<uint64_t> next_id{1};
    const uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
    const bool running;
    const bool any_sizes;  // the graph is to hold for other sizes
    Recording recording{id, {}, {}, {}, {}, {}};
    std::string why;  // the graph was given up
    bool sizes_asked = false;
    const Mode mode_before = thread_mode();
    std::unique_ptr<GraphRecorder> outer;  // of a capture that runs its calls, one of which records this graph

private:
    /// Makes the results outputs of a new node.
    void add(const OpCall& call, Results& results) {
        Ref<Node> node = new_node(call);
        results[0]->node = std::move(node);
        if (call.info.kind == NodeKind::Random) recording.effects.push_back(results[0]);
        if (!results[1]) return;
        auto second = make_ref<Node>(OpCode::Result, call.info.kind, id, recorded_++);  // a node of its own, that refers to the first
        second->inputs.push_back(results[0]);
        results[1]->node = std::move(second);
    }

    /// A node for what is done to the memory of a tensor; an effect, as all that is written over.
    void add_write(const OpCall& call) {
        const Ref<Node> node = new_node(call);
        node->in_place = true;
        Tensor* const over = twin_of(call.over);
        if (call.info.code == OpCode::Copy) node->inputs.insert(node->inputs.begin(), Ref<Tensor>::share(over));
        const Ref<Tensor> written = make_view(*over, over->dtype(), over->shape(), over->strides(), over->offset());
        written->node = node;
        recording.effects.push_back(written);
    }

    Ref<Node> new_node(const OpCall& call) {
        auto node = make_ref<Node>(call.info.code, call.info.kind, id, recorded_++, call.attributes);
        for (Tensor* input : call.inputs) node->inputs.push_back(Ref<Tensor>::share(twin_of(input)));
        node->sizes = sizes_in(call);
        if (call.generator) node->generator = Ref<Generator>::share(call.generator);
        node->place = current_origin();
        return node;
    }

    /// What of a call's attributes comes from sizes.
    std::vector<SizeUse> sizes_in(const OpCall& call) {
        std::vector<SizeUse> uses;
        for (int32_t at = 0; call.coded && at < call.coded->used; ++at) {
            if (call.coded->values[at] != call.attributes.values[at]) uses.push_back({at, sizes_.term_of(call.coded->values[at])});
        }
        return uses;
    }

    /// What a tensor is a view of, as far as that is recorded.
    Tensor* base_of(Tensor* tensor) const noexcept {
        Tensor* base = twin_of(tensor);
        while (base->node && static_cast<const Node&>(*base->node).kind == NodeKind::View) base = static_cast<const Node&>(*base->node).inputs[0].get();
        return base;
    }

    /// What was made of host data is made anew at each run: the graph keeps a copy of its own, before it is changed, and computes
    /// with a copy of that.
    void keep_if_born(Tensor* base) {
        if (base->recorded.capture != id || base->recorded.place != kBorn) return;
        for (const auto& [known, copy] : recording.own_copies) {
            if (known.get() == base) return;
        }
        Tensor* const operands[] = {base};
        auto node = make_ref<Node>(OpCode::Copy, op_info(OpCode::Copy).kind, id, 0);  // before all others
        {
            const Unrecorded unrecorded;
            node->inputs.push_back(call(OpCode::Copy, operands, Attributes{}));
        }
        const Ref<Tensor> fresh = make_tensor(base->dtype(), base->shape(), Device{});
        fresh->node = std::move(node);
        recording.own_copies.emplace_back(Ref<Tensor>::share(base), fresh);
    }

    /// What stands in the graph for a tensor that depends on an input; null for others.
    Tensor* known_value(const Tensor& tensor) const noexcept {
        auto* const t = const_cast<Tensor*>(&tensor);
        if (!running) return tensor.node && static_cast<const Node&>(*tensor.node).capture == id ? t : nullptr;
        Tensor* const twin = twin_of(t);
        return twin == t ? nullptr : twin;
    }

    /// The graph counts on it being so.
    void require_fact(Fact fact, const Tensor& tensor, const Tensor* other, const Ref<Origin>& place) {
        const auto require = [&](int64_t code) { sizes_.require(sizes_.term_of(code), place); };
        if (const int32_t followed = sizes_.followed_by(tensor); followed >= 0) sizes_.require(followed, place);
        if (fact == Fact::SharesMemory) return require(this->fact(SizeTerm::Op::Shared, tensor, 0, other));
        if (fact == Fact::Dense) return require(this->fact(SizeTerm::Op::Dense, tensor, 0, nullptr));
        for (int d = 0; d < tensor.rank(); ++d) {
            const int32_t size = sizes_.term_of(this->fact(SizeTerm::Op::Size, tensor, d, nullptr));
            sizes_.require(fact == Fact::Ones ? sizes_.add_computed(SizeTerm::Op::Equal, size, sizes_.term_of(1)) : size, place);
            if (fact == Fact::Strides) require(this->fact(SizeTerm::Op::Stride, tensor, d, nullptr));
        }
    }

    RecordedSizes sizes_;
    bool lost_ = false;                        // something that was asked
    static constexpr size_t kBorn = SIZE_MAX;  // the place of tensors made of host data
    const bool strict_;
    Ref<Origin> where_;
    Ref<Origin> size_place_;
    uint64_t recorded_ = 1;
    std::unordered_set<const Storage*> written_;  // where calls are not run
    std::vector<Ref<Tensor>> twins_;              // where calls are run: the stand-ins of all their results
};

/// The calling thread's; a thread that ends in the middle of a capture drops it.
struct Current {
    ~Current() {
        while (recorder) cancel();
    }
    std::unique_ptr<GraphRecorder> recorder;
};
thread_local Current current;

GraphRecorder& require() {
    if (!current.recorder) fail(ErrorKind::Runtime, "capture: the calling thread is not recording a graph");
    return *current.recorder;
}

GraphRecorder& start(bool running, bool strict, bool any_sizes) {
    if (current.recorder && (running || !current.recorder->running)) fail(ErrorKind::Runtime, "capture: the calling thread is already recording a graph");
    if (current.recorder) current.recorder->give_up("another graph is recorded");
    auto recorder = std::make_unique<GraphRecorder>(running, strict, any_sizes);
    recorder->outer = std::move(current.recorder);
    current.recorder = std::move(recorder);
    thread_recorder() = current.recorder.get();
    thread_settings.recording = running;
    return *current.recorder;
}

std::unique_ptr<GraphRecorder> stop() noexcept {
    std::unique_ptr<GraphRecorder> done = std::move(current.recorder);
    current.recorder = std::move(done->outer);
    thread_recorder() = current.recorder.get();
    thread_settings.recording = current.recorder && current.recorder->running;
    if (!done->running) set_thread_mode(done->mode_before);  // which was possible then
    return done;
}

Ref<Tensor> add_input(GraphRecorder& recorder, DType dtype, const Dims& shape, std::string name) {
    Ref<Tensor> stand_in = make_tensor(dtype, shape, Device{});
    stand_in->node = make_ref<Node>(OpCode::Input, NodeKind::Input, recorder.id, 0);
    recorder.recording.inputs.push_back(stand_in);
    recorder.recording.input_names.push_back(std::move(name));
    return stand_in;
}

}  // namespace

void begin(bool any_sizes) {
    start(false, true, any_sizes);
    set_thread_mode(Mode::Capture);
}

void begin_running(bool strict, bool any_sizes) {
    if (thread_mode() == Mode::Capture) fail(ErrorKind::Runtime, "capture: the calling thread is already recording a graph");
    start(true, strict, any_sizes);
}

Ref<Tensor> input(DType dtype, const Dims& shape, std::string name) {
    GraphRecorder& recorder = require();
    if (recorder.running) fail(ErrorKind::Runtime, "capture: calls are run, so inputs need values");
    checked_numel(shape, "capture");
    return add_input(recorder, dtype, shape, std::move(name));
}

Ref<Tensor> input(const Tensor& value, std::string name) {
    GraphRecorder& recorder = require();
    if (!recorder.running) fail(ErrorKind::Runtime, "capture: calls are not run, so inputs have no values");
    if (value.node) require_value(value, "compile");
    settle_size(value, "compile");
    Ref<Tensor> own = make_view(value, value.dtype(), value.shape(), value.strides(), value.offset());
    recorder.know(*own, add_input(recorder, value.dtype(), value.shape(), std::move(name)));
    return own;
}

bool active() noexcept {
    return current.recorder != nullptr;
}

std::string obstacle() {
    return require().obstacle();
}

bool sizes_asked() {
    return require().sizes_asked;
}

std::string size_place() {
    return require().size_place();
}

int64_t fact(SizeTerm::Op op, const Tensor& tensor, int64_t dim, const Tensor* other) {
    settle_size(tensor, "capture_size");
    if ((op == SizeTerm::Op::Size || op == SizeTerm::Op::Stride) && (dim < 0 || dim >= tensor.rank())) {
        fail(ErrorKind::Index, "capture_size: dimension {} is out of range for {} dimensions", dim, tensor.rank());
    }
    return require().fact(op, tensor, static_cast<int>(dim), other);
}

int64_t computed_size(SizeTerm::Op op, int64_t a, int64_t b) {
    RecordedSizes& sizes = require().sizes();
    const int32_t first = sizes.term_of(a), second = sizes.term_of(b);
    return RecordedSizes::code_of(sizes.add_computed(op, first, second));
}

int64_t require_size(int64_t code) {
    RecordedSizes& sizes = require().sizes();
    const int32_t term = sizes.term_of(code);
    sizes.require(term, current_origin());
    return sizes.number_of(term);
}

Ref<Tensor> size_number(int64_t code) {
    RecordedSizes& sizes = require().sizes();
    return sizes.make_number(sizes.term_of(code));
}

Ref<ModelGraph> end(std::span<Tensor* const> outputs, std::vector<std::string> output_names, const GraphOptions& options) {
    require();
    const std::unique_ptr<GraphRecorder> done = stop();
    if (!done->why.empty()) fail(ErrorKind::Runtime, "compile: {}, which cannot be recorded into a graph", done->obstacle());
    done->recording.sizes = std::move(done->sizes());
    std::vector<Ref<Tensor>> kept;
    std::vector<Tensor*> results;
    for (Tensor* output : outputs) results.push_back(kept.emplace_back(done->output(output)).get());
    return make_ref<ModelGraph>(std::move(done->recording), results, std::move(output_names), options);
}

void cancel() noexcept {
    if (current.recorder) stop();
}

}  // namespace clikart::capture
