// Normalisation: of rows (layer_norm, rms_norm) and of channels, which are the last dimension (group_norm, instance_norm,
// batch_norm).
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
#include "backends/cpu/lanes.h"
#include "backends/cpu/vectors-inl.h"

#ifndef CLIKART_CPU_NORM_ONCE
#define CLIKART_CPU_NORM_ONCE
namespace clikart::cpu {

/// One row of n elements; weight and bias may be null.
template <class T>
struct NormRow {
    const T *x, *weight, *bias;
    T* out;
    int64_t n;
    double eps;
    bool streamed;  // the result goes past the caches, and is aligned for that
};

/// `rows` times `columns` elements, rows `stride` apart.
template <class T>
struct NormBlock {
    const T* x;
    int64_t rows, columns, stride;
};

template <class T>
struct NormFns {
    void (*layer)(const NormRow<T>&);
    void (*rms)(const NormRow<T>&);
    /// The mean of each column, and the sum of squares of the distances from it.
    void (*moments)(const NormBlock<T>&, T* mean, T* squares);
    /// (x - mean) * scale + shift with one of each for every column, to contiguous rows.
    void (*affine)(const NormBlock<T>&, const T* mean, const T* scale, const T* shift, T* out, bool streamed);
};

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

NormTable find_norms() {
    return {{&layer_row<float>, &rms_row<float>, &moments<float>, &affine<float>}, {&layer_row<double>, &rms_row<double>, &moments<double>, &affine<double>}};
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_norms);

template <class T>
NormFns<T> norms() {
    const NormTable table = HWY_DYNAMIC_DISPATCH(find_norms)();
    if constexpr (sizeof(T) == sizeof(float)) {
        return table.f32;
    } else {
        return table.f64;
    }
}

/// Whether stretches of `n` elements each go past the caches.
template <class T>
bool is_streamed(const LaneWriter<T>& out, int64_t count, int64_t n) {
    const auto bytes = static_cast<int64_t>(sizeof(T));
    return out.as_it_is() && count * bytes >= kStreamedBytes && n * bytes % static_cast<int64_t>(kMemoryAlignment) == 0;
}

/// Calls f(begin, end, room) in pieces over `count` stretches of `length` elements each; `room` holds two stretches.
template <class T, class F>
void in_pieces(const KernelCall& call, int64_t count, int64_t length, F&& f) {
    const int64_t per_piece = std::max<int64_t>(1, kPiece / length);
    parallel_for(call, (count + per_piece - 1) / per_piece, [&](int64_t piece) {
        const Scratch room(static_cast<size_t>(2 * length) * sizeof(T));
        f(piece * per_piece, std::min(count, (piece + 1) * per_piece), room.template as<T>());
        hwy::FlushStream();
    });
}

// ---- rows

template <class T>
void rows_of(const KernelCall& call, bool layer) {
    const View& x = call.inputs[0];
    constexpr int given = attribute::layer_norm_given;
    const LaneArray<T> weight(optional_input(call, 1, given)), bias(layer ? optional_input(call, 2, given) : nullptr);
    const LaneReader<T> in(x);
    const LaneWriter<T> out(call.outputs[0]);
    const NormFns<T> fns = norms<T>();
    const auto run = layer ? fns.layer : fns.rms;
    double eps = std::numeric_limits<T>::epsilon();
    if (layer || call.attributes->present(attribute::rms_norm_eps)) eps = call.attributes->real(attribute::layer_norm_eps);
    static_assert(attribute::layer_norm_eps == attribute::rms_norm_eps);

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

// ---- channels

/// Samples of places of channels, seen as rows of `period` elements: as many whole places as vectors want.  Element i of a
/// sample is of channel i % period % channels.  Blocks are what one step of a kernel looks at.
struct ChannelLayout {
    int64_t samples, length, channels, period, block, blocks;  // in elements, but for the first and the last

    ChannelLayout(const View& x, bool samples_apart) : channels(x.shape[x.rank - 1]) {
        const int64_t count = numel(shape_of(x));
        samples = samples_apart ? x.shape[0] : 1;
        length = count / samples;
        constexpr int64_t kWide = 64, kRows = 16, kElements = 8192;
        period = channels * std::min((kWide + channels - 1) / channels, length / channels);
        block = period * std::max(kRows, kElements / period);
        blocks = (length + block - 1) / block;
    }
    int64_t in_block(int64_t b) const noexcept { return std::min(block, length - b * block); }
};

/// What is done to each channel, repeated to fill a period, for each sample.
template <class T>
class Affine {
public:
    Affine(const ChannelLayout& layout, int64_t samples)
        : period_(layout.period), channels_(layout.channels), room_(static_cast<size_t>(3 * samples * layout.period) * sizeof(T)) {}

    void set(int64_t sample, int64_t channel, double mean, double scale, double shift) const {
        const auto middle = static_cast<T>(mean);
        shift -= (mean - static_cast<double>(middle)) * scale;
        for (int64_t i = channel; i < period_; i += channels_) {
            at(sample, 0)[i] = middle;
            at(sample, 1)[i] = static_cast<T>(scale);
            at(sample, 2)[i] = static_cast<T>(shift);
        }
    }
    T* at(int64_t sample, int64_t which) const noexcept { return room_.template as<T>() + (3 * sample + which) * period_; }

private:
    const int64_t period_, channels_;
    const Scratch room_;
};

/// The last pass over the data.
template <class T>
void apply(const KernelCall& call, const ChannelLayout& layout, const LaneReader<T>& in, const Affine<T>& each) {
    const LaneWriter<T> out(call.outputs[0]);
    const NormFns<T> fns = norms<T>();
    const int64_t period = layout.period;
    const bool streamed = is_streamed(out, in.count(), period) && layout.length % period == 0;
    in_pieces<T>(call, layout.samples * layout.blocks, layout.block, [&](int64_t begin, int64_t end, T* room) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t sample = i / layout.blocks, n = layout.in_block(i % layout.blocks);
            const int64_t first = sample * layout.length + i % layout.blocks * layout.block, whole = n / period * period;
            const T *x = in.read(first, n, room), *mean = each.at(sample, 0), *scale = each.at(sample, 1), *shift = each.at(sample, 2);
            T* const to = out.place(first, room + layout.block);
            fns.affine({x, n / period, period, period}, mean, scale, shift, to, streamed);
            if (whole < n) fns.affine({x + whole, 1, n - whole, period}, mean, scale, shift, to + whole, false);
            out.finish(first, n, room + layout.block);
        }
    });
}

