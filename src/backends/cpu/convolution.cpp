// Convolutions.  float32 goes through oneDNN, in pieces whose borders follow from the shape alone, or, where few results are made of many
// weights, through products of rows; float16 and bfloat16 through float32; float64, and what oneDNN has no good kernel for, through a direct loop.
#include "backends/cpu/convolution.h"

#include <algorithm>
#include <optional>

#include "backends/cpu/convert.h"
#include "backends/cpu/copy.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/onednn_convolution.h"
#include "backends/cpu/row_convolution.h"
#include "base/small_vector.h"

namespace clikart::cpu {
namespace {

template <int Spatial, bool Transposed>
ConvolutionShape shape_of_call(const KernelCall& call) {
    constexpr int stride = Transposed ? attribute::conv_transpose1d_stride : attribute::conv1d_stride;
    constexpr int padding = Transposed ? attribute::conv_transpose1d_padding : attribute::conv1d_padding;
    constexpr int dilation = Transposed ? attribute::conv_transpose1d_dilation : attribute::conv1d_dilation;
    constexpr int groups = Transposed ? attribute::conv_transpose1d_groups : attribute::conv1d_groups;
    const View &x = call.inputs[0], &weight = call.inputs[1], &out = call.outputs[0];
    const Attributes& attributes = *call.attributes;
    const int batched = x.rank == Spatial + 2;
    ConvolutionShape s{batched ? x.shape[0] : 1,
                       attributes.integer(groups),
                       x.shape[x.rank - 1],
                       out.shape[out.rank - 1],
                       {1, 1, 1},
                       {1, 1, 1},
                       {1, 1, 1},
                       {1, 1, 1},
                       {1, 1, 1},
                       {0, 0, 0},
                       {0, 0, 0},
                       Transposed,
                       call.n_inputs == 3};
    for (int i = 0; i < Spatial; ++i) {
        const int d = 3 - Spatial + i;
        s.in[d] = x.shape[batched + i];
        s.out[d] = out.shape[batched + i];
        s.kernel[d] = weight.shape[1 + i];
        s.stride[d] = attributes.entry(stride, i);
        s.dilation[d] = attributes.entry(dilation, i);
        s.low[d] = attributes.entry(padding, i);
        if (!Transposed && s.low[d] == kSamePadding) s.low[d] = (s.reach(d) - 1) / 2;  // what is odd comes at the end
        s.high[d] = s.high_of(d);
    }
    return s;
}

/// `Spatial` dimensions between two others, the first of which may be missing.
template <int Spatial>
ConvolutionOperand operand(const View& view) {
    ConvolutionOperand result{view.data, {}};
    if (view.rank == Spatial + 2) result.strides[0] = view.strides[0];
    for (int d = 0; d <= Spatial; ++d) result.strides[4 - d] = view.strides[view.rank - 1 - d];
    return result;
}

/// A view that is contiguous and of dtype `to`: the given one, or a copy that lives as long as this.
class Contiguous {
public:
    Contiguous(const KernelCall& call, const View& from, DType to) : shape_(shape_of(from)), strides_(contiguous_strides(shape_)) {
        view = from;
        const DType dtype = dtype_of(from);
        if (dtype == to && is_contiguous(shape_, strides_of(from))) return;
        scratch_.emplace(static_cast<size_t>(numel(shape_) * size_of(to)));
        view = {scratch_->as<void>(), shape_.data(), strides_.data(), from.rank, static_cast<int32_t>(to)};
        if (dtype == to) {
            copy_view(call, from, view);
            return;
        }
        const ConvertFn convert = find_convert(dtype, to);
        const StridedLoop<2> loop(view, {&from, 1});
        loop.parallel_runs(call, [&](char* const* at, int64_t n) { convert(at[1], loop.inner_stride(1), at[0], loop.inner_stride(0), n); });
    }
    View view;

private:
    const Dims shape_, strides_;
    std::optional<Scratch> scratch_;
};

// ---- through oneDNN --------------------------------------------------------------------------------------------------

/// What is left of a convolution for results [begin, end) of dimension `dim`, and the first place of the input that they need.
struct Piece {
    Piece(const ConvolutionShape& whole, int dim, int64_t begin, int64_t end) : shape(whole) {
        const int64_t stride = whole.stride[dim], size = whole.in[dim], reach = whole.reach(dim), low = whole.low[dim];
        int64_t last = 0;
        if (whole.transposed) {
            const int64_t least = begin + low - (reach - 1);
            first = std::min(least > 0 ? (least + stride - 1) / stride : 0, (begin + low) / stride);
            last = std::min(size, (end - 1 + low) / stride + 1);
            shape.low[dim] = begin + low - first * stride;
        } else {
            const int64_t start = begin * stride - low;
            first = std::max<int64_t>(0, start);
            last = std::min(size, start + (end - 1 - begin) * stride + reach);
            shape.low[dim] = first - start;
        }
        shape.in[dim] = last - first;
        shape.out[dim] = end - begin;
        shape.high[dim] = shape.high_of(dim);
    }
    ConvolutionShape shape;
    int64_t first = 0;
};

/// Within what oneDNN's kernels were made for; they take most of what is beyond, too, but not all of it well.
bool is_usual(const ConvolutionShape& s) noexcept {
    constexpr int64_t kLargest = INT32_MAX / 4;
    for (int d = 0; d < 3; ++d) {
        if (s.in[d] < 1 || s.in[d] > kLargest || s.out[d] > kLargest || s.stride[d] > kLargest || s.dilation[d] > kLargest) return false;
        if (s.low[d] >= s.reach(d) + (s.transposed ? s.stride[d] : 0) || s.high[d] >= s.reach(d) + (s.transposed ? s.stride[d] : 0)) return false;
        if (s.high[d] <= -s.stride[d]) return false;
    }
    const auto bytes = [](int64_t places, int64_t channels) { return 4.0 * static_cast<double>(places) * static_cast<double>(channels); };
    return s.in_channels > 0 && bytes(s.batch * s.in_places(), s.in_channels) < kLargest && bytes(s.batch * s.out_places(), s.out_channels) < kLargest &&
           bytes(s.taps() * s.in_group(), s.out_channels) < kLargest;
}

/// How a convolution is cut: small images in bunches, large ones across their first dimension.
struct Cut {
    explicit Cut(const ConvolutionShape& s) {
        constexpr double kProducts = 4e6, kBytes = 512 << 10;  // of one piece: some 25 us; what a core's own cache holds
        constexpr int64_t kRows = 3;                           // kernels get slow over fewer
        const double bytes = 4.0 * (static_cast<double>(s.in_places() * s.in_channels) + static_cast<double>(s.out_places() * s.out_channels));
        const double pieces = std::max(s.products() / static_cast<double>(s.batch) / kProducts, bytes / kBytes);  // of one image
        if (pieces < 0.5) {
            images = std::clamp<int64_t>(static_cast<int64_t>(1 / std::max(pieces, 1e-9)), 1, s.batch);
            // Enough for some threads, unless it is too little for even two.
            constexpr int64_t kLeast = 8;
            if (pieces * static_cast<double>(s.batch) >= 1) images = std::min(images, std::max<int64_t>(1, s.batch / kLeast));
        }
        while (dim < 2 && s.in[dim] == 1 && s.out[dim] == 1) ++dim;
        const int64_t size = s.out[dim];
        const int64_t most = std::clamp<int64_t>(static_cast<int64_t>(std::min(pieces + 0.5, 64.0)), 1, std::max<int64_t>(1, size / kRows));
        // Of few parts, as many as let two threads be over with one image soonest: three take them as long as four would.
        const auto longest = [&](int64_t n) { return ceil_div(n, 2) * ceil_div(size, n); };
        int64_t parts = most;
        if (most <= 16) {
            for (int64_t n = most - 1; n >= std::max<int64_t>(2, most / 2); --n) {
                if (longest(n) < longest(parts)) parts = n;
            }
        }
        rows = ceil_div(size, parts);
        if (s.transposed) rows = std::min(size, ceil_div(rows, s.stride[dim]) * s.stride[dim]);  // few kinds of pieces
    }
    int dim = 0;         // the dimension that is cut
    int64_t rows;        // of it in a piece
    int64_t images = 1;  // in a piece; more than one only of whole images
};

/// All operands contiguous.  False where oneDNN has no good kernel; then nothing was done.
bool convolve_by_onednn(const KernelCall& call, const ConvolutionShape& shape, const float* x, const float* weight, const float* bias, float* out) {
    if (!is_usual(shape)) return false;
    const Cut cut(shape);
    const int64_t bunches = (shape.batch + cut.images - 1) / cut.images, size = shape.out[cut.dim], strips = (size + cut.rows - 1) / cut.rows;

    struct Kind {
        ConvolutionShape shape;
        std::shared_ptr<const Convolution> kernel;
        size_t packed;  // which of the packed weights it takes
    };
    SmallVector<Kind, 8> kinds;
    SmallVector<std::shared_ptr<const Convolution>, 4> packers;
    const auto piece_at = [&](int64_t bunch, int64_t strip) {
        Piece piece = strips == 1 ? Piece(shape, cut.dim, 0, size) : Piece(shape, cut.dim, strip * cut.rows, std::min(size, (strip + 1) * cut.rows));
        if (cut.images > 1) piece.shape = shape, piece.first = 0;  // with all of their rows, the images stay contiguous
        piece.shape.batch = std::min(cut.images, shape.batch - bunch * cut.images);
        return piece;
    };
    const auto kind_of = [&](const Piece& piece) {
        size_t k = 0;
        while (k < kinds.size() && !(kinds[k].shape == piece.shape)) ++k;
        return k;
    };
    for (const int64_t bunch : {int64_t{0}, bunches - 1}) {
        for (int64_t strip = 0; strip < strips; ++strip) {
            const Piece piece = piece_at(bunch, strip);
            if (kind_of(piece) < kinds.size()) continue;
            if (!is_usual(piece.shape)) return false;
            auto kernel = Convolution::find(piece.shape);
            if (!kernel) return false;
            size_t p = 0;
            while (p < packers.size() && !packers[p]->packs_like(*kernel)) ++p;
            if (p == packers.size()) packers.push_back(kernel);
            kinds.push_back({piece.shape, std::move(kernel), p});
        }
    }
    SmallVector<int64_t, 4> places;
    int64_t packed_bytes = 0;
    for (const auto& packer : packers) {
        places.push_back(packed_bytes);
        packed_bytes += (static_cast<int64_t>(packer->packed_bytes()) + 4095) / 4096 * 4096;
    }
    const Prepared packed(call, 1, static_cast<size_t>(packed_bytes), [&](char* to) {
        parallel_for(call, static_cast<int64_t>(packers.size()),
                     [&](int64_t p) { packers[static_cast<size_t>(p)]->pack(weight, to + places[static_cast<size_t>(p)]); });
    });

    const bool tells = call.made && out == call.outputs[0].data;
    int64_t in_row = shape.in_channels, out_row = shape.out_channels;  // elements of one step along the dimension that is cut
    for (int d = cut.dim + 1; d < 3; ++d) in_row *= shape.in[d], out_row *= shape.out[d];
    const int64_t in_image = shape.in_places() * shape.in_channels, out_image = shape.out_places() * shape.out_channels;
    parallel_for(call, bunches * strips, [&](int64_t at) {
        const int64_t bunch = at / strips, strip = at % strips;
        const Piece piece = piece_at(bunch, strip);
        const Kind& kind = kinds[kind_of(piece)];
        const int64_t begin = bunch * cut.images * out_image + strip * cut.rows * out_row;
        kind.kernel->run(x + bunch * cut.images * in_image + piece.first * in_row, packed.data() + places[kind.packed], bias, out + begin);
        if (tells) call.made(&call, begin, begin + piece.shape.batch * (cut.images > 1 || strips == 1 ? out_image : piece.shape.out[cut.dim] * out_row));
    });
    return true;
}

// ---- the kernels -----------------------------------------------------------------------------------------------------

template <int Spatial, bool Transposed>
void convolve(const KernelCall& call) {
    const ConvolutionShape shape = shape_of_call<Spatial, Transposed>(call);
    const View &x = call.inputs[0], &weight = call.inputs[1], &out = call.outputs[0];
    const DType dtype = dtype_of(out), lane = lane_of(dtype);
    std::optional<Contiguous> bias;
    if (shape.bias) bias.emplace(call, call.inputs[2], lane);
    const void* const bias_data = bias ? bias->view.data : nullptr;
    if (dtype == DType::Float64) return convolve_directly(call, dtype, shape, operand<Spatial>(x), operand<Spatial>(weight), bias_data, out.data);

    const Contiguous own_x(call, x, lane), own_weight(call, weight, lane);
    std::optional<Scratch> wide;
    if (dtype != lane) wide.emplace(static_cast<size_t>(numel(shape_of(out))) * sizeof(float));
    float* const result = wide ? wide->as<float>() : static_cast<float*>(out.data);
    const auto *from = static_cast<const float*>(own_x.view.data), *by = static_cast<const float*>(own_weight.view.data),
               *plus = static_cast<const float*>(bias_data);
    if (suits_rows(shape)) {
        convolve_by_rows(call, shape, from, by, plus, result);
    } else if (!convolve_by_onednn(call, shape, from, by, plus, result)) {
        convolve_directly(call, lane, shape, operand<Spatial>(own_x.view), operand<Spatial>(own_weight.view), plus, result);
    }
    if (!wide) return;
    const ConvertFn convert = find_convert(lane, dtype);
    const int64_t count = numel(shape_of(out)), size = size_of(dtype);
    parallel_for(call, (count + kPiece - 1) / kPiece, [&](int64_t piece) {
        const int64_t begin = piece * kPiece;
        convert(result + begin, 1, static_cast<char*>(out.data) + begin * size, 1, std::min(kPiece, count - begin));
    });
}

template <int Spatial, bool Transposed>
KernelFn find(DType dtype) {
    if (!computes(dtype)) return nullptr;
    if (lane_of(dtype) == DType::Float32) Convolution::wake();
    return &kernel<convolve<Spatial, Transposed>>;
}

}  // namespace

KernelFn kernel_conv1d(DType dtype) {
    return find<1, false>(dtype);
}
KernelFn kernel_conv2d(DType dtype) {
    return find<2, false>(dtype);
}
KernelFn kernel_conv3d(DType dtype) {
    return find<3, false>(dtype);
}
KernelFn kernel_conv_transpose1d(DType dtype) {
    return find<1, true>(dtype);
}
KernelFn kernel_conv_transpose2d(DType dtype) {
    return find<2, true>(dtype);
}
KernelFn kernel_conv_transpose3d(DType dtype) {
    return find<3, true>(dtype);
}

}  // namespace clikart::cpu
