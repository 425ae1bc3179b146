// Kernels that sort: sort, argsort, unique.
#include "backends/cpu/indices.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/radix_sort.h"

namespace clikart::cpu {
namespace {

/// Sorts the lines of x along `dim`; where each element of the result came from goes to `places`, and the element itself to
/// `values`, if that is there.
template <class T, class Place>
void sort_lines(const KernelCall& call, const View* values, const View& places, int dim, bool descending) {
    using Sorter = LineSorter<T, Place>;
    using Key = SortKey<T>;
    const View& x = call.inputs[0];
    const int64_t n = size_along(x, dim), along = stride_along(x, dim), places_along = stride_along(places, dim);
    const Part lines = without(x, dim), to_places = without(places, dim), to_values = without(values ? *values : places, dim);
    const typename Key::Bits flip = descending ? Key::kNaN : typename Key::Bits{0};
    const auto sort_one = [&](Sorter& sorter, int64_t line) {
        const T* const from = static_cast<const T*>(x.data) + lines.offset(line);
        const auto* const sorted = sorter.sort(from, along);
        auto* const place = static_cast<int64_t*>(places.data) + to_places.offset(line);
        T* const value = values ? static_cast<T*>(values->data) + to_values.offset(line) : nullptr;
        const int64_t values_along = values ? stride_along(*values, dim) : 0;
        sorter.each_piece([&](int64_t, int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) place[i * places_along] = static_cast<int64_t>(sorted[i].place);
            for (int64_t i = begin; value && i < end; ++i) {
                const auto [key, at] = sorted[i];
                value[i * values_along] = Key::is_ambiguous(key, flip) ? from[static_cast<int64_t>(at) * along] : Key::value(key, flip);
            }
        });
    };
    const int64_t count = lines.count();
    if (n >= kLongLine) {
        Sorter sorter(&call, n, flip);
        for (int64_t line = 0; line < count; ++line) sort_one(sorter, line);
        return;
    }
    const int64_t per_piece = std::max<int64_t>(1, kPiece / 2 / n);
    parallel_for(call, (count + per_piece - 1) / per_piece, [&](int64_t piece) {
        Sorter sorter(nullptr, n, flip);
        for (int64_t line = piece * per_piece; line < std::min(count, (piece + 1) * per_piece); ++line) sort_one(sorter, line);
    });
}

template <class F>
void with_line_types(const View& x, int64_t n, F&& f) {
    with_stored_type(dtype_of(x), [&]<class T>() { with_place(n, [&]<class Place>() { f.template operator()<T, Place>(); }); });
}

void sort(const KernelCall& call) {
    const View& x = call.inputs[0];
    const int dim = dim_of(call, attribute::sort_dim, x);
    const bool descending = call.attributes->integer(attribute::sort_descending) != 0;
    with_line_types(x, size_along(x, dim), [&]<class T, class Place>() { sort_lines<T, Place>(call, &call.outputs[0], call.outputs[1], dim, descending); });
}

void argsort(const KernelCall& call) {
    const View& x = call.inputs[0];
    const int dim = dim_of(call, attribute::argsort_dim, x);
    const bool descending = call.attributes->integer(attribute::argsort_descending) != 0;
    with_line_types(x, size_along(x, dim), [&]<class T, class Place>() { sort_lines<T, Place>(call, nullptr, call.outputs[0], dim, descending); });
}

/// All elements in one line; of equal ones the first, and of NaN every one.
template <class T, class Place>
void unique_of(const KernelCall& call) {
    using Key = SortKey<T>;
    const View& x = call.inputs[0];
    const Part all(x, shape_of(x), strides_of(x));
    const int64_t n = all.count();
    const bool is_plain = is_contiguous(shape_of(x), strides_of(x));
    const auto at = [&](int64_t i) { return static_cast<const T*>(x.data)[is_plain ? i : all.offset(i)]; };
    LineSorter<T, Place> sorter(&call, n, 0);
    const auto* const sorted = sorter.sort(at);
    const auto is_new = [&](int64_t i) { return i == 0 || sorted[i].key != sorted[i - 1].key || Key::is_nan(sorted[i].key, 0); };
    const int64_t pieces = (n + kPiece - 1) / kPiece;
    std::vector<int64_t> before(static_cast<size_t>(pieces) + 1, 0);
    parallel_for(call, pieces, [&](int64_t piece) {
        for (int64_t i = piece * kPiece; i < std::min(n, (piece + 1) * kPiece); ++i) before[static_cast<size_t>(piece) + 1] += is_new(i);
    });
    for (size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
    call.find_size(&call, before.back());
    parallel_for(call, pieces, [&](int64_t piece) {
        T* to = static_cast<T*>(call.outputs[0].data) + before[static_cast<size_t>(piece)];
        for (int64_t i = piece * kPiece; i < std::min(n, (piece + 1) * kPiece); ++i) {
            if (is_new(i)) *to++ = at(static_cast<int64_t>(sorted[i].place));
        }
    });
}

void unique(const KernelCall& call) {
    const View& x = call.inputs[0];
    with_line_types(x, numel(shape_of(x)), [&]<class T, class Place>() { unique_of<T, Place>(call); });
}

}  // namespace

// The 8-bit floats have no order here: they are only stored.
KernelFn kernel_sort(DType t) {
    return if_computed(t, &kernel<sort>);
}
KernelFn kernel_argsort(DType t) {
    return if_computed(t, &kernel<argsort>);
}
KernelFn kernel_unique(DType t) {
    return if_computed(t, &kernel<unique>);
}

}  // namespace clikart::cpu
