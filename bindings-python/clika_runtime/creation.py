"""Creation beyond the operator table, and which devices there are."""

from __future__ import annotations

from collections.abc import Sequence

from . import ops
from ._convert import DeviceLike
from ._enums import float32
from ._library import c_text, check, lib
from .dtype import DType
from .tensor import Tensor


def ones(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None) -> Tensor:
    """A tensor of ones; see :func:`clika_runtime.full`."""
    return ops.full(shape, 1, dtype, device)


def zeros(shape: int | Sequence[int], dtype: DType = float32, device: DeviceLike = None) -> Tensor:
    """A tensor of zeros; see :func:`clika_runtime.full`."""
    return ops.full(shape, 0, dtype, device)


def is_available(device: str) -> bool:
    """Whether tensors can live on a device ("cpu", "cuda:0", ...) in this process.

    Raises:
        ValueError: the text names no device.
    """
    return check(lib.clikart_is_available(c_text(device, "is_available"))) == 1
