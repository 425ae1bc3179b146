// Kernels that take elements by their places: gather, take, index_select, index, embedding.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/index.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/indices.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Whole lines of the cache to an aligned place, past the cache.
void copy_lines(const char* from, char* to, int64_t bytes) {
    const hn::ScalableTag<uint8_t> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const auto* const in = reinterpret_cast<const uint8_t*>(from);
    auto* const out = reinterpret_cast<uint8_t*>(to);
    if constexpr (hn::MaxLanes(d) == 1) {
        std::memcpy(out, in, static_cast<size_t>(bytes));
    } else {
        for (int64_t i = 0; i < bytes; i += step) hn::Stream(hn::LoadU(d, in + i), d, out + i);
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(copy_lines);

constexpr int64_t kLine = 64;  // bytes

/// For each place of the index its own element: along `dim` where the index says, else where it stands.
void gather_elements(const KernelCall& call) {
    const View &x = call.inputs[0], &index = call.inputs[1], &out = call.outputs[0];
    const int dim = dim_of(call, attribute::gather_dim, x);
    Dims strides = strides_of(x);
    if (x.rank > 0) strides[dim] = 0;
    const Part start(x, shape_of(index), strides);
    const View operands[] = {start.view(), index};
    const StridedLoop<3> loop(out, operands);
    const PlaceReader reader(dtype_of(index), size_along(x, dim), dim);
    const int64_t along = stride_along(x, dim), so = loop.inner_stride(0), sx = loop.inner_stride(1), si = loop.inner_stride(2);
    const int64_t index_size = size_of(dtype_of(index));
    with_width(size_of(dtype_of(out)), [&]<class T>() {
        loop.parallel_runs(call, [&](char* const* p, int64_t n) {
            auto* const to = reinterpret_cast<T*>(p[0]);
            const auto* const from = reinterpret_cast<const T*>(p[1]);
            int64_t places[kTile];
            for (int64_t at = 0; at < n; at += kTile) {
                const int64_t m = std::min(kTile, n - at);
                reader.read(p[2] + at * si * index_size, si, places, m);
                if (so == 1 && sx == 0 && along == 1) {
                    for (int64_t i = 0; i < m; ++i) to[at + i] = from[places[i]];
                } else {
                    for (int64_t i = 0; i < m; ++i) to[(at + i) * so] = from[(at + i) * sx + places[i] * along];
                }
            }
        });
    });
}

/// For each place of `outer` and each of the offsets a block of elements, `inner`, into the contiguous result.
void take_blocks(const KernelCall& call, const Part& outer, const Offsets& offsets, const Part& inner) {
    const View& out = call.outputs[0];
    const int64_t element = size_of(dtype_of(out)), block = inner.count(), count = numel(shape_of(out));
    auto* const to = static_cast<char*>(out.data);
    const int64_t pieces = (count + kPiece - 1) / kPiece;
    const StridedLoop<1> loop(inner.view(), {});
    const int64_t stride = loop.inner_stride(0);
    const bool streamed = stride == 1 && count * element >= kStreamedBytes;
    parallel_for(call, pieces, [&](int64_t piece) {
        int64_t at = piece * kPiece;
        const int64_t end = std::min(count, at + kPiece);
        int64_t row = at / block, within = at % block;
        while (at < end) {
            const int64_t base = outer.offset(row / offsets.count());
            const int64_t* const offset = offsets.data() + row % offsets.count();
            const int64_t rows = offsets.count() - row % offsets.count();  // until the next place of `outer`
            if (block == 1) {
                const int64_t n = std::min(rows, end - at);
                with_width(element, [&]<class T>() {
                    const T* const from = static_cast<const T*>(inner.view().data) + base;
                    T* const place = reinterpret_cast<T*>(to) + at;
                    for (int64_t i = 0; i < n; ++i) place[i] = from[offset[i]];
                });
                at += n;
                row += n;
                continue;
            }
            for (int64_t i = 0; i < rows && at < end; ++i, ++row) {
                const int64_t n = std::min(block - within, end - at);
                loop.runs(within, within + n, [&](char* const* p, int64_t m) {
                    const char* const from = p[0] + (base + offset[i]) * element;
                    char* const place = to + at * element;
                    if (streamed && (reinterpret_cast<uintptr_t>(place) | static_cast<uintptr_t>(m * element)) % kLine == 0) {
                        HWY_DYNAMIC_DISPATCH(copy_lines)(from, place, m * element);
                    } else {
                        gather(from, stride, place, m, element);
                    }
                    at += m;
                });
                within = 0;
            }
        }
        if (streamed) hwy::FlushStream();
    });
}

void take_along(const KernelCall& call, const View& x, std::span<const View> indices, std::span<const int> dims, const Dims& shape) {
    const Offsets offsets(call, indices, x, dims, shape);
    const Blocks blocks(x, dims);
    take_blocks(call, blocks.outer, offsets, blocks.inner);
}

void take(const KernelCall& call) {
    const View& x = call.inputs[0];
    const Part one(x, Dims{}, Dims{});
    take_blocks(call, one, Offsets(call, call.inputs[1], x), one);
}

void index_select(const KernelCall& call) {
    const View &x = call.inputs[0], &index = call.inputs[1];
    const int dim = dim_of(call, attribute::index_select_dim, x);
    take_along(call, x, {&index, 1}, {&dim, 1}, shape_of(index));
}

void embedding(const KernelCall& call) {
    const View& index = call.inputs[0];
    constexpr int rows = 0;
    take_along(call, call.inputs[1], {&index, 1}, {&rows, 1}, shape_of(index));
}

void index(const KernelCall& call) {
    const View& x = call.inputs[0];
    int dims[kMaxRank];
    const std::span<const int> named = dims_of(call, attribute::index_dims, x, dims);
    const std::span<const View> indices(call.inputs + 1, named.size());
    take_along(call, x, indices, named, together(indices));
}

}  // namespace

KernelFn kernel_gather(DType) {
    return &kernel<gather_elements>;
}
KernelFn kernel_take(DType) {
    return &kernel<take>;
}
KernelFn kernel_index_select(DType) {
    return &kernel<index_select>;
}
KernelFn kernel_embedding(DType) {
    return &kernel<embedding>;
}
KernelFn kernel_index(DType) {
    return &kernel<index>;
}

}  // namespace clikart::cpu
#endif
