// Kernels that move elements: copy, cast, full, concat, stack, diag_embed; and those that make them: arange, eye, linspace,
// logspace, one_hot.
#include "backends/cpu/copy.h"

#include <cmath>
#include <vector>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "core/convert.h"

namespace clikart::cpu {
namespace {

/// Writes the element that shares its byte with what is not to be written.
void write_half(uint8_t& byte, uint8_t element) {
    byte = static_cast<uint8_t>((byte & 0xF0) | (element & 15));
}

/// Of packed elements, all of which are in order.
void copy_packed(const View& in, const View& out) {
    if (numel(shape_of(in)) != numel(shape_of(out))) fail(ErrorKind::NotImplemented, "{} elements cannot be broadcast", name_of(dtype_of(in)));
    const int64_t n = numel(shape_of(out));
    auto* const to = static_cast<uint8_t*>(out.data);
    std::memcpy(to, in.data, static_cast<size_t>(n / 2));
    if (n % 2) write_half(to[n / 2], static_cast<const uint8_t*>(in.data)[n / 2]);
}

/// Of complex elements: each is two floats, along one dimension more.
void copy_complex(const KernelCall& call) {
    const bool narrow = dtype_of(call.inputs[0]) == DType::Complex64;
    const auto part = static_cast<int32_t>(narrow ? DType::Float32 : DType::Float64);
    Dims shapes[2], strides[2];
    const auto parts_of = [&](const View& view, int i) -> View {
        if (view.rank == kMaxRank) fail(ErrorKind::NotImplemented, "complex elements along {} dimensions cannot be copied", view.rank);
        for (int d = 0; d < view.rank; ++d) {
            shapes[i].push_back(view.shape[d]);
            strides[i].push_back(2 * view.strides[d]);
        }
        shapes[i].push_back(2);
        strides[i].push_back(1);
        return {view.data, shapes[i].data(), strides[i].data(), view.rank + 1, part};
    };
    copy_view(call, parts_of(call.inputs[0], 0), parts_of(call.outputs[0], 1));
}

void copy(const KernelCall& call) {
    if (is_packed(dtype_of(call.inputs[0]))) return copy_packed(call.inputs[0], call.outputs[0]);
    if (is_complex(dtype_of(call.inputs[0]))) return copy_complex(call);
    copy_view(call, call.inputs[0], call.outputs[0]);
}

void cast(const KernelCall& call);

/// From or to packed elements, by way of one in a byte.
void cast_packed(const KernelCall& call) {
    View in = call.inputs[0], out = call.outputs[0];
    if (is_packed(dtype_of(in)) && is_packed(dtype_of(out))) return copy_packed(in, out);
    const bool packs = is_packed(dtype_of(out));
    View& bytes = packs ? out : in;  // becomes the way station
    const int64_t n = numel(shape_of(bytes)), pieces = (n / 2 + kPiece) / kPiece;
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
            if (packs && both) {
                packed[i] = static_cast<uint8_t>((single[2 * i] & 15) | single[2 * i + 1] << 4);
            } else if (packs) {
                write_half(packed[i], single[2 * i]);
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
    if (in.dtype == out.dtype || numel(shape_of(in)) != 1) return copy_view(call, in, out);
    char value[kWidestElement];  // converted once, however often it is wanted
    find_convert(dtype_of(in), dtype_of(out))(in.data, 1, value, 1, 1);
    copy_view(call, {value, nullptr, nullptr, 0, out.dtype}, out);
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

/// f of the numbers from `start` to `end`, each from the nearer end, so that both come out exactly.
template <class F>
void spaced(const KernelCall& call, double start, double end, F&& f) {
    const View& out = call.outputs[0];
    const int64_t n = out.shape[0];
    const double step = n > 1 ? (end - start) / static_cast<double>(n - 1) : 0;
    with_stored_type(dtype_of(out), [&]<class T>() {
        auto* to = static_cast<T*>(out.data);
        parallel_for(call, (n + kPiece - 1) / kPiece, [&](int64_t piece) {
            for (int64_t i = piece * kPiece; i < std::min(n, (piece + 1) * kPiece); ++i) {
                to[i] = convert<T>(f(i < n / 2 || n == 1 ? start + static_cast<double>(i) * step : end - static_cast<double>(n - 1 - i) * step));
            }
        });
    });
}

void linspace(const KernelCall& call) {
    spaced(call, call.attributes->real(attribute::linspace_start), call.attributes->real(attribute::linspace_end), [](double x) { return x; });
}

void logspace(const KernelCall& call) {
    const double base = call.attributes->real(attribute::logspace_base);
    spaced(call, call.attributes->real(attribute::logspace_start), call.attributes->real(attribute::logspace_end),
           [base](double x) { return std::pow(base, x); });
}

void fill_with_zeros(const KernelCall& call, const View& out) {
    const uint64_t zero = 0;  // in every dtype
    copy_view(call, {const_cast<uint64_t*>(&zero), nullptr, nullptr, 0, out.dtype}, out);
}

/// Along the diagonal of `out` that begins at row and column.
View diagonal_of(const View& out, int rows, int columns, int64_t row, int64_t column, Dims& shape, Dims& strides, int64_t size) {
    for (int d = 0; d < out.rank; ++d) {
        if (d == rows || d == columns) continue;
        shape.push_back(out.shape[d]);
        strides.push_back(out.strides[d]);
    }
    shape.push_back(size);
    strides.push_back(out.strides[rows] + out.strides[columns]);
    char* const data = static_cast<char*>(out.data) + (row * out.strides[rows] + column * out.strides[columns]) * size_of(dtype_of(out));
    return {data, shape.data(), strides.data(), shape.rank(), out.dtype};
}

void diag_embed(const KernelCall& call) {
    const View &in = call.inputs[0], &out = call.outputs[0];
    fill_with_zeros(call, out);
    const int64_t offset = call.attributes->integer(attribute::diag_embed_offset);
    const auto place = [&](int attribute) {
        const int64_t d = call.attributes->integer(attribute);
        return static_cast<int>(d < 0 ? d + out.rank : d);
    };
    Dims shape, strides;
    copy_view(call, in,
              diagonal_of(out, place(attribute::diag_embed_dim1), place(attribute::diag_embed_dim2), std::max<int64_t>(0, -offset),
                          std::max<int64_t>(0, offset), shape, strides, in.shape[in.rank - 1]));
}

void eye(const KernelCall& call) {
    const View& out = call.outputs[0];
    fill_with_zeros(call, out);
    with_stored_type(dtype_of(out), [&]<class T>() {
        const T one = convert<T>(1.0);
        Dims shape, strides;
        const View diagonal = diagonal_of(out, 0, 1, 0, 0, shape, strides, std::min(out.shape[0], out.shape[1]));
        copy_view(call, {const_cast<T*>(&one), nullptr, nullptr, 0, out.dtype}, diagonal);
    });
}

template <class T>
void one_hot_of(const KernelCall& call) {
    const View &in = call.inputs[0], &out = call.outputs[0];
    const int64_t classes = call.attributes->integer(attribute::one_hot_num_classes);
    const StridedLoop<1> loop(in, {});
    const int64_t stride = loop.inner_stride(0), rows = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, classes));
    parallel_for(call, (loop.count() + rows - 1) / rows, [&](int64_t piece) {
        auto* to = static_cast<int64_t*>(out.data) + piece * rows * classes;
        loop.runs(piece * rows, std::min(loop.count(), (piece + 1) * rows), [&](char* const* p, int64_t n) {
            std::fill_n(to, n * classes, 0);
            const auto* x = reinterpret_cast<const T*>(p[0]);
            for (int64_t i = 0; i < n; ++i, to += classes) {
                const T value = x[i * stride];
                if (value < 0 || static_cast<uint64_t>(value) >= static_cast<uint64_t>(classes)) {
                    fail(ErrorKind::Index, "class {} is not among {}", value, classes);
                }
                to[static_cast<int64_t>(value)] = 1;
            }
        });
    });
}

void one_hot(const KernelCall& call) {
    with_type(dtype_of(call.inputs[0]), [&]<class T>() {
        if constexpr (!std::is_same_v<T, bool>) one_hot_of<T>(call);
    });
}

/// All copies at once: many small ones keep all threads busy as well as a few large ones.
void run_all(const KernelCall& call, const std::vector<CopyPlan>& plans) {
    std::vector<int64_t> ends;
    for (const CopyPlan& plan : plans) ends.push_back((ends.empty() ? 0 : ends.back()) + plan.pieces());
    parallel_for(call, ends.back(), [&](int64_t piece) {
        const auto k = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), piece) - ends.begin());
        plans[k].run(k > 0 ? piece - ends[k - 1] : piece);
    });
}

