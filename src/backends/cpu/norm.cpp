// Normalisation of rows (layer_norm, rms_norm), and the inner loops of that of channels.
//
// Mean and variance are taken over blocks that stay in the cache, twice: the mean first, then squares of distances from it.
// Blocks are put together in double, so a mean far from zero costs no digits.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "backends/cpu/kernels.h"
#include "backends/cpu/norm.h"
#include "backends/cpu/row_part.h"
#include "backends/cpu/vectors-inl.h"

#ifndef CLIKART_CPU_NORM_ONCE
#define CLIKART_CPU_NORM_ONCE
namespace clikart::cpu {

struct NormTable {
    NormFns<float> f32;
    NormFns<double> f64;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kSumBlock = 4096;  // elements that are added up in their own dtype

/// The sum of f(x) over a row; f maps zero to zero, or its vector is masked.
template <class T, class F>
double sum_over(const T* x, int64_t n, F&& f) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    double total = 0;
    for (int64_t block = 0; block < n; block += kSumBlock) {
        const int64_t end = std::min(n, block + kSumBlock);
        V a = hn::Zero(d), b = a, c = a, e = a;
        int64_t i = block;
        for (; i + 4 * step <= end; i += 4 * step) {
            a = hn::Add(a, f(hn::LoadU(d, x + i)));
            b = hn::Add(b, f(hn::LoadU(d, x + i + step)));
            c = hn::Add(c, f(hn::LoadU(d, x + i + 2 * step)));
            e = hn::Add(e, f(hn::LoadU(d, x + i + 3 * step)));
        }
        for (; i + step <= end; i += step) a = hn::Add(a, f(hn::LoadU(d, x + i)));
        if (i < end) {
            const auto mask = hn::FirstN(d, static_cast<size_t>(end - i));
            b = hn::Add(b, hn::IfThenElseZero(mask, f(hn::MaskedLoad(mask, d, x + i))));
        }
        total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e)))));
    }
    return total;
}

/// Sums over a row of the distances from a number and of their squares.
struct Distances {
    double sum = 0, squares = 0;
};
template <class T>
Distances distances_from(T number, const T* x, int64_t n) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const V m = hn::Set(d, number);
    const auto total = [&](V a, V b) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)))); };
    Distances all;
    for (int64_t block = 0; block < n; block += kSumBlock) {
        const int64_t end = std::min(n, block + kSumBlock);
        V sum[2] = {hn::Zero(d), hn::Zero(d)}, squares[2] = {hn::Zero(d), hn::Zero(d)};
        const auto take = [&](int k, V distance) {
            sum[k] = hn::Add(sum[k], distance);
            squares[k] = hn::MulAdd(distance, distance, squares[k]);
        };
        int64_t i = block;
        for (; i + 2 * step <= end; i += 2 * step) {
            take(0, hn::Sub(hn::LoadU(d, x + i), m));
            take(1, hn::Sub(hn::LoadU(d, x + i + step), m));
        }
        for (; i + step <= end; i += step) take(0, hn::Sub(hn::LoadU(d, x + i), m));
        if (i < end) {
            const auto mask = hn::FirstN(d, static_cast<size_t>(end - i));
            take(1, hn::IfThenElseZero(mask, hn::Sub(hn::MaskedLoad(mask, d, x + i), m)));
        }
        all.sum += total(sum[0], sum[1]);
        all.squares += total(squares[0], squares[1]);
    }
    return all;
}

