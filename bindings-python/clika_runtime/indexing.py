"""``x[...]``, read and written, by NumPy's rules.

What has ints, slices, ``None`` and ``...`` alone is a view, and writing goes there.  With masks or arrays of integers it is
a copy, and writing scatters.
"""

from __future__ import annotations

from operator import index as as_int
from typing import Any

from . import ops
from ._enums import ClikaRTIndexError, bool_, int64
from ._library import naming
from .dtype import DType
from .sizes import SymInt
from .tensor import Tensor, tensor

_LARGEST = 2**63 - 1


class _Plan:
    """An index taken apart: the view that its basic parts make, and what is left to look up in it.

    ``arrays`` are int64 tensors for the dimensions ``dims`` of ``view``, which are neighbours; ``mask`` is set instead where
    a single mask is all there is, for the dimensions from ``dims[0]`` on.
    """

    def __init__(self, x: Tensor, key: Any) -> None:
        self.view = x
        self.arrays: list[Tensor] = []
        self.dims: list[int] = []
        self.mask: Tensor | None = None
        items = _expanded(x, key)
        single = sum(isinstance(item, (Tensor, bool)) for item in items) == 1
        looked_up = [i for i, item in enumerate(items) if isinstance(item, (Tensor, int, SymInt))]  # ints too, as soon as there is another
        dim = 0
        for item in items:
            if item is None:
                self.view = _with_new(self.view, dim)
            elif item is Ellipsis:
                continue
            elif isinstance(item, slice):
                self.view = _sliced(self.view, dim, item)
            elif isinstance(item, Tensor) and item.dtype is bool_ and item.ndim > 0:
                sizes = self.view.shape[dim : dim + item.ndim]
                if item.shape != sizes:
                    raise ClikaRTIndexError(f"index: a mask of shape {list(item.shape)} does not fit {list(sizes)}, part of shape {list(x.shape)}")
                self.dims += range(dim, dim + item.ndim)
                if single:
                    self.mask = item
                else:
                    self.arrays += _positions(item)
                dim += item.ndim
                continue
            elif isinstance(item, bool) or (isinstance(item, Tensor) and item.dtype is bool_):
                self.view = _with_new(self.view, dim)
                self.dims.append(dim)
                whole = ops.reshape(item, (1,))
                if single:
                    self.mask = whole
                else:
                    self.arrays += _positions(whole)
            elif isinstance(item, Tensor):
                self.dims.append(dim)
                self.arrays.append(item if item.dtype is int64 else ops.cast(item, int64))
            else:
                self.view = ops.select(self.view, dim, item)
                continue
            dim += 1
        if self.dims and looked_up != list(range(looked_up[0], looked_up[-1] + 1)):  # what is looked up comes first then
            rest = [d for d in range(self.view.ndim) if d not in self.dims]
            self.view = ops.permute(self.view, (*self.dims, *rest))
            self.dims = list(range(len(self.dims)))

    def positions(self) -> list[Tensor]:
        """The arrays, also where they come from the mask."""
        return self.arrays if self.mask is None else _positions(self.mask)

    def mask_over_view(self) -> Tensor:
        """The mask in a shape that broadcasts to the view's."""
        assert self.mask is not None
        behind = self.view.ndim - self.dims[0] - self.mask.ndim
        return ops.reshape(self.mask, (*self.mask.shape, *(1,) * behind)) if behind else self.mask


def _positions(mask: Tensor) -> list[Tensor]:
    """Where a mask is true, one tensor for each dimension."""
    found = ops.nonzero(mask)
    return [ops.select(found, 1, dim) for dim in range(mask.ndim)]


def _sliced(x: Tensor, dim: int, part: slice) -> Tensor:
    if part.start is None and part.stop is None and part.step is None:
        return x
    start, stop, step = _bound(part.start), _bound(part.stop), _bound(part.step)
    return ops.slice(x, dim, start, stop, 1 if step is None else step)


def _bound(value: Any) -> Any:
    """What lies beyond what C can count is as far as the last that does not."""
    if value is None:
        return None
    if type(value) is SymInt:
        return value
    value = as_int(value)
    return value if -_LARGEST <= value <= _LARGEST else _LARGEST if value > 0 else -_LARGEST


