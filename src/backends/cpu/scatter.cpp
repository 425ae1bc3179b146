// Kernels that put elements in places: scatter, index_put.
// Of elements that meet in a place the order counts, so what may meet is never in two pieces.
#include <limits>

#include "backends/cpu/convert.h"
#include "backends/cpu/copy.h"
#include "backends/cpu/indices.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"
#include "core/convert.h"
#include "ops/op_code.h"

namespace clikart::cpu {
namespace {

// ---- how two elements become one

struct Last {
    template <class T>
    static T of(T, T b) noexcept {
        return b;
    }
};
struct Sum {
    template <class T>
    static T of(T a, T b) noexcept {
        if constexpr (std::is_same_v<T, bool>) return a || b;
        return static_cast<T>(a + b);
    }
};
struct Product {
    template <class T>
    static T of(T a, T b) noexcept {
        if constexpr (std::is_same_v<T, bool>) return a && b;
        return static_cast<T>(a * b);
    }
};
// NaN stays, whichever side it is on.
struct Largest {
    template <class T>
    static T of(T a, T b) noexcept {
        return b > a || b != b ? b : a;
    }
};
struct Smallest {
    template <class T>
    static T of(T a, T b) noexcept {
        return b < a || b != b ? b : a;
    }
};

/// Puts n elements, `from_step` apart, into the places that are `step` and so many times `along` from `to`.
using PutFn = void (*)(void* to, int64_t step, int64_t along, const int64_t* places, const void* from, int64_t from_step, int64_t n);
/// Puts `rows` rows of n elements, each at its offset, into rows at offsets; elements are `step` and `from_step` apart.
using PutRowsFn = void (*)(void* to, const int64_t* offsets, int64_t step, const void* from, const int64_t* from_offsets, int64_t from_step, int64_t rows,
                           int64_t n);

template <class F, class To, class From>
void put_one(To& to, From value) noexcept {
    if constexpr (std::is_same_v<F, Last>) {
        to = convert<To>(value);
    } else if constexpr (is_narrow_float<To>) {
        to = To(F::of(static_cast<float>(to), static_cast<float>(value)));
    } else {
        to = F::of(to, convert<To>(value));
    }
}

template <class F, class To, class From>
void put(void* to, int64_t step, int64_t along, const int64_t* places, const void* from, int64_t from_step, int64_t n) {
    auto* const out = static_cast<To*>(to);
    const auto* const in = static_cast<const From*>(from);
    for (int64_t i = 0; i < n; ++i) put_one<F>(out[i * step + places[i] * along], in[i * from_step]);
}

template <class F, class To, class From>
void put_rows(void* to, const int64_t* offsets, int64_t step, const void* from, const int64_t* from_offsets, int64_t from_step, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
        auto* const out = static_cast<To*>(to) + offsets[row];
        const auto* const in = static_cast<const From*>(from) + from_offsets[row];
        if (step == 1 && from_step == 1) {
            for (int64_t i = 0; i < n; ++i) put_one<F>(out[i], in[i]);
        } else {
            for (int64_t i = 0; i < n; ++i) put_one<F>(out[i * step], in[i * from_step]);
        }
    }
}

/// float16 and bfloat16 are added up and multiplied in float32 and rounded once.
bool is_wider(DType t, ScatterReduce reduce) {
    const bool rounds = reduce == ScatterReduce::Sum || reduce == ScatterReduce::Prod || reduce == ScatterReduce::Mean;
    return rounds && lane_of(t) != t;
}

PutFn find_put(DType t, ScatterReduce reduce) {
    PutFn found = nullptr;
    if (reduce == ScatterReduce::None) {
        with_width(size_of(t), [&]<class T>() { found = &put<Last, T, T>; });
        return found;
    }
    with_stored_type(t, [&]<class T>() {
        using Wider = typename Wide<T>::type;
        switch (reduce) {
            case ScatterReduce::Prod: found = &put<Product, Wider, T>; break;
            case ScatterReduce::Amax: found = &put<Largest, T, T>; break;
            case ScatterReduce::Amin: found = &put<Smallest, T, T>; break;
            default: found = &put<Sum, Wider, T>; break;
        }
    });
    return found;
}

/// The result while it is computed: its own memory, or a wider copy.
class Target {
public:
    /// Begins as a copy of x, unless that is the result itself.
    Target(const KernelCall& call, const View& x, const View& out, bool wider)
        : call_(call),
          out_(out),
          shape_(shape_of(out)),
          strides_(wider ? contiguous_strides(shape_) : strides_of(out)),
          memory_(wider ? static_cast<size_t>(numel(shape_)) * sizeof(float) : 0) {
        view_ = wider ? View{memory_.as<float>(), shape_.data(), strides_.data(), out.rank, static_cast<int32_t>(DType::Float32)} : out;
        if (wider) {
            change(x, view_);
        } else if (x.data != out.data) {
            copy_view(call, x, out);
        }
    }
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    const View& view() const noexcept { return view_; }
    void finish() const {
        if (view_.data != out_.data) change(view_, out_);
    }

private:
    void change(const View& from, const View& to) const {
        const StridedLoop<2> loop(to, {&from, 1});
        const ConvertFn run = find_convert(dtype_of(from), dtype_of(to));
        loop.parallel_runs(call_, [&](char* const* p, int64_t n) { run(p[1], loop.inner_stride(1), p[0], loop.inner_stride(0), n); });
    }

