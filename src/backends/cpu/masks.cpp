// Kernels that find places, or are told by a mask: nonzero, masked_select, masked_fill, masked_scatter.
#include <vector>

#include "backends/cpu/copy.h"
#include "backends/cpu/indices.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"

namespace clikart::cpu {
namespace {

/// Bools are read as bytes: memory that was borrowed may hold others than 0 and 1.
template <class T>
using Read = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
bool is_zero(T value) noexcept {
    if constexpr (is_narrow_float<T>) {
        return (value.bits & (T::kSign - 1)) == 0;
    } else {
        return value == T(0);
    }
}

template <class T>
int64_t count_run(const char* from, int64_t stride, int64_t n) noexcept {
    const auto* x = reinterpret_cast<const Read<T>*>(from);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += !is_zero(x[i * stride]);
    return count;
}

/// How many elements that are not zero stand before each piece of a loop, whose first operand they are; the last number is of all.
template <class T, int N>
std::vector<int64_t> count_before(const KernelCall& call, const StridedLoop<N>& loop) {
    const int64_t pieces = (loop.count() + kPiece - 1) / kPiece;
    std::vector<int64_t> before(static_cast<size_t>(pieces) + 1, 0);
    parallel_for(call, pieces, [&](int64_t piece) {
        int64_t count = 0;
        loop.runs(piece * kPiece, std::min(loop.count(), (piece + 1) * kPiece),
                  [&](char* const* p, int64_t n) { count += count_run<T>(p[0], loop.inner_stride(0), n); });
        before[static_cast<size_t>(piece) + 1] = count;
    });
    for (size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
    return before;
}

/// Two passes in the same pieces: how many there are before each, then where they are.
template <class T>
void nonzero_of(const KernelCall& call) {
    const View& in = call.inputs[0];
    const StridedLoop<1> loop(in, {});
    const int64_t stride = loop.inner_stride(0);
    const std::vector<int64_t> before = count_before<T>(call, loop);
    call.find_size(&call, before.back());

    const int rank = in.rank;
    const Dims shape = shape_of(in);
    auto* const out = static_cast<int64_t*>(call.outputs[0].data);
    if (before.back() == 0 || rank == 0) return;
    parallel_for(call, static_cast<int64_t>(before.size()) - 1, [&](int64_t piece) {
        int64_t at = piece * kPiece;  // in row-major order
        int64_t* to = out + before[static_cast<size_t>(piece)] * rank;
        loop.runs(at, std::min(loop.count(), at + kPiece), [&](char* const* p, int64_t n) {
            const auto* x = reinterpret_cast<const Read<T>*>(p[0]);
            for (int64_t i = 0; i < n; ++i, ++at) {
                if (is_zero(x[i * stride])) continue;
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
    with_stored_type(dtype_of(call.inputs[0]), [&]<class T>() { nonzero_of<T>(call); });
}

void masked_select(const KernelCall& call) {
    const Dims shape = together({call.inputs, 2});
    const Part x = broadcast(call.inputs[0], shape), mask = broadcast(call.inputs[1], shape);
    const View values = x.view();
    const StridedLoop<2> loop(mask.view(), {&values, 1});
    const std::vector<int64_t> before = count_before<bool>(call, loop);
    call.find_size(&call, before.back());
    if (before.back() == 0) return;
    const int64_t element = size_of(dtype_of(call.inputs[0])), sm = loop.inner_stride(0), sx = loop.inner_stride(1);
    with_width(element, [&]<class T>() {
        parallel_for(call, static_cast<int64_t>(before.size()) - 1, [&](int64_t piece) {
            T* to = static_cast<T*>(call.outputs[0].data) + before[static_cast<size_t>(piece)];
            T* const end = static_cast<T*>(call.outputs[0].data) + before[static_cast<size_t>(piece) + 1];
            loop.runs(piece * kPiece, std::min(loop.count(), (piece + 1) * kPiece), [&](char* const* p, int64_t n) {
                const auto* const chosen = reinterpret_cast<const uint8_t*>(p[0]);
                const auto* const from = reinterpret_cast<const T*>(p[1]);
                // Written whether it is wanted or not, and then written over: a mask is hard to predict.
                for (int64_t i = 0; i < n && to < end; ++i) {
                    *to = from[i * sx];
                    to += chosen[i * sm] != 0;
                }
            });
        });
    });
}

void masked_fill(const KernelCall& call) {
    const View& out = call.outputs[0];
    const StridedLoop<3> loop(out, {call.inputs, 2});
    const int64_t so = loop.inner_stride(0), sx = loop.inner_stride(1), sm = loop.inner_stride(2);
    with_width(size_of(dtype_of(out)), [&]<class T>() {
        const T value = *static_cast<const T*>(call.inputs[2].data);
        loop.parallel_runs(call, [=](char* const* p, int64_t n) {
            auto* const to = reinterpret_cast<T*>(p[0]);
            const auto* const x = reinterpret_cast<const T*>(p[1]);
            const auto* const chosen = reinterpret_cast<const uint8_t*>(p[2]);
            if (so == 1 && sx == 1 && sm == 1) {
                for (int64_t i = 0; i < n; ++i) to[i] = chosen[i] ? value : x[i];
            } else {
                for (int64_t i = 0; i < n; ++i) to[i * so] = chosen[i * sm] ? value : x[i * sx];
            }
        });
    });
}

void masked_scatter(const KernelCall& call) {
    const View &x = call.inputs[0], &source = call.inputs[2], &out = call.outputs[0];
    const Part mask = broadcast(call.inputs[1], shape_of(out));
    const StridedLoop<2> loop(mask.view(), {&out, 1});
    const std::vector<int64_t> before = count_before<bool>(call, loop);
    const Part all(source, shape_of(source), strides_of(source));
    if (all.count() < before.back()) fail(ErrorKind::Value, "the mask is true in {} places, the source has {} elements", before.back(), all.count());
    copy_view(call, x, out);
    const bool is_plain = is_contiguous(shape_of(source), strides_of(source));
    const int64_t sm = loop.inner_stride(0), so = loop.inner_stride(1);
    with_width(size_of(dtype_of(out)), [&]<class T>() {
        const T* const from = static_cast<const T*>(source.data);
        parallel_for(call, static_cast<int64_t>(before.size()) - 1, [&](int64_t piece) {
            int64_t next = before[static_cast<size_t>(piece)];
            loop.runs(piece * kPiece, std::min(loop.count(), (piece + 1) * kPiece), [&](char* const* p, int64_t n) {
                const auto* const chosen = reinterpret_cast<const uint8_t*>(p[0]);
                auto* const to = reinterpret_cast<T*>(p[1]);
                for (int64_t i = 0; i < n; ++i) {
                    if (chosen[i * sm]) {
                        to[i * so] = from[is_plain ? next : all.offset(next)];
                        ++next;
                    }
                }
            });
        });
    });
}

}  // namespace

KernelFn kernel_nonzero(DType) {
    return &kernel<nonzero>;
}
KernelFn kernel_masked_select(DType) {
    return &kernel<masked_select>;
}
KernelFn kernel_masked_fill(DType) {
    return &kernel<masked_fill>;
}
KernelFn kernel_masked_scatter(DType) {
    return &kernel<masked_scatter>;
}

}  // namespace clikart::cpu
