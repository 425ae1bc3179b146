#include "graph/reach.h"

#include <bit>

namespace clikart {
namespace {

/// The number of dimensions that the attribute at `position` names, if they are the last ones; 0: they are not.
int last_dims(const Attributes& attributes, int position, int rank) {
    if (!attributes.present(position) || attributes.length(position) == 0) return rank;
    uint64_t named = 0;
    for (int64_t i = 0; i < attributes.length(position); ++i) {
        const int64_t d = attributes.list(position)[i];
        named |= uint64_t{1} << (d < 0 ? d + rank : d);
    }
    int dims = 0;
    while (dims < rank && named >> (rank - 1 - dims) & 1) ++dims;
    return std::popcount(named) == dims ? dims : 0;
}

}  // namespace

Reach reach_of(const OpInfo& info, const Attributes& attributes, int rank) {
    if (!info.has_kernel || info.n_outputs != 1 || info.data_dependent) return {};
    if (info.kind == NodeKind::Elementwise) return {Reach::Kind::Element, 0};
    if (rank == 0) return {};
    static_assert(attribute::sum_dims == attribute::mean_dims && attribute::sum_dims == attribute::amax_dims && attribute::sum_dims == attribute::amin_dims);
    static_assert(attribute::softmax_dim == attribute::log_softmax_dim && attribute::softmax_dim == attribute::softmin_dim);
    static_assert(attribute::layer_norm_normalized_shape == attribute::rms_norm_normalized_shape);
    switch (info.code) {
        case OpCode::Sum:
        case OpCode::Mean:
        case OpCode::Amax:
        case OpCode::Amin: {
            const int dims = last_dims(attributes, attribute::sum_dims, rank);
            return dims > 0 ? Reach{Reach::Kind::Fold, dims} : Reach{};
        }
        case OpCode::Softmax:
        case OpCode::LogSoftmax:
        case OpCode::Softmin: {
            const int64_t dim = attributes.integer(attribute::softmax_dim);
            return (dim < 0 ? dim + rank : dim) == rank - 1 ? Reach{Reach::Kind::Row, 1} : Reach{};
        }
        case OpCode::LayerNorm:
        case OpCode::RmsNorm: return {Reach::Kind::Row, static_cast<int>(attributes.length(attribute::layer_norm_normalized_shape))};
        case OpCode::BatchNorm: return {Reach::Kind::Row, 0};
        default: return {};
    }
}

bool suits_rows(const Dims& over, int dims) {
    constexpr int64_t kShortest = 32, kLongest = 8192;  // elements
    int64_t row = 1;
    for (int d = over.rank() - dims; d < over.rank() && row <= kLongest; ++d) row *= std::min(over[d], kLongest + 1);
    return dims == 0 || (row >= kShortest && row <= kLongest);
}

int folded_dims(const Dims& over, const Dims& shape) {
    if (over.rank() != shape.rank()) return -1;
    int first = 0;  // dimension that differs
    while (first < over.rank() && over[first] == shape[first]) ++first;
    for (int d = first; d < over.rank(); ++d) {
        if (shape[d] != 1) return -1;
    }
    return over.rank() - first;
}

Dims with_folded(Dims shape, int dims) {
    for (int d = shape.rank() - dims; d < shape.rank(); ++d) shape[d] = 1;
    return shape;
}

}  // namespace clikart
