"""Creation beyond the operator table, and which devices there are."""

from __future__ import annotations

from collections.abc import Sequence

from . import ops
from ._enums import float32
from ._library import check, lib
from .devices import Device, DeviceLike, device_text
from .dtype import DType
from .streams import Stream
from .tensor import Tensor


def ones(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None, stream: Stream | None = None) -> Tensor:
    """A tensor of ones; see :func:`clika_runtime.full`."""
    return ops.full(shape, 1, dtype, device, stream)


def zeros(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None, stream: Stream | None = None) -> Tensor:
    """A tensor of zeros; see :func:`clika_runtime.full`."""
    return ops.full(shape, 0, dtype, device, stream)


def is_available(device: str | Device) -> bool:
    """Whether tensors can live on a device ("cpu", "cuda:0", ...) in this process.

    Raises:
        ValueError: the text names no device.
    """
    return check(lib.clikart_is_available(device_text(device, "is_available"))) == 1