template <bool streamed, bool weighted, bool biased, class T>
void layer_out(const NormRow<T>& r, T middle, T rest, T inverse) {
    const hn::ScalableTag<T> d;
    const auto m = hn::Set(d, middle), q = hn::Set(d, rest), k = hn::Set(d, inverse);
    vectors(d, 0, r.n, [&](int64_t at, auto mask, auto whole) {
        __builtin_prefetch(r.x + r.n + at);  // most often the next row, and the next page, at which the processor's own prefetching ends
        auto v = hn::Mul(hn::Sub(hn::Sub(load(d, mask, whole, r.x + at), m), q), k);
        if constexpr (weighted && biased) {
            v = hn::MulAdd(v, load(d, mask, whole, r.weight + at), load(d, mask, whole, r.bias + at));
        } else if constexpr (weighted) {
            v = hn::Mul(v, load(d, mask, whole, r.weight + at));
        } else if constexpr (biased) {
            v = hn::Add(v, load(d, mask, whole, r.bias + at));
        }
        store<streamed>(d, v, mask, whole, r.out + at);
    });
}
template <bool streamed, class T>
void layer_out(const NormRow<T>& r, T middle, T rest, T inverse) {
    if (r.weight) return r.bias ? layer_out<streamed, true, true>(r, middle, rest, inverse) : layer_out<streamed, true, false>(r, middle, rest, inverse);
    return r.bias ? layer_out<streamed, false, true>(r, middle, rest, inverse) : layer_out<streamed, false, false>(r, middle, rest, inverse);
}

template <class T>
void layer_row(const NormRow<T>& r) {
    const double n = static_cast<double>(r.n);
    const auto middle = static_cast<T>(sum_over(r.x, r.n, [](auto x) { return x; }) / n);
    const Distances distances = distances_from(middle, r.x, r.n);
    const double rest = distances.sum / n;  // how far the first sum, which was rounded, is off
    const double variance = distances.squares / n - rest * rest;
    const auto inverse = static_cast<T>(1 / std::sqrt((variance < 0 ? 0 : variance) + r.eps));
    if (r.streamed) {
        layer_out<true>(r, middle, static_cast<T>(rest), inverse);
    } else {
        layer_out<false>(r, middle, static_cast<T>(rest), inverse);
    }
}

template <bool streamed, class T>
void rms_out(const NormRow<T>& r, T inverse) {
    const hn::ScalableTag<T> d;
    const auto k = hn::Set(d, inverse);
    vectors(d, 0, r.n, [&](int64_t at, auto mask, auto whole) {
        __builtin_prefetch(r.x + r.n + at);
        auto v = hn::Mul(load(d, mask, whole, r.x + at), k);
        if (r.weight) v = hn::Mul(v, load(d, mask, whole, r.weight + at));
        store<streamed>(d, v, mask, whole, r.out + at);
    });
}

template <class T>
void rms_row(const NormRow<T>& r) {
    const double squares = sum_over(r.x, r.n, [](auto x) { return hn::Mul(x, x); });
    const auto inverse = static_cast<T>(1 / std::sqrt(squares / static_cast<double>(r.n) + r.eps));
    if (r.streamed) {
        rms_out<true>(r, inverse);
    } else {
        rms_out<false>(r, inverse);
    }
}

/// The moments of N vectors of columns side by side, whose sums do not wait for each other.
template <int N, class D, class M, class W, class T>
HWY_INLINE void moments_of(D d, M mask, W whole, const NormBlock<T>& block, int64_t at, T* mean, T* squares) {
    using V = hn::Vec<D>;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const V one_over = hn::Set(d, static_cast<T>(1.0 / static_cast<double>(block.rows)));
    V sum[N], m[N], left[N], square[N];
    for (int k = 0; k < N; ++k) sum[k] = left[k] = square[k] = hn::Zero(d);
    for (int64_t r = 0; r < block.rows; ++r) {
        const T* const x = block.x + at + r * block.stride;
        for (int k = 0; k < N; ++k) sum[k] = hn::Add(sum[k], load(d, mask, whole, x + k * step));
    }
    for (int k = 0; k < N; ++k) m[k] = hn::Mul(sum[k], one_over);
    for (int64_t r = 0; r < block.rows; ++r) {
        const T* const x = block.x + at + r * block.stride;
        for (int k = 0; k < N; ++k) {
            const V distance = hn::Sub(load(d, mask, whole, x + k * step), m[k]);
            left[k] = hn::Add(left[k], distance);
            square[k] = hn::MulAdd(distance, distance, square[k]);
        }
    }
    for (int k = 0; k < N; ++k) {
        const V off = hn::Mul(left[k], one_over);  // how far the mean is off
        store(d, hn::Add(m[k], off), mask, whole, mean + at + k * step);
        store(d, hn::NegMulAdd(left[k], off, square[k]), mask, whole, squares + at + k * step);
    }
}

