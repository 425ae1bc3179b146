// sum, mean, amax, argmax.
//
// The order of additions depends on the extent and the dtype alone, not on threads, layout or instruction set: an
// extent is cut into blocks of kBlock; in a block, element i goes to lane i mod kLanes; lanes are folded in halves,
// and block results in pairs of neighbours.  Rows and columns follow the same order.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/reduce_layout.h"

#ifndef CLIKART_CPU_REDUCE_ONCE
#define CLIKART_CPU_REDUCE_ONCE
namespace clikart::cpu {

inline constexpr int64_t kBlock = 4096;
inline constexpr int64_t kLanes = 64;
inline constexpr int64_t kColumns = 64;  // columns reduced together: kLanes x kColumns accumulators fit the first-level cache

enum class Fold { Sum, Max };
struct ReduceFns {
    /// One block of a row, n <= kBlock contiguous elements, to *out.
    void (*row_block)(const void* in, int64_t n, void* out);
    /// A block of n <= kBlock rows `stride` elements apart, `columns` <= kColumns wide, to out[0..columns).
    void (*column_block)(const void* in, int64_t stride, int64_t n, int64_t columns, void* out);
    /// out[i] = fold of a[i] and b[i].
    void (*combine)(const void* a, const void* b, int64_t n, void* out);
    /// The first position of the largest of n elements, NaN counting as the largest.
    int64_t (*argmax)(const void* in, int64_t n);
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct SumFn {
    template <class T>
    static constexpr T identity() {
        return T(0);
    }
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        return hn::Add(a, b);
    }
};
struct MaxFn {
    template <class T>
    static constexpr T identity() {
        if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
        return std::numeric_limits<T>::lowest();
    }
    template <class V>
    HWY_INLINE V operator()(V a, V b) const {
        if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
            return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Gt(a, b), a, b));
        } else {
            return hn::Max(a, b);
        }
    }
};

/// The kLanes accumulators of one column or row, folded in halves.
template <class F, class T>
HWY_INLINE T fold_lanes(T* lanes) {
    const hn::CappedTag<T, kLanes / 2> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const F f;
    int64_t half = kLanes / 2;
    for (; half >= step; half /= 2) {
        for (int64_t i = 0; i < half; i += step) hn::Store(f(hn::Load(d, lanes + i), hn::Load(d, lanes + half + i)), d, lanes + i);
    }
    const hn::CappedTag<T, 1> d1;
    for (; half >= 1; half /= 2) {
        for (int64_t i = 0; i < half; ++i) hn::StoreU(f(hn::LoadU(d1, lanes + i), hn::LoadU(d1, lanes + half + i)), d1, lanes + i);
    }
    return lanes[0];
}

template <class F, class T>
void row_block(const void* in_bytes, int64_t n, void* out) {
    const hn::CappedTag<T, kLanes> d;
    constexpr auto step = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, kLanes>()));
    constexpr int64_t vectors = kLanes / step;
    using V = hn::Vec<decltype(d)>;
    const auto* in = static_cast<const T*>(in_bytes);
    const F f;
    HWY_ALIGN T lanes[kLanes];
    V acc[vectors];
    for (int64_t v = 0; v < vectors; ++v) acc[v] = hn::Set(d, F::template identity<T>());
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        HWY_UNROLL(64)
        for (int64_t v = 0; v < vectors; ++v) acc[v] = f(acc[v], hn::LoadU(d, in + i + v * step));
    }
    for (int64_t v = 0; v < vectors; ++v) hn::Store(acc[v], d, lanes + v * step);
    if (i < n) {  // the lanes past the end fold with the identity
        HWY_ALIGN T rest[kLanes];
        std::fill(rest, rest + kLanes, F::template identity<T>());
        std::memcpy(rest, in + i, static_cast<size_t>(n - i) * sizeof(T));
        for (int64_t v = 0; v < kLanes; v += step) hn::Store(f(hn::Load(d, lanes + v), hn::Load(d, rest + v)), d, lanes + v);
    }
    *static_cast<T*>(out) = fold_lanes<F>(lanes);
}

template <class F, class T>
void combine(const void* a_bytes, const void* b_bytes, int64_t n, void* out_bytes) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> d1;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const auto *a = static_cast<const T*>(a_bytes), *b = static_cast<const T*>(b_bytes);
    auto* out = static_cast<T*>(out_bytes);
    const F f;
    int64_t i = 0;
    for (; i + step <= n; i += step) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
    for (; i < n; ++i) hn::StoreU(f(hn::LoadU(d1, a + i), hn::LoadU(d1, b + i)), d1, out + i);
}

