// The lower and upper triangles of matrices.
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"

namespace clikart::cpu {
namespace {

/// Of every row the columns [0, end) or [end, columns) are kept, where `end` moves by one from row to row.
template <bool Lower>
void triangle(const KernelCall& call) {
    const View &in = call.inputs[0], &out = call.outputs[0];
    const int64_t element = size_of(dtype_of(in)), diagonal = call.attributes->integer(attribute::tril_diagonal);
    Dims shape = shape_of(in), strides = strides_of(in);
    const int last = in.rank - 1;
    const int64_t columns = shape[last], height = shape[last - 1], column = strides[last];
    shape.resize(last), strides.resize(last);
    const int64_t rows = numel(shape), per_piece = std::max<int64_t>(1, kPiece / columns);
    parallel_for(call, (rows + per_piece - 1) / per_piece, [&](int64_t piece) {
        for (int64_t r = piece * per_piece; r < std::min(rows, (piece + 1) * per_piece); ++r) {
            int64_t rest = r, at = 0;
            for (int d = last - 1; d >= 0; --d) {
                at += rest % shape[d] * strides[d];
                rest /= shape[d];
            }
            const auto* const from = static_cast<const char*>(in.data) + at * element;
            char* const to = static_cast<char*>(out.data) + r * columns * element;
            // The row's border, without leaving the 64 bits that `diagonal` may fill.
            const int64_t i = r % height, shift = Lower ? 1 : 0;
            const int64_t border = std::clamp(std::clamp(diagonal, -height - 1, columns + 1) + i + shift, int64_t{0}, columns);
            const int64_t begin = Lower ? 0 : border, end = Lower ? border : columns;
            std::memset(to, 0, static_cast<size_t>(begin * element));
            gather(from + begin * column * element, column, to + begin * element, end - begin, element);
            std::memset(to + end * element, 0, static_cast<size_t>((columns - end) * element));
        }
    });
}

}  // namespace

KernelFn kernel_tril(DType) {
    return &kernel<triangle<true>>;
}
KernelFn kernel_triu(DType) {
    return &kernel<triangle<false>>;
}

}  // namespace clikart::cpu