template <class T>
void moments(const NormBlock<T>& block, T* mean, T* squares) {
    const hn::ScalableTag<T> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const auto full = hn::FirstN(d, static_cast<size_t>(step));
    constexpr int kAbreast = 4;
    int64_t at = 0;
    for (; at + kAbreast * step <= block.columns; at += kAbreast * step) moments_of<kAbreast>(d, full, std::true_type(), block, at, mean, squares);
    for (; at + step <= block.columns; at += step) moments_of<1>(d, full, std::true_type(), block, at, mean, squares);
    if (at < block.columns) moments_of<1>(d, hn::FirstN(d, static_cast<size_t>(block.columns - at)), std::false_type(), block, at, mean, squares);
}

template <bool streamed, class T>
void affine_rows(const NormBlock<T>& block, const T* mean, const T* scale, const T* shift, T* out) {
    const hn::ScalableTag<T> d;
    for (int64_t r = 0; r < block.rows; ++r) {
        const T* const x = block.x + r * block.stride;
        T* const to = out + r * block.columns;
        vectors(d, 0, block.columns, [&](int64_t at, auto mask, auto whole) {
            const auto distance = hn::Sub(load(d, mask, whole, x + at), load(d, mask, whole, mean + at));
            store<streamed>(d, hn::MulAdd(distance, load(d, mask, whole, scale + at), load(d, mask, whole, shift + at)), mask, whole, to + at);
        });
    }
}

template <class T>
void affine(const NormBlock<T>& block, const T* mean, const T* scale, const T* shift, T* out, bool streamed) {
    if (streamed) {
        affine_rows<true>(block, mean, scale, shift, out);
    } else {
        affine_rows<false>(block, mean, scale, shift, out);
    }
}

/// Some vectors of columns from `first` on.
template <int Vectors, class T, class M, class W>
void affine_columns(const NormBlock<T>& block, const T* mean, const T* scale, const T* shift, T* out, int64_t first, M mask, W whole) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<decltype(d)> means[Vectors], scales[Vectors], shifts[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
        const int64_t at = first + v * lanes;
        means[v] = load(d, mask, whole, mean + at), scales[v] = load(d, mask, whole, scale + at), shifts[v] = load(d, mask, whole, shift + at);
    }
    for (int64_t r = 0; r < block.rows; ++r) {
        const T* const x = block.x + r * block.stride + first;
        T* const to = out + r * block.columns + first;
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            const auto distance = hn::Sub(load(d, mask, whole, x + v * lanes), means[v]);
            store(d, hn::MulAdd(distance, scales[v], shifts[v]), mask, whole, to + v * lanes);
        }
    }
}

template <class T>
void affine_near(const NormBlock<T>& block, const T* mean, const T* scale, const T* shift, T* out) {
    constexpr int kVectors = 4;
    const hn::ScalableTag<T> d;
    const int64_t together = kVectors * static_cast<int64_t>(hn::Lanes(d));
    int64_t first = 0;
    for (; first + together <= block.columns; first += together) {
        affine_columns<kVectors>(block, mean, scale, shift, out, first, hn::FirstN(d, hn::Lanes(d)), std::true_type());
    }
    vectors(d, first, block.columns, [&](int64_t at, auto mask, auto whole) { affine_columns<1>(block, mean, scale, shift, out, at, mask, whole); });
}

NormTable find_norms() {
    return {{&layer_row<float>, &rms_row<float>, &moments<float>, &affine<float>, &affine_near<float>},
            {&layer_row<double>, &rms_row<double>, &moments<double>, &affine<double>, &affine_near<double>}};
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_norms);

template <class T>
NormFns<T> find() {
    const NormTable table = HWY_DYNAMIC_DISPATCH(find_norms)();
    if constexpr (sizeof(T) == sizeof(float)) {
        return table.f32;
    } else {
        return table.f64;
    }
}

}  // namespace

template <>
NormFns<float> norms() {
    return find<float>();
}
template <>
NormFns<double> norms() {
    return find<double>();
}

