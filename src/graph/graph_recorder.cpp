#include "graph/graph_recorder.h"

#include <algorithm>

#include "graph/control.h"
#include "graph/stand_ins.h"
#include "ops/call_site.h"
#include "ops/settings.h"

namespace clikart {

Results GraphRecorder::record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) {
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

bool GraphRecorder::keep_composite(const OpCall& call, const std::function<Ref<Tensor>()>& parts, Ref<Tensor>& result) {
    if (!any_sizes || !why.empty()) return false;
    const auto on_meta = [](const Tensor* input) { return input->storage().is_meta(); };
    bool whole = call.info.kind == NodeKind::Composite && !in_region() && std::none_of(call.inputs.begin(), call.inputs.end(), on_meta);
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
        for (const SizeUse& use : sizes_in(call)) recording.sizes.require(use.term, current_origin());
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

std::vector<Ref<Tensor>> GraphRecorder::record_control(const ControlCall& call) {
    std::vector<Ref<Tensor>> results = stand_ins_of(call);
    add_control(call, results);
    return results;
}

void GraphRecorder::note_control(const ControlCall& call, const std::vector<Ref<Tensor>>& results) {
    if (!why.empty()) return;
    const std::vector<Ref<Tensor>> twins = record_control(call);
    for (size_t i = 0; i < results.size(); ++i) know(*results[i], twins[i]);
}

void GraphRecorder::note(const OpCall& call, const Results& results) {
    if (!why.empty()) return;
    if (call.over) return add_write(call);
    Results twins;
    for (size_t i = 0; i < results.size() && results[i]; ++i) twins[i] = make_tensor(results[i]->dtype(), results[i]->shape(), Device{});
    add(call, twins);
    for (size_t i = 0; i < results.size() && results[i]; ++i) know(*results[i], std::move(twins[i]));
}

void GraphRecorder::value_read(const Tensor& tensor) {
    if (running) return give_up(fmt::format("the value of {} is read", describe(tensor)));
    if (!written_.contains(&tensor.storage())) return;
    fail(ErrorKind::Runtime, "trace: the value of {} is read after the function wrote over it, which only a run of the graph does", describe(tensor));
}

void GraphRecorder::give_up(std::string reason) {
    if (!running) return;  // then what is done now is done once, and no part of the graph
    const bool first = why.empty();
    if (first) why = reason, where_ = current_origin();
    const auto dropped = std::exchange(twins_, {});  // their ends may run user code, which may come here again
    const auto dropped_too = std::exchange(reals_, {});
    if (strict_) fail(ErrorKind::Runtime, "compile: {}, which cannot be recorded into a graph", reason);
}

void GraphRecorder::fact_asked(Fact fact, const Tensor& tensor, const Tensor* other, uint32_t dims) noexcept {
    if (!any_sizes && sizes_asked) return;
    if (!known_value(tensor) && recording.sizes.followed_by(tensor) < 0) return;
    sizes_asked = true;
    try {
        Ref<Origin> place = current_origin();
        if (!size_place_) size_place_ = place;
        if (any_sizes) require_fact(fact, tensor, other, dims, place);
    } catch (...) {
        lost_ = true;
    }
}

void GraphRecorder::refused(const OpCall& call) noexcept {
    for (const Tensor* input : call.inputs) fact_asked(Fact::Strides, *input, nullptr, 0);
    try {
        for (const SizeUse& use : sizes_in(call)) recording.sizes.require(use.term, current_origin());
    } catch (...) {
        lost_ = true;
    }
}

std::optional<Attributes> GraphRecorder::decode(const OpInfo& info, const Attributes& given) {
    std::optional<Attributes> plain;
    for (int i = 0; info.attributes[i]; ++i) {
        for (int64_t k = 0; info.has_sizes(i) && k < given.length(i); ++k) {
            const int32_t at = given.items[i].offset + static_cast<int32_t>(k);
            if (!recording.sizes.knows(given.values[at])) continue;
            if (!plain) plain.emplace(given);
            plain->values[at] = recording.sizes.number_of(recording.sizes.term_of(given.values[at]));
        }
    }
    return plain;
}

int64_t GraphRecorder::fact(SizeTerm::Op op, const Tensor& tensor, int dim, const Tensor* other) {
    const int64_t number = op == SizeTerm::Op::Size     ? tensor.shape()[dim]
                           : op == SizeTerm::Op::Stride ? tensor.strides()[dim]
                           : op == SizeTerm::Op::Dense  ? tensor.is_contiguous()
                                                        : &tensor.storage() == &other->storage();
    Tensor *const value = any_sizes ? known_value(tensor) : nullptr, *const second = value && other ? known_value(*other) : nullptr;
    if (!value || (other && !second)) return number;
    const auto& node = static_cast<const Node&>(*value->node);
    if (op == SizeTerm::Op::Dense && node.kind != NodeKind::View && node.kind != NodeKind::Input) return number;  // what is computed always is
    if (in_region() && node.order >= regions_.front().region->start) return number;                               // as its operands are, whose sizes are fixed
    const int32_t term = other ? recording.sizes.add_fact(op, *value, *second, number) : recording.sizes.add_fact(op, *value, dim, number);
    if (!in_region()) return RecordedSizes::code_of(term);
    recording.sizes.require(term, current_origin());
    return number;
}

void GraphRecorder::begin_region() {
    if (!why.empty()) fail(ErrorKind::Runtime, "region: the graph was given up: {}", why);
    regions_.push_back({make_ref<Region>(id, recorded_), thread_settings.mode, thread_settings.recording});
    thread_settings.mode = Mode::Capture;
    thread_settings.recording = false;
    thread_settings.in_region = true;
}

Ref<Region> GraphRecorder::end_region() noexcept {
    if (regions_.empty()) return nullptr;
    Open open = std::move(regions_.back());
    regions_.pop_back();
    thread_settings.mode = open.mode;
    thread_settings.recording = open.recording;
    thread_settings.in_region = in_region();
    return std::move(open.region);
}

Ref<Tensor> GraphRecorder::region_input(DType dtype, const Dims& shape) {
    if (regions_.empty()) fail(ErrorKind::Runtime, "region: none is open");
    Ref<Tensor> stand_in = make_tensor(dtype, shape, Device{});
    stand_in->node = make_ref<Node>(OpCode::Input, NodeKind::Input, id, recorded_++);
    regions_.back().region->parameters.push_back(stand_in);
    return stand_in;
}

Ref<Tensor> GraphRecorder::region_output(Tensor* tensor) {
    const Ref<Tensor> value = Ref<Tensor>::share(twin_of(tensor));
    keep_real(value.get(), tensor);
    const auto& before = regions_.back().region->outputs;
    const auto* const node = static_cast<const Node*>(value->node.get());
    const bool own = node && node->order >= regions_.back().region->start && node->kind != NodeKind::Input && node->kind != NodeKind::View;
    if (own && std::none_of(before.begin(), before.end(), [&](const Ref<Tensor>& other) { return other->node == value->node; })) return value;
    Tensor* const operands[] = {tensor};
    return call(OpCode::Copy, operands, Attributes{});
}

std::vector<Ref<Tensor>> GraphRecorder::control(OpCode op, std::span<Tensor* const> given, std::span<Region* const> regions) {
    if (!why.empty()) fail(ErrorKind::Runtime, "{}: the graph was given up: {}", op_info(op).name, why);
    // All regions get the operands, and behind them what any of them captures.
    std::vector<Tensor*> operands(given.begin(), given.end());
    std::vector<Ref<Tensor>> values, captured;
    std::unordered_set<const Tensor*> known;
    const bool by_itself = std::all_of(regions.begin(), regions.end(), [](const Region* region) { return region->parameters.empty(); });
    for (Tensor* operand : operands) {
        values.push_back(Ref<Tensor>::share(twin_of(operand)));
        if (by_itself) known.insert(values.back().get());  // else regions know operands as their parameters
    }
    for (const Region* region : regions) {
        if (region->capture != id) fail(ErrorKind::Value, "{}: a region belongs to another capture", op_info(op).name);
        if (!region->parameters.empty() && region->parameters.size() != given.size()) {
            fail(ErrorKind::Value, "{}: a region takes {} values, {} are given", op_info(op).name, region->parameters.size(), given.size());
        }
        for (Tensor* t : region->find_captured()) {
            if (known.insert(t).second) captured.push_back(Ref<Tensor>::share(t));
        }
    }
    for (const Ref<Tensor>& value : captured) {
        const auto real = reals_.find(value.get());
        operands.push_back(real == reals_.end() || thread_mode() == Mode::Capture ? value.get() : real->second.get());
    }
    std::vector<std::shared_ptr<const Program>> programs;
    for (const Region* region : regions) {
        std::vector<Ref<Tensor>> inputs = region->parameters.empty() ? values : region->parameters;
        inputs.insert(inputs.end(), captured.begin(), captured.end());
        programs.push_back(region->program(inputs));
    }
    check_control(op, programs, operands);
    return run_control(op, programs, operands);
}

void GraphRecorder::add(const OpCall& call, Results& results) {
    if (call.info.kind == NodeKind::Random && in_region()) {
        fail(ErrorKind::NotImplemented, "{}: random operators cannot be in a branch or a loop of a graph", call.info.name);
    }
    Ref<Node> node = new_node(call);
    results[0]->node = std::move(node);
    keep(results[0]);
    if (call.info.kind == NodeKind::Random) recording.effects.push_back(results[0]);
    if (results[1]) results[1]->node = result_node(1, results[0], call.info.kind);
}

Ref<Node> GraphRecorder::result_node(size_t which, const Ref<Tensor>& of, NodeKind kind) {
    Attributes attributes;
    attributes.add(static_cast<int64_t>(which));
    auto node = make_ref<Node>(OpCode::Result, kind, id, recorded_++, attributes);
    node->inputs.push_back(of);
    return node;
}

void GraphRecorder::add_control(const ControlCall& call, const std::vector<Ref<Tensor>>& results) {
    auto node = make_ref<Node>(call.op, NodeKind::Control, id, recorded_++);
    for (Tensor* operand : call.operands) {
        Tensor* const twin = twin_of(operand);
        keep_real(twin, operand);
        node->inputs.push_back(Ref<Tensor>::share(twin));
        // What regions work with has the shapes that it has now.
        if (any_sizes && regions_.empty() && known_value(*operand)) require_fact(Fact::Shape, *operand, nullptr, 0, current_origin());
    }
    node->regions = call.regions;
    node->place = current_origin();
    const Ref<Tensor> sequence = make_tensor(DType::Bool, Dims{}, Device{});
    sequence->node = std::move(node);
    for (size_t i = 0; i < results.size(); ++i) results[i]->node = result_node(i, sequence, NodeKind::Control);
    keep(results[0]);
}

void GraphRecorder::add_write(const OpCall& call) {
    if (!regions_.empty()) fail(ErrorKind::NotImplemented, "{}: a branch or a loop of a graph cannot write over memory", call.info.name);
    const Ref<Node> node = new_node(call);
    node->in_place = true;
    Tensor* const over = twin_of(call.over);
    if (call.info.code == OpCode::Copy) node->inputs.insert(node->inputs.begin(), Ref<Tensor>::share(over));
    const Ref<Tensor> written = make_view(*over, over->dtype(), over->shape(), over->strides(), over->offset());
    written->node = node;
    recording.effects.push_back(written);
}

Ref<Node> GraphRecorder::new_node(const OpCall& call) {
    auto node = make_ref<Node>(call.info.code, call.info.kind, id, recorded_++, call.attributes);
    for (Tensor* input : call.inputs) {
        Tensor* const twin = twin_of(input);
        keep_real(twin, input);
        node->inputs.push_back(Ref<Tensor>::share(twin));
    }
    node->sizes = sizes_in(call);
    if (!regions_.empty()) fix_sizes(call, *node);
    if (call.generator) node->generator = Ref<Generator>::share(call.generator);
    node->place = current_origin();
    return node;
}

std::vector<SizeUse> GraphRecorder::sizes_in(const OpCall& call) {
    std::vector<SizeUse> uses;
    for (int32_t at = 0; call.coded && at < call.coded->used; ++at) {
        if (call.coded->values[at] != call.attributes.values[at]) uses.push_back({at, recording.sizes.term_of(call.coded->values[at])});
    }
    return uses;
}

void GraphRecorder::fix_sizes(const OpCall& call, Node& node) {
    for (const SizeUse& use : std::exchange(node.sizes, {})) recording.sizes.require(use.term, node.place);
    for (const Tensor* input : call.inputs) {
        fact_asked(Fact::Shape, *input, nullptr, 0);  // also of a call that nobody needs, which other sizes may be refused by
        if (const int32_t followed = recording.sizes.followed_by(*input); followed >= 0) recording.sizes.require(followed, node.place);
    }
}

Tensor* GraphRecorder::base_of(Tensor* tensor) const noexcept {
    Tensor* base = twin_of(tensor);
    while (base->node && static_cast<const Node&>(*base->node).kind == NodeKind::View) base = static_cast<const Node&>(*base->node).inputs[0].get();
    return base;
}

void GraphRecorder::keep_if_born(Tensor* base) {
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

Tensor* GraphRecorder::known_value(const Tensor& tensor) const noexcept {
    auto* const t = const_cast<Tensor*>(&tensor);
    if (!running) return tensor.node && static_cast<const Node&>(*tensor.node).capture == id ? t : nullptr;
    Tensor* const twin = twin_of(t);
    return twin == t ? nullptr : twin;
}

void GraphRecorder::require_fact(Fact fact, const Tensor& tensor, const Tensor* other, uint32_t dims, const Ref<Origin>& place) {
    const auto require = [&](int64_t code) { recording.sizes.require(recording.sizes.term_of(code), place); };  // nothing more of a plain number
    if (const int32_t followed = recording.sizes.followed_by(tensor); followed >= 0) recording.sizes.require(followed, place);
    if (fact == Fact::SharesMemory) return require(this->fact(SizeTerm::Op::Shared, tensor, 0, other));
    if (fact == Fact::Dense) return require(this->fact(SizeTerm::Op::Dense, tensor, 0, nullptr));
    for (int d = 0; d < tensor.rank(); ++d) {
        if (fact == Fact::Ones && !(dims >> d & 1)) continue;
        const int32_t size = recording.sizes.term_of(this->fact(SizeTerm::Op::Size, tensor, d, nullptr));
        recording.sizes.require(fact == Fact::Ones ? recording.sizes.add_computed(SizeTerm::Op::Equal, size, recording.sizes.term_of(1)) : size, place);
        if (fact == Fact::Strides) require(this->fact(SizeTerm::Op::Stride, tensor, d, nullptr));
    }
}

}  // namespace clikart
