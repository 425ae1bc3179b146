#include "graph/replay.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>

#include "core/memory.h"
#include "ops/call.h"
#include "ops/call_site.h"
#include "ops/deferred.h"
#include "ops/profile.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart {
namespace {

/// `inputs` are those of the run and, behind them, the held tensors; `outputs` the fresh ones and, behind them, what is written over.
class Run final : public Work {
public:
    Run(std::shared_ptr<const Plan> plan, bool over) : plan_(std::move(plan)), spoilt_(plan_->slots.size(), 0), over_(over) {
        for (const Plan::Random& random : plan_->random) {
            numbers_.push_back((random.generator ? *random.generator : Generator::of_process()).reserve(random.blocks));
        }
        cost = plan_->cost;
        in_place = over || !plan_->written.empty();
        in_parts = true;
    }
    Run(Run&& other) : plan_(std::move(other.plan_)), numbers_(std::move(other.numbers_)), spoilt_(std::move(other.spoilt_)), over_(other.over_) {
        for (auto& input : other.inputs) inputs.push_back(std::move(input));
        for (auto& output : other.outputs) outputs.push_back(std::move(output));
        cost = other.cost;
        in_place = other.in_place;
        in_parts = true;
    }

    const char* name() const noexcept override {
        if (!failed_.call) return "run";
        return failed_.call->fused.prepared ? failed_.call->title.c_str() : failed_.call->kernel.info->name;
    }
    Ref<Origin> place() const override { return current_origin(); }
    std::string told(const std::string& failure) const override;
    void run() override;

    bool spoiled(size_t output) const noexcept override {
        if (!started_) return true;
        const size_t fresh = plan_->fresh.size();
        if (output >= fresh) return spoilt_[static_cast<size_t>(plan_->written[output - fresh])];
        return spoilt_[static_cast<size_t>(plan_->fresh[output].slot)];
    }
    Ref<Error> inherited() const noexcept override { return inherited_; }
    bool can_run_again() const noexcept override { return !started_; }
    int64_t bytes_beside() const noexcept override { return plan_->arena_bytes; }

private:
    std::shared_ptr<const Plan> plan_;
    std::vector<Generator::State> numbers_;
    // By slot: 0 for a value that is right.  What is a part of spoiled memory only cannot be cured here.
    static constexpr char kSpoilt = 1, kForGood = 2;
    std::vector<char> spoilt_;
    Ref<Error> inherited_;  // what spoiled an input before
    const bool over_;       // results may take the places of inputs
    bool started_ = false;  // some call was made
    struct Place {
        const Plan* plan = nullptr;  // itself, or a region's
        const Plan::Call* call = nullptr;
    };
    Place current_;  // what is made now,
    Place failed_;   // and what failed first

    void look_at_inputs();
    bool is_spoilt(const Plan::Call& call, std::span<const Plan::Operand> operands, char* const* starts);
    void make_call(const Plan& plan, const Plan::Call& call, const Plan::Call* led, char* const* starts);
    void run_regions(const Plan& plan, const Plan::Call& call, char* const* starts);
    void run_region(const Plan& plan, std::span<char* const> given, std::span<char* const> results, char* workspace);
};

std::span<const Plan::Operand> operands_of(const Plan& plan, const Plan::Call& call) {
    return {&plan.operands[call.first], call.n_inputs + call.n_outputs};
}

/// What a call's kernel finds here: what it made of its constant input in earlier runs, and the call that goes on with its results.
class Host {
public:
    Host(const Plan& plan, const Plan::Call& call, const FusedRun* led) noexcept : plan_(plan), call_(call), led_(led) {}
    KernelHost functions() noexcept { return {nullptr, call_.kept >= 0 ? &keep : nullptr, led_ ? &made : nullptr, this}; }
    /// Whether the kernel told what it made.  Throws what went wrong in the call that goes on with it.
    bool went_on() const {
        if (failure_) std::rethrow_exception(failure_);
        return told_.load(std::memory_order_relaxed);
    }

private:
    static Host& of(const KernelCall* call) noexcept { return *static_cast<Host*>(call->host); }

    static void made(const KernelCall* of_call, int64_t begin, int64_t end) {
        Host& self = of(of_call);
        self.told_.store(true, std::memory_order_relaxed);
        try {
            self.led_->part(begin, end);
        } catch (...) {
            std::lock_guard lock(self.lock_);
            if (!self.failure_) self.failure_ = std::current_exception();
        }
    }

