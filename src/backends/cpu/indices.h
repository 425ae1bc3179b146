// Tensors of places: integers of any dtype that count along a dimension, negative ones from its end.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// Reads n integers, `stride` elements apart, as places among `size`.  Returns where the first is that is none, or n.
using ReadPlaces = int64_t (*)(const char* from, int64_t stride, int64_t size, int64_t* to, int64_t n);

/// Reads the places of one index tensor and checks them.
class PlaceReader {
public:
    /// They count along dimension `dim` of `size` elements; -1: in row-major order through a whole tensor of so many.
    PlaceReader(DType dtype, int64_t size, int dim);

    /// n of them, `stride` elements apart, as numbers from 0.  Throws IndexError for one that is out of range.
    void read(const char* from, int64_t stride, int64_t* to, int64_t n) const {
        const int64_t bad = read_(from, stride, size_, to, n);
        if (bad < n) [[unlikely]]
            refuse(from, bad * stride);
    }

private:
    [[noreturn]] void refuse(const char* from, int64_t at) const;

    const ReadPlaces read_;
    const DType dtype_;
    const int64_t size_;
    const int dim_;
};

/// How far each place of `shape` that index tensors name together lies from the first element, in elements: the sum over
/// the indices, which broadcast to `shape`, of the place times the stride.  In row-major order.
class Offsets {
public:
    /// One index for each of the `dims` of x.
    Offsets(const KernelCall& call, std::span<const View> indices, const View& x, std::span<const int> dims, const Dims& shape);
    /// One index that counts through all of x.
    Offsets(const KernelCall& call, const View& index, const View& x);

    int64_t count() const noexcept { return count_; }
    const int64_t* data() const noexcept { return memory_.as<int64_t>(); }

private:
    const int64_t count_;
    const Scratch memory_;
};

/// Calls f.operator()<T>() with the unsigned type of `bytes`: what only moves does not matter otherwise.
template <class F>
void with_width(int64_t bytes, F&& f) {
    switch (bytes) {
        case 1: return f.template operator()<uint8_t>();
        case 2: return f.template operator()<uint16_t>();
        case 4: return f.template operator()<uint32_t>();
        default: return f.template operator()<uint64_t>();
    }
}

/// A view without some of its dimensions, at their first places.
class Part {
public:
    Part(const View& of, const Dims& shape, const Dims& strides) : shape_(shape), strides_(strides), data_(of.data), dtype_(of.dtype) {}

    View view() const noexcept { return {data_, shape_.data(), strides_.data(), shape_.rank(), dtype_}; }
    int64_t count() const noexcept { return numel(shape_); }
    /// Of an element in row-major order, how far it lies from the first one, in elements.
    int64_t offset(int64_t element) const noexcept {
        int64_t at = 0;
        for (int d = shape_.rank() - 1; d >= 0; --d) {
            at += element % shape_[d] * strides_[d];
            element /= shape_[d];
        }
        return at;
    }

private:
    const Dims shape_, strides_;
    void* const data_;
    const int32_t dtype_;
};

/// What is left of a view whose dimensions `dims`, which ascend, are indexed: those that stand before the indices' own in a
/// result, and those behind.  Indices of neighbours stand where these were, else first.
struct Blocks {
    Blocks(const View& view, std::span<const int> dims)
        : Blocks(view, dims, dims.back() - dims.front() == static_cast<int>(dims.size()) - 1 ? dims.front() : 0) {}

    Part outer, inner;

private:
    Blocks(const View& view, std::span<const int> dims, int border) : outer(others(view, dims, 0, border)), inner(others(view, dims, border, view.rank)) {}
    static Part others(const View& view, std::span<const int> dims, int begin, int end) {
        Dims shape, strides;
        for (int d = begin; d < end; ++d) {
            if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
            shape.push_back(view.shape[d]);
            strides.push_back(view.strides[d]);
        }
        return {view, shape, strides};
    }
};

/// The view broadcast to a shape.
inline Part broadcast(const View& view, const Dims& shape) {
    Dims strides;
    strides.resize(shape.rank());
    const int missing = shape.rank() - view.rank;
    for (int d = missing; d < shape.rank(); ++d) strides[d] = view.shape[d - missing] == 1 ? 0 : view.strides[d - missing];
    return {view, shape, strides};
}

/// The shape that views broadcast to, which was seen to be there.
inline Dims together(std::span<const View> views) {
    Dims shape;
    for (const View& view : views) {
        Dims wider;
        wider.resize(std::max(shape.rank(), static_cast<int>(view.rank)), 1);
        for (int d = 1; d <= wider.rank(); ++d) {
            int64_t& size = wider[wider.rank() - d];
            if (d <= shape.rank()) size = shape[shape.rank() - d];
            if (d <= view.rank && view.shape[view.rank - d] != 1) size = view.shape[view.rank - d];
        }
        shape = wider;
    }
    return shape;
}

/// The view without dimension `dim`; a 0-d view is already without.
inline Part without(const View& view, int dim) {
    Dims shape = shape_of(view), strides = strides_of(view);
    if (shape.rank() > 0) {
        shape.erase(dim);
        strides.erase(dim);
    }
    return {view, shape, strides};
}

/// An attribute that names a dimension of the view, counted from the front.
inline int dim_of(const KernelCall& call, int attribute, const View& view) noexcept {
    const int64_t given = call.attributes->integer(attribute);
    return static_cast<int>(given < 0 ? given + std::max(view.rank, 1) : given);
}
/// An attribute that names several; they are put into `to`.
inline std::span<const int> dims_of(const KernelCall& call, int attribute, const View& view, int (&to)[kMaxRank]) noexcept {
    const auto n = static_cast<size_t>(call.attributes->length(attribute));
    for (size_t i = 0; i < n; ++i) {
        const int64_t given = call.attributes->list(attribute)[i];
        to[i] = static_cast<int>(given < 0 ? given + view.rank : given);
    }
    return {to, n};
}
inline int64_t size_along(const View& view, int dim) noexcept {
    return view.rank == 0 ? 1 : view.shape[dim];
}
inline int64_t stride_along(const View& view, int dim) noexcept {
    return view.rank == 0 ? 1 : view.strides[dim];
}

}  // namespace clikart::cpu