/// How many elements a group has, their mean, and the sum of squares of the distances from it.
struct Moments {
    double count = 0, mean = 0, squares = 0;
};

/// The moments of blocks, column by column.
template <class T>
class BlockMoments {
public:
    BlockMoments(const KernelCall& call, const ChannelLayout& layout, const LaneReader<T>& in)
        : layout_(layout), room_(static_cast<size_t>(2 * layout.samples * layout.blocks * layout.period) * sizeof(T)) {
        const NormFns<T> fns = norms<T>();
        const int64_t period = layout.period;
        in_pieces<T>(call, layout.samples * layout.blocks, layout.block, [&](int64_t begin, int64_t end, T* tile) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t n = layout.in_block(i % layout.blocks), rows = n / period, more = n % period;
                const T* const x = in.read(i / layout.blocks * layout.length + i % layout.blocks * layout.block, n, tile);
                T *const mean = means(i), *const squares = mean + period;
                if (more > 0) fns.moments({x, rows + 1, more, period}, mean, squares);
                if (rows > 0) fns.moments({x + more, rows, period - more, period}, mean + more, squares + more);
            }
        });
    }

    /// Of neighbouring channels of a sample.
    Moments of(int64_t sample, int64_t channel, int64_t channels) const {
        Moments all;
        visit(sample, channel, channels, [&](double count, double mean, double) {
            all.count += count;
            all.mean += count * mean;
        });
        all.mean /= all.count;
        visit(sample, channel, channels,
              [&](double count, double mean, double squares) { all.squares += squares + count * (mean - all.mean) * (mean - all.mean); });
        return all;
    }

