// Pools: windows over the spatial dimensions, each channel for itself.  Channels come last and are taken many at a time.
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/convert.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/pool_window.h"
#include "backends/cpu/tile.h"

namespace clikart::cpu {
namespace {

/// The windows along one dimension: window i has the places start, start + dilation, ... of the input.
struct Axis {
    struct Window {
        int64_t start, count;  // of places inside the input
        int64_t weight;        // how many places count in a mean
    };
    std::vector<Window> windows{{0, 1, 1}};
    int64_t dilation = 1, size = 1, stride = 0;  // of the input: its size, and elements from one place to the next
};

/// Sliding windows; `counts_padding`: in a mean.
std::vector<Axis::Window> sliding(int64_t size, int64_t n, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool counts_padding) {
    std::vector<Axis::Window> windows(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
        const int64_t start = i * stride - padding, skipped = start < 0 ? (-start + dilation - 1) / dilation : 0;
        const int64_t inside = start < size ? (size - 1 - start) / dilation + 1 : 0;
        const int64_t count = std::max<int64_t>(0, std::min(kernel, inside) - skipped);
        windows[static_cast<size_t>(i)] = {start + skipped * dilation, count, counts_padding ? std::min(kernel, size + padding - start) : count};
    }
    return windows;
}

/// n windows that cover all evenly.
std::vector<Axis::Window> covering(int64_t size, int64_t n) {
    std::vector<Axis::Window> windows(static_cast<size_t>(n));
    const int64_t step = size / n, rest = size % n;  // i * size could be too large; n is size, or fits 32 bits
    for (int64_t i = 0; i < n; ++i) {
        const auto part = [&](int64_t k, int64_t more) { return k * step + (k * rest + more) / n; };
        const int64_t start = part(i, 0), end = part(i + 1, n - 1);
        windows[static_cast<size_t>(i)] = {start, end - start, end - start};
    }
    return windows;
}

/// A pool's operands, seen with three spatial dimensions.
struct Pool {
    template <class MakeAxis>
    Pool(const KernelCall& call, int spatial, MakeAxis&& make) : in(call.inputs[0]), out(call.outputs[0]) {
        const int batched = in.rank == spatial + 2;
        batch = batched ? in.shape[0] : 1;
        batch_stride = batched ? in.strides[0] : 0;
        channels = in.shape[in.rank - 1];
        channel_stride = in.strides[in.rank - 1];
        for (int i = 0; i < spatial; ++i) {
            Axis& axis = axes[3 - spatial + i];
            axis.size = in.shape[batched + i];
            axis.stride = in.strides[batched + i];
            make(axis, i, out.shape[batched + i]);
        }
    }
    int64_t count(int d) const { return static_cast<int64_t>(axes[d].windows.size()); }

    /// Calls f(begin, end) for pieces of all places of the result.
    template <class F>
    void for_results(const KernelCall& call, F&& f) const {
        const int64_t results = batch * count(0) * count(1) * count(2);
        if (results == 0) return;
        double each = static_cast<double>(channels);  // elements that go into a place of the result
        for (const Axis& axis : axes) each *= static_cast<double>(std::max<int64_t>(1, axis.windows[axis.windows.size() / 2].count));
        const auto per_piece = static_cast<int64_t>(std::max(1.0, kPiece / each));
        parallel_for(call, (results + per_piece - 1) / per_piece, [&](int64_t piece) { f(piece * per_piece, std::min(results, (piece + 1) * per_piece)); });
    }

    struct Place {
        const Axis::Window* windows[3];
        int64_t image;  // elements from the input's first
    };
    /// Where result number `result` comes from.
    Place place_of(int64_t result) const {
        Place place{};
        for (int d = 2; d >= 0; --d) {
            place.windows[d] = axes[d].windows.data() + result % count(d);
            result /= count(d);
        }
        place.image = result * batch_stride;
        return place;
    }
    /// To the next result.
    void advance(Place& place) const {
        for (int d = 2; d >= 0; --d) {
            if (++place.windows[d] < axes[d].windows.data() + count(d)) return;
            place.windows[d] = axes[d].windows.data();
        }
        place.image += batch_stride;
    }
    /// Calls f(elements from the image's first, number of the place in the image) for each place of a window.
    template <class F>
    void for_places(const Place& place, F&& f) const {
        const auto at = [&](int d, int64_t i) { return place.windows[d]->start + i * axes[d].dilation; };
        for (int64_t a = 0; a < place.windows[0]->count; ++a) {
            for (int64_t b = 0; b < place.windows[1]->count; ++b) {
                const int64_t i = at(0, a), j = at(1, b);
                for (int64_t c = 0; c < place.windows[2]->count; ++c) {
                    const int64_t k = at(2, c);
                    f(i * axes[0].stride + j * axes[1].stride + k * axes[2].stride, (i * axes[1].size + j) * axes[2].size + k);
                }
            }
        }
    }

