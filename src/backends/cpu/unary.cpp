// Elementwise kernels of one operand.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/unary.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/tile.h"

#ifndef CLIKART_CPU_UNARY_ONCE
#define CLIKART_CPU_UNARY_ONCE
namespace clikart::cpu {

enum class Unary { Exp, Relu, Tanh, Abs };
/// n contiguous elements from `in` to `out`, past the caches when `streamed`.
using UnaryRun = void (*)(const void* in, void* out, int64_t n, bool streamed);

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct ExpFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return exp(d, x);
    }
};
struct TanhFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return tanh(d, x);
    }
};
struct ReluFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN is not below zero and stays
    }
};
struct AbsFn {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Abs(x);
    }
};

template <class F, class T>
void run(const void* in_bytes, void* out_bytes, int64_t n, bool streamed) {
    const hn::ScalableTag<T> d;
    const auto* in = static_cast<const T*>(in_bytes);
    auto* out = static_cast<T*>(out_bytes);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const F f;
    int64_t i = 0;
    if (streamed && reinterpret_cast<uintptr_t>(out) % kMemoryAlignment == 0) {
        for (; i + lanes <= n; i += lanes) hn::Stream(f(d, hn::LoadU(d, in + i)), d, out + i);
        hwy::FlushStream();
    }
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, in + i)), d, out + i);
    if (i < n) {
        HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
        std::memcpy(buffer, in + i, static_cast<size_t>(n - i) * sizeof(T));
        hn::Store(f(d, hn::Load(d, buffer)), d, buffer);
        std::memcpy(out + i, buffer, static_cast<size_t>(n - i) * sizeof(T));
    }
}

template <class F>
UnaryRun floats(DType t) {
    return t == DType::Float32 ? &run<F, float> : t == DType::Float64 ? &run<F, double> : nullptr;
}
template <class F>
UnaryRun numbers(DType t) {
    return t == DType::Int32 ? &run<F, int32_t> : t == DType::Int64 ? &run<F, int64_t> : floats<F>(t);
}

UnaryRun find_unary(Unary op, DType t) {
    switch (op) {
        case Unary::Exp: return floats<ExpFn>(t);
        case Unary::Tanh: return floats<TanhFn>(t);
        case Unary::Relu: return numbers<ReluFn>(t);
        case Unary::Abs: return numbers<AbsFn>(t);
    }
    return nullptr;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_unary);

template <Unary op>
void unary(const KernelCall& call) {
    const View& in = call.inputs[0];
    const UnaryRun run = HWY_DYNAMIC_DISPATCH(find_unary)(op, dtype_of(in));
    const StridedLoop<2> loop(call.outputs[0], {&in, 1});
    const int64_t element = size_of(dtype_of(in));
    if (loop.inner_stride(0) == 1 && loop.inner_stride(1) == 1) {
        loop.parallel_runs(call, [run, streamed = loop.count() * element >= kStreamedBytes](char* const* p, int64_t n) { run(p[1], p[0], n, streamed); });
        return;
    }
    loop.parallel_runs(call, [&, so = loop.inner_stride(0), si = loop.inner_stride(1)](char* const* p, int64_t n) {
        alignas(64) char tile[kTile * kWidest];
        for (int64_t i = 0; i < n; i += kTile) {
            const int64_t m = std::min(kTile, n - i);
            gather(p[1] + i * si * element, si, tile, m, element);
            run(tile, tile, m, false);
            scatter(tile, p[0] + i * so * element, so, m, element);
        }
    });
}

template <Unary op>
KernelFn find(DType t) {
    return HWY_DYNAMIC_DISPATCH(find_unary)(op, t) ? &kernel<unary<op>> : nullptr;
}

}  // namespace

KernelFn kernel_exp(DType t) {
    return find<Unary::Exp>(t);
}
KernelFn kernel_relu(DType t) {
    return find<Unary::Relu>(t);
}
KernelFn kernel_tanh(DType t) {
    return find<Unary::Tanh>(t);
}
KernelFn kernel_abs(DType t) {
    return find<Unary::Abs>(t);
}

}  // namespace clikart::cpu
#endif
