// Parts of tensors as lists of views, tensors like others, and what else is a line or two of operators.
#pragma once

#include <numeric>

#include <ClikaRT/ops.h>

namespace ClikaRT {
inline namespace v1 {
namespace detail {

/// The dimension counted from the front.
inline std::int64_t dimension(const char* op, const Tensor& x, std::int64_t dim) {
    const auto rank = static_cast<std::int64_t>(x.shape().size());
    if (dim >= -rank && dim < rank) return dim < 0 ? dim + rank : dim;
    throw IndexError(std::string(op) + ": dimension " + std::to_string(dim) + " is out of range for a tensor of " + std::to_string(rank) + " dimensions");
}

inline std::int64_t positive(const char* op, const char* what, std::int64_t value) {
    if (value > 0) return value;
    throw ValueError(std::string(op) + ": the " + what + " is " + std::to_string(value));
}

}  // namespace detail

namespace ops {

/// Parts of a dimension of the given sizes, one after the other, as views.  Throws ValueError where they do not make up the dimension.
inline std::vector<Tensor> split(const Tensor& x, const Shape& sizes, std::int64_t dim = 0) {
    dim = detail::dimension("split", x, dim);
    const bool negative = std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; });
    if (negative || std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != x.shape()[static_cast<std::size_t>(dim)]) {
        throw ValueError("split: the sizes do not make up dimension " + std::to_string(dim));
    }
    std::vector<Tensor> parts;
    std::int64_t start = 0;
    for (const std::int64_t size : sizes) {
        parts.push_back(narrow(x, dim, start, size));
        start += size;
    }
    return parts;
}

/// Parts of one size, of which the last may be smaller, as views.
inline std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim = 0) {
    dim = detail::dimension("split", x, dim);
    detail::positive("split", "size of the parts", size);
    const std::int64_t all = x.shape()[static_cast<std::size_t>(dim)];
    Shape sizes;
    for (std::int64_t rest = all; rest > 0; rest -= size) sizes.push_back(std::min(size, rest));
    if (sizes.empty()) sizes.push_back(0);
    return split(x, sizes, dim);
}

/// At most so many parts of equal size, of which the last may be smaller, as views.
inline std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0) {
    dim = detail::dimension("chunk", x, dim);
    detail::positive("chunk", "number of parts", chunks);
    const std::int64_t all = x.shape()[static_cast<std::size_t>(dim)];
    if (all == 0) return split(x, Shape(static_cast<std::size_t>(chunks), 0), dim);
    return split(x, (all - 1) / chunks + 1, dim);
}

/// So many parts of a dimension, which differ by one in size at most, as views.
inline std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t sections, std::int64_t dim = 0) {
    dim = detail::dimension("tensor_split", x, dim);
    detail::positive("tensor_split", "number of parts", sections);
    const std::int64_t all = x.shape()[static_cast<std::size_t>(dim)];
    Shape sizes;
    for (std::int64_t i = 0; i < sections; ++i) sizes.push_back(all / sections + (i < all % sections));
    return split(x, sizes, dim);
}

/// Parts of a dimension of which all but the first begin at these indices, as in slices, as views.
inline std::vector<Tensor> tensor_split(const Tensor& x, const Shape& indices, std::int64_t dim = 0) {
    dim = detail::dimension("tensor_split", x, dim);
    std::vector<Tensor> parts;
    std::int64_t start = 0;
    for (const std::int64_t end : indices) {
        parts.push_back(slice(x, dim, start, end));
        start = end;
    }
    parts.push_back(slice(x, dim, start));
    return parts;
}

/// Each index of a dimension, which goes away, as a view.
inline std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim = 0) {
    dim = detail::dimension("unbind", x, dim);
    std::vector<Tensor> parts;
    const std::int64_t all = x.shape()[static_cast<std::size_t>(dim)];
    for (std::int64_t i = 0; i < all; ++i) parts.push_back(select(x, dim, i));
    return parts;
}

/// Whether the first tensor of a grid is along its first dimension or along its second.
enum class Indexing { Ij, Xy };

/// The coordinates of all points of a grid, as views; those along each dimension have at most one dimension.
inline std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, Indexing indexing = Indexing::Ij) {
    const bool flat = std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.shape().size() <= 1; });
    if (tensors.empty() || !flat) throw ValueError("meshgrid: needs tensors of at most one dimension");
    std::vector<std::size_t> place(tensors.size());
    std::iota(place.begin(), place.end(), std::size_t{0});
    if (indexing == Indexing::Xy && place.size() > 1) std::swap(place[0], place[1]);
    Shape shape(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) shape[place[i]] = tensors[i].numel();
    std::vector<Tensor> grids;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        Shape own(tensors.size(), 1);
        own[place[i]] = -1;
        grids.push_back(expand(reshape(tensors[i], own), shape));
    }
    return grids;
}

/// A tensor to be written to.  Nobody else's data is in it: it is zeros.
inline Tensor empty(const Shape& shape, DataType dtype = DataType::Float32, const StreamOrDevice& where = {}) {
    return zeros(shape, dtype, where);
}
/// A tensor of x's shape, on its device, filled with one value; of x's dtype unless another is given.
inline Tensor full_like(const Tensor& x, const Operand& value, std::optional<DataType> dtype = std::nullopt) {
    return full(x.shape(), value, dtype.value_or(x.dtype()), x.device());
}
/// Zeros; see full_like().
inline Tensor zeros_like(const Tensor& x, std::optional<DataType> dtype = std::nullopt) {
    return full_like(x, 0, dtype);
}
/// Ones; see full_like().
inline Tensor ones_like(const Tensor& x, std::optional<DataType> dtype = std::nullopt) {
    return full_like(x, 1, dtype);
}
/// A tensor to be written to; see full_like() and empty().
inline Tensor empty_like(const Tensor& x, std::optional<DataType> dtype = std::nullopt) {
    return full_like(x, 0, dtype);
}

/// The tensor itself if its elements lie in row-major order without gaps, else a copy of which that is so.
inline Tensor contiguous(const Tensor& x) {
    return clikart_tensor_is_contiguous(x.handle()) ? x : copy(x);
}
/// A contiguous copy; the name that torch has for copy().
inline Tensor clone(const Operand& x) {
    return copy(x);
}
/// The tensors one after the other; the name that torch has for concat().
inline Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0) {
    return concat(tensors, dim);
}
/// Two dimensions in each other's place, as a view; another name of transpose().
inline Tensor swapaxes(const Operand& x, std::int64_t dim0, std::int64_t dim1) {
    return transpose(x, dim0, dim1);
}
/// What aminmax() returns.
struct AminmaxResult {
    Tensor min, max;
};
/// The smallest and the largest element, of all or along a dimension; see amin().
inline AminmaxResult aminmax(const Operand& x, const OptionalShape& dim = std::nullopt, bool keepdim = false) {
    return {amin(x, dim, keepdim), amax(x, dim, keepdim)};
}
/// Whether all elements are close; see isclose().  Waits for the values.
inline bool allclose(const Operand& a, const Operand& b, double rtol = 1e-05, double atol = 1e-08, bool equal_nan = false) {
    return sum(logical_not(isclose(a, b, rtol, atol, equal_nan))).item<std::int64_t>() == 0;
}

}  // namespace ops
}  // namespace v1
}  // namespace ClikaRT
