#include "ops/call.h"

#include <algorithm>

#include "backends/api.h"
#include "ops/call_site.h"
#include "ops/deferred.h"
#include "ops/generator.h"
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

std::atomic<int32_t> failing_op{0};  // the operator that fail_kernel named
std::atomic<int64_t> calls_before_failure{0};

/// Whether this call is the one that fail_kernel named.
bool fails_on_purpose(OpCode op) noexcept {
    if (failing_op.load(std::memory_order_relaxed) != static_cast<int32_t>(op)) [[likely]]
        return false;
    return calls_before_failure.fetch_sub(1, std::memory_order_relaxed) == 0;
}

/// A kernel with its operands.
class KernelWork final : public Work {
public:
    KernelWork(const OpInfo& info, KernelFn kernel, DType compute, const Attributes& attributes)
        : info_(info), kernel_(kernel), compute_(compute), attributes_(attributes) {}
    KernelWork(KernelWork&& other) : info_(other.info_), kernel_(other.kernel_), compute_(other.compute_), attributes_(other.attributes_) {
        for (auto& input : other.inputs) inputs.push_back(std::move(input));
        for (auto& output : other.outputs) outputs.push_back(std::move(output));
        cost = other.cost;
        in_place = other.in_place;
    }

    const char* name() const noexcept override { return info_.name; }
    Ref<Origin> place() const override { return current_origin(); }

    void run() override {
        if (fails_on_purpose(info_.code)) fail(ErrorKind::Error, "failed as it was told to");
        // Submitted all the same: a failure of its inputs is also its own, and places may be wrong where nothing stands either.
        if (outputs[0]->size_known() && outputs[0]->numel() == 0 && !looks_at_places()) return;
        SmallVector<View, 4> in;
        SmallVector<View, 2> out;
        for (const auto& t : inputs) in.push_back(view_of(*t));
        for (const auto& t : outputs) out.push_back(view_of(*t));
        // Kernels leave the half of a byte alone that lies behind the last of an odd number of elements; here it is nobody's yet.
        if (is_packed(outputs[0]->dtype()) && !in_place && outputs[0]->numel() % 2) static_cast<char*>(out[0].data)[outputs[0]->numel() / 2] = 0;
        const KernelCall call{in.data(), static_cast<int32_t>(in.size()), static_cast<int32_t>(out.size()), out.data(), &attributes_, &run_pieces, &find_size,
                              this,      static_cast<int32_t>(compute_)};
        char message[512];
        if (const int32_t kind = kernel_(&call, message, sizeof message)) fail(static_cast<ErrorKind>(kind), "{}", message);
    }

private:
    /// Whether an operand may name places that are not there although the result is empty.
    bool looks_at_places() const noexcept {
        const OpCode op = info_.code;
        return op == OpCode::IndexSelect || op == OpCode::Index || op == OpCode::IndexPut || op == OpCode::Embedding;
    }
    static View view_of(const Tensor& t) { return {t.data(), t.shape().data(), t.strides().data(), t.rank(), static_cast<int32_t>(t.dtype())}; }
    static void run_pieces(int64_t pieces, PieceFn piece, void* context) { ThreadPool::instance().parallel_for(pieces, piece, context); }
    static void find_size(const KernelCall* call, int64_t size) {
        Tensor& output = *static_cast<KernelWork*>(call->host)->outputs[0];
        output.find_size(size);
        call->outputs[0] = view_of(output);
    }

    const OpInfo& info_;
    const KernelFn kernel_;
    const DType compute_;
    const Attributes attributes_;
};

KernelFn find_kernel(const OpInfo& info, DType dtype) {
    bool known = true;
    if (is_packed(dtype)) known = info.code == OpCode::Cast || info.code == OpCode::Copy || info.code == OpCode::Full;
    if (is_complex(dtype)) known = info.code == OpCode::Copy;
    const KernelFn kernel = known ? cpu_backend().find_kernel(static_cast<int32_t>(info.code), static_cast<int32_t>(dtype)) : nullptr;
    if (!kernel) fail(ErrorKind::NotImplemented, "op '{}' has no {} kernel on cpu", call_of_parts ? call_of_parts : info.name, name_of(dtype));
    return kernel;
}