int64_t bytes_of(const View& view) {
    return numel(shape_of(view)) * size_of(dtype_of(view));
}

void concat(const KernelCall& call) {
    const View& out = call.outputs[0];
    const int64_t given = call.attributes->integer(attribute::concat_dim), written = bytes_of(out);
    const auto dim = static_cast<int>(given < 0 ? given + out.rank : given);
    std::vector<CopyPlan> plans;
    plans.reserve(static_cast<size_t>(call.n_inputs));
    int64_t at = 0;
    for (int32_t i = 0; i < call.n_inputs; ++i) {
        const View& in = call.inputs[i];
        View part = out;
        part.shape = in.shape;
        part.data = static_cast<char*>(out.data) + at * out.strides[dim] * size_of(dtype_of(out));
        plans.emplace_back(in, part, written);
        at += in.shape[dim];
    }
    run_all(call, plans);
}

void stack(const KernelCall& call) {
    const View& out = call.outputs[0];
    const int64_t given = call.attributes->integer(attribute::stack_dim), written = bytes_of(out);
    const auto dim = static_cast<int>(given < 0 ? given + out.rank : given);
    Dims strides = strides_of(out);
    strides.erase(dim);
    std::vector<CopyPlan> plans;
    plans.reserve(static_cast<size_t>(call.n_inputs));
    for (int32_t i = 0; i < call.n_inputs; ++i) {
        const View& in = call.inputs[i];
        char* const data = static_cast<char*>(out.data) + i * out.strides[dim] * size_of(dtype_of(out));
        plans.emplace_back(in, View{data, in.shape, strides.data(), in.rank, out.dtype}, written);
    }
    run_all(call, plans);
}

}  // namespace

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
KernelFn kernel_linspace(DType) {
    return &kernel<linspace>;
}
KernelFn kernel_logspace(DType) {
    return &kernel<logspace>;
}
KernelFn kernel_eye(DType) {
    return &kernel<eye>;
}
KernelFn kernel_one_hot(DType t) {
    return is_integer(t) ? &kernel<one_hot> : nullptr;
}
KernelFn kernel_concat(DType) {
    return &kernel<concat>;
}
KernelFn kernel_stack(DType) {
    return &kernel<stack>;
}
KernelFn kernel_diag_embed(DType) {
    return &kernel<diag_embed>;
}

}  // namespace clikart::cpu