    static const void* keep(const KernelCall* of_call, int32_t input, size_t bytes, void (*fill)(void*, void*), void* context) {
        Host& self = of(of_call);
        const Plan::Slot& slot = self.plan_.slots[static_cast<size_t>(self.plan_.operands[self.call_.first + static_cast<uint32_t>(input)].slot)];
        if (slot.kind != Plan::Slot::Kind::Held) return nullptr;
        const Storage& storage = self.plan_.held[static_cast<size_t>(slot.place)]->storage();
        if (!storage.changes_by_calls_alone()) return nullptr;
        Plan::Kept& kept = self.plan_.kept[static_cast<size_t>(self.call_.kept)];
        const uint64_t version = storage.version();  // no call writes while this one reads
        {
            std::lock_guard lock(kept.lock);
            self.kept_ = kept.made;
        }
        if (self.kept_ && self.kept_->version == version && self.kept_->block.bytes() == bytes) return self.kept_->block.as<void>();
        try {
            self.kept_ = std::make_shared<const Plan::Made>(bytes, version);
        } catch (...) {  // it is quicker with it, and possible without
            return nullptr;
        }
        fill(context, self.kept_->block.as<void>());
        std::shared_ptr<const Plan::Made> before = self.kept_;  // released after the lock
        std::lock_guard lock(kept.lock);
        std::swap(kept.made, before);
        return self.kept_->block.as<void>();
    }