    const View &in, &out;
    int64_t batch, batch_stride, channels, channel_stride;
    Axis axes[3];
};

/// What windows without places hold; n elements of `lane`, later converted to `dtype`.
void fill_with_nothing(DType dtype, DType lane, WindowFold what, void* to, int64_t n) {
    with_type(lane, [&]<class L>() {
        L value{};
        if (what == WindowFold::Max && std::numeric_limits<L>::has_infinity) {
            value = -std::numeric_limits<L>::infinity();
        } else if (what == WindowFold::Max) {
            with_type(dtype, [&]<class T>() { value = static_cast<L>(std::numeric_limits<T>::lowest()); });
        }
        std::fill_n(static_cast<L*>(to), n, value);
    });
}

/// What indices are found in: numbers as wide as such that can count places.
DType lane_with_indices(DType dtype) {
    const bool small = is_integer(dtype) && size_of(dtype) < 4;
    return small ? DType::Int32 : lane_of(dtype);
}

/// The fold of every window.  Sums are divided by `divisor`, or where that is 0 by the number of places; `indices`, where not
/// null, become the places of the largest.
void fold_windows(const KernelCall& call, const Pool& pool, WindowFold what, double divisor, int64_t* indices = nullptr) {
    constexpr int64_t kPlaces = 64;  // taken in one go; then their folds are put together
    const DType dtype = dtype_of(pool.in), lane = indices ? lane_with_indices(dtype) : lane_of(dtype);
    const FoldFn fold = find_window_fold(what, lane);
    const LargestFn largest = indices ? find_largest(lane) : nullptr;
    const int64_t size = size_of(dtype), lane_size = size_of(lane);
    const bool direct = dtype == lane && pool.channel_stride == 1;
    const int64_t width = direct && !indices ? pool.channels : std::min(pool.channels, kTile), places_at_once = direct ? kPlaces : kPlaces / 4;
    const ConvertFn widen = find_convert(dtype, lane), narrow = find_convert(lane, dtype);
    pool.for_results(call, [&](int64_t begin, int64_t end) {
        const Scratch wide(static_cast<size_t>(direct ? 1 : (places_at_once + 1) * width * lane_size));
        const void* places[kPlaces];
        int64_t numbers[kPlaces];
        alignas(8) char which[kTile * kWidest];
        Pool::Place place = pool.place_of(begin);
        for (int64_t result = begin; result < end; ++result, pool.advance(place)) {
            const char* const image = static_cast<const char*>(pool.in.data) + place.image * size;
            for (int64_t channel = 0; channel < pool.channels; channel += width) {
                const int64_t n = std::min(width, pool.channels - channel), at = result * pool.channels + channel;
                char* const to = static_cast<char*>(pool.out.data) + at * size;
                char* const so_far = direct ? to : wide.as<char>() + places_at_once * width * lane_size;
                bool first = true;
                if (indices) {
                    int64_t start = 0;  // also what torch answers where there is no place
                    for (int d = 0; d < 3; ++d) start = start * pool.axes[d].size + place.windows[d]->start;
                    std::fill_n(indices + at, n, start);
                    fill_with_nothing(dtype, lane, what, so_far, n);
                    first = false;
                }
                int64_t taken = 0;
                const auto flush = [&] {
                    if (indices) {
                        largest(places, taken, so_far, which, n);
                        const auto note = [&]<class U>(U nowhere) {
                            const U* const numbers_of = reinterpret_cast<const U*>(which);
                            for (int64_t c = 0; c < n; ++c) {
                                if (numbers_of[c] != nowhere) indices[at + c] = numbers[numbers_of[c]];
                            }
                        };
                        lane_size == 8 ? note(~uint64_t{0}) : note(~uint32_t{0});
                    } else {
                        fold(places, taken, so_far, n, first);
                    }
                    first = false;
                    taken = 0;
                };
                pool.for_places(place, [&](int64_t offset, int64_t number) {
                    const char* from = image + (offset + channel * pool.channel_stride) * size;
                    if (!direct) {
                        char* const own = wide.as<char>() + taken * width * lane_size;
                        widen(from, pool.channel_stride, own, 1, n);
                        from = own;
                    }
                    numbers[taken] = number;
                    places[taken++] = from;
                    if (taken == places_at_once) flush();
                });
                if (taken > 0) flush();
                if (first) fill_with_nothing(dtype, lane, what, so_far, n);
                if (what == WindowFold::Sum) {
                    double by = divisor;
                    if (by == 0) {
                        by = 1;
                        for (const Axis::Window* window : place.windows) by *= static_cast<double>(window->weight);
                    }
                    divide_by(lane, so_far, n, by);
                }
                if (!direct) narrow(so_far, 1, to, 1, n);
            }
        }
    });
}

template <int Spatial>
Pool max_pool_of(const KernelCall& call) {
    using namespace attribute;
    const Attributes& a = *call.attributes;
    const int stride = a.length(max_pool1d_stride) == 0 ? max_pool1d_kernel_size : max_pool1d_stride;
    return Pool(call, Spatial, [&](Axis& axis, int i, int64_t n) {
        axis.dilation = a.entry(max_pool1d_dilation, i);
        axis.windows = sliding(axis.size, n, a.entry(max_pool1d_kernel_size, i), a.entry(stride, i), a.entry(max_pool1d_padding, i), axis.dilation, false);
    });
}

template <int Spatial>
void max_pool(const KernelCall& call) {
    fold_windows(call, max_pool_of<Spatial>(call), WindowFold::Max, 0);
}

template <int Spatial>
void max_pool_with_indices(const KernelCall& call) {
    fold_windows(call, max_pool_of<Spatial>(call), WindowFold::Max, 0, static_cast<int64_t*>(call.outputs[1].data));
}

template <int Spatial>
void avg_pool(const KernelCall& call) {
    using namespace attribute;
    const Attributes& a = *call.attributes;
    const int stride = a.length(avg_pool1d_stride) == 0 ? avg_pool1d_kernel_size : avg_pool1d_stride;
    const bool counts_padding = a.integer(avg_pool1d_count_include_pad);
    const Pool pool(call, Spatial, [&](Axis& axis, int i, int64_t n) {
        axis.windows = sliding(axis.size, n, a.entry(avg_pool1d_kernel_size, i), a.entry(stride, i), a.entry(avg_pool1d_padding, i), 1, counts_padding);
    });
    fold_windows(call, pool, WindowFold::Sum, a.present(avg_pool1d_divisor_override) ? static_cast<double>(a.integer(avg_pool1d_divisor_override)) : 0);
}

template <int Spatial, WindowFold What>
void adaptive_pool(const KernelCall& call) {
    const Pool pool(call, Spatial, [](Axis& axis, int, int64_t n) { axis.windows = covering(axis.size, n); });
    fold_windows(call, pool, What, 0);
}

KernelFn of_numbers(DType dtype, KernelFn kernel) {
    return is_integer(dtype) || computes(dtype) ? kernel : nullptr;
}

}  // namespace

#define CLIKART_POOLS(spatial)                                                  \
    KernelFn kernel_max_pool##spatial##d(DType t) {                             \
        return of_numbers(t, &kernel<max_pool<spatial>>);                       \
    }                                                                           \
    KernelFn kernel_max_pool##spatial##d_with_indices(DType t) {                \
        return of_numbers(t, &kernel<max_pool_with_indices<spatial>>);          \
    }                                                                           \
    KernelFn kernel_avg_pool##spatial##d(DType t) {                             \
        return if_floats(t, &kernel<avg_pool<spatial>>);                        \
    }                                                                           \
    KernelFn kernel_adaptive_avg_pool##spatial##d(DType t) {                    \
        return if_floats(t, &kernel<adaptive_pool<spatial, WindowFold::Sum>>);  \
    }                                                                           \
    KernelFn kernel_adaptive_max_pool##spatial##d(DType t) {                    \
        return of_numbers(t, &kernel<adaptive_pool<spatial, WindowFold::Max>>); \
    }
CLIKART_POOLS(1)
CLIKART_POOLS(2)
CLIKART_POOLS(3)
#undef CLIKART_POOLS

}  // namespace clikart::cpu
