// Random indices: randperm and multinomial.  What is drawn for one place does not depend on the others, but what is made of it
// does, one step after the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/philox.h"

namespace clikart::cpu {
namespace {

RandomBits bits_of(const KernelCall& call) {
    const Attributes& attributes = *call.attributes;
    return {static_cast<uint64_t>(attributes.integer(attributes.count - 2)), static_cast<uint64_t>(attributes.integer(attributes.count - 1))};
}

/// In (0, 1].
double fraction(uint64_t bits) noexcept {
    return static_cast<double>((bits >> 11) + 1) * 0x1p-53;
}

void randperm(const KernelCall& call) {
    const View& out = call.outputs[0];
    const int64_t n = out.shape[0];
    std::unique_ptr<Scratch> room;
    auto* order = static_cast<int64_t*>(out.data);
    if (dtype_of(out) != DType::Int64) {
        room = std::make_unique<Scratch>(static_cast<size_t>(n) * sizeof(int64_t));
        order = room->as<int64_t>();
    }
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    RandomBits bits = bits_of(call);
    for (int64_t i = 0; i < n - 1; ++i) {  // Fisher and Yates
        const auto step = static_cast<int64_t>(upper_product(bits(i), static_cast<uint64_t>(n - i)));
        std::swap(order[i], order[i + step]);
    }
    if (room) find_convert(DType::Int64, dtype_of(out))(order, 1, out.data, 1, n);
}

/// Throws Failure for a weight that is none; returns how many are positive.
int64_t positive_weights(const double* weights, int64_t n) {
    int64_t positive = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (!(weights[i] >= 0) || !std::isfinite(weights[i])) fail(ErrorKind::Value, "the weight {} is negative or not finite", weights[i]);
        positive += weights[i] > 0;
    }
    return positive;
}

/// By looking up numbers in the running sum of the weights.
void choose_repeatedly(RandomBits& bits, int64_t first, const double* weights, int64_t n, int64_t* out, int64_t samples) {
    std::vector<double> sums(static_cast<size_t>(n));
    double largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, weights[i]);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i)] = sum += weights[i] / largest;  // which cannot overflow
    for (int64_t s = 0; s < samples; ++s) {
        // The first place whose sum is not below a number in (0, sum]: one with a positive weight.
        out[s] = std::lower_bound(sums.begin(), sums.end(), fraction(bits(first + s)) * sum) - sums.begin();
    }
}

/// By waiting times: an event for each weight, whose time is distributed exponentially with that rate; the first ones win.
void choose_once(RandomBits& bits, int64_t first, const double* weights, int64_t n, int64_t* out, int64_t samples) {
    std::vector<std::pair<double, int64_t>> times;
    for (int64_t i = 0; i < n; ++i) {
        if (weights[i] > 0) times.emplace_back(std::log(-std::log(fraction(bits(first + i)) * 0x1.fffffffffffffp-1)) - std::log(weights[i]), i);
    }
    std::partial_sort(times.begin(), times.begin() + samples, times.end());
    for (int64_t s = 0; s < samples; ++s) out[s] = times[static_cast<size_t>(s)].second;
}

void multinomial(const KernelCall& call) {
    const View& weights = call.inputs[0];
    const int64_t n = weights.shape[weights.rank - 1], samples = call.attributes->integer(attribute::multinomial_num_samples);
    const bool replacement = call.attributes->integer(attribute::multinomial_replacement) != 0;
    const LaneReader<double> in(weights);
    auto* const out = static_cast<int64_t*>(call.outputs[0].data);
    const int64_t rows = in.count() / n, per_piece = std::max<int64_t>(1, kPiece / 8 / std::max(n, samples));
    parallel_for(call, (rows + per_piece - 1) / per_piece, [&](int64_t piece) {
        const Scratch room(static_cast<size_t>(n) * sizeof(double));
        RandomBits bits = bits_of(call);
        for (int64_t r = piece * per_piece; r < std::min(rows, (piece + 1) * per_piece); ++r) {
            const double* const row = in.read(r * n, n, room.as<double>());
            const int64_t positive = positive_weights(row, n), needed = replacement ? 1 : samples;
            if (positive < needed) fail(ErrorKind::Value, "{} weights are positive, {} are needed", positive, needed);
            if (replacement) {
                choose_repeatedly(bits, r * samples, row, n, out + r * samples, samples);
            } else {
                choose_once(bits, r * n, row, n, out + r * samples, samples);
            }
        }
    });
}

}  // namespace

KernelFn kernel_randperm(DType t) {
    return computes(t) || is_integer(t) ? &kernel<randperm> : nullptr;
}
KernelFn kernel_multinomial(DType t) {
    return computes(t) ? &kernel<multinomial> : nullptr;
}

}  // namespace clikart::cpu
