"""The tensor: a handle to a value that may still be on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._enums import BY_NUMPY_NAME, ClikaRTRuntimeError, ClikaRTTypeError, bfloat16
from ._library import check_pointer, ffi, lib, raise_error
from .dtype import DType

if TYPE_CHECKING:
    import numpy as np

    from ._convert import TensorLike

# NumPy is imported where it is used: it takes longer to import than all the rest.

_release = lib.clikart_tensor_release
#: How long a wait lasts before Python may look at signals, so that Ctrl-C ends it.
_WAIT_SLICE_NS = 50_000_000


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple of ints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"clika_runtime.Size({list(self)})"

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        count = 1
        for size in self:
            count *= size
        return count


def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    import numpy as np

    if dtype is bfloat16:
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return narrow
    return np.dtype(dtype.name)


class _HostMemory:
    """What NumPy needs to see a tensor's memory; keeps the tensor alive as long as an array looks at it."""

    __slots__ = ("__array_interface__", "_handle")

    def __init__(self, tensor: Tensor, dtype: str, address: int) -> None:
        lib.clikart_tensor_retain(tensor._handle)  # a reference of its own: a parameter may take another value
        self._handle = ffi.gc(ffi.cast("clikart_tensor*", tensor._handle), _release)
        itemsize = tensor.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": dtype,
            "data": (address, False),
            "strides": tuple(s * itemsize for s in tensor.stride()),
        }


class Tensor:
    """A multi-dimensional array of one dtype.

    Operators return at once; what reads a value (``numpy``, ``item``, ``tolist``, ``repr``, ``bool``) waits for it.
    Make one with :func:`clika_runtime.tensor` or an operator such as :func:`clika_runtime.full`.
    """

    __slots__ = ("__weakref__", "_handle")
    #: NumPy's operators leave a mixed expression to this class.
    __array_priority__ = 1000

    _handle: Any

    def __init__(self, *_: object) -> None:
        raise ClikaRTTypeError("Tensor: use clika_runtime.tensor(array) to make a tensor of an array")

    def __del__(self) -> None:
        try:
            handle = self._handle
        except AttributeError:  # __init__ refused
            return
        _release(handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor, (self.numpy(),)

    # ---- metadata: never waits

    @property
    def dtype(self) -> DType:
        return DType.of_code(lib.clikart_tensor_dtype(self._handle))

    @property
    def shape(self) -> Size:
        return Size(lib.clikart_tensor_shape(self._handle)[0 : self.ndim])

    @property
    def ndim(self) -> int:
        rank: int = lib.clikart_tensor_rank(self._handle)
        return rank

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def numel(self) -> int:
        """The number of elements."""
        count: int = lib.clikart_tensor_numel(self._handle)
        return count

    def stride(self) -> tuple[int, ...]:
        """The distance between neighbours along each dimension, in elements."""
        return tuple(lib.clikart_tensor_strides(self._handle)[0 : self.ndim])

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        contiguous: bool = lib.clikart_tensor_is_contiguous(self._handle)
        return contiguous

    # ---- values: each waits

    def _settle(self) -> None:
        while (state := lib.clikart_tensor_wait(self._handle, _WAIT_SLICE_NS)) == 0:
            pass
        if state < 0:
            raise_error()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The tensor's memory as a NumPy array, without a copy.

        Also waits for operators that still read the memory, because the array may be written to.

        Raises:
            ClikaRTError: the tensor stands for a value while a graph is recorded, or its computation failed.
        """
        import numpy as np

        self._settle()
        address = int(ffi.cast("uintptr_t", check_pointer(lib.clikart_tensor_data(self._handle))))
        dtype = _numpy_dtype(self.dtype)
        if dtype.kind == "V":  # NumPy's interface cannot name ml_dtypes' types
            return np.asarray(_HostMemory(self, f"<u{dtype.itemsize}", address)).view(dtype)
        return np.asarray(_HostMemory(self, dtype.str, address))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        options.pop("stream", None)
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def item(self) -> bool | int | float:
        """The value of a tensor with one element.

        Raises:
            RuntimeError: more or fewer elements.
        """
        if self.numel() != 1:
            raise ClikaRTRuntimeError(f"item: needs one element, got shape {list(self.shape)}")
        value: bool | int | float = self.numpy().item()
        return value

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ClikaRTRuntimeError(f"bool: the truth of {self.numel()} elements is ambiguous, shape {list(self.shape)}")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        if lib.clikart_tensor_is_stand_in(self._handle):
            return f"{type(self).__name__}(stands for a value, shape={list(self.shape)}, dtype={self.dtype.name})"
        import numpy as np

        values = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        return f"{type(self).__name__}({values}, dtype={self.dtype.name})"

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ClikaRTTypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    # ---- operators

    def __add__(self, other: TensorLike) -> Tensor:
        return _ops.add(self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return _ops.add(other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return _ops.sub(self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return _ops.sub(other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return _ops.mul(self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return _ops.mul(other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return _ops.div(self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return _ops.div(other, self)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return _ops.matmul(self, other)

    def __neg__(self) -> Tensor:
        return _ops.mul(self, -1)

    def reshape(self, *shape: int) -> Tensor:
        """See :func:`clika_runtime.reshape`."""
        return _ops.reshape(self, shape)

    def permute(self, *dims: int) -> Tensor:
        """See :func:`clika_runtime.permute`."""
        return _ops.permute(self, dims)


_new = Tensor.__new__


def wrap(handle: Any) -> Tensor:
    """A tensor that owns the handle; raises the thread's error when the handle is NULL."""
    if not handle:
        raise_error()
    tensor = _new(Tensor)
    tensor._handle = handle
    return tensor


def tensor(data: Any, dtype: DType | None = None) -> Tensor:
    """A tensor with a copy of an array, a nested list or a number.

    Args:
        data: a NumPy array, whose dtype is kept, or what NumPy can make an array of; Python floats become float32.
        dtype: the element type, instead.

    Raises:
        TypeError: elements that are no numbers, or of a dtype that does not exist here.
        ValueError: more than 16 dimensions.

    Example:
        >>> crt.tensor([[1, 2], [3, 4]]).shape
        clika_runtime.Size([2, 2])
    """
    import numpy as np

    if isinstance(data, Tensor):
        data = data.numpy()
    array = np.asarray(data)
    if dtype is not None:
        array = array.astype(_numpy_dtype(dtype), copy=False)
    elif array.dtype == np.float64 and not isinstance(data, (np.ndarray, np.generic)):
        array = array.astype(np.float32)
    known = BY_NUMPY_NAME.get(array.dtype.name)
    if known is None:
        raise ClikaRTTypeError(f"tensor: dtype {array.dtype} has no equivalent here")
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    address = ffi.cast("void*", array.__array_interface__["data"][0])
    return wrap(lib.clikart_tensor_from_data(address, known.code, array.shape or ffi.NULL, array.ndim))


from . import ops as _ops  # noqa: E402  (ops needs the class above)
