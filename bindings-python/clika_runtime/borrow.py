"""Tensors over the memory of NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._enums import BY_NUMPY_NAME, ClikaRTTypeError, ClikaRTValueError
from ._library import NULL, ffi, lent, let_go, lib, next_token, returned
from .tensor import Tensor, wrap

if TYPE_CHECKING:
    import numpy as np


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor over the array's memory, without a copy; the array lives as long as it is needed.

    What operators write in place (``add_``) appears in the array once they ran: :func:`clika_runtime.synchronize` waits for
    that.  What you write there is seen by operators that run after it.  Writing while work that uses the memory is pending
    is a race.  Arrays that overlap are kept in order with each other.  A read-only array gives a read-only tensor.

    Raises:
        TypeError: no array, or a dtype that does not exist here.
        ValueError: strides that are not whole elements, or an address that is not aligned for the dtype.
    """
    import numpy as np

    if returned:
        let_go()
    if not isinstance(array, np.ndarray):
        raise ClikaRTTypeError(f"from_numpy: expected a NumPy array, got {type(array).__name__}; tensor() copies other things")
    dtype = BY_NUMPY_NAME.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        raise ClikaRTTypeError(f"from_numpy: dtype {array.dtype.str if dtype else array.dtype} has no equivalent here")
    if any(stride % array.itemsize for stride in array.strides):
        raise ClikaRTValueError(f"from_numpy: strides {array.strides} are no multiples of the element size {array.itemsize}; tensor() copies")
    token = next_token()
    shape, strides = ffi.new("int64_t[]", array.shape), ffi.new("int64_t[]", [s // array.itemsize for s in array.strides])
    what = ffi.new("clikart_borrow*")
    what.struct_size = ffi.sizeof("clikart_borrow")
    what.data = ffi.cast("void*", array.__array_interface__["data"][0] if array.size else 0)
    what.shape, what.strides, what.rank = shape, strides if array.size else NULL, array.ndim
    what.dtype, what.writable, what.token = dtype.code, array.flags.writeable, token
    lent[token] = array
    try:
        return wrap(lib.clikart_tensor_borrow(what), "from_numpy", "tensor_borrow")
    except BaseException:
        del lent[token]
        raise
