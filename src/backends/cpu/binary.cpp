// Elementwise kernels of two operands of one dtype.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/binary.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"

#ifndef CLIKART_CPU_BINARY_ONCE
#define CLIKART_CPU_BINARY_ONCE
namespace clikart::cpu {

enum class Binary { Add, Sub, Mul, Div, Maximum };
/// n results to contiguous `out`, past the caches when `streamed`; an operand advances by its step, 0 or 1.
using BinaryRun = void (*)(const void* a, int64_t step_a, const void* b, int64_t step_b, void* out, int64_t n, bool streamed);

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct AddFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::Add(a, b);
    }
};
struct SubFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::Sub(a, b);
    }
};
struct MulFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::Mul(a, b);
    }
};
struct DivFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::Div(a, b);
    }
};
struct MaximumFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
            const V larger = hn::IfThenElse(hn::Gt(a, b), a, b);  // b where either is NaN
            return hn::IfThenElse(hn::IsNaN(a), a, larger);
        } else {
            return hn::Max(a, b);
        }
    }
};
struct OrFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::Or(a, b);
    }
};
struct AndFn {
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::And(a, b);
    }
};

template <class F, class T>
void run(const void* a_bytes, int64_t step_a, const void* b_bytes, int64_t step_b, void* out_bytes, int64_t n, bool streamed) {
    const hn::ScalableTag<T> d;
    const auto* a = static_cast<const T*>(a_bytes);
    const auto* b = static_cast<const T*>(b_bytes);
    auto* out = static_cast<T*>(out_bytes);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const F f;
    int64_t i = 0;
    if (step_a && step_b && streamed && reinterpret_cast<uintptr_t>(out) % kMemoryAlignment == 0) {
        for (; i + lanes <= n; i += lanes) hn::Stream(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
        hwy::FlushStream();
    } else if (step_a && step_b) {
        for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
    } else if (step_a) {
        const auto vb = hn::Set(d, *b);
        for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i), vb), d, out + i);
    } else if (step_b) {
        const auto va = hn::Set(d, *a);
        for (; i + lanes <= n; i += lanes) hn::StoreU(f(va, hn::LoadU(d, b + i)), d, out + i);
    } else {
        const auto v = f(hn::Set(d, *a), hn::Set(d, *b));
        for (; i + lanes <= n; i += lanes) hn::StoreU(v, d, out + i);
    }
    if (i < n) {
        HWY_ALIGN T ta[hn::MaxLanes(d)] = {};
        HWY_ALIGN T tb[hn::MaxLanes(d)] = {};
        for (int64_t j = i; j < n; ++j) ta[j - i] = a[j * step_a], tb[j - i] = b[j * step_b];
        hn::Store(f(hn::Load(d, ta), hn::Load(d, tb)), d, ta);
        std::memcpy(out + i, ta, static_cast<size_t>(n - i) * sizeof(T));
    }
}

template <class F>
BinaryRun floats(DType t) {
    return t == DType::Float32 ? &run<F, float> : t == DType::Float64 ? &run<F, double> : nullptr;
}
template <class F>
BinaryRun numbers(DType t) {
    return t == DType::Int32 ? &run<F, int32_t> : t == DType::Int64 ? &run<F, int64_t> : floats<F>(t);
}

BinaryRun find_binary(Binary op, DType t) {
    if (t == DType::Bool) {  // one byte, 0 or 1
        if (op == Binary::Add || op == Binary::Maximum) return &run<OrFn, uint8_t>;
        return op == Binary::Mul ? &run<AndFn, uint8_t> : nullptr;
    }
    switch (op) {
        case Binary::Add: return numbers<AddFn>(t);
        case Binary::Sub: return numbers<SubFn>(t);
        case Binary::Mul: return numbers<MulFn>(t);
        case Binary::Div: return floats<DivFn>(t);
        case Binary::Maximum: return numbers<MaximumFn>(t);
    }
    return nullptr;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_binary);

template <Binary op>
void binary(const KernelCall& call) {
    const DType t = dtype_of(call.inputs[0]);
    const BinaryRun run = HWY_DYNAMIC_DISPATCH(find_binary)(op, t);
    const StridedLoop<3> loop(call.outputs[0], {call.inputs, 2});
    const int64_t so = loop.inner_stride(0), sa = loop.inner_stride(1), sb = loop.inner_stride(2);
    const auto simple = [](int64_t stride) { return stride == 0 || stride == 1; };
    const int64_t element = size_of(t);
    const bool streamed = loop.count() * element >= kStreamedBytes;
    if (so == 1 && simple(sa) && simple(sb)) {
        loop.parallel_runs(call, [=](char* const* p, int64_t n) { run(p[1], sa, p[2], sb, p[0], n, streamed); });
        return;
    }
    loop.parallel_runs(call, [=](char* const* p, int64_t n) {
        alignas(64) char ta[kTile * kWidest], tb[kTile * kWidest];
        for (int64_t i = 0; i < n; i += kTile) {
            const int64_t m = std::min(kTile, n - i);
            gather(p[1] + i * sa * element, sa, ta, m, element);
            gather(p[2] + i * sb * element, sb, tb, m, element);
            run(ta, 1, tb, 1, ta, m, false);
            scatter(ta, p[0] + i * so * element, so, m, element);
        }
    });
}

template <Binary op>
KernelFn find(DType t) {
    return HWY_DYNAMIC_DISPATCH(find_binary)(op, t) ? &kernel<binary<op>> : nullptr;
}

}  // namespace

KernelFn kernel_add(DType t) {
    return find<Binary::Add>(t);
}
KernelFn kernel_sub(DType t) {
    return find<Binary::Sub>(t);
}
KernelFn kernel_mul(DType t) {
    return find<Binary::Mul>(t);
}
KernelFn kernel_div(DType t) {
    return find<Binary::Div>(t);
}
KernelFn kernel_maximum(DType t) {
    return find<Binary::Maximum>(t);
}

}  // namespace clikart::cpu
#endif
