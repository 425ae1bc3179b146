"""Creation beyond the operator table, and which devices there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import ops
from ._enums import float32
from ._library import check, lib
from .devices import Device, DeviceLike, device_text
from .dtype import DType
from .random import Generator
from .streams import Stream
from .tensor import Tensor

if TYPE_CHECKING:
    from ._convert import TensorLike


def ones(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None, stream: Stream | None = None) -> Tensor:
    """A tensor of ones; see :func:`clika_runtime.full`."""
    return ops.full(shape, 1, dtype, device, stream)


def zeros(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None, stream: Stream | None = None) -> Tensor:
    """A tensor of zeros; see :func:`clika_runtime.full`."""
    return ops.full(shape, 0, dtype, device, stream)


def empty(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None, stream: Stream | None = None) -> Tensor:
    """A tensor to be written to.  Nobody else's data is in it: it is zeros."""
    return zeros(shape, dtype, device, stream)


def full_like(x: Tensor, value: TensorLike, dtype: DType | None = None) -> Tensor:
    """A tensor of x's shape, on its device, filled with one value; of x's dtype unless another is given."""
    return ops.full(x.shape, value, x.dtype if dtype is None else dtype, x.device)


def zeros_like(x: Tensor, dtype: DType | None = None) -> Tensor:
    """Zeros; see :func:`full_like`."""
    return full_like(x, 0, dtype)


def ones_like(x: Tensor, dtype: DType | None = None) -> Tensor:
    """Ones; see :func:`full_like`."""
    return full_like(x, 1, dtype)


def empty_like(x: Tensor, dtype: DType | None = None) -> Tensor:
    """A tensor to be written to; see :func:`full_like` and :func:`empty`."""
    return full_like(x, 0, dtype)


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
    return ops.uniform(_sizes(shape), 0.0, 1.0, dtype, generator, device, stream)


def randn(
    *shape: int | Sequence[int], dtype: DType | None = None, generator: Generator | None = None, device: DeviceLike = None, stream: Stream | None = None
) -> Tensor:
    """Random numbers with mean 0 and standard deviation 1; the sizes as in :func:`rand`.  See :func:`clika_runtime.normal`."""
    return ops.normal(_sizes(shape), 0.0, 1.0, dtype, generator, device, stream)


def rand_like(x: Tensor, dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    """Random numbers from [0, 1) with the shape and device of a tensor, and its dtype unless another is given."""
    return ops.uniform(x.shape, 0.0, 1.0, x.dtype if dtype is None else dtype, generator, x.device)


def randn_like(x: Tensor, dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    """The same as :func:`rand_like` with mean 0 and standard deviation 1."""
    return ops.normal(x.shape, 0.0, 1.0, x.dtype if dtype is None else dtype, generator, x.device)


def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Tensor:
    """:func:`clika_runtime.uniform` written over x.  Returns x."""
    return x.copy_(ops.uniform(x.shape, low, high, x.dtype, generator, x.device))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """:func:`clika_runtime.normal` written over x.  Returns x."""
    return x.copy_(ops.normal(x.shape, mean, std, x.dtype, generator, x.device))
