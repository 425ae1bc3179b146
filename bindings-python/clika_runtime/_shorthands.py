"""Methods of tensors that are short for operators, under the names that torch gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from . import _enums
from ._enums import ClikaRTIndexError, ClikaRTNotImplementedError, ClikaRTTypeError, ClikaRTValueError
from ._library import lib, naming
from ._refused import int_argument, require_tensor
from .devices import Device
from .dtype import DType

if TYPE_CHECKING:
    from ._hints import TensorLike
    from .tensor import Size, Tensor

# Bound by tensor.py when the operators are there; they need the class that this is a base of.
_ops: Any = None


def bind(ops: Any) -> None:
    """Gives the module the operators."""
    global _ops  # noqa: PLW0603
    _ops = ops


def spread(values: tuple[Any, ...]) -> Any:
    """Sizes or dimensions that were given one by one, or as one sequence."""
    return values[0] if len(values) == 1 else values


def spreading(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator on a tensor and a list, as a method that takes the list's entries one by one or as one sequence."""

    def method(self: Any, *values: Any, **named: Any) -> Any:
        return function(self, **named) if named and not values else function(self, spread(values), **named)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


class Shorthands:
    """The base of :class:`clika_runtime.Tensor` that has them."""

    __slots__ = ()

    # ---- shape

    if TYPE_CHECKING:

        @overload
        def size(self) -> Size: ...
        @overload
        def size(self, dim: int) -> int: ...

    def size(self: Any, dim: int | None = None) -> Any:
        """The shape, or its size along one dimension."""
        return self.shape if dim is None else self.shape[self._dim(dim, "size")]

    def dim(self: Any) -> int:
        """The number of dimensions."""
        return self.ndim

    def _dim(self: Any, dim: int, who: str) -> int:
        """A dimension, counted from the front."""
        rank, dim = self.ndim, int_argument(who, "dim", dim)
        if not -rank <= dim < rank:
            raise ClikaRTIndexError(f"{who}: dimension {dim} is out of range for {rank} dimensions")
        return dim % rank

    @property
    def T(self: Any) -> Tensor:
        """The dimensions in reversed order: a matrix transposed."""
        return _ops.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged: a batch of matrices transposed."""
        rank = self.ndim
        if rank < 2:
            raise ClikaRTValueError(f"mT: needs two dimensions at least, got shape {list(self.shape)}")
        return _ops.permute(self, (*range(rank - 2), rank - 1, rank - 2))

    def t(self: Any) -> Tensor:
        """A matrix transposed; what has fewer dimensions as it is."""
        if self.ndim > 2:
            raise ClikaRTValueError(f"t: needs two dimensions at most, got shape {list(self.shape)}")
        return self.T

    def view(self: Any, *shape: int | Sequence[int] | DType) -> Tensor:
        """As ``reshape``, and never a copy; of a dtype instead of a shape the same bytes, see :func:`clika_runtime.view_dtype`.

        Raises:
            ValueError: the strides do not allow it.
        """
        if len(shape) == 1 and isinstance(shape[0], DType):
            return _ops.view_dtype(self, shape[0])
        result: Tensor = _ops.reshape(self, spread(shape))
        if not lib.clikart_tensor_is_stand_in(self._handle) and not lib.clikart_tensor_shares_storage(self._handle, result._handle):
            raise ClikaRTValueError(f"view: shape {list(self.shape)} with strides {list(self.stride())} cannot be seen as {list(result.shape)}; reshape copies")
        return result

    def swapaxes(self: Any, dim0: int, dim1: int) -> Tensor:
        """Two dimensions in each other's place, as a view; see :func:`clika_runtime.transpose`."""
        return _ops.transpose(self, dim0, dim1)

    def view_as(self: Any, other: Tensor) -> Tensor:
        """A view in the shape of another tensor."""
        require_tensor("view_as", "other", other)
        return self.view(other.shape)

    def reshape_as(self: Any, other: Tensor) -> Tensor:
        """The elements in the shape of another tensor."""
        require_tensor("reshape_as", "other", other)
        with naming("reshape_as", "reshape"):
            result: Tensor = _ops.reshape(self, other.shape)
        return result

    # ---- parts; these functions are made of operators

    def split(self: Any, size_or_sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
        """See :func:`clika_runtime.split`."""
        from .shaping import split

        return split(self, size_or_sections, dim)

    def chunk(self: Any, chunks: int, dim: int = 0) -> list[Tensor]:
        """See :func:`clika_runtime.chunk`."""
        from .shaping import chunk

        return chunk(self, chunks, dim)

    def tensor_split(self: Any, indices_or_sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
        """See :func:`clika_runtime.tensor_split`."""
        from .shaping import tensor_split

        return tensor_split(self, indices_or_sections, dim)

    def unbind(self: Any, dim: int = 0) -> list[Tensor]:
        """See :func:`clika_runtime.unbind`."""
        from .shaping import unbind

        return unbind(self, dim)

    # ---- copies and conversions

    def clone(self: Any) -> Tensor:
        """A contiguous copy."""
        return _ops.copy(self)

    def contiguous(self: Any) -> Tensor:
        """The tensor itself if its elements lie in row-major order without gaps, else such a copy."""
        return self if self.is_contiguous() else _ops.copy(self)

    def detach(self: Any) -> Tensor:
        """The tensor itself: there are no gradients here."""
        return self

    def cpu(self: Any) -> Tensor:
        """See :meth:`to`."""
        return self.to("cpu")

    def to(self: Any, *what: DType | str | Device | Tensor, dtype: DType | None = None, device: str | Device | None = None, copy: bool = False) -> Tensor:
        """The tensor with another dtype or on another device; itself where it is that already, unless a copy is wanted.

        Args:
            what: a dtype, a device or its name, or a tensor whose dtype and device are taken; in any order.
            dtype: the dtype.
            device: the device.
            copy: never the tensor itself.

        Raises:
            TypeError: something else.
            ValueError: a text that names no device; the values of a tensor without storage.
            NotImplementedError: a device that is not there.
        """
        for item in what:
            if isinstance(item, DType):
                dtype = item
            elif isinstance(item, (str, Device)):
                device = item
            elif isinstance(item, Shorthands):
                other: Any = item
                dtype, device = other.dtype, other.device
            else:
                raise ClikaRTTypeError(f"to: expected a dtype, a device or a tensor, got {type(item).__name__}")
        if device is not None and Device(device) != self.device:
            return self._moved(Device(device), dtype or self.dtype)
        if dtype is not None and dtype is not self.dtype:
            return _ops.cast(self, dtype)
        return _ops.copy(self) if copy else self

    def _moved(self: Any, device: Device, dtype: DType) -> Tensor:
        if device.type == "meta":
            return _ops.full(self.shape, 0, dtype, device=device)
        if not device.is_available():
            raise ClikaRTNotImplementedError(f"to: device {device} is not available here")
        raise ClikaRTValueError(f"to: a tensor on device {self.device} has no values to bring to {device}")

    def type_as(self: Any, other: Tensor) -> Tensor:
        """The tensor with the dtype of another."""
        require_tensor("type_as", "other", other)
        return self.to(other.dtype)

    def half(self: Any) -> Tensor:
        """As float16."""
        return self.to(_enums.float16)

    def bfloat16(self: Any) -> Tensor:
        """As bfloat16."""
        return self.to(_enums.bfloat16)

    def double(self: Any) -> Tensor:
        """As float64."""
        return self.to(_enums.float64)

    def byte(self: Any) -> Tensor:
        """As uint8."""
        return self.to(_enums.uint8)

    def char(self: Any) -> Tensor:
        """As int8."""
        return self.to(_enums.int8)

    def short(self: Any) -> Tensor:
        """As int16."""
        return self.to(_enums.int16)

    def long(self: Any) -> Tensor:
        """As int64."""
        return self.to(_enums.int64)

    # ---- new tensors of the same dtype and on the same device

    def new_full(self: Any, shape: int | Sequence[int], value: TensorLike, dtype: DType | None = None) -> Tensor:
        """A tensor filled with one value, of this one's dtype and on its device."""
        result: Tensor = self._new("new_full", shape, value, dtype)
        return result

    def _new(self: Any, who: str, shape: int | Sequence[int], value: TensorLike, dtype: DType | None) -> Tensor:
        with naming(who, "full"):
            result: Tensor = _ops.full(shape, value, dtype or self.dtype, device=self.device)
        return result

    def new_zeros(self: Any, *shape: int | Sequence[int], dtype: DType | None = None) -> Tensor:
        """Zeros of this tensor's dtype and on its device; the sizes one by one or as one sequence."""
        result: Tensor = self._new("new_zeros", spread(shape), 0, dtype)
        return result

    def new_ones(self: Any, *shape: int | Sequence[int], dtype: DType | None = None) -> Tensor:
        """Ones of this tensor's dtype and on its device; the sizes one by one or as one sequence."""
        result: Tensor = self._new("new_ones", spread(shape), 1, dtype)
        return result

    def where(self: Any, condition: TensorLike, other: TensorLike) -> Tensor:
        """The tensor where the condition holds, ``other`` elsewhere; see :func:`clika_runtime.where`."""
        return _ops.where(condition, self, other)

    # ---- rounding, for Python's round(), math.trunc(), math.floor() and math.ceil(): tensors of the same dtype

    def __round__(self: Any, ndigits: int | None = None) -> Tensor:
        """The nearest integers, halves to the even ones; or so many decimals, by way of a multiplication and a division as in NumPy."""
        if ndigits is None:
            return _ops.round(self)
        places = int_argument("round", "ndigits", ndigits)
        if not self.dtype.is_floating_point:
            return _ops.copy(self) if places >= 0 else _ops.cast(_ops.cast(self, _enums.float64).__round__(places), self.dtype)
        scale = 10.0 ** min(abs(places), 308)
        return _ops.div(_ops.round(_ops.mul(self, scale)), scale) if places >= 0 else _ops.mul(_ops.round(_ops.div(self, scale)), scale)

    def __trunc__(self: Any) -> Tensor:
        return _ops.trunc(self)

    def __floor__(self: Any) -> Tensor:
        return _ops.floor(self)

    def __ceil__(self: Any) -> Tensor:
        return _ops.ceil(self)

    # ---- memory

    def element_size(self: Any) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    # Last: within the class these names are no longer Python's.

    def float(self: Any) -> Tensor:
        """As float32."""
        return self.to(_enums.float32)

    def int(self: Any) -> Tensor:
        """As int32."""
        return self.to(_enums.int32)

    def bool(self: Any) -> Tensor:
        """As bool: whether an element is not zero."""
        return self.to(_enums.bool_)
