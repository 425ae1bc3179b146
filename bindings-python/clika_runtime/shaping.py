"""Parts of tensors as lists of views, and what else is a line or two of operators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import ops
from ._enums import ClikaRTIndexError, ClikaRTValueError
from ._library import naming
from ._refused import int_argument, require_tensor
from .sizes import SymInt
from .tensor import Tensor

if TYPE_CHECKING:
    from ._hints import TensorLike, TensorLikes


def _ints(op: str, name: str, values: Sequence[int]) -> list[int]:
    return [int_argument(op, f"{name}[{i}]", value) for i, value in enumerate(values)]


def _size(op: str, x: Tensor, dim: int) -> tuple[int, int]:
    """The dimension counted from the front, and its size."""
    require_tensor(op, "x", x)
    rank, dim = x.ndim, int_argument(op, "dim", dim)
    if not -rank <= dim < rank:
        raise ClikaRTIndexError(f"{op}: dimension {dim} is out of range for a tensor of {rank} dimensions, shape {list(x.shape)}")
    dim %= rank
    return dim, x.shape[dim]


def split(x: Tensor, size_or_sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Parts of a dimension, one after the other, as views.

    Args:
        x: the tensor.
        size_or_sections: the size of the parts, of which the last may be smaller; or the sizes one by one.
        dim: the dimension.

    Raises:
        IndexError: dim out of range.
        ValueError: a size that is not positive, or sizes that do not make up the dimension.
    """
    dim, size = _size("split", x, dim)
    if isinstance(size_or_sections, Sequence):
        sizes = _ints("split", "size_or_sections", size_or_sections)
        if any(part < 0 for part in sizes) or sum(sizes) != size:
            raise ClikaRTValueError(f"split: {sizes} do not make up dimension {dim} of shape {list(x.shape)}")
    else:
        step: Any = size_or_sections
        if type(step) is not SymInt:
            step = int_argument("split", "size_or_sections", step)
        if step <= 0:
            raise ClikaRTValueError(f"split: the size of the parts is {step}")
        return _parts(x, dim, size, step)
    parts, start = [], 0
    for part in sizes:
        parts.append(ops.narrow(x, dim, start, part))
        start += part
    return parts


def _parts(x: Tensor, dim: int, size: Any, step: Any) -> list[Tensor]:
    """Parts of `step`, the last of what is left; under ``dynamic`` only how many there are has to stay."""
    count = int(-(-size // step)) or 1
    return [ops.narrow(x, dim, i * step, step if i + 1 < count else size - i * step) for i in range(count)]


def chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """At most so many parts of equal size, of which the last may be smaller, as views.

    Args:
        x: the tensor.
        chunks: how many parts; fewer where that does not come out.
        dim: the dimension.

    Raises:
        IndexError: dim out of range.
        ValueError: chunks is not positive.
    """
    dim, size = _size("chunk", x, dim)
    if int_argument("chunk", "chunks", chunks) <= 0:
        raise ClikaRTValueError(f"chunk: the number of parts is {chunks}")
    if size == 0:
        return [ops.narrow(x, dim, 0, 0) for _ in range(chunks)]
    return _parts(x, dim, size, -(-size // chunks))


def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Parts of a dimension that differ by one in size at most, or that begin at given indices, as views.

    Args:
        x: the tensor.
        indices_or_sections: how many parts; or where all but the first begin, as in slices.
        dim: the dimension.

    Raises:
        IndexError: dim out of range.
        ValueError: the number of parts is not positive.
    """
    dim, size = _size("tensor_split", x, dim)
    if isinstance(indices_or_sections, Sequence):
        borders = [0, *_ints("tensor_split", "indices_or_sections", indices_or_sections), size]
    else:
        n = int_argument("tensor_split", "indices_or_sections", indices_or_sections)
        if n <= 0:
            raise ClikaRTValueError(f"tensor_split: the number of parts is {n}")
        borders = [size // n * i + min(i, size % n) for i in range(n + 1)]
    return [ops.slice(x, dim, start, end) for start, end in pairwise(borders)]


def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """Each index of a dimension, which goes away, as a view.

    Args:
        x: the tensor.
        dim: the dimension.

    Raises:
        IndexError: dim out of range.
    """
    dim, size = _size("unbind", x, dim)
    return [ops.select(x, dim, i) for i in range(size)]


def meshgrid(*tensors: Tensor, indexing: Literal["ij", "xy"] = "ij") -> list[Tensor]:
    """The coordinates of all points of a grid, as views.

    Args:
        tensors: the coordinates along each dimension, of at most one dimension each.
        indexing: whether the first tensor is along the first dimension (``"ij"``) or along the second (``"xy"``).

    Raises:
        ValueError: no tensors, or one of two dimensions or more.
    """
    if indexing not in ("ij", "xy"):
        raise ClikaRTValueError(f"meshgrid: indexing is {indexing!r}, expected 'ij' or 'xy'")
    for i, t in enumerate(tensors):
        require_tensor("meshgrid", f"tensors[{i}]", t)
    if not tensors or any(t.ndim > 1 for t in tensors):
        raise ClikaRTValueError(f"meshgrid: needs tensors of at most one dimension, got shapes {[list(t.shape) for t in tensors]}")
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [tensors[i].numel() for i in order]
    places = [[-1 if order[d] == i else 1 for d in range(len(shape))] for i in range(len(tensors))]
    return [ops.expand(ops.reshape(t, place), shape) for t, place in zip(tensors, places, strict=True)]


def cat(tensors: TensorLikes, dim: int = 0) -> Tensor:
    """The tensors one after the other; the name that torch has for :func:`clika_runtime.concat`."""
    with naming("cat", "concat"):
        return ops.concat(tensors, dim)


def swapaxes(x: TensorLike, dim0: int, dim1: int) -> Tensor:
    """Two dimensions in each other's place, as a view; another name of :func:`clika_runtime.transpose`."""
    with naming("swapaxes", "transpose"):
        return ops.transpose(x, dim0, dim1)


class AminmaxResult(NamedTuple):
    """What :func:`clika_runtime.aminmax` returns."""

    min: Tensor
    max: Tensor


def aminmax(x: TensorLike, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> AminmaxResult:
    """The smallest and the largest element, of all or along a dimension; see :func:`clika_runtime.amin`."""
    with naming("aminmax", "amin"):
        return AminmaxResult(ops.amin(x, dim, keepdim), ops.amax(x, dim, keepdim))


def contiguous(x: Tensor) -> Tensor:
    """The tensor itself if its elements lie in row-major order without gaps, else a copy of which that is so."""
    require_tensor("contiguous", "x", x)
    return x if x.is_contiguous() else ops.copy(x)


def clone(x: TensorLike) -> Tensor:
    """A contiguous copy; the name that torch has for :func:`clika_runtime.copy`."""
    with naming("clone", "copy"):
        return ops.copy(x)


def allclose(a: TensorLike, b: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close; see :func:`clika_runtime.isclose`.  Waits for the values."""
    with naming("allclose", "isclose"):
        close = ops.isclose(a, b, rtol, atol, equal_nan)
    return bool(ops.sum(ops.logical_not(close)).item() == 0)
