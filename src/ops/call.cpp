#include "ops/call.h"

#include <chrono>

#include "backends/api.h"
#include "ops/mode.h"
#include "ops/recorder.h"

namespace clikart {

Recorder*& thread_recorder() noexcept {
    thread_local Recorder* recorder = nullptr;
    return recorder;
}

bool& thread_is_synchronous() noexcept {
    thread_local bool synchronous = false;
    return synchronous;
}

namespace {

/// A kernel with its operands.
class KernelWork final : public Work {
public:
    KernelWork(const OpInfo& info, KernelFn kernel, const Attributes& attributes) : info_(info), kernel_(kernel), attributes_(attributes) {}
    KernelWork(KernelWork&& other) : info_(other.info_), kernel_(other.kernel_), attributes_(other.attributes_) {
        for (auto& input : other.inputs) inputs.push_back(std::move(input));
        for (auto& output : other.outputs) outputs.push_back(std::move(output));
        cost = other.cost;
        in_place = other.in_place;
    }

    const char* name() const noexcept override { return info_.name; }

    void run() override {
        if (outputs[0]->numel() == 0) return;  // submitted all the same: a failure of its inputs is also its own
        SmallVector<View, 4> in;
        SmallVector<View, 2> out;
        for (const auto& t : inputs) in.push_back(view_of(*t));
        for (const auto& t : outputs) out.push_back(view_of(*t));
        const KernelCall call{in.data(), static_cast<int32_t>(in.size()), static_cast<int32_t>(out.size()), out.data(), &attributes_, &run_pieces};
        char message[512];
        if (const int32_t kind = kernel_(&call, message, sizeof message)) fail(static_cast<ErrorKind>(kind), "{}", message);
    }

private:
    static View view_of(const Tensor& t) { return {t.data(), t.shape().data(), t.strides().data(), t.rank(), static_cast<int32_t>(t.dtype())}; }
    static void run_pieces(int64_t pieces, PieceFn piece, void* context) { ThreadPool::instance().parallel_for(pieces, piece, context); }

    const OpInfo& info_;
    const KernelFn kernel_;
    const Attributes attributes_;
};

KernelFn find_kernel(const OpInfo& info, DType dtype) {
    const KernelFn kernel = cpu_backend().find_kernel(static_cast<int32_t>(info.code), static_cast<int32_t>(dtype));
    if (!kernel) fail(ErrorKind::NotImplemented, "op '{}' has no {} kernel on cpu", info.name, name_of(dtype));
    return kernel;
}

/// What one core needs, in nanoseconds.
double estimate(const OpInfo& info, std::span<Tensor* const> inputs, const Dims& shape) {
    double elements = static_cast<double>(numel(shape));
    if (info.kind == NodeKind::Product) {
        const Dims& a = inputs[0]->shape();
        constexpr double kOperationsPerNanosecond = 50;
        return 1000 + 2 * elements * static_cast<double>(a[a.rank() - 1]) / kOperationsPerNanosecond;
    }
    if (info.kind == NodeKind::Reduce) elements = static_cast<double>(inputs[0]->numel());
    return elements * static_cast<double>(info.cost);
}

Ref<Tensor> cast_to(Tensor& input, DType dtype) {
    if (input.weak) return scalar_as(input, dtype);
    Attributes attributes;
    attributes.add(static_cast<int64_t>(dtype));
    Tensor* const inputs[] = {&input};
    return call(OpCode::Cast, inputs, attributes);
}

}  // namespace

Ref<Tensor> call(OpCode op, std::span<Tensor* const> given, const Attributes& attributes, const Placement& placement) {
    const OpInfo& info = op_info(op);
    require_available(placement.device, info.name);
    const DTypes dtypes = info.dtype(OpCall{info, given, attributes});

    // Inputs that are not of the computing dtype are cast first; `owned` keeps the casts alive.
    SmallVector<Ref<Tensor>, 2> owned;
    SmallVector<Tensor*, 4> inputs;
    inputs.reserve(given.size());
    for (Tensor* input : given) {
        if (dtypes.compute != DType::Unspecified && input->dtype() != dtypes.compute) {
            input = owned.emplace_back(cast_to(*input, dtypes.compute)).get();
        }
        inputs.push_back(input);
    }
    OpCall checked{info, {inputs.data(), inputs.size()}, attributes};
    OutputSpec spec;
    info.shape(checked, spec);
    checked_numel(spec.shape, info.name);  // whatever the rule came to

    // A copy instead of a view: where strides do not allow one, and of numbers, which many calls share.
    if (info.kind == NodeKind::View && (spec.strides.rank() != spec.shape.rank() || inputs[0]->number)) {
        inputs[0] = owned.emplace_back(call(OpCode::Copy, checked.inputs, Attributes{})).get();
        info.shape(checked, spec);
    }
    KernelFn kernel = nullptr;
    if (info.has_kernel) {
        kernel = find_kernel(info, dtypes.compute != DType::Unspecified ? dtypes.compute : dtypes.result);
        if (dtypes.compute == DType::Unspecified) {
            for (const Tensor* input : inputs) find_kernel(info, input->dtype());
        }
    }
    if (Recorder* recorder = thread_recorder()) return recorder->record(checked, dtypes.result, spec);
    for (const Tensor* input : inputs) require_value(*input, info.name);
    if (info.kind == NodeKind::View) return make_view(*inputs[0], spec.shape, spec.strides, spec.offset);

    Ref<Tensor> output = make_tensor(dtypes.result, spec.shape, Device{});
    const Ref<Stream>& stream = placement.stream ? placement.stream : Stream::lane();
    output->stream = stream;

    KernelWork work(info, kernel, attributes);
    for (Tensor* input : inputs) work.inputs.push_back(Ref<Tensor>::share(input));
    work.outputs.push_back(output);
    work.cost = estimate(info, checked.inputs, spec.shape);
    const bool synchronous = thread_is_synchronous();
    stream->submit(std::move(work), synchronous);
    if (synchronous && output->storage().error) throw Failure(output->storage().error);
    return output;
}

void require_value(const Tensor& tensor, const char* who) {
    if (tensor.node) {
        fail(ErrorKind::Error, "{}: the tensor {} stands for a value while a graph is recorded; it cannot be read", who, describe(tensor));
    }
}

void settle(const Tensor& tensor, const char* who) {
    settle_within(tensor, who, -1);
}

bool settle_for_writing(const Tensor& tensor, const char* who, int64_t timeout_ns) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    if (!settle_within(tensor, who, timeout_ns)) return false;
    for (const Ticket& read : Stream::open_reads(tensor.storage())) {
        const int64_t spent = std::chrono::nanoseconds(Clock::now() - start).count();
        if (!Stream::wait(read, timeout_ns < 0 ? -1 : std::max<int64_t>(0, timeout_ns - spent))) return false;
    }
    return true;
}

Ref<Tensor> contiguous_value(Tensor& tensor) {
    if (tensor.is_contiguous()) return Ref<Tensor>::share(&tensor);
    struct Suspended {
        Recorder* const recorder = std::exchange(thread_recorder(), nullptr);
        ~Suspended() { thread_recorder() = recorder; }
    } const suspended;
    Tensor* const inputs[] = {&tensor};
    return call(OpCode::Copy, inputs, Attributes{});
}

bool settle_within(const Tensor& tensor, const char* who, int64_t timeout_ns) {
    require_value(tensor, who);
    if (!Stream::wait(Stream::last_write(tensor.storage()), timeout_ns)) return false;
    if (tensor.storage().error) throw Failure(tensor.storage().error);
    return true;
}

}  // namespace clikart