    const Plan& plan_;
    const Plan::Call& call_;
    const FusedRun* const led_;
    std::shared_ptr<const Plan::Made> kept_;  // stays while the kernel runs
    std::atomic<bool> told_{false};
    std::mutex lock_;  // guards failure_
    std::exception_ptr failure_;
};

int64_t bytes_of(std::span<const Plan::Operand> operands) {
    int64_t bytes = 0;
    for (const Plan::Operand& operand : operands) {
        const View& view = operand.view;
        bytes += bytes_of(static_cast<DType>(view.dtype), numel(Dims(std::span(view.shape, static_cast<size_t>(view.rank)))));
    }
    return bytes;
}

/// The inputs whose values are spoiled, by work before.
void Run::look_at_inputs() {
    std::lock_guard lock(submission());
    for (size_t i = 0; i < plan_->slots.size(); ++i) {
        const Plan::Slot& slot = plan_->slots[i];
        const bool held = slot.kind == Plan::Slot::Kind::Held;
        if (!held && slot.kind != Plan::Slot::Kind::Input) continue;
        const Ref<Tensor>& tensor = held ? plan_->held[static_cast<size_t>(slot.place)] : inputs[static_cast<size_t>(slot.place)];
        const Ref<Error>& error = tensor->storage().history().error;
        if (!error) continue;
        spoilt_[i] = covers_all(*tensor) ? kSpoilt : kForGood;
        if (!inherited_) inherited_ = error;
    }
}

/// Whether some call of a region, or its result, has to do with one of its inputs.
bool reads_input(const Plan& region, size_t input) {
    const auto is_it = [&](const Plan::Operand& operand) {
        const Plan::Slot& slot = region.slots[static_cast<size_t>(operand.slot)];
        return slot.kind == Plan::Slot::Kind::Input && static_cast<size_t>(slot.place) == input;
    };
    return std::any_of(region.operands.begin(), region.operands.end(), is_it);
}

/// Whether the call reads what is spoiled; its results are, then.  One that writes over the whole of something cures it.
bool Run::is_spoilt(const Plan::Call& call, std::span<const Plan::Operand> operands, char* const* starts) {
    const auto is_bad = [&](uint32_t i) { return spoilt_[static_cast<size_t>(operands[i].slot)] != 0; };
    const Plan* branch = nullptr;  // the only one that reads
    if (!call.regions.empty() && call.kernel.info->code == OpCode::Cond && !is_bad(0)) {
        branch = call.regions[*reinterpret_cast<const bool*>(starts[operands[0].slot] + operands[0].offset) ? 0 : 1].get();
    }
    bool spoilt = false;
    for (uint32_t i = 0; i < call.n_inputs; ++i) spoilt = spoilt || (is_bad(i) && (!branch || reads_input(*branch, i)));
    for (uint32_t i = call.n_inputs; i < call.n_inputs + call.n_outputs; ++i) {
        char& result = spoilt_[static_cast<size_t>(operands[i].slot)];
        if (spoilt && !result) result = kSpoilt;
        if (!spoilt && result == kSpoilt && bytes_of(operands.subspan(i, 1)) == plan_->slots[static_cast<size_t>(operands[i].slot)].bytes) result = 0;
    }
    return spoilt;
}

/// With `led`, that call as well.
void Run::make_call(const Plan& plan, const Plan::Call& call, const Plan::Call* led, char* const* starts) {
    current_ = {&plan, &call};
    const std::span<const Plan::Operand> operands = operands_of(plan, call);
    const auto place = [&](const Plan::Operand& operand) { return starts[operand.slot] + operand.offset; };
    std::optional<profile::Span> span;
    if (profile::is_on()) [[unlikely]] {
        std::string title = call.fused.prepared ? call.title : call.kernel.info->name;
        if (led) title += " + " + led->title;
        span.emplace(title, static_cast<int32_t>(call.step), bytes_of(operands) + (led ? bytes_of(operands_of(plan, *led)) : 0), plan.places[call.step]);
    }
    if (!call.regions.empty()) return run_regions(plan, call, starts);
    const Plan::Call& followed = led ? *led : call;
    SmallVector<void*, 8> places;
    std::optional<FusedRun> fused;
    if (followed.fused.prepared) {
        for (const Plan::Operand& operand : operands_of(plan, followed)) places.push_back(place(operand));
        fused.emplace(followed.fused, places.data(), places[followed.n_inputs]);
    }
    if (!led && fused) return fused->all();
    SmallVector<View, 8> views;
    for (const Plan::Operand& operand : operands) {
        View view = operand.view;
        view.data = place(operand);
        views.push_back(view);
    }
    const std::span<View> in(views.data(), call.n_inputs), out(views.data() + call.n_inputs, call.n_outputs);
    if (call.random >= 0) return run_kernel(call.kernel, with_numbers(*call.attributes, numbers_[static_cast<size_t>(call.random)]), in, out, call.in_place);
    Host host(plan, call, fused ? &*fused : nullptr);
    run_kernel(call.kernel, *call.attributes, in, out, call.in_place, host.functions());
    if (!fused) return;
    current_ = {&plan, led};
    if (!host.went_on()) fused->all();
}

/// What a control step does (graph/control.h), in memory that the plan has set aside.
void Run::run_regions(const Plan& plan, const Plan::Call& call, char* const* starts) {
    std::vector<char*> given, results;
    const std::span<const Plan::Operand> operands = operands_of(plan, call);
    for (const Plan::Operand& operand : operands) (given.size() < call.n_inputs ? given : results).push_back(starts[operand.slot] + operand.offset);
    char* workspace = results.back();
    results.pop_back();
    if (call.kernel.info->code == OpCode::Cond) {
        const bool truth = *reinterpret_cast<const bool*>(given[0]);
        return run_region(*call.regions[truth ? 0 : 1], given, results, workspace);
    }
    const Plan &condition = *call.regions[0], &body = *call.regions[1];
    const LoopMemory memory(body);
    char* const truth = workspace;
    std::vector<char*> others;
    for (const size_t place : memory.places) others.push_back(workspace + place);
    workspace += memory.bytes;
    bool in_results = false;
    const auto goes_on = [&] {
        run_region(condition, given, {&truth, 1}, workspace);
        return *reinterpret_cast<const bool*>(truth);
    };
    while (goes_on()) {
        in_results = !in_results;
        const std::vector<char*>& next = in_results ? results : others;
        run_region(body, given, next, workspace);
        std::copy(next.begin(), next.end(), given.begin());
    }
    for (size_t i = 0; !in_results && i < results.size(); ++i) {
        const Plan::Output& output = body.outputs[i];
        const auto bytes = static_cast<size_t>(bytes_of(output.dtype, numel(output.layout.shape)));
        if (bytes > 0) std::memcpy(results[i], given[i], bytes);
    }
}

/// Each result has a place of its own.
void Run::run_region(const Plan& plan, std::span<char* const> given, std::span<char* const> results, char* workspace) {
    auto** const starts = reinterpret_cast<char**>(workspace + plan.arena_bytes);
    for (size_t i = 0; i < plan.slots.size(); ++i) {
        const Plan::Slot& slot = plan.slots[i];
        const auto place = static_cast<size_t>(slot.place);
        switch (slot.kind) {
            case Plan::Slot::Kind::Input: starts[i] = given[place]; break;
            case Plan::Slot::Kind::Held: starts[i] = static_cast<char*>(plan.held[place]->storage().data()); break;
            case Plan::Slot::Kind::Arena: starts[i] = workspace + place; break;
            case Plan::Slot::Kind::Output: break;
        }
    }
    for (size_t k = 0; k < results.size(); ++k) starts[plan.outputs[k].slot] = results[k];
    for (size_t c = 0; c < plan.calls.size(); ++c) {
        const Plan::Call* const led = plan.calls[c].leads ? &plan.calls[c + 1] : nullptr;
        make_call(plan, plan.calls[c], led, starts);
        if (led) ++c;
    }
}

/// A call that fails spoils what depends on it, and nothing else (I9); the first failure is thrown when all is done.
void Run::run() {
    const Plan& plan = *plan_;
    const Block block(static_cast<size_t>(plan.arena_bytes) + plan.slots.size() * sizeof(char*));
    auto** const starts = reinterpret_cast<char**>(block.as<char>() + plan.arena_bytes);
    for (size_t i = 0; i < plan.slots.size(); ++i) {
        const Plan::Slot& slot = plan.slots[i];
        const auto place = static_cast<size_t>(slot.place);
        switch (slot.kind) {
            case Plan::Slot::Kind::Input: starts[i] = static_cast<char*>(inputs[place]->data()); break;
            case Plan::Slot::Kind::Held: starts[i] = static_cast<char*>(plan.held[place]->storage().data()); break;
            case Plan::Slot::Kind::Arena: starts[i] = block.as<char>() + place; break;
            case Plan::Slot::Kind::Output: starts[i] = static_cast<char*>(outputs[place]->data()); break;
        }
    }
    look_at_inputs();
    Ref<Error> first;
    bool any = static_cast<bool>(inherited_);
    for (size_t c = 0; c < plan.calls.size(); ++c) {
        const Plan::Call& call = plan.calls[c];
        if (any && is_spoilt(call, operands_of(plan, call), starts)) continue;
        const Plan::Call* const led = call.leads && !any ? &plan.calls[++c] : nullptr;
        try {
            make_call(plan, call, led, starts);
            started_ = true;
        } catch (...) {
            const Ref<Error> error = current_error();
            if (!started_ && !call.in_place && !over_ && error->kind() == ErrorKind::Memory) throw;  // it may be there later
            started_ = any = true;
            if (!first) first = error, failed_ = current_;
            for (const Plan::Call* failed : {&call, led}) {
                if (!failed) continue;
                for (const Plan::Operand& result : operands_of(plan, *failed).subspan(failed->n_inputs)) {
                    char& value = spoilt_[static_cast<size_t>(result.slot)];
                    if (!value) value = kSpoilt;
                }
            }
        }
    }
    started_ = true;
    if (first) throw Failure(first);
}

std::string Run::told(const std::string& failure) const {
    if (!failed_.call) return Work::told(failure);
    const Plan::Call& call = *failed_.call;
    std::string shown[2];
    for (uint32_t i = 0; i < call.n_inputs + call.n_outputs; ++i) {
        const View& view = failed_.plan->operands[call.first + i].view;
        std::string& list = shown[i < call.n_inputs ? 0 : 1];
        list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name_of(static_cast<DType>(view.dtype)),
                            to_string(Dims(std::span(view.shape, static_cast<size_t>(view.rank)))));
    }
    const Ref<Origin>& recorded = failed_.plan->places[call.step];
    const std::string* const place = recorded ? recorded->text() : nullptr;
    return fmt::format("{}: {} (from {} to {}; node {} of a graph{}{})", name(), failure, shown[0], shown[1], call.step,
                       failed_.plan == plan_.get() ? "" : "'s region", place ? ", recorded at " + *place : "");
}

