// Products of vectors and stacks, and of everything with everything.
#include "ops/op_calls.h"

namespace clikart {
namespace {

/// What matmul checks too, under the name that the user called.
void require_operands(const OpCall& call, int rank_a, int rank_b) {
    const Tensor &a = *call.inputs[0], &b = *call.inputs[1];
    if (a.weak || b.weak) fail(ErrorKind::Type, "{}: needs tensors, got a number and {}", call.info.name, describe(a.weak ? b : a));
    if (a.dtype() != b.dtype()) {
        fail(ErrorKind::Type, "{}: needs one dtype on both sides, got {} and {}", call.info.name, describe(a), describe(b));
    }
    if (a.dtype() == DType::Bool) fail(ErrorKind::Type, "{}: needs numbers, got {}", call.info.name, name_of(a.dtype()));
    if (a.rank() != rank_a || b.rank() != rank_b) {
        fail(ErrorKind::Value, "{}: needs {} and {} dimensions, got shapes {} and {}", call.info.name, rank_a, rank_b, to_string(a.shape()),
             to_string(b.shape()));
    }
    const int64_t inner = b.shape()[rank_b == 1 ? 0 : rank_b - 2];
    if (a.shape()[rank_a - 1] != inner || (rank_a == 3 && a.shape()[0] != b.shape()[0])) {
        fail(ErrorKind::Value, "{}: {}, got shapes {} and {}", call.info.name,
             a.shape()[rank_a - 1] != inner ? "inner sizes differ" : "stacks of different lengths", to_string(a.shape()), to_string(b.shape()));
    }
}

Ref<Tensor> product(const OpCall& call, int rank_a, int rank_b) {
    require_operands(call, rank_a, rank_b);
    return op::matmul(*call.inputs[0], *call.inputs[1]);
}

}  // namespace

Ref<Tensor> composite_mm(const OpCall& call) {
    return product(call, 2, 2);
}

Ref<Tensor> composite_bmm(const OpCall& call) {
    return product(call, 3, 3);
}

Ref<Tensor> composite_mv(const OpCall& call) {
    return product(call, 2, 1);
}

Ref<Tensor> composite_dot(const OpCall& call) {
    return product(call, 1, 1);
}

Ref<Tensor> composite_outer(const OpCall& call) {
    Tensor &a = *call.inputs[0], &b = *call.inputs[1];
    if (a.rank() != 1 || b.rank() != 1)
        fail(ErrorKind::Value, "{}: needs two vectors, got shapes {} and {}", call.info.name, to_string(a.shape()), to_string(b.shape()));
    return op::mul(*op::reshape(a, Dims{a.numel(), 1}), b);
}

Ref<Tensor> composite_kron(const OpCall& call) {
    Tensor &a = *call.inputs[0], &b = *call.inputs[1];
    const int rank = std::max(a.rank(), b.rank());
    if (rank > kMaxRank / 2) {
        fail(ErrorKind::Value, "{}: at most {} dimensions are possible, got shapes {} and {}", call.info.name, kMaxRank / 2, to_string(a.shape()),
             to_string(b.shape()));
    }
    const auto size = [&](const Tensor& t, int d) { return d < rank - t.rank() ? 1 : t.shape()[d - (rank - t.rank())]; };
    Dims blocks, within, shape;
    for (int d = 0; d < rank; ++d) {
        blocks.push_back(size(a, d)), blocks.push_back(1);
        within.push_back(1), within.push_back(size(b, d));
        int64_t both = 0;
        if (__builtin_mul_overflow(size(a, d), size(b, d), &both)) fail(ErrorKind::Value, "{}: more elements than can be addressed", call.info.name);
        shape.push_back(both);
    }
    // Numbers stay as they are, so that they promote as numbers.
    const Ref<Tensor> left = a.rank() == 0 ? Ref<Tensor>::share(&a) : op::reshape(a, blocks),
                      right = b.rank() == 0 ? Ref<Tensor>::share(&b) : op::reshape(b, within);
    return op::reshape(*op::mul(*left, *right), shape);
}

}  // namespace clikart
