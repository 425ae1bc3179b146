#include "ops/call.h"

#include <algorithm>
#include <optional>

#include "ops/call_site.h"
#include "ops/deferred.h"
#include "ops/generator.h"
#include "ops/kernel.h"
#include "ops/profile.h"
#include "ops/recorder.h"
#include "ops/rules.h"
#include "ops/settings.h"
#include "ops/settle.h"

namespace clikart {

Recorder*& thread_recorder() noexcept {
    thread_local Recorder* recorder = nullptr;
    return recorder;
}

namespace {

thread_local const char* call_of_parts = nullptr;  // the name of the outermost

KernelFn kernel_of(const OpInfo& info, DType dtype) {
    return kernel_for(info, dtype, call_of_parts ? call_of_parts : info.name);
}

/// A kernel with its operands.
class KernelWork final : public Work {
public:
    KernelWork(const Kernel& kernel, const Attributes& attributes) : kernel_(kernel), attributes_(attributes) {}
    KernelWork(KernelWork&& other) : kernel_(other.kernel_), attributes_(other.attributes_) {
        for (auto& input : other.inputs) inputs.push_back(std::move(input));
        for (auto& output : other.outputs) outputs.push_back(std::move(output));
        cost = other.cost;
        in_place = other.in_place;
    }

    const char* name() const noexcept override { return kernel_.info->name; }
    Ref<Origin> place() const override { return current_origin(); }

    void run() override {
        SmallVector<View, 4> in;
        SmallVector<View, 2> out;
        for (const auto& t : inputs) in.push_back(view_of(*t));
        for (const auto& t : outputs) out.push_back(view_of(*t));
        const bool found = outputs[0]->size_known();
        std::optional<profile::Span> span;
        if (profile::is_on()) [[unlikely]]
            span.emplace(name(), -1, bytes(), origin);
        run_kernel(kernel_, attributes_, {in.data(), in.size()}, {out.data(), out.size()}, in_place, {found ? nullptr : &find_size, nullptr, nullptr, this});
    }

private:
    static View view_of(const Tensor& t) { return {t.data(), t.shape().data(), t.strides().data(), t.rank(), static_cast<int32_t>(t.dtype())}; }
    int64_t bytes() const {
        int64_t all = 0;
        for (const auto& t : inputs) all += bytes_of(t->dtype(), t->numel());
        for (const auto& t : outputs) all += bytes_of(t->dtype(), t->numel());
        return all;
    }
    static void find_size(const KernelCall* call, int64_t size) {
        Tensor& output = *static_cast<KernelWork*>(call->host)->outputs[0];
        output.find_size(size);
        call->outputs[0] = view_of(output);
    }

    const Kernel kernel_;
    const Attributes attributes_;
};

Ref<Tensor> cast_to(Tensor& input, DType dtype) {
    if (input.weak) {
        note_size_asked(input);  // the number that it becomes follows no size
        return scalar_as(input, dtype);
    }
    Attributes attributes;
    attributes.add(static_cast<int64_t>(dtype));
    Tensor* const inputs[] = {&input};
    return call(OpCode::Cast, inputs, attributes);
}

/// A call whose operands were checked, and converted where its kernel wants that: what is left is to run it.
struct Checked {
    explicit Checked(const OpInfo& info) noexcept : info(info) {}  // nothing else is cleared: this is in every call

    const OpInfo& info;
    KernelFn kernel = nullptr;
    DTypes dtypes;
    OutputSpec spec;
    SmallVector<Tensor*, 4> inputs;
    SmallVector<Ref<Tensor>, 2> owned;  // keeps the converted inputs alive
    const Attributes* coded = nullptr;  // see OpCall