    const KernelCall& call_;
    const View& out_;
    const Dims shape_, strides_;
    const Scratch memory_;
    View view_;
};

// ---- scatter

/// Elements along `dim` are in one piece, and in their order.
void put_along(const KernelCall& call, const View& to, const View& index, const View& src, int dim, PutFn run) {
    const Dims shape = shape_of(index);
    const Part all_places(to, shape, strides_of(to)),
        all_values = broadcast({src.data, src.rank == 0 ? src.shape : index.shape, src.strides, src.rank, src.dtype}, shape);
    const View values = all_values.view();
    const Part places = without(index, dim), starts = without(all_places.view(), dim), froms = without(values, dim);
    const View operands[] = {starts.view(), froms.view()};
    const StridedLoop<3> loop(places.view(), operands);  // over lines along dim
    const int64_t n = size_along(index, dim), lines = loop.count();
    const int64_t si = loop.inner_stride(0), st = loop.inner_stride(1), sv = loop.inner_stride(2);
    const int64_t index_along = stride_along(index, dim), along = stride_along(to, dim), value_along = stride_along(values, dim);
    const int64_t index_size = size_of(dtype_of(index)), size = size_of(dtype_of(to)), value_size = size_of(dtype_of(src));
    const PlaceReader reader(dtype_of(index), size_along(to, dim), dim);
    constexpr int64_t kFewLines = 16;  // in a row of memory they share its cache lines
    const int64_t per_piece = std::max(kFewLines, kPiece / std::max<int64_t>(n, 1));
    parallel_for(call, (lines + per_piece - 1) / per_piece, [&](int64_t piece) {
        int64_t read[kTile];
        loop.runs(piece * per_piece, std::min(lines, (piece + 1) * per_piece), [&](char* const* p, int64_t count) {
            if (count >= kFewLines) {  // across the lines
                for (int64_t k = 0; k < n; ++k) {
                    for (int64_t at = 0; at < count; at += kTile) {
                        const int64_t m = std::min(kTile, count - at);
                        reader.read(p[0] + (k * index_along + at * si) * index_size, si, read, m);
                        run(p[1] + at * st * size, st, along, read, p[2] + (k * value_along + at * sv) * value_size, sv, m);
                    }
                }
                return;
            }
            for (int64_t line = 0; line < count; ++line) {
                for (int64_t k = 0; k < n; k += kTile) {
                    const int64_t m = std::min(kTile, n - k);
                    reader.read(p[0] + (line * si + k * index_along) * index_size, index_along, read, m);
                    run(p[1] + line * st * size, 0, along, read, p[2] + (line * sv + k * value_along) * value_size, value_along, m);
                }
            }
        });
    });
}

/// What changes nothing when it is put together with another.
template <class T>
T neutral(ScatterReduce reduce) {
    using Limits = std::numeric_limits<T>;
    const T least = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest(),
            most = Limits::has_infinity ? Limits::infinity() : Limits::max();
    switch (reduce) {
        case ScatterReduce::Prod: return T(1);
        case ScatterReduce::Amax: return least;
        case ScatterReduce::Amin: return most;
        default: return T(0);
    }
}

/// Divides by how many there are; integers round down.
void divide_by(const KernelCall& call, const View& sums, const View& counts) {
    const StridedLoop<2> loop(sums, {&counts, 1});
    with_type(dtype_of(sums), [&]<class T>() {
        loop.parallel_runs(call, [&](char* const* p, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
                T& sum = reinterpret_cast<T*>(p[0])[i * loop.inner_stride(0)];
                const int64_t count = reinterpret_cast<const int64_t*>(p[1])[i * loop.inner_stride(1)];
                if (count < 2) continue;
                if constexpr (std::is_floating_point_v<T>) {
                    sum /= static_cast<T>(count);
                } else if constexpr (std::is_signed_v<T>) {
                    const int64_t quotient = sum / count;
                    sum = static_cast<T>(quotient - (sum % count < 0));
                } else {
                    sum = static_cast<T>(sum / static_cast<uint64_t>(count));
                }
            }
        });
    });
}