namespace {

template <class T>
double row_eps(const Attributes& attributes, bool layer) {
    static_assert(attribute::layer_norm_eps == attribute::rms_norm_eps);
    return layer || attributes.present(attribute::rms_norm_eps) ? attributes.real(attribute::layer_norm_eps) : std::numeric_limits<T>::epsilon();
}

template <class T>
void rows_of(const KernelCall& call, bool layer) {
    const View& x = call.inputs[0];
    constexpr int given = attribute::layer_norm_given;
    const LaneArray<T> weight(optional_input(call, 1, given)), bias(layer ? optional_input(call, 2, given) : nullptr);
    const LaneReader<T> in(x);
    const LaneWriter<T> out(call.outputs[0]);
    const NormFns<T> fns = norms<T>();
    const auto run = layer ? fns.layer : fns.rms;
    const double eps = row_eps<T>(*call.attributes, layer);

    int64_t n = 1;
    for (int64_t d = x.rank - call.attributes->length(attribute::layer_norm_normalized_shape); d < x.rank; ++d) n *= x.shape[d];
    const bool streamed = is_streamed(out, in.count(), n);
    in_pieces<T>(call, in.count() / n, n, [&](int64_t begin, int64_t end, T* room) {
        for (int64_t r = begin; r < end; ++r) {
            run({in.read(r * n, n, room), weight.data(), bias.data(), out.place(r * n, room + n), n, eps, streamed});
            out.finish(r * n, n, room + n);
        }
    });
}

template <bool layer>
void rows(const KernelCall& call) {
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        rows_of<double>(call, layer);
    } else {
        rows_of<float>(call, layer);
    }
}

template <class T>
class NormPart final : public RowPart {
public:
    NormPart(const Attributes& attributes, bool layer, int64_t row)
        : RowPart(lane_dtype<T>, lane_dtype<T>),
          attributes_(attributes),
          run_(layer ? norms<T>().layer : norms<T>().rms),
          eps_(row_eps<T>(attributes, layer)),
          layer_(layer),
          row_(row) {}

    std::shared_ptr<const void> start(std::span<const View> others) const override {
        const auto optional = [&](int i) {
            const int32_t at = attributes_.input_of(i, attribute::layer_norm_given);
            return at < 0 ? nullptr : &others[static_cast<size_t>(at - 1)];
        };
        return std::make_shared<const Weights>(optional(1), layer_ ? optional(2) : nullptr);
    }
    void run(const void* state, const void* x, int64_t, int64_t n, void* to) const override {
        const auto& weights = *static_cast<const Weights*>(state);
        const auto* from = static_cast<const T*>(x);
        auto* out = static_cast<T*>(to);
        for (int64_t r = 0; r < n; r += row_) run_({from + r, weights.weight.data(), weights.bias.data(), out + r, row_, eps_, false});
    }

private:
    struct Weights {
        Weights(const View* weight, const View* bias) : weight(weight), bias(bias) {}
        const LaneArray<T> weight, bias;
    };
    const Attributes attributes_;
    void (*const run_)(const NormRow<T>&);
    const double eps_;
    const bool layer_;
    const int64_t row_;
};

template <class T>
std::unique_ptr<const RowPart> part_of(const FusedPart& part, int64_t row) {
    switch (static_cast<OpCode>(part.op)) {
        case OpCode::LayerNorm: return std::make_unique<NormPart<T>>(*part.attributes, true, row);
        case OpCode::RmsNorm: return std::make_unique<NormPart<T>>(*part.attributes, false, row);
        default: return nullptr;
    }
}

}  // namespace

std::unique_ptr<const RowPart> find_norm_part(const FusedPart& part, const View&, int64_t row) {
    return part.compute == static_cast<int32_t>(DType::Float64) ? part_of<double>(part, row) : part_of<float>(part, row);
}

KernelFn kernel_layer_norm(DType t) {
    return if_floats(t, &kernel<rows<true>>);
}
KernelFn kernel_rms_norm(DType t) {
    return if_floats(t, &kernel<rows<false>>);
}

}  // namespace clikart::cpu
#endif