/// What one core needs, in nanoseconds.
double estimate(const OpInfo& info, std::span<Tensor* const> inputs, const Dims& shape) {
    double elements = static_cast<double>(numel(shape));
    constexpr double kMatrices = 50, kConvolutions = 100;  // operations in a nanosecond, of small ones
    if (info.kind == NodeKind::Product) {
        const auto weights_of_one = [&] { return static_cast<double>(inputs[1]->numel()) / static_cast<double>(std::max<int64_t>(1, inputs[1]->shape()[0])); };
        if (info.shape == &shape_convolution) return 1000 + 2 * elements * weights_of_one() / kConvolutions;
        if (info.shape == &shape_transposed_convolution) {  // each element of x is multiplied
            return 1000 + 2 * static_cast<double>(inputs[0]->numel()) * weights_of_one() / kConvolutions;
        }
        // What is added to a product comes before its two operands, or after them.
        const Dims& a = inputs[info.code == OpCode::Addmm || info.code == OpCode::Baddbmm ? 1 : 0]->shape();
        return 1000 + 2 * elements * static_cast<double>(a[a.rank() - 1]) / kMatrices;
    }
    if (info.code == OpCode::ScaledDotProductAttention) {
        const Dims& keys = inputs[1]->shape();
        return 1000 + elements * (static_cast<double>(info.cost) + 4 * static_cast<double>(keys[keys.rank() - 2]) / kMatrices);
    }
    // Of a large tensor some elements may be taken, or all looked at for a few.
    const bool looks_at_all = info.kind == NodeKind::Reduce || (info.kind == NodeKind::Index && (info.data_dependent || info.n_outputs > 1));
    if (looks_at_all) elements = static_cast<double>(inputs[0]->numel());
    return elements * static_cast<double>(info.cost);
}

Ref<Tensor> cast_to(Tensor& input, DType dtype) {
    if (input.weak) return scalar_as(input, dtype);
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

    OpCall call(const Attributes& attributes, Generator* generator = nullptr) const { return {info, {inputs.data(), inputs.size()}, attributes, generator}; }
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
    if (info.has_kernel) checked.kernel = find_kernel(info, compute);
    for (const Tensor* input : checked.inputs) {
        if (!is_packed(input->dtype()) && !is_complex(input->dtype())) continue;
        if (info.has_kernel) find_kernel(info, input->dtype());
        if (is_complex(input->dtype())) continue;
        const bool whole = clikart::is_contiguous(checked.spec.shape, checked.spec.strides) && checked.spec.offset == input->offset();
        if (info.kind == NodeKind::View && checked.spec.strides.rank() == checked.spec.shape.rank() && !whole) {
            fail(ErrorKind::NotImplemented, "{}: {} has two elements in a byte, so its only views are of all of them in order; cast it first", info.name,
                 describe(*input));
        }
    }
}

