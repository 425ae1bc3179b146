#include "backends/cpu/reduce_layout.h"

namespace clikart::cpu {

ReduceLayout::ReduceLayout(const KernelCall& call, const View& in, const bool (&reduced)[kMaxRank]) {
    // Dense as it stands with the reduced dimensions side by side: no copy.
    const Dims shape = shape_of(in), strides = strides_of(in);
    int first = in.rank, last = -1;
    for (int d = 0; d < in.rank; ++d) {
        if (!reduced[d] || shape[d] == 1) continue;
        first = std::min(first, d);
        last = d;
    }
    bool adjacent = is_contiguous(shape, strides);
    for (int d = first; d <= last; ++d) adjacent &= reduced[d] || shape[d] == 1;
    if (adjacent) {
        for (int d = 0; d < in.rank; ++d) (d < first ? outer : d <= last ? extent : inner) *= shape[d];
        data = in.data;
        return;
    }
    // Kept dimensions first, reduced ones last, each in their order.
    Dims order, order_strides;
    for (const bool want : {false, true}) {
        for (int d = 0; d < in.rank; ++d) {
            if (reduced[d] != want) continue;
            order.push_back(shape[d]);
            order_strides.push_back(strides[d]);
            (want ? extent : outer) *= shape[d];
        }
    }
    scratch_ = std::make_unique<Scratch>(static_cast<size_t>(numel(shape) * size_of(dtype_of(in))));
    data = scratch_->as<void>();
    const Dims dense = contiguous_strides(order);
    const View from{in.data, order.data(), order_strides.data(), in.rank, in.dtype};
    const View to{scratch_->as<void>(), order.data(), dense.data(), in.rank, in.dtype};
    if (numel(shape) > 0) copy_view(call, from, to);
}

void reduced_dims(const Attributes& attributes, int dims_position, int rank, bool (&reduced)[kMaxRank]) {
    const bool all = !attributes.present(dims_position) || attributes.length(dims_position) == 0;
    std::fill(reduced, reduced + kMaxRank, all);
    if (all || rank == 0) return;
    for (int64_t i = 0; i < attributes.length(dims_position); ++i) {
        const int64_t d = attributes.list(dims_position)[i];
        reduced[d < 0 ? d + rank : d] = true;
    }
}

}  // namespace clikart::cpu
