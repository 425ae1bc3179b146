// Kernels that look numbers up: searchsorted, bincount.
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cpu/indices.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"

namespace clikart::cpu {
namespace {

/// How many of n ascending elements stand before the value, or before what follows it; NaN is the largest.
template <bool After, class T>
int64_t place_of(const T* sorted, int64_t stride, int64_t n, typename Wide<T>::type value) noexcept {
    using Wider = typename Wide<T>::type;
    const bool is_nan = value != value;
    if (After && is_nan) return n;
    const auto stands_before = [=](int64_t i) {
        const auto element = static_cast<Wider>(sorted[i * stride]);
        return After ? element <= value : is_nan ? element == element : element < value;
    };
    // The same steps for all values, without a branch to predict.
    int64_t place = 0;
    for (int64_t half; n > 1; n -= half) {
        half = n / 2;
        place += stands_before(place + half - 1) ? half : 0;
    }
    return place + (n == 1 && stands_before(place));
}

template <bool After, class T>
void search(const KernelCall& call) {
    const View &sorted = call.inputs[0], &values = call.inputs[1];
    // The rows to search in, broadcast along the last dimension of the values.
    const int last = sorted.rank - 1;
    const int64_t n = sorted.shape[last], stride = sorted.strides[last];
    Dims shape = shape_of(sorted);
    shape[last] = 1;
    const Part rows(sorted, shape, strides_of(sorted));
    const View operands[] = {values, rows.view()};
    const View out = call.outputs[0].rank > 0 ? call.outputs[0] : View{call.outputs[0].data, shape.data(), sorted.strides, 1, call.outputs[0].dtype};
    const StridedLoop<3> loop(out, operands);
    const int64_t so = loop.inner_stride(0), sv = loop.inner_stride(1), sr = loop.inner_stride(2);
    loop.parallel_runs(call, [&](char* const* p, int64_t count) {
        auto* const to = reinterpret_cast<int64_t*>(p[0]);
        const auto* const from = reinterpret_cast<const T*>(p[1]);
        const auto* const row = reinterpret_cast<const T*>(p[2]);
        for (int64_t i = 0; i < count; ++i) {
            to[i * so] = place_of<After, T>(row + i * sr, stride, n, static_cast<typename Wide<T>::type>(from[i * sv]));
        }
    });
}

void searchsorted(const KernelCall& call) {
    const bool after = call.attributes->integer(attribute::searchsorted_right) != 0;
    with_stored_type(dtype_of(call.inputs[0]), [&]<class T>() { after ? search<true, T>(call) : search<false, T>(call); });
}

// ---- bincount

/// The largest of the numbers, or -1; what is not from 0 to the largest int64 is refused.
template <class T>
int64_t largest_of(const KernelCall& call, const View& x) {
    const int64_t n = x.shape[0], stride = x.strides[0], pieces = (n + kPiece - 1) / kPiece;
    std::vector<int64_t> largest(static_cast<size_t>(pieces) + 1, -1);
    parallel_for(call, pieces, [&](int64_t piece) {
        const auto* const from = static_cast<const T*>(x.data);
        int64_t least = 0, most = -1;
        for (int64_t i = piece * kPiece; i < std::min(n, (piece + 1) * kPiece); ++i) {
            const auto number = static_cast<int64_t>(from[i * stride]);
            least = std::min(least, number);
            most = std::max(most, number);
        }
        if (least < 0) fail(ErrorKind::Value, "needs numbers from 0, got {}", static_cast<T>(least));
        largest[static_cast<size_t>(piece)] = most;
    });
    return *std::max_element(largest.begin(), largest.end());
}

/// Counts the numbers, or adds up weights, in `Sum`.  Without weights `Weight` is what comes out.
template <class T, class Sum, class Weight>
void count_numbers(const KernelCall& call) {
    const View& x = call.inputs[0];
    const int64_t n = x.shape[0], stride = x.strides[0];
    const int64_t largest = largest_of<T>(call, x), least = call.attributes->integer(attribute::bincount_minlength);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(Sum));
    if (std::max(largest, least - 1) >= kMost) fail(ErrorKind::Memory, "a result up to number {} does not fit into memory", std::max(largest, least - 1));
    const int64_t size = std::max(largest + 1, least);
    call.find_size(&call, size);
    if (size == 0) return;

    // Pieces with sums of their own, where that is less work than the counting.  How many there are depends on the numbers, but
    // not on who counts.
    constexpr int64_t kPieces = 8;
    const int64_t pieces = n >= kPieces * kPiece && size <= kPiece ? kPieces : 1;
    const Scratch own(static_cast<size_t>(pieces * size) * sizeof(Sum));
    parallel_for(call, pieces, [&](int64_t piece) {
        Sum* const sums = own.as<Sum>() + piece * size;
        std::fill_n(sums, size, Sum(0));
        const auto* const from = static_cast<const T*>(x.data);
        const int64_t begin = n * piece / pieces, end = n * (piece + 1) / pieces;
        if (call.n_inputs == 1) {
            for (int64_t i = begin; i < end; ++i) sums[from[i * stride]] += Sum(1);
            return;
        }
        const View& weights = call.inputs[1];
        const auto* const weight = static_cast<const Weight*>(weights.data);
        for (int64_t i = begin; i < end; ++i) sums[from[i * stride]] += static_cast<Sum>(weight[i * weights.strides[0]]);
    });
    auto* const out = static_cast<Weight*>(call.outputs[0].data);
    for (int64_t k = 0; k < size; ++k) {
        Sum sum = own.as<Sum>()[k];
        for (int64_t piece = 1; piece < pieces; ++piece) sum += own.as<Sum>()[piece * size + k];
        out[k] = static_cast<Weight>(sum);
    }
}

template <class Sum, class Weight>
void bincount(const KernelCall& call) {
    with_type(dtype_of(call.inputs[0]), [&]<class T>() {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) count_numbers<T, Sum, Weight>(call);
    });
}

}  // namespace

KernelFn kernel_searchsorted(DType) {
    return &kernel<searchsorted>;
}
KernelFn kernel_bincount(DType t) {
    switch (t) {
        case DType::Int64: return &kernel<bincount<int64_t, int64_t>>;
        case DType::Float32: return &kernel<bincount<double, float>>;
        case DType::Float64: return &kernel<bincount<double, double>>;
        default: return nullptr;
    }
}

}  // namespace clikart::cpu