template <class F, class T>
void column_block(const void* in_bytes, int64_t stride, int64_t n, int64_t columns, void* out) {
    const auto* in = static_cast<const T*>(in_bytes);
    HWY_ALIGN static thread_local T lanes[kLanes * kColumns];
    std::fill(lanes, lanes + kLanes * columns, F::template identity<T>());
    for (int64_t i = 0; i < n; ++i) {
        T* lane = lanes + (i % kLanes) * columns;
        combine<F, T>(lane, in + i * stride, columns, lane);
    }
    for (int64_t half = kLanes / 2; half >= 1; half /= 2) combine<F, T>(lanes, lanes + half * columns, half * columns, lanes);
    std::memcpy(out, lanes, static_cast<size_t>(columns) * sizeof(T));
}

template <class T>
int64_t argmax(const void* in_bytes, int64_t n) {
    const auto* in = static_cast<const T*>(in_bytes);
    T largest = in[0];
    for (int64_t i = 0; i < n; i += kBlock) {
        T block;
        row_block<MaxFn, T>(in + i, std::min(kBlock, n - i), &block);
        if (!(largest != largest) && !(block <= largest)) largest = block;
    }
    for (int64_t i = 0; i < n; ++i) {
        if (in[i] == largest || in[i] != in[i]) return i;
    }
    return 0;
}

template <class T>
ReduceFns fns(Fold fold) {
    if (fold == Fold::Sum) return {&row_block<SumFn, T>, &column_block<SumFn, T>, &combine<SumFn, T>, nullptr};
    return {&row_block<MaxFn, T>, &column_block<MaxFn, T>, &combine<MaxFn, T>, &argmax<T>};
}

ReduceFns find_reduce(Fold fold, DType t) {
    switch (t) {
        case DType::Float32: return fns<float>(fold);
        case DType::Float64: return fns<double>(fold);
        case DType::Int32: return fns<int32_t>(fold);
        case DType::Int64: return fns<int64_t>(fold);
        case DType::Bool: return fns<uint8_t>(fold);
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_reduce);

int64_t blocks_of(int64_t extent) {
    return std::max<int64_t>(1, (extent + kBlock - 1) / kBlock);
}

/// Folds `blocks` results of `width` elements each, lying one after the other, in pairs of neighbours; the result
/// ends in the first.
void fold_blocks(const ReduceFns& fns, char* partial, int64_t blocks, int64_t width, int64_t element) {
    for (int64_t m = blocks; m > 1; m = (m + 1) / 2) {
        for (int64_t i = 0; i < m / 2; ++i) {
            fns.combine(partial + 2 * i * width * element, partial + (2 * i + 1) * width * element, width, partial + i * width * element);
        }
        if (m % 2) std::memcpy(partial + (m / 2) * width * element, partial + (m - 1) * width * element, static_cast<size_t>(width * element));
    }
}

void reduce_rows(const KernelCall& call, const ReduceFns& fns, const ReduceLayout& in, char* out, int64_t element) {
    const auto* data = static_cast<const char*>(in.data);
    const int64_t blocks = blocks_of(in.extent);
    if (blocks == 1) {
        const int64_t rows = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, in.extent));
        parallel_for(call, (in.outer + rows - 1) / rows, [&](int64_t piece) {
            for (int64_t r = piece * rows; r < std::min(in.outer, (piece + 1) * rows); ++r) {
                fns.row_block(data + r * in.extent * element, in.extent, out + r * element);
            }
        });
        return;
    }
    const Scratch partial(static_cast<size_t>(in.outer * blocks * element));
    constexpr int64_t kBlocksPerPiece = kPiece / kBlock;
    const int64_t all = in.outer * blocks;
    parallel_for(call, (all + kBlocksPerPiece - 1) / kBlocksPerPiece, [&](int64_t piece) {
        for (int64_t b = piece * kBlocksPerPiece; b < std::min(all, (piece + 1) * kBlocksPerPiece); ++b) {
            const int64_t row = b / blocks, at = b % blocks * kBlock;
            fns.row_block(data + (row * in.extent + at) * element, std::min(kBlock, in.extent - at), partial.as<char>() + b * element);
        }
    });
    for (int64_t r = 0; r < in.outer; ++r) {
        char* first = partial.as<char>() + r * blocks * element;
        fold_blocks(fns, first, blocks, 1, element);
        std::memcpy(out + r * element, first, static_cast<size_t>(element));
    }
}

