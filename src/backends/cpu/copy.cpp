// Kernels that move elements: copy, cast, full, arange, concat.
// Plain loops; the compiler vectorises what is contiguous.
#include "backends/cpu/copy.h"

#include "backends/cpu/convert.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"
#include "core/convert.h"

namespace clikart::cpu {
namespace {

/// Of packed elements, all of which are in order.
void copy_packed(const View& in, const View& out) {
    if (numel(shape_of(in)) != numel(shape_of(out))) fail(ErrorKind::NotImplemented, "{} elements cannot be broadcast", name_of(dtype_of(in)));
    std::memcpy(out.data, in.data, static_cast<size_t>(bytes_of(dtype_of(out), numel(shape_of(out)))));
}

void copy(const KernelCall& call) {
    if (is_packed(dtype_of(call.inputs[0]))) return copy_packed(call.inputs[0], call.outputs[0]);
    copy_view(call, call.inputs[0], call.outputs[0]);
}

void cast(const KernelCall& call);

/// From or to packed elements, by way of one in a byte.
void cast_packed(const KernelCall& call) {
    View in = call.inputs[0], out = call.outputs[0];
    const int64_t n = numel(shape_of(out)), pieces = (n / 2 + kPiece) / kPiece;
    if (is_packed(dtype_of(in)) && is_packed(dtype_of(out))) return copy_packed(in, out);
    const bool packs = is_packed(dtype_of(out));
    View& bytes = packs ? out : in;  // becomes the way station
    auto* const packed = static_cast<uint8_t*>(bytes.data);
    const bool is_signed = dtype_of(bytes) == DType::Int4;
    const Scratch scratch(static_cast<size_t>(n));
    auto* const single = scratch.as<uint8_t>();
    const Dims strides = contiguous_strides(shape_of(bytes));
    bytes = {single, bytes.shape, strides.data(), bytes.rank, static_cast<int32_t>(is_signed ? DType::Int8 : DType::UInt8)};
    KernelCall station = call;
    station.inputs = &in;
    station.outputs = &out;
    if (packs) cast(station);
    parallel_for(call, pieces, [&](int64_t piece) {
        const int64_t end = std::min((n + 1) / 2, (piece + 1) * kPiece);
        for (int64_t i = piece * kPiece; i < end; ++i) {
            const bool both = 2 * i + 1 < n;
            if (packs) {
                packed[i] = static_cast<uint8_t>((single[2 * i] & 15) | (both ? single[2 * i + 1] << 4 : 0));
            } else {
                const auto widened = [is_signed](int half) { return static_cast<uint8_t>(is_signed ? (half ^ 8) - 8 : half); };
                single[2 * i] = widened(packed[i] & 15);
                if (both) single[2 * i + 1] = widened(packed[i] >> 4);
            }
        }
    });
    if (!packs) cast(station);
}

void cast(const KernelCall& call) {
    const View &in = call.inputs[0], &out = call.outputs[0];
    if (is_packed(dtype_of(in)) || is_packed(dtype_of(out))) return cast_packed(call);
    if (in.dtype == out.dtype) return copy_view(call, in, out);
    const StridedLoop<2> loop(out, {&in, 1});
    const ConvertFn run = find_convert(dtype_of(in), dtype_of(out));
    loop.parallel_runs(call, [run, so = loop.inner_stride(0), si = loop.inner_stride(1)](char* const* p, int64_t n) { run(p[1], si, p[0], so, n); });
}

/// The value of a 0-d operand.
template <class T>
T number(const View& view) {
    T value{};
    with_stored_type(dtype_of(view), [&]<class From>() { value = convert<T>(*static_cast<const From*>(view.data)); });
    return value;
}

void arange(const KernelCall& call) {
    const View& out = call.outputs[0];
    const int64_t n = out.shape[0];
    with_stored_type(dtype_of(out), [&]<class T>() {
        auto* to = static_cast<T*>(out.data);
        // Integers exactly; everything else in double, rounded once.
        if (dtype_of(call.inputs[0]) != DType::Float64 && dtype_of(call.inputs[2]) != DType::Float64) {
            const auto start = number<int64_t>(call.inputs[0]), step = number<int64_t>(call.inputs[2]);
            for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(start + i * step);
        } else {
            const auto start = number<double>(call.inputs[0]), step = number<double>(call.inputs[2]);
            for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(start + static_cast<double>(i) * step);
        }
    });
}

void concat(const KernelCall& call) {
    const View& out = call.outputs[0];
    const int64_t given = call.attributes->integer(attribute::concat_dim);
    const auto dim = static_cast<int>(given < 0 ? given + out.rank : given);
    int64_t at = 0;
    for (int32_t i = 0; i < call.n_inputs; ++i) {
        const View& in = call.inputs[i];
        View part = out;
        part.shape = in.shape;
        part.data = static_cast<char*>(out.data) + at * out.strides[dim] * size_of(dtype_of(out));
        if (numel(shape_of(in)) > 0) copy_view(call, in, part);
        at += in.shape[dim];
    }
}

}  // namespace

void copy_view(const KernelCall& call, const View& from, const View& to) {
    const StridedLoop<2> loop(to, {&from, 1});
    const int64_t element = size_of(dtype_of(to)), so = loop.inner_stride(0), si = loop.inner_stride(1);
    loop.parallel_runs(call, [=](char* const* p, int64_t n) {
        if (so == 1) return gather(p[1], si, p[0], n, element);
        if (si == 1) return scatter(p[1], p[0], so, n, element);
        alignas(64) char tile[kTile * kWidest];
        for (int64_t i = 0; i < n; i += kTile) {
            const int64_t m = std::min(kTile, n - i);
            gather(p[1] + i * si * element, si, tile, m, element);
            scatter(tile, p[0] + i * so * element, so, m, element);
        }
    });
}

KernelFn kernel_copy(DType) {
    return &kernel<copy>;  // whatever the bytes mean
}
KernelFn kernel_cast(DType) {
    return &kernel<cast>;
}
KernelFn kernel_full(DType) {
    return &kernel<cast>;  // a 0-d value, broadcast
}
KernelFn kernel_arange(DType) {
    return &kernel<arange>;
}
KernelFn kernel_concat(DType) {
    return &kernel<concat>;
}

}  // namespace clikart::cpu