void scatter_elements(const KernelCall& call) {
    const View &x = call.inputs[0], &index = call.inputs[1], &src = call.inputs[2], &out = call.outputs[0];
    const int dim = dim_of(call, attribute::scatter_dim, x);
    const auto reduce = static_cast<ScatterReduce>(call.attributes->integer(attribute::scatter_reduce));
    const bool own = call.attributes->integer(attribute::scatter_include_self) != 0;
    const DType t = dtype_of(out);
    const Target target(call, x, out, is_wider(t, reduce));
    const View& to = target.view();
    const auto constant = [](const auto& value, DType dtype) {
        return View{const_cast<void*>(static_cast<const void*>(&value)), nullptr, nullptr, 0, static_cast<int32_t>(dtype)};
    };
    if (reduce != ScatterReduce::None && !own) {
        with_stored_type(dtype_of(to), [&]<class T>() {
            const T nothing = convert<T>(neutral<typename Wide<T>::type>(reduce));
            put_along(call, to, index, constant(nothing, dtype_of(to)), dim, find_put(dtype_of(to), ScatterReduce::None));
        });
    }
    put_along(call, to, index, src, dim, find_put(t, reduce));
    if (reduce == ScatterReduce::Mean) {
        const Dims shape = shape_of(out), strides = contiguous_strides(shape);
        const Scratch memory(static_cast<size_t>(numel(shape)) * sizeof(int64_t));
        std::fill_n(memory.as<int64_t>(), numel(shape), int64_t{own});
        const View counts{memory.as<int64_t>(), shape.data(), strides.data(), out.rank, static_cast<int32_t>(DType::Int64)};
        constexpr int64_t one = 1;
        put_along(call, counts, index, constant(one, DType::Int64), dim, find_put(DType::Int64, ScatterReduce::Sum));
        divide_by(call, to, counts);
    }
    target.finish();
}

// ---- index_put

PutRowsFn find_put_rows(DType t, bool accumulate) {
    PutRowsFn found = nullptr;
    if (accumulate) {
        with_stored_type(t, [&]<class T>() { found = &put_rows<Sum, typename Wide<T>::type, T>; });
    } else {
        with_width(size_of(t), [&]<class T>() { found = &put_rows<Last, T, T>; });
    }
    return found;
}

