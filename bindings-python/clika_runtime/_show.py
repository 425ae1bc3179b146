"""How tensors are shown as text."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from ._enums import int16
from ._library import check, ffi, lib, wait
from .dtype import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

    from .tensor import Tensor


def values_text(tensor: Tensor, prefix: str) -> str:
    """The values as NumPy prints them, with its print options; of a big tensor the edges, and only these are read."""
    import numpy as np

    options: Any = np.get_printoptions()
    edge = int(options["edgeitems"])
    summarized = tensor.numel() > options["threshold"]
    values = _edges(tensor, edge) if summarized else tensor._read("repr")
    if values.dtype.isbuiltin != 1:  # NumPy knows no digits of ml_dtypes' types
        values = values.astype(np.int8 if tensor.dtype.is_packed else np.float32)
    text = np.array2string(values, separator=", ", prefix=prefix, suffix=",", threshold=0 if summarized else options["threshold"])
    shape = tensor.shape
    return f"{text}, shape={list(shape)}" if summarized or (0 in shape and shape != (0,)) else text


def _edges(tensor: Tensor, edge: int) -> np.ndarray[Any, Any]:
    """The values, where long dimensions are cut to both ends and one element between, which stands for what is left out."""
    import numpy as np

    if tensor.dtype.is_packed:  # only all of them can be looked at
        from .ops import cast

        return _edges(cast(tensor, int16), edge)
    handle = tensor._handle  # once: a parameter may take another value meanwhile
    wait(lib.clikart_tensor_wait, handle)
    shape = tensor.shape
    values = np.zeros([min(size, 2 * edge + 1) for size in shape], numpy_dtype(tensor.dtype))
    # For each dimension: where a piece begins there and in the result, and its length.
    pieces = [[(0, 0, size)] if size <= 2 * edge else [(0, 0, edge), (size - edge, edge + 1, edge)] for size in shape]
    for corner in product(*pieces):
        starts, places, sizes = zip(*corner, strict=True)
        part = np.empty(sizes, values.dtype)
        check(lib.clikart_tensor_copy_box_to(handle, starts, sizes, ffi.cast("void*", part.ctypes.data), part.nbytes))
        values[tuple(slice(place, place + size) for place, size in zip(places, sizes, strict=True))] = part
    return values
