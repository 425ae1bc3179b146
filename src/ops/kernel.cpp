#include "ops/kernel.h"

#include <algorithm>
#include <atomic>

#include "exec/thread_pool.h"
#include "ops/rules.h"

namespace clikart {
namespace {

std::atomic<int32_t> failing_op{0};  // the operator that fail_kernel named
std::atomic<int64_t> calls_before_failure{0};
std::atomic<bool> fused_is_spoilt{false};

/// Whether this call is the one that fail_kernel named.
bool fails_on_purpose(OpCode op) noexcept {
    if (failing_op.load(std::memory_order_relaxed) != static_cast<int32_t>(op)) [[likely]]
        return false;
    return calls_before_failure.fetch_sub(1, std::memory_order_relaxed) == 0;
}

/// Whether an operand may name places that are not there although the result is empty.
bool looks_at_places(OpCode op) noexcept {
    return op == OpCode::IndexSelect || op == OpCode::Index || op == OpCode::IndexPut || op == OpCode::Embedding;
}

void run_pieces(int64_t pieces, PieceFn piece, void* context) {
    ThreadPool::instance().parallel_for(pieces, piece, context);
}

int64_t count(const View& view) noexcept {
    int64_t n = 1;
    for (int32_t d = 0; d < view.rank; ++d) n *= view.shape[d];
    return n;
}

}  // namespace

KernelFn kernel_for(const OpInfo& info, DType dtype, const char* who) {
    bool known = true;
    if (is_packed(dtype)) known = info.code == OpCode::Cast || info.code == OpCode::Copy || info.code == OpCode::Full;
    if (is_complex(dtype)) known = info.code == OpCode::Copy;
    const KernelFn kernel = known ? cpu_backend().find_kernel(static_cast<int32_t>(info.code), static_cast<int32_t>(dtype)) : nullptr;
    if (!kernel) fail(ErrorKind::NotImplemented, "op '{}' has no {} kernel on cpu", who, name_of(dtype));
    return kernel;
}

double estimate_cost(const OpInfo& info, std::span<Tensor* const> inputs, const Dims& shape) {
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

uint64_t random_blocks(std::span<Tensor* const> inputs, const Dims& shape) {
    int64_t blocks = numel(shape);
    for (const Tensor* input : inputs) blocks = std::max(blocks, input->numel());
    return static_cast<uint64_t>(blocks);
}

Attributes with_numbers(const Attributes& attributes, const Generator::State& state) {
    Attributes all = attributes;
    all.add(static_cast<int64_t>(state.seed));
    all.add(static_cast<int64_t>(state.offset));
    return all;
}

void run_kernel(const Kernel& kernel, const Attributes& attributes, std::span<const View> inputs, std::span<View> outputs, bool in_place,
                const KernelHost& host) {
    const OpCode op = kernel.info->code;
    if (fails_on_purpose(op)) fail(ErrorKind::Error, "failed as it was told to");
    const int64_t n = host.find_size ? -1 : count(outputs[0]);
    // Submitted all the same: a failure of its inputs is also its own, and places may be wrong where nothing stands either.
    if (n == 0 && !looks_at_places(op)) return;
    // Kernels leave the half of a byte alone that lies behind the last of an odd number of elements; here it is nobody's yet.
    if (is_packed(static_cast<DType>(outputs[0].dtype)) && !in_place && n % 2) static_cast<char*>(outputs[0].data)[n / 2] = 0;
    const KernelCall call{inputs.data(),
                          static_cast<int32_t>(inputs.size()),
                          static_cast<int32_t>(outputs.size()),
                          outputs.data(),
                          &attributes,
                          &run_pieces,
                          host.find_size,
                          host.self,
                          static_cast<int32_t>(kernel.compute),
                          host.keep,
                          host.made};
    char message[512];
    if (const int32_t kind = kernel.run(&call, message, sizeof message)) fail(static_cast<ErrorKind>(kind), "{}", message);
}

FusedRun::FusedRun(const FusedKernel& kernel, void* const* inputs, void* output) : kernel_(kernel), inputs_(inputs), output_(output) {
    char message[512];
    if (const int32_t kind = cpu_backend().start_fused(kernel.prepared.get(), inputs, &state_, message, sizeof message)) {
        fail(static_cast<ErrorKind>(kind), "{}", message);
    }
}

FusedRun::~FusedRun() {
    cpu_backend().finish_fused(state_);
}

void FusedRun::part(int64_t begin, int64_t end) const {
    char message[512];
    if (const int32_t kind = cpu_backend().run_fused(kernel_.prepared.get(), state_, inputs_, output_, begin, end, message, sizeof message)) {
        fail(static_cast<ErrorKind>(kind), "{}", message);
    }
    if (fused_is_spoilt.load(std::memory_order_relaxed) && begin == 0 && end > 0) [[unlikely]]
        static_cast<unsigned char*>(output_)[0] ^= 0xFF;
}

void FusedRun::all() const {
    const auto piece = [](void* context, int64_t at) {
        const auto& self = *static_cast<const FusedRun*>(context);
        self.part(at * self.kernel_.piece, std::min(self.kernel_.count, (at + 1) * self.kernel_.piece));
    };
    const int64_t pieces = (kernel_.count + kernel_.piece - 1) / kernel_.piece;
    if (pieces == 1) return part(0, kernel_.count);
    if (pieces > 1) run_pieces(pieces, piece, const_cast<FusedRun*>(this));
}

void spoil_fused(bool spoil) noexcept {
    fused_is_spoilt.store(spoil, std::memory_order_relaxed);
}

void fail_kernel(OpCode op, int64_t after) {
    op_info(op);  // throws for a code that is none
    calls_before_failure.store(after, std::memory_order_relaxed);
    failing_op.store(after < 0 ? 0 : static_cast<int32_t>(op), std::memory_order_relaxed);
}

}  // namespace clikart