void reduce_columns(const KernelCall& call, const ReduceFns& fns, const ReduceLayout& in, char* out, int64_t element) {
    const auto* data = static_cast<const char*>(in.data);
    const int64_t blocks = blocks_of(in.extent), strips = (in.inner + kColumns - 1) / kColumns;
    parallel_for(call, in.outer * strips, [&](int64_t piece) {
        const int64_t o = piece / strips, column = piece % strips * kColumns, columns = std::min(kColumns, in.inner - column);
        const Scratch partial(static_cast<size_t>(blocks * columns * element));
        for (int64_t b = 0; b < blocks; ++b) {
            const char* from = data + ((o * in.extent + b * kBlock) * in.inner + column) * element;
            fns.column_block(from, in.inner, std::min(kBlock, in.extent - b * kBlock), columns, partial.as<char>() + b * columns * element);
        }
        fold_blocks(fns, partial.as<char>(), blocks, columns, element);
        std::memcpy(out + (o * in.inner + column) * element, partial.as<char>(), static_cast<size_t>(columns * element));
    });
}

int64_t reduce(const KernelCall& call, Fold fold) {
    const View& in = call.inputs[0];
    bool reduced[kMaxRank];
    reduced_dims(*call.attributes, attribute::sum_dims, in.rank, reduced);
    const ReduceLayout layout(call, in, reduced);
    const ReduceFns fns = HWY_DYNAMIC_DISPATCH(find_reduce)(fold, dtype_of(in));
    auto* out = static_cast<char*>(call.outputs[0].data);
    const int64_t element = size_of(dtype_of(in));
    if (layout.inner == 1) {
        reduce_rows(call, fns, layout, out, element);
    } else {
        reduce_columns(call, fns, layout, out, element);
    }
    return layout.extent;
}

void sum(const KernelCall& call) {
    reduce(call, Fold::Sum);
}
void amax(const KernelCall& call) {
    reduce(call, Fold::Max);
}

void mean(const KernelCall& call) {
    const int64_t extent = reduce(call, Fold::Sum);
    const View& out = call.outputs[0];
    with_type(dtype_of(out), [&]<class T>() {
        if constexpr (std::is_floating_point_v<T>) {
            auto* values = static_cast<T*>(out.data);
            for (int64_t i = 0, n = numel(shape_of(out)); i < n; ++i) values[i] /= static_cast<T>(extent);
        }
    });
}

void argmax(const KernelCall& call) {
    const View& in = call.inputs[0];
    bool reduced[kMaxRank];
    reduced_dims(*call.attributes, attribute::argmax_dims, in.rank, reduced);
    ReduceLayout layout(call, in, reduced);
    auto* out = static_cast<int64_t*>(call.outputs[0].data);
    const int64_t element = size_of(dtype_of(in));
    const auto find = HWY_DYNAMIC_DISPATCH(find_reduce)(Fold::Max, dtype_of(in)).argmax;
    std::unique_ptr<Scratch> rows;
    const char* data = static_cast<const char*>(layout.data);
    if (layout.inner > 1) {  // turn columns into rows
        rows = std::make_unique<Scratch>(static_cast<size_t>(layout.outer * layout.extent * layout.inner * element));
        const Dims shape{layout.outer, layout.inner, layout.extent}, strides{layout.extent * layout.inner, 1, layout.inner};
        const Dims dense = contiguous_strides(shape);
        copy_view(call, {const_cast<void*>(layout.data), shape.data(), strides.data(), 3, in.dtype},
                  {rows->as<void>(), shape.data(), dense.data(), 3, in.dtype});
        data = rows->as<char>();
    }
    const int64_t count = layout.outer * layout.inner, per_piece = std::max<int64_t>(1, kPiece / layout.extent);
    parallel_for(call, (count + per_piece - 1) / per_piece, [&](int64_t piece) {
        for (int64_t r = piece * per_piece; r < std::min(count, (piece + 1) * per_piece); ++r) out[r] = find(data + r * layout.extent * element, layout.extent);
    });
}

KernelFn if_known(DType t, KernelFn kernel) {
    return HWY_DYNAMIC_DISPATCH(find_reduce)(Fold::Sum, t).row_block ? kernel : nullptr;
}

}  // namespace

KernelFn kernel_sum(DType t) {
    return if_known(t, &kernel<sum>);
}
KernelFn kernel_mean(DType t) {
    return if_known(t, &kernel<mean>);
}
KernelFn kernel_amax(DType t) {
    return if_known(t, &kernel<amax>);
}
KernelFn kernel_argmax(DType t) {
    return if_known(t, &kernel<argmax>);
}

}  // namespace clikart::cpu
#endif
