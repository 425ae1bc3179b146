// Convolutions as products of rows.  Lines of windows that lie over the edge are passed over, and, unless windows are spread out, so are the places
// across them that do.
#include "backends/cpu/row_convolution.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "backends/cpu/row_products.h"

namespace clikart::cpu {

bool suits_rows(const ConvolutionShape& s) noexcept {
    constexpr int64_t kWeights = 1 << 18, kResults = 256;
    constexpr double kMostElements = 1 << 24;  // with the zeros around them: windows may reach far
    double elements = static_cast<double>(s.batch) * static_cast<double>(s.in_channels);
    for (int d = 0; d < 3; ++d) {
        elements *= static_cast<double>(s.out[d] - 1) * static_cast<double>(s.stride[d]) +
                    static_cast<double>(s.kernel[d] - 1) * static_cast<double>(s.dilation[d]) + 1;
    }
    return !s.transposed && s.groups == 1 && s.batch * s.out_places() <= kResults && s.taps() * s.in_channels * s.out_channels >= kWeights &&
           elements <= kMostElements;
}

namespace {

/// The input with its zeros around it, as far as windows reach; the input itself where they reach nothing else.
class Padded {
public:
    Padded(const KernelCall& call, const ConvolutionShape& s, const float* x) : data_(x), channels_(s.in_channels) {
        bool as_it_is = true;
        for (int d = 0; d < 3; ++d) {
            size_[d] = (s.out[d] - 1) * s.stride[d] + s.reach(d);
            as_it_is &= s.low[d] == 0 && size_[d] <= s.in[d];
        }
        if (as_it_is) {
            std::copy_n(s.in, 3, size_);
            return;
        }
        room_.emplace(static_cast<size_t>(s.batch * size_[0] * size_[1] * size_[2] * channels_) * sizeof(float));
        data_ = room_->as<float>();
        const int64_t row = size_[2] * channels_, begin = std::min(s.low[2], size_[2]), end = std::clamp(s.in[2] + s.low[2], begin, size_[2]);
        parallel_for(call, s.batch * size_[0] * size_[1], [&](int64_t line) {
            float* const to = room_->as<float>() + line * row;
            const int64_t y = line % size_[1] - s.low[1], z = line / size_[1] % size_[0] - s.low[0], image = line / (size_[1] * size_[0]);
            const bool inside = y >= 0 && y < s.in[1] && z >= 0 && z < s.in[0];
            const int64_t first = inside ? begin : 0, last = inside ? end : 0;  // places that come from the input
            std::fill_n(to, first * channels_, 0.0f);
            if (inside) std::copy_n(x + ((image * s.in[0] + z) * s.in[1] + y) * s.in[2] * channels_, (last - first) * channels_, to + first * channels_);
            std::fill_n(to + last * channels_, row - last * channels_, 0.0f);
        });
    }
    const float* at(int64_t image, int64_t z, int64_t y, int64_t x) const noexcept { return data_ + offset(image * size_[0] + z, y, x); }
    int64_t offset(int64_t z, int64_t y, int64_t x) const noexcept { return ((z * size_[1] + y) * size_[2] + x) * channels_; }

private:
    const float* data_;
    int64_t channels_, size_[3];
    std::optional<Scratch> room_;
};

/// Columns of results whose windows find the input at the same places across: [first, last) of the kernel's.
struct Columns {
    int64_t begin, end, first, last;
};

/// Whether a line of a window is one run in memory; else each of its places is.
bool has_dense_lines(const ConvolutionShape& s) {
    return s.dilation[2] == 1 || s.kernel[2] == 1;
}

/// Those that find most come first.
std::vector<Columns> columns_of(const ConvolutionShape& s) {
    constexpr int64_t kLeastResults = 4;  // of a column of one image: fewer are not worth what is cut off
    if (!has_dense_lines(s) || s.out[0] * s.out[1] < kLeastResults) return {{0, s.out[2], 0, s.kernel[2]}};
    std::vector<Columns> all;
    for (int64_t x = 0; x < s.out[2]; ++x) {
        const int64_t at = x * s.stride[2] - s.low[2];
        const int64_t first = std::clamp<int64_t>(-at, 0, s.kernel[2]), last = std::clamp(s.in[2] - at, first, s.kernel[2]);
        if (all.empty() || all.back().first != first || all.back().last != last) all.push_back({x, x, first, last});
        ++all.back().end;
    }
    std::stable_sort(all.begin(), all.end(), [](const Columns& a, const Columns& b) { return a.last - a.first > b.last - b.first; });
    return all;
}

/// A convolution as products: each result's window is a left row, each output channel's weights are a right one.
struct WindowRows {
    WindowRows(const ConvolutionShape& s, const Padded& padded) {
        const std::vector<Columns> groups = columns_of(s);
        const int64_t planes = s.batch * s.out[0];
        for (const Columns& group : groups) {
            for (int64_t y = 0; y < s.out[1]; ++y) {  // the lines of all planes at one height are neighbours
                for (int64_t plane = 0; plane < planes; ++plane) {
                    for (int64_t x = group.begin; x < group.end; ++x) {
                        windows.push_back(padded.at(plane / s.out[0], plane % s.out[0] * s.stride[0], y * s.stride[1], x * s.stride[2]));
                        results.push_back((plane * s.out[1] + y) * s.out[2] + x);
                    }
                }
            }
        }
        const bool dense = has_dense_lines(s);
        const int64_t across = dense ? s.kernel[2] : 1, length = across * s.in_channels;  // of a run
        std::vector<size_t> leaders;  // of the stretches of all groups the first, which asks for the next ones
        for (int64_t tap = 0; tap < s.taps(); tap += across) {
            const int64_t below = tap / s.kernel[2] % s.kernel[1] * s.dilation[1];
            const int64_t left = padded.offset(tap / (s.kernel[2] * s.kernel[1]) * s.dilation[0], below, dense ? 0 : tap % s.kernel[2] * s.dilation[2]);
            const auto line = [&](int64_t y) { return std::min(ceil_div(std::max<int64_t>(0, y + s.low[1] - below), s.stride[1]), s.out[1]); };
            const int64_t top = line(0), bottom = line(s.in[1]);  // of the results that find this line inside
            if (top == bottom) continue;
            for (int64_t begin = 0; begin < length; begin += kLongestStretch) {
                const int64_t end = std::min(length, begin + kLongestStretch);
                const size_t leader = stretches.size();
                int64_t before = 0;  // rows of other groups
                for (const Columns& group : groups) {
                    const int64_t from = dense ? std::max(begin, group.first * s.in_channels) : begin;
                    const int64_t to = dense ? std::min(end, group.last * s.in_channels) : end, width = planes * (group.end - group.begin);
                    const int64_t at = tap * s.in_channels + from;
                    if (from < to) stretches.push_back({left + from, at, to - from, before + top * width, before + bottom * width, at});
                    before += s.out[1] * width;
                }
                if (leader < stretches.size()) leaders.push_back(leader);
            }
        }
        for (size_t i = 0; i < leaders.size(); ++i) stretches[leaders[i]].ahead = i + 1 < leaders.size() ? stretches[leaders[i + 1]].right : kNextRows;
    }
    std::vector<const float*> windows;
    std::vector<int64_t> results;  // whose they are
    std::vector<Stretch> stretches;
};

}  // namespace

void convolve_by_rows(const KernelCall& call, const ConvolutionShape& s, const float* x, const float* weight, const float* bias, float* out) {
    constexpr int64_t kColumns = 8 * kRowsAbreast;  // output channels in a piece
    const Padded padded(call, s, x);
    const WindowRows rows(s, padded);
    const auto n = static_cast<int64_t>(rows.windows.size()), factors = s.taps() * s.in_channels;
    std::vector<float*> outs;
    for (const int64_t result : rows.results) outs.push_back(out + result * s.out_channels);
    const RowProductsFn multiply = find_row_products();
    parallel_for(call, ceil_div(s.out_channels, kColumns), [&](int64_t piece) {
        const int64_t first = piece * kColumns, columns = std::min(kColumns, s.out_channels - first);
        multiply({rows.windows.data(), outs.data(), n, weight + first * factors, factors, columns, rows.stretches.data(),
                  static_cast<int64_t>(rows.stretches.size()), first});
        if (!bias) return;
        for (float* const row : outs) {
            for (int64_t c = first; c < first + columns; ++c) row[c] += bias[c];
        }
    });
}

}  // namespace clikart::cpu