/// A random operator's attributes, and where it draws from: enough blocks for one for each element that goes in or comes out.
Attributes with_numbers(const Attributes& attributes, const Checked& checked, Generator* generator) {
    int64_t blocks = numel(checked.spec.shape);
    for (const Tensor* input : checked.inputs) blocks = std::max(blocks, input->numel());
    const Generator::State state = (generator ? *generator : Generator::of_process()).reserve(static_cast<uint64_t>(blocks));
    Attributes all = attributes;
    all.add(static_cast<int64_t>(state.seed));
    all.add(static_cast<int64_t>(state.offset));
    return all;
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

Results call_many(OpCode op, std::span<Tensor* const> given, const Attributes& attributes, const Placement& placement, Generator* generator) {
    const OpInfo& info = op_info(op);
    if (info.composite) {
        common_device(info, given);
        require_sizes(given, info.name);
        for (const Tensor* input : given) note_size_asked(*input);  // its parts may have attributes that come from sizes
        return {made_of_parts(info.name, [&] { return info.composite(OpCall{info, given, attributes, generator}); })};
    }
    const ThreadSettings& thread = thread_settings;
    const Device of_inputs = common_device(info, given);
    Device device = placement.stream ? placement.stream->device() : placement.device;
    if (device.type == DeviceType::Unspecified) device = of_inputs.type != DeviceType::Unspecified ? of_inputs : thread_device();
    require_available(device, info.name);

    Checked checked(info);
    if (thread.recording) [[unlikely]] {
        // Who catches the failure of a check branches on sizes, and what squeeze leaves out depends on them.
        const auto note_all = [&] {
            for (const Tensor* input : given) note_size_asked(*input);
        };
        if (op == OpCode::Squeeze) note_all();
        try {
            check(checked, given, attributes);
        } catch (...) {
            note_all();
            throw;
        }
    } else {
        check(checked, given, attributes);
    }
    // A copy instead of a view: where strides do not allow one, and of numbers, which many calls share.
    if (info.kind == NodeKind::View && (checked.spec.strides.rank() != checked.spec.shape.rank() || checked.inputs[0]->number)) {
        checked.inputs[0] = checked.owned.emplace_back(call(OpCode::Copy, {checked.inputs.data(), 1}, Attributes{})).get();
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
    KernelWork work(info, checked.kernel, checked.dtypes.compute, random ? with_numbers(attributes, checked, generator) : attributes);
    for (Tensor* input : checked.inputs) work.inputs.push_back(Ref<Tensor>::share(input));
    work.cost = estimate(info, {checked.inputs.data(), checked.inputs.size()}, checked.spec.shape);
    dispatch(std::move(work), stream, results, -1, thread);
    if (thread.recording) thread_recorder()->note(checked.call(attributes, generator), outputs);
    return outputs;
}

// ---- in place --------------------------------------------------------------------------------------------------------

namespace {

/// Throws unless every element of `to` has its own memory, which may be written.
void require_writable(const Tensor& to, const char* who) {
    if (to.number) fail(ErrorKind::Type, "{}: a number cannot be written to", who);
    if (!to.storage().writable()) fail(ErrorKind::Value, "{}: the memory of {} was borrowed read-only", who, describe(to));
    // Sorted by stride, each dimension must step over all that the smaller ones reach.
    SmallVector<std::pair<int64_t, int64_t>, 8> dims;  // |stride|, size
    for (int d = 0; d < to.rank(); ++d) {
        if (to.shape()[d] == 0) return;
        if (to.shape()[d] > 1) dims.push_back({std::abs(to.strides()[d]), to.shape()[d]});
    }
    std::sort(dims.begin(), dims.end());
    int64_t reach = 0;
    for (const auto& [stride, size] : dims) {
        if (stride <= reach) fail(ErrorKind::Value, "{}: elements of {} with strides {} share memory", who, describe(to), to_string(to.strides()));
        reach += stride * (size - 1);
    }
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

/// Whether `to` would be written before `from` was read there.
bool overlaps_otherwise(const Tensor& from, const Tensor& to) {
    if (from.numel() == 0 || to.numel() == 0) return false;
    if (&from.storage() != &to.storage() && !(from.storage().host_visible() && to.storage().host_visible())) return false;
    const auto [a, a_end] = extent(from);
    const auto [b, b_end] = extent(to);
    if (a_end <= b || b_end <= a) return false;
    return !(a == b && from.dtype() == to.dtype() && from.shape() == to.shape() && from.strides() == to.strides());
}

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
    if (thread_mode() == Mode::Capture) fail(ErrorKind::NotImplemented, "{}: writing in place cannot be recorded into a graph yet", who);
    if (to.node) require_value(to, who);
    if (thread_settings.recording) thread_recorder()->give_up(fmt::format("{}: {} is written in place", who, describe(to)));
    settle_size(to, who);
    require_writable(to, who);
}

void submit_in_place(const Checked& checked, const Attributes& attributes, Tensor& to, int self, Generator* generator = nullptr) {
    const ThreadSettings& thread = thread_settings;
    const Ref<Stream> stream = resolve(to.device(), thread);
    const bool random = checked.info.kind == NodeKind::Random;
    KernelWork work(checked.info, checked.kernel, checked.dtypes.compute, random ? with_numbers(attributes, checked, generator) : attributes);
    work.in_place = true;
    for (Tensor* input : checked.inputs) work.inputs.push_back(Ref<Tensor>::share(input));
    work.cost = estimate(checked.info, {checked.inputs.data(), checked.inputs.size()}, to.shape());
    if (checked.info.kind == NodeKind::Index) {  // of the destination only places are written
        int64_t elements = 0;
        for (size_t i = 1; i < checked.inputs.size(); ++i) elements = std::max(elements, checked.inputs[i]->numel());
        work.cost = static_cast<double>(elements) * static_cast<double>(checked.info.cost);
    }
    const Ref<Tensor> output = Ref<Tensor>::share(&to);
    dispatch(std::move(work), stream, {&output, 1}, self, thread);
}

}  // namespace

void copy_into(Tensor& to, Tensor& from) {
    const OpInfo& info = op_info(OpCode::Copy);
    constexpr const char* who = "copy_";
    check_destination(to, who);
    Tensor* const both[] = {&to, &from};
    const Device device = common_device(info, both);
    settle_size(from, who);
    if (from.node) require_value(from, who);
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
    if (source->weak) require_fits(who, *source, to.dtype());
    if (source->weak && !is_packed(to.dtype())) source = checked.owned.emplace_back(scalar_as(*source, to.dtype())).get();
    checked.inputs.push_back(source);
    checked.dtypes = {to.dtype(), to.dtype()};
    checked.kernel = find_kernel(source->dtype() == to.dtype() ? info : op_info(OpCode::Cast), to.dtype());  // converted on the way
    Attributes attributes;
    attributes.add(static_cast<int64_t>(to.dtype()));
    submit_in_place(checked, attributes, to, -1);
}

void call_in_place(OpCode op, std::span<Tensor* const> given, const Attributes& attributes, Generator* generator) {
    const OpInfo& info = op_info(op);
    Tensor& to = *given[0];
    check_destination(to, info.name);
    const Device device = common_device(info, given);
    Checked checked(info);
    for (const Tensor* input : given) {
        if (input->node) require_value(*input, info.name);
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
        const Ref<Tensor> result = call(op, given, attributes, {}, generator);
        return copy_into(to, *result);
    }
    for (size_t i = 1; i < checked.inputs.size(); ++i) {
        Tensor& input = *checked.inputs[i];
        if (overlaps_otherwise(input, to) || must_be_apart(input, to)) checked.inputs[i] = checked.owned.emplace_back(copy_of(input)).get();
    }
    submit_in_place(checked, attributes, to, 0, generator);
}

void fail_kernel(OpCode op, int64_t after) {
    op_info(op);  // throws for a code that is none
    calls_before_failure.store(after, std::memory_order_relaxed);
    failing_op.store(after < 0 ? 0 : static_cast<int32_t>(op), std::memory_order_relaxed);
}

}  // namespace clikart
