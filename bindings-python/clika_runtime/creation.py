"""Creation beyond the operator table, and which devices there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from . import ops
from ._enums import ClikaRTError, ClikaRTTypeError, float32
from ._library import check, lib, naming
from ._refused import shown
from .devices import Device, DeviceLike, device_text
from .dtype import DType
from .random import Generator
from .streams import Stream
from .tensor import Tensor

if TYPE_CHECKING:
    from ._hints import TensorLike


def _filled(who: str, value: int, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """A tensor of one value, from arguments in either of the two forms."""
    if not given and "shape" not in named:
        given = ((),)
    elif len(given) > 1 and all(hasattr(size, "__index__") for size in given):
        given = (given,)
    arguments = dict(zip(_PLACED, given, strict=False))
    if len(given) > len(_PLACED) or not named.keys() <= set(_PLACED) or not arguments.keys().isdisjoint(named):
        raise ClikaRTTypeError(f"{who}: takes {', '.join(_PLACED)}, each once, got {len(given)} arguments and {', '.join(named) or 'no names'}")
    try:
        return ops.full(value=value, **{"dtype": float32, **arguments, **named})
    except ClikaRTError:
        with naming(who, "full"):
            raise


#: What _filled() takes beside sizes one by one, in order.
_PLACED = ("shape", "dtype", "device", "stream")


@overload
def ones(shape: int | Sequence[int], dtype: DType = ..., device: DeviceLike = ..., stream: Stream | None = ...) -> Tensor: ...
@overload
def ones(*sizes: int, dtype: DType = ..., device: DeviceLike = ..., stream: Stream | None = ...) -> Tensor: ...
def ones(*given: Any, **named: Any) -> Tensor:
    """A tensor of ones; see :func:`clika_runtime.full`.

    Args:
        shape: the sizes, as one sequence or one by one.
        dtype: the element type, float32 unless another is given.
        device: where the result lives; without it the calling thread's current device.
        stream: the stream that makes it; without it the device's current stream.

    Example:
        >>> crt.ones(2, 3).shape
        clika_runtime.Size([2, 3])
    """
    return _filled("ones", 1, given, named)


@overload
def zeros(shape: int | Sequence[int], dtype: DType = ..., device: DeviceLike = ..., stream: Stream | None = ...) -> Tensor: ...
@overload
def zeros(*sizes: int, dtype: DType = ..., device: DeviceLike = ..., stream: Stream | None = ...) -> Tensor: ...
def zeros(*given: Any, **named: Any) -> Tensor:
    """A tensor of zeros; see :func:`clika_runtime.full`.

    Args:
        shape: the sizes, as one sequence or one by one.
        dtype: the element type, float32 unless another is given.
        device: where the result lives; without it the calling thread's current device.
        stream: the stream that makes it; without it the device's current stream.

    Example:
        >>> crt.zeros(2, 3).shape
        clika_runtime.Size([2, 3])
    """
    return _filled("zeros", 0, given, named)


@overload
def empty(shape: int | Sequence[int], dtype: DType = ..., device: DeviceLike = ..., stream: Stream | None = ...) -> Tensor: ...
@overload
def empty(*sizes: int, dtype: DType = ..., device: DeviceLike = ..., stream: Stream | None = ...) -> Tensor: ...
def empty(*given: Any, **named: Any) -> Tensor:
    """A tensor to be written to.  Nobody else's data is in it: it is zeros.

    Args:
        shape: the sizes, as one sequence or one by one.
        dtype: the element type, float32 unless another is given.
        device: where the result lives; without it the calling thread's current device.
        stream: the stream that makes it; without it the device's current stream.

    Example:
        >>> crt.empty(2, 3).shape
        clika_runtime.Size([2, 3])
    """
    return _filled("empty", 0, given, named)


def full_like(x: Tensor, value: TensorLike, dtype: DType | None = None) -> Tensor:
    """A tensor of x's shape, on its device, filled with one value; of x's dtype unless another is given."""
    return _like("full_like", x, value, dtype)


def _require(who: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise ClikaRTTypeError(f"{who}: x must be a tensor, got {shown(x)}")


def _like(who: str, x: Tensor, value: TensorLike, dtype: DType | None) -> Tensor:
    _require(who, x)
    with naming(who, "full"):
        return ops.full(x.shape, value, x.dtype if dtype is None else dtype, x.device)


def zeros_like(x: Tensor, dtype: DType | None = None) -> Tensor:
    """Zeros; see :func:`full_like`."""
    return _like("zeros_like", x, 0, dtype)


def ones_like(x: Tensor, dtype: DType | None = None) -> Tensor:
    """Ones; see :func:`full_like`."""
    return _like("ones_like", x, 1, dtype)


def empty_like(x: Tensor, dtype: DType | None = None) -> Tensor:
    """A tensor to be written to; see :func:`full_like` and :func:`empty`."""
    return _like("empty_like", x, 0, dtype)


def is_available(device: str | Device) -> bool:
    """Whether tensors can live on a device ("cpu", "cuda:0", ...) in this process.

    Raises:
        ValueError: the text names no device.
    """
    return check(lib.clikart_is_available(device_text(device, "is_available"))) == 1


# ---- random numbers


def _sizes(shape: tuple[int | Sequence[int], ...]) -> tuple[int, ...]:
    """Sizes that were given one by one or as one sequence."""
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        return tuple(shape[0])
    return shape  # type: ignore[return-value]  # int_list() refuses what is no int


def rand(
    *shape: int | Sequence[int], dtype: DType | None = None, generator: Generator | None = None, device: DeviceLike = None, stream: Stream | None = None
) -> Tensor:
    """Random numbers from [0, 1); the sizes one by one or as one sequence.  See :func:`clika_runtime.uniform`."""
    with naming("rand", "uniform"):
        return ops.uniform(_sizes(shape), 0.0, 1.0, dtype, generator, device, stream)


def randn(
    *shape: int | Sequence[int], dtype: DType | None = None, generator: Generator | None = None, device: DeviceLike = None, stream: Stream | None = None
) -> Tensor:
    """Random numbers with mean 0 and standard deviation 1; the sizes as in :func:`rand`.  See :func:`clika_runtime.normal`."""
    with naming("randn", "normal"):
        return ops.normal(_sizes(shape), 0.0, 1.0, dtype, generator, device, stream)


def rand_like(x: Tensor, dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    """Random numbers from [0, 1) with the shape and device of a tensor, and its dtype unless another is given."""
    _require("rand_like", x)
    with naming("rand_like", "uniform"):
        return ops.uniform(x.shape, 0.0, 1.0, x.dtype if dtype is None else dtype, generator, x.device)


def randn_like(x: Tensor, dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    """The same as :func:`rand_like` with mean 0 and standard deviation 1."""
    _require("randn_like", x)
    with naming("randn_like", "normal"):
        return ops.normal(x.shape, 0.0, 1.0, x.dtype if dtype is None else dtype, generator, x.device)


def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Tensor:
    """:func:`clika_runtime.uniform` written over x.  Returns x."""
    _require("uniform_", x)
    with naming("uniform_", "uniform"):
        return x.copy_(ops.uniform(x.shape, low, high, x.dtype, generator, x.device))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """:func:`clika_runtime.normal` written over x.  Returns x."""
    _require("normal_", x)
    with naming("normal_", "normal"):
        return x.copy_(ops.normal(x.shape, mean, std, x.dtype, generator, x.device))
