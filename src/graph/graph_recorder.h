// Writes down the calls of one capture.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/recording.h"
#include "graph/region.h"
#include "ops/recorder.h"

namespace clikart {

/// Belongs to one thread, as the capture does (graph/capture.h).
class GraphRecorder final : public Recorder {
public:
    GraphRecorder(bool running, bool strict, bool any_sizes) noexcept : running(running), any_sizes(any_sizes), strict_(strict) {}

    Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) override;
    bool keeps_views() const noexcept override { return true; }
    bool keep_composite(const OpCall& call, const std::function<Ref<Tensor>()>& parts, Ref<Tensor>& result) override;
    std::vector<Ref<Tensor>> record_control(const ControlCall& call) override;
    void note_control(const ControlCall& call, const std::vector<Ref<Tensor>>& results) override;
    void note(const OpCall& call, const Results& results) override;
    void before_write(Tensor& tensor) override {
        if (!why.empty()) return;
        keep_if_born(base_of(&tensor));
        if (!running) written_.insert(&tensor.storage());
    }

    void value_read(const Tensor& tensor) override;
    void give_up(std::string reason) override;
    void born(Tensor& tensor) noexcept override { tensor.recorded = {id, kBorn}; }
    void fact_asked(Fact fact, const Tensor& tensor, const Tensor* other, uint32_t dims) noexcept override;
    void refused(const OpCall& call) noexcept override;
    std::optional<Attributes> decode(const OpInfo& info, const Attributes& given) override;

    /// Where something was asked first, as far as that was told.
    std::string size_place() const {
        const std::string* const place = size_place_ ? size_place_->text() : nullptr;
        return place ? *place : "";
    }

    /// The code of a fact, or its number where that is always the same.
    int64_t fact(SizeTerm::Op op, const Tensor& tensor, int dim, const Tensor* other);
    RecordedSizes& sizes() {
        if (lost_) fail(ErrorKind::Memory, "capture: there was no memory to note what was asked of a shape");
        return recording.sizes;
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

    // ---- regions; see capture.h

    bool in_region() const noexcept { return !regions_.empty(); }
    void begin_region();
    /// Null where none is open.
    Ref<Region> end_region() noexcept;
    Ref<Tensor> region_input(DType dtype, const Dims& shape);
    /// The innermost region's result: what it computes itself, else a copy, which nothing else shares.
    Ref<Tensor> region_output(Tensor* tensor);
    void add_region_output(Ref<Tensor> output) { regions_.back().region->outputs.push_back(std::move(output)); }
    std::vector<Ref<Tensor>> control(OpCode op, std::span<Tensor* const> given, std::span<Region* const> regions);

    static inline std::atomic<uint64_t> next_id{1};
    const uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
    const bool running;
    const bool any_sizes;  // the graph is to hold for other sizes
    Recording recording{id, {}, {}, {}, {}, {}, {}};
    std::string why;  // the graph was given up
    bool sizes_asked = false;
    const Mode mode_before = thread_mode();
    std::unique_ptr<GraphRecorder> outer;  // of a capture that runs its calls, one of which records this graph

private:
    /// Makes the results outputs of a new node.
    void add(const OpCall& call, Results& results);

    /// A further result is a node of its own, that refers to the first.
    Ref<Node> result_node(size_t which, const Ref<Tensor>& of, NodeKind kind);

    /// A node with regions: all results are nodes of their own.
    void add_control(const ControlCall& call, const std::vector<Ref<Tensor>>& results);

    /// What nobody needs may be refused for other sizes, and then the graph does not hold.
    void keep(const Ref<Tensor>& result) {
        if (any_sizes && !in_region()) recording.checked.push_back(result);
    }

    /// In a region of a capture that runs its calls: the value behind a stand-in that it reads.
    void keep_real(Tensor* twin, Tensor* given) {
        if (running && !regions_.empty() && twin != given) reals_.emplace(twin, Ref<Tensor>::share(given));
    }

    /// A node for what is done to the memory of a tensor; an effect, as all that is written over.
    void add_write(const OpCall& call);

    Ref<Node> new_node(const OpCall& call);

    /// What of a call's attributes comes from sizes.
    std::vector<SizeUse> sizes_in(const OpCall& call);

    /// Regions know no sizes but those that are.
    void fix_sizes(const OpCall& call, Node& node);

    /// What a tensor is a view of, as far as that is recorded.
    Tensor* base_of(Tensor* tensor) const noexcept;

    /// What was made of host data is made anew at each run: the graph keeps a copy of its own, before it is changed, and computes
    /// with a copy of that.
    void keep_if_born(Tensor* base);

    /// What stands in the graph for a tensor that depends on an input; null for others.
    Tensor* known_value(const Tensor& tensor) const noexcept;

    /// The graph counts on it being so.
    void require_fact(Fact fact, const Tensor& tensor, const Tensor* other, uint32_t dims, const Ref<Origin>& place);

    struct Open {
        Ref<Region> region;
        Mode mode;
        bool recording;
    };
    std::vector<Open> regions_;                       // one within the other
    std::unordered_map<Tensor*, Ref<Tensor>> reals_;  // what stand-ins are that regions read
    bool lost_ = false;                               // something that was asked
    static constexpr size_t kBorn = SIZE_MAX;         // the place of tensors made of host data
    const bool strict_;
    Ref<Origin> where_;
    Ref<Origin> size_place_;
    uint64_t recorded_ = 1;
    std::unordered_set<const Storage*> written_;  // where calls are not run
    std::vector<Ref<Tensor>> twins_;              // where calls are run: the stand-ins of all their results
};

}  // namespace clikart