/// Each position of `outer` and `inner` is in one piece, which goes through the rows in their order.
void put_blocks(const KernelCall& call, const View& to, const Offsets& offsets, std::span<const int> dims, const View& given, const Dims& batch,
                PutRowsFn run) {
    const Blocks blocks(to, dims);
    const Dims outer = shape_of(blocks.outer.view()), inner = shape_of(blocks.inner.view());
    Dims shape = outer;  // of what index would give
    for (const int64_t size : batch) shape.push_back(size);
    for (const int64_t size : inner) shape.push_back(size);
    const Dims strides = strides_of(broadcast(given, shape).view());
    const auto part = [&](int begin, const Dims& of) {
        return Part(given, of, Dims(std::span(strides).subspan(static_cast<size_t>(begin), static_cast<size_t>(of.rank()))));
    };
    const Part outer_values = part(0, outer), batch_values = part(outer.rank(), batch), inner_values = part(outer.rank() + batch.rank(), inner);
    const int64_t size = size_of(dtype_of(to)), value_size = size_of(dtype_of(given)), rows = offsets.count();

    const Scratch memory(static_cast<size_t>(rows) * sizeof(int64_t));
    auto* const value_offsets = memory.as<int64_t>();
    int64_t filled = 0;
    const StridedLoop<1> batch_loop(batch_values.view(), {});
    batch_loop.runs(0, rows, [&](char* const* p, int64_t n) {
        const int64_t first = (p[0] - static_cast<const char*>(given.data)) / value_size;
        for (int64_t i = 0; i < n; ++i) value_offsets[filled++] = first + i * batch_loop.inner_stride(0);
    });

    const View values = inner_values.view();
    const StridedLoop<2> loop(blocks.inner.view(), {&values, 1});
    const int64_t block = loop.count(), count = blocks.outer.count() * block;
    constexpr int64_t kLine = 64, kPieces = 8;  // a cache line is best in one piece
    const int64_t least = kLine / size;
    const int64_t per_piece = (std::max(kPiece / rows, count / kPieces) / least + 1) * least;
    parallel_for(call, (count + per_piece - 1) / per_piece, [&](int64_t piece) {
        const int64_t end = std::min(count, (piece + 1) * per_piece);
        for (int64_t at = piece * per_piece; at < end;) {
            const int64_t within = at % block, n = std::min(block - within, end - at);
            const int64_t base = blocks.outer.offset(at / block) * size, value_base = outer_values.offset(at / block) * value_size;
            loop.runs(within, within + n, [&](char* const* p, int64_t m) {
                run(p[0] + base, offsets.data(), loop.inner_stride(0), p[1] + value_base, value_offsets, loop.inner_stride(1), rows, m);
            });
            at += n;
        }
    });
}

void index_put(const KernelCall& call) {
    const View &x = call.inputs[0], &given = call.inputs[1], &out = call.outputs[0];
    int numbers[kMaxRank];
    const std::span<const int> dims = dims_of(call, attribute::index_put_dims, x, numbers);
    const std::span<const View> indices(call.inputs + 2, dims.size());
    const bool accumulate = call.attributes->integer(attribute::index_put_accumulate) != 0;
    const DType t = dtype_of(out);
    const Target target(call, x, out, accumulate && lane_of(t) != t);
    const Dims batch = together(indices);
    const Offsets offsets(call, indices, target.view(), dims, batch);  // checks all before anything is written over
    const PutRowsFn run = find_put_rows(t, accumulate);
    if (offsets.count() > 0 && given.data == out.data) {  // written over while it is read
        const Dims shape = shape_of(given), strides = contiguous_strides(shape);
        const Scratch memory(static_cast<size_t>(numel(shape) * size_of(t)));
        const View copy{memory.as<void>(), shape.data(), strides.data(), given.rank, given.dtype};
        copy_view(call, given, copy);
        put_blocks(call, target.view(), offsets, dims, copy, batch, run);
    } else if (offsets.count() > 0) {
        put_blocks(call, target.view(), offsets, dims, given, batch, run);
    }
    target.finish();
}

}  // namespace

KernelFn kernel_scatter(DType) {
    return &kernel<scatter_elements>;
}
KernelFn kernel_index_put(DType) {
    return &kernel<index_put>;
}

}  // namespace clikart::cpu
