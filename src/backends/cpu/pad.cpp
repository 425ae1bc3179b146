// Elements around a tensor.
#include "backends/cpu/copy.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "core/convert.h"

namespace clikart::cpu {
namespace {

constexpr int64_t kLongestUnit = 1024;   // elements
constexpr int64_t kStretch = 8 * 1024;   // bytes of results that are put together before they are written past the caches
constexpr int64_t kNothing = INT64_MIN;  // instead of an offset: there is nothing but the value

struct Axis {
    int64_t in, out, before;  // how many there are, and how many come before them
};

/// Rows of units; a unit is one element, or several neighbours that stay together because their dimensions are not padded.
class Padding {
public:
    explicit Padding(const KernelCall& call)
        : in_(call.inputs[0]),
          out_(call.outputs[0]),
          element_(size_of(dtype_of(out_))),
          mode_(static_cast<PadMode>(call.attributes->integer(attribute::pad_mode))) {
        const int64_t pairs = call.attributes->length(attribute::pad_padding) / 2;
        for (int d = 0; d < in_.rank; ++d) {
            const int64_t pair = in_.rank - 1 - d;
            axes_[d] = {in_.shape[d], out_.shape[d], pair < pairs ? call.attributes->list(attribute::pad_padding)[2 * pair] : 0};
        }
        with_stored_type(dtype_of(out_), [&]<class T>() {
            const T value = convert<T>(call.attributes->real(attribute::pad_value));
            std::memcpy(value_, &value, sizeof value);
        });
        row_ = in_.rank - 1;
        const auto dense = [&](int d) { return axes_[d].in == 1 || in_.strides[d] == unit_; };
        while (row_ > 0 && whole(row_) && dense(row_) && unit_ * axes_[row_].out <= kLongestUnit) unit_ *= axes_[row_--].out;
        stride_ = in_.strides[row_];
        copy_ = find_run(element_, dense(row_) ? 1 : stride_, 1, false);
        fill_ = find_run(element_, 0, 1, false);
        edge_stride_ = mode_ == PadMode::Reflect ? -stride_ : mode_ == PadMode::Replicate ? 0 : stride_;
        edge_ = find_run(element_, edge_stride_, 1, false);
        joined_ = dense(row_);
        rows_ = 1;
        for (int d = 0; d < row_; ++d) rows_ *= axes_[d].out;
        piece_ = std::max<int64_t>(1, kPiece / unit_);
        streamed_ = rows_ * axes_[row_].out * unit_ * element_ >= kStreamedBytes;
    }

    int64_t pieces() const noexcept { return (rows_ * axes_[row_].out + piece_ - 1) / piece_; }

    void run(int64_t piece) const {
        const int64_t length = axes_[row_].out, end = std::min(rows_ * length, (piece + 1) * piece_), bytes = unit_ * element_;
        int64_t at = piece * piece_, rest = at / length, begin = at % length;
        int64_t index[kMaxRank];
        for (int d = row_ - 1; d >= 0; --d) {
            index[d] = rest % axes_[d].out;
            rest /= axes_[d].out;
        }
        int64_t offset[kMaxRank + 1];  // that the dimensions before each make up
        offset[0] = 0;
        find_offsets(index, 0, offset);
        // Large results are put together here and then go past the caches.
        alignas(64) char stretch[kStretch];
        char* to = static_cast<char*>(out_.data) + at * bytes;
        const int64_t most = streamed_ ? kStretch / bytes : end - at;
        while (at < end) {
            char* const place = streamed_ ? stretch : to;
            int64_t made = 0;
            while (at < end && made < most) {
                const int64_t n = std::min({length - begin, end - at, most - made});
                if (offset[row_] == kNothing) {
                    fill(n, place + made * bytes);
                } else {
                    copy_row(static_cast<const char*>(in_.data) + offset[row_] * element_, begin, begin + n, place + made * bytes);
                }
                at += n;
                made += n;
                begin += n;
                if (begin < length) continue;
                begin = 0;
                int d = row_ - 1;
                while (d >= 0 && ++index[d] == axes_[d].out) index[d--] = 0;
                if (d >= 0) find_offsets(index, d, offset);
            }
            if (streamed_) stream(to, 0, stretch, 0, 1, made * bytes);
            to += made * bytes;
        }
        if (streamed_) finish_streams();
    }

private:
    bool whole(int d) const noexcept { return axes_[d].before == 0 && axes_[d].in == axes_[d].out; }

