// Kernels that find places: nonzero.
#include <vector>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"

namespace clikart::cpu {
namespace {

template <class T>
int64_t count_run(const char* from, int64_t stride, int64_t n) noexcept {
    const auto* x = reinterpret_cast<const T*>(from);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += x[i * stride] != T(0);
    return count;
}

/// Two passes in the same pieces: how many there are before each, then where they are.
template <class T>
void nonzero_of(const KernelCall& call) {
    const View& in = call.inputs[0];
    const StridedLoop<1> loop(in, {});
    const int64_t stride = loop.inner_stride(0), pieces = (loop.count() + kPiece - 1) / kPiece;
    std::vector<int64_t> before(static_cast<size_t>(pieces) + 1, 0);
    const auto runs = [&](int64_t piece, auto&& f) { loop.runs(piece * kPiece, std::min(loop.count(), (piece + 1) * kPiece), f); };
    parallel_for(call, pieces, [&](int64_t piece) {
        int64_t count = 0;
        runs(piece, [&](char* const* p, int64_t n) { count += count_run<T>(p[0], stride, n); });
        before[static_cast<size_t>(piece) + 1] = count;
    });
    for (size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
    call.find_size(&call, before.back());

    const int rank = in.rank;
    const Dims shape = shape_of(in);
    auto* const out = static_cast<int64_t*>(call.outputs[0].data);
    if (before.back() == 0 || rank == 0) return;
    parallel_for(call, pieces, [&](int64_t piece) {
        int64_t at = piece * kPiece;  // in row-major order
        int64_t* to = out + before[static_cast<size_t>(piece)] * rank;
        runs(piece, [&](char* const* p, int64_t n) {
            const auto* x = reinterpret_cast<const T*>(p[0]);
            for (int64_t i = 0; i < n; ++i, ++at) {
                if (x[i * stride] == T(0)) continue;
                int64_t rest = at;
                for (int d = rank - 1; d >= 0; --d) {
                    to[d] = rest % shape[d];
                    rest /= shape[d];
                }
                to += rank;
            }
        });
    });
}

void nonzero(const KernelCall& call) {
    with_type(dtype_of(call.inputs[0]), [&]<class T>() { nonzero_of<T>(call); });
}

}  // namespace

KernelFn kernel_nonzero(DType t) {
    return with_type(t, []<class T>() {}) ? &kernel<nonzero> : nullptr;
}

}  // namespace clikart::cpu