def _expanded(x: Tensor, key: Any) -> list[Any]:
    """The index as ints, bools, slices, None and tensors of integers or bools, as many as ``x`` has dimensions; and a '...' that
    stands for none, which as in NumPy parts what is looked up before and behind it.
    """
    items = [_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    used, ellipsis = 0, None
    for place, item in enumerate(items):
        if item is Ellipsis:
            if ellipsis is not None:
                raise ClikaRTIndexError("index: more than one '...'")
            ellipsis = place
        elif isinstance(item, Tensor) and item.dtype is bool_:
            used += item.ndim
        elif item is not None and not isinstance(item, bool):
            used += 1
    missing = x.ndim - used
    if missing < 0:
        raise ClikaRTIndexError(f"index: too many indices: {used} for shape {list(x.shape)}")
    if ellipsis is None:
        return items + [slice(None)] * missing
    if missing == 0:
        return items
    return items[:ellipsis] + [slice(None)] * missing + items[ellipsis + 1 :]


def _item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, (slice, bool, SymInt)):
        return item
    if isinstance(item, Tensor):
        return _checked(item, item.dtype)
    if type(item) is not int:
        import numpy as np

        if isinstance(item, (list, tuple, range, np.ndarray, np.bool_)):
            try:
                array = np.asarray(item)
            except ValueError as error:
                raise ClikaRTIndexError(f"index: {error}") from None
            if array.size == 0 and not isinstance(item, np.ndarray):
                array = array.astype(np.int64)
            if array.ndim > 0 or array.dtype.kind not in "biu":
                if array.dtype.kind not in "biu":
                    raise ClikaRTIndexError(f"index: an array of {array.dtype}; arrays of integers and of bools can be indices")
                return tensor(array)
            item = array.item()
            if isinstance(item, bool):
                return item
        if not hasattr(item, "__index__"):
            raise ClikaRTIndexError(f"index: ints, slices, '...', None, and arrays of integers or bools can be indices, not {type(item).__name__}")
    number = as_int(item)
    if not -_LARGEST <= number <= _LARGEST:
        raise ClikaRTIndexError(f"index: {number} is out of range")
    return number


def _checked(item: Tensor, dtype: DType) -> Tensor:
    if dtype is not bool_ and "int" not in dtype.name:
        raise ClikaRTIndexError(f"index: a tensor of {dtype.name}; tensors of integers and of bools can be indices")
    return item


def _simple_view(x: Tensor, key: tuple[Any, ...]) -> Tensor | None:
    """What ``_Plan`` makes of an index of plain ints, slices and None, maybe behind a '...', and with less ado; else None."""
    rank, used, dim = x.ndim, len(key), 0
    behind = used > 0 and key[0] is Ellipsis
    if behind:
        key = key[1:]
        used -= 1
    for item in key:
        if item is None:
            used -= 1
        elif type(item) is not slice and not (type(item) is int and -_LARGEST <= item <= _LARGEST) and type(item) is not SymInt:
            return None
    if used > rank:
        return None
    if behind:
        dim = rank - used
    view = x
    for item in key:
        if item is None or type(item) is slice:
            view = _with_new(view, dim) if item is None else _sliced(view, dim, item)
            dim += 1
        else:
            view = ops.select(view, dim, item)
    return view if view is not x else None


def _with_new(x: Tensor, dim: int) -> Tensor:
    """A view with a new dimension of size 1."""
    shape = x.shape
    return ops.reshape(x, (*shape[:dim], 1, *shape[dim:]))


def get(x: Tensor, key: Any) -> Tensor:
    """``x[key]``."""
    if type(key) is int and -_LARGEST <= key <= _LARGEST and x.ndim:
        return ops.select(x, 0, key)
    if type(key) is Tensor and x.ndim:
        if key.dtype is int64:
            return ops.index(x, (key,), (0,))
        if key.dtype is bool_ and key.shape == x.shape:
            return ops.masked_select(x, key)
    if (view := _simple_view(x, key if type(key) is tuple else (key,))) is not None:
        return view
    plan = _Plan(x, key)
    if not plan.dims:
        return plan.view if plan.view is not x else ops.reshape(x, x.shape)
    return ops.index(plan.view, plan.positions(), plan.dims)


def put(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``.

    Numbers, lists and arrays are converted to the dtype of ``x``.  A tensor is too where the index is a view; where it looks places up,
    the tensor must have that dtype, unless it is a single element for where a mask is true.
    """
    convert = not isinstance(value, Tensor)
    if not isinstance(value, (Tensor, bool, int, float, SymInt)):
        with naming("setitem", "tensor"):
            exact = isinstance(value, (list, tuple)) and "int" in x.dtype.name  # numbers that x has not are refused
            value = tensor(value, x.dtype if exact else None)
    if (view := _simple_view(x, key if type(key) is tuple else (key,))) is not None:
        view._copy("setitem", _without_leading_ones(value, view.ndim))
        return
    plan = _Plan(x, key)
    if not plan.dims:
        plan.view._copy("setitem", _without_leading_ones(value, plan.view.ndim))
        return
    if not convert and value.dtype is not x.dtype and plan.mask is not None and value.numel() == 1:
        convert, value = True, ops.reshape(value, ())
    if convert:
        value = ops.cast(value, x.dtype)
    if plan.mask is not None and value.ndim == 0:
        ops.masked_fill_(plan.view, plan.mask_over_view(), value)
        return
    arrays = plan.positions()
    rank = plan.view.ndim - len(plan.dims) + max(array.ndim for array in arrays)
    ops.index_put_(plan.view, _without_leading_ones(value, rank), arrays, plan.dims)


def _without_leading_ones(value: Any, rank: int) -> Any:
    """A value may have more dimensions than it is written to, of size 1."""
    extra = value.ndim - rank if isinstance(value, Tensor) else 0
    if extra > 0 and all(size == 1 for size in value.shape[:extra]):
        return ops.reshape(value, value.shape[extra:])
    return value