private:
    T* means(int64_t i) const noexcept { return room_.template as<T>() + 2 * i * layout_.period; }
    template <class F>
    void visit(int64_t sample, int64_t channel, int64_t channels, F&& f) const {
        for (int64_t b = 0; b < layout_.blocks; ++b) {
            const int64_t rows = layout_.in_block(b) / layout_.period, more = layout_.in_block(b) % layout_.period;
            const T *const mean = means(sample * layout_.blocks + b), *const squares = mean + layout_.period;
            for (int64_t from = channel; from < layout_.period; from += layout_.channels) {
                for (int64_t i = from; i < from + channels; ++i) {
                    const int64_t count = rows + (i < more);
                    if (count > 0) f(static_cast<double>(count), static_cast<double>(mean[i]), static_cast<double>(squares[i]));
                }
            }
        }
    }

    const ChannelLayout& layout_;
    const Scratch room_;
};

template <class T>
void group_norm_of(const KernelCall& call, int64_t groups, int given, double eps) {
    const ChannelLayout layout(call.inputs[0], true);
    const LaneArray<T> weight(optional_input(call, 1, given)), bias(optional_input(call, 2, given));
    const LaneReader<T> in(call.inputs[0]);
    const BlockMoments<T> moments(call, layout, in);
    const Affine<T> each(layout, layout.samples);
    const int64_t channels = layout.channels / groups;
    parallel_for(call, layout.samples * groups, [&](int64_t i) {
        const int64_t sample = i / groups, first = i % groups * channels;
        const Moments m = moments.of(sample, first, channels);
        const double inverse = 1 / std::sqrt(m.squares / m.count + eps);
        for (int64_t c = first; c < first + channels; ++c) {
            each.set(sample, c, m.mean, inverse * static_cast<double>(weight.at(c, 1)), static_cast<double>(bias.at(c, 0)));
        }
    });
    apply(call, layout, in, each);
}

void grouped(const KernelCall& call, int64_t groups, int given, double eps) {
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        group_norm_of<double>(call, groups, given, eps);
    } else {
        group_norm_of<float>(call, groups, given, eps);
    }
}

void group_norm(const KernelCall& call) {
    grouped(call, call.attributes->integer(attribute::group_norm_num_groups), attribute::group_norm_given, call.attributes->real(attribute::group_norm_eps));
}
void instance_norm(const KernelCall& call) {
    const View& x = call.inputs[0];
    grouped(call, x.shape[x.rank - 1], attribute::instance_norm_given, call.attributes->real(attribute::instance_norm_eps));
}

template <class T>
void batch_norm_of(const KernelCall& call) {
    const ChannelLayout layout(call.inputs[0], false);
    constexpr int given = attribute::batch_norm_given;
    const LaneArray<double> mean(&call.inputs[1]), variance(&call.inputs[2]), weight(optional_input(call, 3, given)), bias(optional_input(call, 4, given));
    const double eps = call.attributes->real(attribute::batch_norm_eps);
    const Affine<T> each(layout, 1);
    for (int64_t c = 0; c < layout.channels; ++c) each.set(0, c, mean.at(c, 0), weight.at(c, 1) / std::sqrt(variance.at(c, 1) + eps), bias.at(c, 0));
    apply(call, layout, LaneReader<T>(call.inputs[0]), each);
}

void batch_norm(const KernelCall& call) {
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        batch_norm_of<double>(call);
    } else {
        batch_norm_of<float>(call);
    }
}

}  // namespace

KernelFn kernel_layer_norm(DType t) {
    return if_floats(t, &kernel<rows<true>>);
}
KernelFn kernel_rms_norm(DType t) {
    return if_floats(t, &kernel<rows<false>>);
}
KernelFn kernel_group_norm(DType t) {
    return if_floats(t, &kernel<group_norm>);
}
KernelFn kernel_instance_norm(DType t) {
    return if_floats(t, &kernel<instance_norm>);
}
KernelFn kernel_batch_norm(DType t) {
    return if_floats(t, &kernel<batch_norm>);
}

}  // namespace clikart::cpu
#endif