bool is_same_place(const Tensor& a, const Tensor& b) {
    return &a.storage() == &b.storage() && a.dtype() == b.dtype() && a.offset() == b.offset() && a.shape() == b.shape() && a.strides() == b.strides();
}

/// Whether the output can be written where the input lies, which has the same dtype, shape and strides: nobody reads the input once that
/// begins, but for a call that looks at the same elements alone.
bool takes_over(const Plan& plan, int32_t input, int32_t output) {
    if (std::find(plan.written.begin(), plan.written.end(), input) != plan.written.end()) return false;
    const auto writes = [&](const Plan::Call& call) {
        const std::span results(&plan.operands[call.first + call.n_inputs], call.n_outputs);
        return std::any_of(results.begin(), results.end(), [&](const Plan::Operand& result) { return result.slot == output; });
    };
    const auto first = std::find_if(plan.calls.begin(), plan.calls.end(), writes);
    if (first == plan.calls.end()) return false;
    const bool led = first != plan.calls.begin() && std::prev(first)->leads;  // it is written while that one reads
    for (auto call = led ? std::prev(first) : first; call != plan.calls.end(); ++call) {
        for (uint32_t i = 0; i < call->n_inputs; ++i) {
            if (plan.operands[call->first + i].slot == input && !(call == first && plan.can_replace(*call, i))) return false;
        }
    }
    return true;
}

}  // namespace

