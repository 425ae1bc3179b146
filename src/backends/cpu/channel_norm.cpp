// Normalisation of channels, which are the last dimension: group_norm, instance_norm, batch_norm.
#include <cmath>

#include "backends/cpu/kernels.h"
#include "backends/cpu/norm.h"
#include "backends/cpu/row_part.h"

namespace clikart::cpu {
namespace {

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

/// `operands` are those of the operator behind x.
template <class T>
void set_batch_norm(const Affine<T>& each, int64_t channels, std::span<const View> operands, const Attributes& attributes) {
    const auto optional = [&](int i) {
        const int32_t at = attributes.input_of(i, attribute::batch_norm_given);
        return at < 0 ? nullptr : &operands[static_cast<size_t>(at - 1)];
    };
    const LaneArray<double> mean(&operands[0]), variance(&operands[1]), weight(optional(3)), bias(optional(4));
    const double eps = attributes.real(attribute::batch_norm_eps);
    for (int64_t c = 0; c < channels; ++c) each.set(0, c, mean.at(c, 0), weight.at(c, 1) / std::sqrt(variance.at(c, 1) + eps), bias.at(c, 0));
}

template <class T>
void batch_norm_of(const KernelCall& call) {
    const ChannelLayout layout(call.inputs[0], false);
    const Affine<T> each(layout, 1);
    set_batch_norm(each, layout.channels, {call.inputs + 1, static_cast<size_t>(call.n_inputs - 1)}, *call.attributes);
    apply(call, layout, LaneReader<T>(call.inputs[0]), each);
}

void batch_norm(const KernelCall& call) {
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        batch_norm_of<double>(call);
    } else {
        batch_norm_of<float>(call);
    }
}

template <class T>
class BatchNormPart final : public RowPart {
public:
    BatchNormPart(const Attributes& attributes, const View& x)
        : RowPart(lane_dtype<T>, lane_dtype<T>), attributes_(attributes), layout_(x, false), affine_(norms<T>().affine_near) {}

    std::shared_ptr<const void> start(std::span<const View> others) const override {
        auto each = std::make_shared<const Affine<T>>(layout_, 1);
        set_batch_norm(*each, layout_.channels, others, attributes_);
        return each;
    }
    void run(const void* state, const void* x, int64_t first, int64_t n, void* to) const override {
        const auto& each = *static_cast<const Affine<T>*>(state);
        const int64_t period = layout_.period;
        const auto* from = static_cast<const T*>(x);
        auto* out = static_cast<T*>(to);
        for (int64_t i = 0; i < n;) {  // what is left of a period, whole ones, and what is left then
            const int64_t at = (first + i) % period, rows = at == 0 ? std::max<int64_t>(1, (n - i) / period) : 1;
            const int64_t columns = std::min(period - at, n - i);
            affine_({from + i, rows, columns, columns}, each.at(0, 0) + at, each.at(0, 1) + at, each.at(0, 2) + at, out + i);
            i += rows * columns;
        }
    }

private:
    const Attributes attributes_;
    const ChannelLayout layout_;
    void (*const affine_)(const NormBlock<T>&, const T*, const T*, const T*, T*);
};

}  // namespace

std::unique_ptr<const RowPart> find_channel_part(const FusedPart& part, const View& x, int64_t) {
    if (static_cast<OpCode>(part.op) != OpCode::BatchNorm || numel(shape_of(x)) == 0) return nullptr;
    if (part.compute == static_cast<int32_t>(DType::Float64)) return std::make_unique<BatchNormPart<double>>(*part.attributes, x);
    return std::make_unique<BatchNormPart<float>>(*part.attributes, x);
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
