// What norms of rows and of channels share: their inner loops, and how they are cut.
#pragma once

#include <hwy/cache_control.h>

#include "backends/cpu/lanes.h"

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
    /// The same bits, for rows that lie in the first-level cache: it goes down some columns at a time, whose numbers stay in registers.
    void (*affine_near)(const NormBlock<T>&, const T* mean, const T* scale, const T* shift, T* out);
};

/// Those of the instruction set that is in use.
template <class T>
NormFns<T> norms();
template <>
NormFns<float> norms();
template <>
NormFns<double> norms();

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

}  // namespace clikart::cpu