bool can_run_into(const Plan& plan, std::span<Tensor* const> inputs, std::span<Tensor* const> outputs) {
    if (plan.calls.empty()) return false;
    for (size_t i = 0; i < outputs.size(); ++i) {
        const Plan::Output& planned = plan.outputs[i];
        const Tensor& to = *outputs[i];
        const bool alone = !planned.itself && planned.whole && plan.slots[static_cast<size_t>(planned.slot)].kind == Plan::Slot::Kind::Output &&
                           std::count_if(plan.outputs.begin(), plan.outputs.end(), [&](const Plan::Output& other) { return other.slot == planned.slot; }) == 1;
        if (!alone || to.node || !to.size_known() || to.storage().is_meta() || !to.storage().writable() || to.number) return false;
        if (to.dtype() != planned.dtype || !(to.shape() == planned.layout.shape) || !to.is_contiguous()) return false;
        for (size_t k = 0; k < inputs.size(); ++k) {  // the slots of inputs come first
            if (overlaps(*inputs[k], to) && !(is_same_place(*inputs[k], to) && takes_over(plan, static_cast<int32_t>(k), planned.slot))) return false;
        }
        for (const Ref<Tensor>& held : plan.held) {
            if (overlaps(*held, to)) return false;
        }
        for (size_t k = 0; k < i; ++k) {
            if (overlaps(*outputs[k], to)) return false;
        }
    }
    return true;
}

std::vector<Ref<Tensor>> submit_run(const std::shared_ptr<const Plan>& plan, std::span<Tensor* const> inputs, std::span<Tensor* const> into) {
    const ThreadSettings& thread = thread_settings;
    const Ref<Stream> stream = resolve(Device{}, thread);
    std::vector<Ref<Tensor>> fresh;
    for (const Plan::Fresh& planned : plan->fresh) {
        fresh.push_back(make_tensor(planned.dtype, planned.shape, Device{}));
        fresh.back()->stream = stream;
    }
    for (size_t i = 0; i < into.size(); ++i) {
        submit_deferred_for_writing(into[i]->storage());
        fresh[static_cast<size_t>(plan->slots[static_cast<size_t>(plan->outputs[i].slot)].place)] = Ref<Tensor>::share(into[i]);
    }
    std::vector<Ref<Tensor>> outputs;
    outputs.reserve(plan->outputs.size());
    for (const Plan::Output& planned : plan->outputs) {
        if (planned.itself) {
            outputs.push_back(planned.itself);
            continue;
        }
        const Plan::Slot& slot = plan->slots[static_cast<size_t>(planned.slot)];
        const auto place = static_cast<size_t>(slot.place);
        const Ref<Tensor> whole = slot.kind == Plan::Slot::Kind::Input ? Ref<Tensor>::share(inputs[place]) : fresh[place];
        outputs.push_back(planned.whole ? whole
                                        : make_view(*whole, planned.dtype, planned.layout.shape, planned.layout.strides,
                                                    (slot.kind == Plan::Slot::Kind::Input ? whole->offset() : 0) + planned.offset));
    }
    if (plan->calls.empty()) return outputs;
    Run work(plan, !into.empty());
    for (Tensor* input : inputs) work.inputs.push_back(Ref<Tensor>::share(input));
    for (const Ref<Tensor>& held : plan->held) work.inputs.push_back(held);
    for (const auto& input : work.inputs) submit_deferred(input->storage());
    for (Ref<Tensor>& output : fresh) work.outputs.push_back(std::move(output));
    for (const int32_t written : plan->written) {
        const Plan::Slot& slot = plan->slots[static_cast<size_t>(written)];
        const Ref<Tensor>& tensor = work.inputs[static_cast<size_t>(slot.place) + (slot.kind == Plan::Slot::Kind::Held ? inputs.size() : 0)];
        submit_deferred_for_writing(tensor->storage());
        work.outputs.push_back(tensor);
    }
    const bool synchronous = thread_is_synchronous(thread) || stream->is_default();
    std::vector<Ref<Tensor>> made;
    if (synchronous) made.assign(work.outputs.begin(), work.outputs.end());
    stream->submit(std::move(work), synchronous);
    for (const Ref<Tensor>& tensor : made) throw_failure(*tensor);
    return outputs;
}

}  // namespace clikart