    /// Where element i of a dimension comes from; -1: it is the value.
    int64_t source(const Axis& axis, int64_t i) const noexcept {
        const int64_t at = i - axis.before;
        if (at >= 0 && at < axis.in) return at;
        switch (mode_) {
            case PadMode::Reflect: return at < 0 ? -at : 2 * (axis.in - 1) - at;
            case PadMode::Replicate: return at < 0 ? 0 : axis.in - 1;
            case PadMode::Circular: return at < 0 ? at + axis.in : at - axis.in;
            default: return -1;
        }
    }

    /// From dimension d on.
    void find_offsets(const int64_t* index, int d, int64_t* offset) const noexcept {
        for (; d < row_; ++d) {
            const int64_t at = offset[d] == kNothing ? -1 : source(axes_[d], index[d]);
            offset[d + 1] = at < 0 ? kNothing : offset[d] + at * in_.strides[d];
        }
    }

    void fill(int64_t units, char* to) const { fill_(value_, 0, to, 1, units * unit_); }

    /// Units [begin, end) of a row of the result.
    void copy_row(const char* from, int64_t begin, int64_t end, char* to) const {
        const Axis& axis = axes_[row_];
        const int64_t bytes = unit_ * element_, first = std::max<int64_t>(0, axis.before), last = std::max(first, std::min(axis.out, axis.before + axis.in));
        const int64_t inner = std::clamp(first, begin, end), outer = std::clamp(last, inner, end);
        around(from, begin, inner, to);
        if (outer > inner) copy(from + (inner - axis.before) * stride_ * element_, outer - inner, to + (inner - begin) * bytes);
        around(from, outer, end, to + (outer - begin) * bytes);
    }

    void around(const char* from, int64_t begin, int64_t end, char* to) const {
        if (begin >= end) return;
        if (mode_ == PadMode::Constant) return fill(end - begin, to);
        if (unit_ == 1) return edge_(from + source(axes_[row_], begin) * stride_ * element_, edge_stride_, to, 1, end - begin);
        for (int64_t i = begin; i < end; ++i, to += unit_ * element_) copy(from + source(axes_[row_], i) * stride_ * element_, 1, to);
    }

    void copy(const char* from, int64_t units, char* to) const {
        if (joined_) return copy_(from, 1, to, 1, units * unit_);
        if (unit_ == 1) return copy_(from, stride_, to, 1, units);
        for (int64_t i = 0; i < units; ++i) std::memcpy(to + i * unit_ * element_, from + i * stride_ * element_, static_cast<size_t>(unit_ * element_));
    }

    const View &in_, &out_;
    const int64_t element_;
    const PadMode mode_;
    Axis axes_[kMaxRank];
    int row_;  // which dimension rows are of
    int64_t unit_ = 1, stride_, rows_, piece_;
    bool joined_;  // the units of a row are neighbours
    bool streamed_;
    int64_t edge_stride_;  // from one source to the next on either side of the row
    RunFn copy_, fill_, edge_;
    alignas(8) char value_[kWidestElement];
};

void pad(const KernelCall& call) {
    if (call.inputs[0].rank == 0) return copy_view(call, call.inputs[0], call.outputs[0]);
    const Padding padding(call);
    parallel_for(call, padding.pieces(), [&](int64_t piece) { padding.run(piece); });
}

}  // namespace

KernelFn kernel_pad(DType) {
    return &kernel<pad>;
}

}  // namespace clikart::cpu
