"""Creation beyond the operator table, and which devices there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import ops
from ._enums import float32
from ._library import check, lib
from .devices import Device, DeviceLike, device_text
from .dtype import DType
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