    OpCall call(const Attributes& attributes, Generator* generator = nullptr) const {
        return {info, {inputs.data(), inputs.size()}, attributes, generator, nullptr, coded};
    }
};

/// The device of the inputs, which is that of the result.  Numbers are everywhere.
Device common_device(const OpInfo& info, std::span<Tensor* const> inputs) {
    Device device{DeviceType::Unspecified, 0};
    for (const Tensor* input : inputs) {
        if (input->number || input->device() == device) continue;
        if (device.type != DeviceType::Unspecified) {
            fail(ErrorKind::Value, "{}: operands on {} and on {}; move them to one device", info.name, to_string(device), to_string(input->device()));
        }
        device = input->device();
    }
    return device;
}

void check(Checked& checked, std::span<Tensor* const> given, const Attributes& attributes) {
    const OpInfo& info = checked.info;
    require_sizes(given, info.name);
    checked.dtypes = info.dtype(OpCall{info, given, attributes});
    checked.inputs.reserve(given.size());
    const DType compute = checked.dtypes.compute;
    const uint32_t cast = info.kind == NodeKind::Elementwise ? 0 : checked.dtypes.cast;
    for (size_t i = 0; i < given.size(); ++i) {
        Tensor* input = given[i];
        if (input->dtype() == compute) {
            checked.inputs.push_back(input);
            continue;
        }
        // A number beyond int64 takes part with its full value or not at all; others wrap.
        if (input->weak && input->dtype() == DType::UInt64) require_fits(info.name, *input, compute);
        if (i >= 32 || cast >> i & 1) input = checked.owned.emplace_back(cast_to(*input, compute)).get();
        checked.inputs.push_back(input);
    }
    info.shape(checked.call(attributes), checked.spec);
    checked_numel(checked.spec.shape, info.name);  // whatever the rule came to
    if (info.has_kernel) checked.kernel = kernel_of(info, compute);
    for (const Tensor* input : checked.inputs) {
        if (!is_packed(input->dtype()) && !is_complex(input->dtype())) continue;
        if (info.has_kernel) kernel_of(info, input->dtype());
        if (is_complex(input->dtype())) continue;
        const bool whole = clikart::is_contiguous(checked.spec.shape, checked.spec.strides) && checked.spec.offset == input->offset();
        if (info.kind == NodeKind::View && checked.spec.strides.rank() == checked.spec.shape.rank() && !whole) {
            fail(ErrorKind::NotImplemented, "{}: {} has two elements in a byte, so its only views are of all of them in order; cast it first", info.name,
                 describe(*input));
        }
    }
}

/// A random operator's attributes with the numbers that this call draws.
Attributes drawing(const Attributes& attributes, const Checked& checked, Generator* generator) {
    const uint64_t blocks = random_blocks({checked.inputs.data(), checked.inputs.size()}, checked.spec.shape);
    return with_numbers(attributes, (generator ? *generator : Generator::of_process()).reserve(blocks));
}

/// Hands the work to its stream, or keeps it for later.  `self`: see defer().
void dispatch(KernelWork&& work, const Ref<Stream>& on, std::span<const Ref<Tensor>> outputs, int self, const ThreadSettings& thread) {
    const Ref<Stream> stream = on;  // what is released here may run user code that changes the settings

    // The host would see that a write to its memory did not happen.
    if (thread.mode == Mode::Tracing && !(work.in_place && outputs[0]->storage().host_visible())) {
        if (self >= 0) work.inputs[static_cast<size_t>(self)] = nullptr;
        auto deferred = std::make_unique<KernelWork>(std::move(work));
        deferred->origin = current_origin();
        return defer(std::move(deferred), stream, outputs, self);
    }
    for (const auto& input : work.inputs) submit_deferred(input->storage());
    if (work.in_place) submit_deferred_for_writing(outputs[0]->storage());
    for (const auto& output : outputs) work.outputs.push_back(output);
    const bool synchronous = thread_is_synchronous(thread) || stream->is_default();
    stream->submit(std::move(work), synchronous);
    if (synchronous) throw_failure(*outputs[0]);
}

}  // namespace

CallOfParts::CallOfParts(const char* name) noexcept : name_(name), outermost_(!call_of_parts) {
    if (outermost_) call_of_parts = name;
}

CallOfParts::~CallOfParts() {
    if (outermost_) call_of_parts = nullptr;
}

void CallOfParts::refuse(const Failure& failure) const {
    const std::string &text = failure.error()->message(), name = name_;
    if (!outermost_ || text.starts_with(name + ": ") || text.starts_with("op '" + name + "'")) throw;
    throw Failure(failure.error()->kind(), name + ": " + text);
}

Ref<Tensor> call(OpCode op, std::span<Tensor* const> given, const Attributes& attributes, const Placement& placement, Generator* generator) {
    return std::move(call_many(op, given, attributes, placement, generator)[0]);
}

namespace {

/// What call(attributes, coded) returns, where the thread's calls are recorded: with numbers in the place of codes, which `coded` then has.
template <class F>
auto recorded(const OpInfo& info, std::span<Tensor* const> given, const Attributes& attributes, F&& call) {
    const auto plain = thread_recorder()->decode(info, attributes);
    try {
        return plain ? call(*plain, &attributes) : call(attributes, nullptr);
    } catch (...) {
        if (is_recorded()) thread_recorder()->refused({info, given, plain ? *plain : attributes, nullptr, nullptr, plain ? &attributes : nullptr});
        throw;
    }
}

Results call_plain(const OpInfo& info, std::span<Tensor* const> given, const Attributes& attributes, const Attributes* coded, const Placement& placement,
                   Generator* generator) {
    const OpCode op = info.code;
    if (info.composite) {
        common_device(info, given);
        require_sizes(given, info.name);
        const OpCall whole{info, given, attributes, generator, nullptr, coded};
        const auto parts = [&] { return made_of_parts(info.name, [&] { return info.composite(whole); }); };
        Ref<Tensor> result;
        if (is_recorded() && thread_recorder()->keep_composite(whole, parts, result)) return {result};
        for (const Tensor* input : given) note_size_asked(*input);  // its parts may have attributes that come from sizes
        return {parts()};
    }
    const ThreadSettings& thread = thread_settings;
    const Device of_inputs = common_device(info, given);
    Device device = placement.stream ? placement.stream->device() : placement.device;
    if (device.type == DeviceType::Unspecified) device = of_inputs.type != DeviceType::Unspecified ? of_inputs : thread_device();
    require_available(device, info.name);

    Checked checked(info);
    checked.coded = coded;
    check(checked, given, attributes);
    if (op == OpCode::Squeeze && is_recorded()) [[unlikely]] {  // which ones it leaves out
        const auto named = named_dims(checked.call(attributes), attribute::squeeze_dims);
        uint32_t dims = 0;
        for (int d = 0; d < given[0]->rank(); ++d) dims |= uint32_t{named[static_cast<size_t>(d)]} << d;
        note_asked(Recorder::Fact::Ones, *given[0], nullptr, attributes.present(attribute::squeeze_dims) ? dims : ~uint32_t{0});
    }
    // A copy instead of a view: where strides do not allow one, and of numbers, which many calls share.
    if (info.kind == NodeKind::View && (checked.spec.strides.rank() != checked.spec.shape.rank() || checked.inputs[0]->number)) {
        if (is_recorded() && !checked.inputs[0]->number && thread_recorder()->keeps_views()) {
            if (thread.mode == Mode::Capture) return thread_recorder()->record(checked.call(attributes), checked.dtypes, checked.spec);
            const Results copied = [&] {
                const Unrecorded unrecorded;
                return call_many(op, given, attributes, placement, generator);
            }();
            thread_recorder()->note(checked.call(attributes), copied);
            return copied;
        }
        checked.inputs[0] = checked.owned.emplace_back(call(OpCode::Copy, {checked.inputs.data(), 1}, Attributes{})).get();
        checked.spec = {};
        info.shape(checked.call(attributes), checked.spec);
    }
    if (thread.mode == Mode::Capture) {
        if (info.data_dependent) fail(ErrorKind::NotImplemented, "{}: results whose size depends on data cannot be recorded into a graph yet", info.name);
        if (of_inputs.type == DeviceType::Unspecified && device.type == DeviceType::Meta) {  // a step has no device of its own
            fail(ErrorKind::NotImplemented, "{}: results on device meta cannot be recorded into a graph", info.name);
        }
        return thread_recorder()->record(checked.call(attributes, generator), checked.dtypes, checked.spec);
    }
    for (const Tensor* input : checked.inputs) {
        if (input->node) require_value(*input, info.name);
    }
    Results outputs;
    if (info.kind == NodeKind::View) {
        outputs[0] = make_view(*checked.inputs[0], checked.dtypes.result, checked.spec.shape, checked.spec.strides, checked.spec.offset);
        if (thread.recording) thread_recorder()->note(checked.call(attributes), outputs);
        return outputs;
    }
    Ref<Tensor>& output = outputs[0];
    output = make_tensor(checked.dtypes.result, checked.spec.shape, device);
    if (info.n_outputs > 1) outputs[1] = make_tensor(checked.dtypes.second, checked.spec.shape, device);
    if (info.data_dependent) {
        if (device.type == DeviceType::Meta || thread_mode() == Mode::Tracing) {
            fail(ErrorKind::Runtime, "{}: the size of its result depends on data, which is not there {}", info.name,
                 device.type == DeviceType::Meta ? "on device meta" : "while calls are deferred; call it under eager()");
        }
        output = make_ref<Tensor>(checked.dtypes.result, checked.spec.shape, contiguous_strides(checked.spec.shape), 0, make_ref<Storage>(-1, device));
        output->leave_size_open();
    }
    if (thread.recording) {
        if (info.data_dependent) thread_recorder()->give_up(fmt::format("{}: the size of its result depends on data", info.name));
        if (device.type == DeviceType::Meta) thread_recorder()->give_up(fmt::format("{}: its result is on device meta", info.name));
    }
    if (device.type == DeviceType::Meta) return outputs;
    const Ref<Stream>& stream = placement.stream ? placement.stream : resolve(device, thread);
    const std::span<Ref<Tensor>> results(outputs.data(), static_cast<size_t>(info.n_outputs));
    for (const auto& result : results) result->stream = stream;

    const bool random = info.kind == NodeKind::Random;
    KernelWork work({&info, checked.kernel, checked.dtypes.compute}, random ? drawing(attributes, checked, generator) : attributes);
    for (Tensor* input : checked.inputs) work.inputs.push_back(Ref<Tensor>::share(input));
    work.cost = estimate_cost(info, {checked.inputs.data(), checked.inputs.size()}, checked.spec.shape);
    dispatch(std::move(work), stream, results, -1, thread);
    if (thread.recording) thread_recorder()->note(checked.call(attributes, generator), outputs);
    return outputs;
}

}  // namespace

Results call_many(OpCode op, std::span<Tensor* const> given, const Attributes& attributes, const Placement& placement, Generator* generator) {
    const OpInfo& info = op_info(op);
    if (is_recorded()) [[unlikely]] {
        return recorded(info, given, attributes,
                        [&](const Attributes& plain, const Attributes* coded) { return call_plain(info, given, plain, coded, placement, generator); });
    }
    return call_plain(info, given, attributes, nullptr, placement, generator);
}

// ---- in place --------------------------------------------------------------------------------------------------------

namespace {

/// Whether no two elements share memory.
bool has_memory_for_each(const Tensor& to) {
    // Sorted by stride, each dimension must step over all that the smaller ones reach.
    SmallVector<std::pair<int64_t, int64_t>, 8> dims;  // |stride|, size
    for (int d = 0; d < to.rank(); ++d) {
        if (to.shape()[d] == 0) return true;
        if (to.shape()[d] > 1) dims.push_back({std::abs(to.strides()[d]), to.shape()[d]});
    }
    std::sort(dims.begin(), dims.end());
    int64_t reach = 0;
    for (const auto& [stride, size] : dims) {
        if (stride <= reach) return false;
        reach += stride * (size - 1);
    }
    return true;
}

/// Throws unless every element of `to` has its own memory, which may be written.
void require_writable(const Tensor& to, const char* who) {
    if (to.number) fail(ErrorKind::Type, "{}: a number cannot be written to", who);
    if (!to.storage().writable()) fail(ErrorKind::Value, "{}: the memory of {} was borrowed read-only", who, describe(to));
    if (!has_memory_for_each(to)) fail(ErrorKind::Value, "{}: elements of {} with strides {} share memory", who, describe(to), to_string(to.strides()));
}

/// The bytes a tensor reaches, as [begin, end).
std::pair<const char*, const char*> extent(const Tensor& t) {
    int64_t low = 0, high = 1;
    for (int d = 0; d < t.rank(); ++d) {
        const int64_t span = t.strides()[d] * (t.shape()[d] - 1);
        (span < 0 ? low : high) += span;
    }
    if (is_packed(t.dtype())) return {nullptr, static_cast<const char*>(nullptr) + INT64_MAX};  // all of it
    const int64_t size = size_of(t.dtype());
    // Of memory that only its own tensors reach, only the place within it counts, and it may not be there yet.
    const char* const base = t.storage().host_visible() ? static_cast<const char*>(t.storage().data()) : nullptr;
    return {base + (t.offset() + low) * size, base + (t.offset() + high) * size};
}

}  // namespace

bool is_writable(const Tensor& to) {
    return !to.number && to.storage().writable() && has_memory_for_each(to);
}

bool overlaps(const Tensor& a, const Tensor& b) {
    if (a.numel() == 0 || b.numel() == 0) return false;
    if (&a.storage() != &b.storage() && !(a.storage().host_visible() && b.storage().host_visible())) return false;
    const auto [a_begin, a_end] = extent(a);
    const auto [b_begin, b_end] = extent(b);
    return a_end > b_begin && b_end > a_begin;
}

bool overlaps_otherwise(const Tensor& from, const Tensor& to) {
    return overlaps(from, to) &&
           !(extent(from).first == extent(to).first && from.dtype() == to.dtype() && from.shape() == to.shape() && from.strides() == to.strides());
}

namespace {

/// A deferred call is kept alive by the storage that it writes, and so must not keep that alive as an operand.
bool must_be_apart(const Tensor& from, const Tensor& to) {
    return thread_mode() == Mode::Tracing && &from.storage() == &to.storage();
}

Ref<Tensor> copy_of(Tensor& tensor) {
    Tensor* const inputs[] = {&tensor};
    return call(OpCode::Copy, inputs, Attributes{});
}

/// What every write over an existing tensor has to pass.
void check_destination(const Tensor& to, const char* who) {
    if (to.node && thread_mode() != Mode::Capture) require_value(to, who);
    settle_size(to, who);
    require_writable(to, who);
}

void submit_in_place(const Checked& checked, const Attributes& attributes, Tensor& to, int self, Generator* generator = nullptr) {
    const ThreadSettings& thread = thread_settings;
    OpCall recorded = checked.call(attributes, generator);
    recorded.over = &to;
    if (is_recorded()) [[unlikely]]
        thread_recorder()->before_write(to);
    if (thread.mode == Mode::Capture) {
        thread_recorder()->record(recorded, checked.dtypes, checked.spec);
        return;
    }
    const Ref<Stream> stream = resolve(to.device(), thread);
    const bool random = checked.info.kind == NodeKind::Random;
    KernelWork work({&checked.info, checked.kernel, checked.dtypes.compute}, random ? drawing(attributes, checked, generator) : attributes);
    work.in_place = true;
    for (Tensor* input : checked.inputs) work.inputs.push_back(Ref<Tensor>::share(input));
    work.cost = estimate_cost(checked.info, {checked.inputs.data(), checked.inputs.size()}, to.shape());
    if (checked.info.kind == NodeKind::Index) {  // of the destination only places are written
        int64_t elements = 0;
        for (size_t i = 1; i < checked.inputs.size(); ++i) elements = std::max(elements, checked.inputs[i]->numel());
        work.cost = static_cast<double>(elements) * static_cast<double>(checked.info.cost);
    }
    const Ref<Tensor> output = Ref<Tensor>::share(&to);
    dispatch(std::move(work), stream, {&output, 1}, self, thread);
    if (thread.recording) thread_recorder()->note(recorded, {});
}

}  // namespace

const OpInfo& converting(DType from, DType to) {
    return op_info(from == to ? OpCode::Copy : OpCode::Cast);
}

namespace {

void copy_plain(Tensor& to, Tensor& from) {
    const OpInfo& info = op_info(OpCode::Copy);
    constexpr const char* who = "copy_";
    check_destination(to, who);
    Tensor* const both[] = {&to, &from};
    const Device device = common_device(info, both);
    settle_size(from, who);
    if (from.node && thread_mode() != Mode::Capture) require_value(from, who);
    Dims shape;
    if (!broadcast_shapes(from.shape(), to.shape(), shape) || !(shape == to.shape())) {
        fail(ErrorKind::Value, "{}: shape {} does not broadcast to {}", who, to_string(from.shape()), to_string(to.shape()));
    }
    if (device.type == DeviceType::Meta) return;
    const bool itself = &from.storage() == &to.storage() && from.dtype() == to.dtype() && from.offset() == to.offset() && from.shape() == to.shape() &&
                        from.strides() == to.strides();
    if (itself) return;  // x[i] += 1 ends so
    Checked checked(info);
    Tensor* source = &from;
    if (overlaps_otherwise(from, to) || must_be_apart(from, to)) source = checked.owned.emplace_back(copy_of(from)).get();
    if (source->weak) note_size_asked(*source);
    if (source->weak) require_fits(who, *source, to.dtype());
    if (source->weak && !is_packed(to.dtype())) source = checked.owned.emplace_back(scalar_as(*source, to.dtype())).get();
    checked.inputs.push_back(source);
    checked.dtypes = {to.dtype(), to.dtype()};
    checked.kernel = kernel_of(converting(source->dtype(), to.dtype()), to.dtype());
    Attributes attributes;
    attributes.add(static_cast<int64_t>(to.dtype()));
    submit_in_place(checked, attributes, to, -1);
}

}  // namespace

void copy_into(Tensor& to, Tensor& from) {
    Tensor* const both[] = {&to, &from};
    if (!is_recorded()) return copy_plain(to, from);
    recorded(op_info(OpCode::Copy), both, Attributes{}, [&](const Attributes&, const Attributes*) { copy_plain(to, from); });
}

namespace {

void call_plain_in_place(const OpInfo& info, std::span<Tensor* const> given, const Attributes& attributes, const Attributes* coded, Generator* generator) {
    Tensor& to = *given[0];
    check_destination(to, info.name);
    const Device device = common_device(info, given);
    Checked checked(info);
    checked.coded = coded;
    for (const Tensor* input : given) {
        if (input->node && thread_mode() != Mode::Capture) require_value(*input, info.name);
    }
    check(checked, given, attributes);
    if (!(checked.spec.shape == to.shape())) {
        fail(ErrorKind::Value, "{}: the result has shape {}, it cannot be written over {}", info.name, to_string(checked.spec.shape), describe(to));
    }
    if (category_of(checked.dtypes.result) > category_of(to.dtype())) {
        fail(ErrorKind::Type, "{}: the result is {}, it cannot be written over {}", info.name, name_of(checked.dtypes.result), describe(to));
    }
    if (device.type == DeviceType::Meta) return;
    if (checked.dtypes.result != to.dtype() || checked.inputs[0] != &to) {  // computed in another dtype
        const Ref<Tensor> result = std::move(call_plain(info, given, attributes, coded, {}, generator)[0]);
        return copy_into(to, *result);
    }
    for (size_t i = 1; i < checked.inputs.size(); ++i) {
        Tensor& input = *checked.inputs[i];
        if (overlaps_otherwise(input, to) || must_be_apart(input, to)) checked.inputs[i] = checked.owned.emplace_back(copy_of(input)).get();
    }
    submit_in_place(checked, attributes, to, 0, generator);
}

}  // namespace

void call_in_place(OpCode op, std::span<Tensor* const> given, const Attributes& attributes, Generator* generator) {
    const OpInfo& info = op_info(op);
    if (is_recorded()) [[unlikely]] {
        return recorded(info, given, attributes,
                        [&](const Attributes& plain, const Attributes* coded) { call_plain_in_place(info, given, plain, coded, generator); });
    }
    call_plain_in_place(info, given, attributes, nullptr, generator);
}

}  // namespace clikart
