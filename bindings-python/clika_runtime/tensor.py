"""The tensor: a handle to a value that may still be on its way."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._enums import BY_NUMPY_NAME, ClikaRTError, ClikaRTNotImplementedError, ClikaRTRuntimeError, ClikaRTTypeError, bfloat16
from ._library import WAIT_SLICE_NS, attend, check, check_pointer, ffi, let_go, lib, origins, raise_error, returned, text, wait
from .devices import Device
from .dtype import DType
from .scopes import apply, scoped
from .streams import Stream, wait_seconds
from .streams import wrap as _wrap_stream

if TYPE_CHECKING:
    import numpy as np

    from ._convert import TensorLike
    from .random import Generator

# NumPy is imported where it is used: it takes longer to import than all the rest.

_release = lib.clikart_tensor_release


def release(handle: Any) -> None:
    """Gives up a handle, and what that makes superfluous."""
    _release(handle)
    if returned:
        let_go()


#: Where the elements of a small read lie: struct's codes of those it knows.
_CODES = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float16": "e", "float32": "f", "float64": "d"}
_CODES |= {f"u{name}": code.upper() for name, code in _CODES.items() if name.startswith("int")}


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
    """What NumPy needs to see a tensor's memory; keeps it alive as long as an array looks at it."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, handle: Any, typestr: str) -> None:
        lib.clikart_tensor_retain(handle)  # a reference of its own: a parameter may take another value
        self._owner = ffi.gc(ffi.cast("clikart_tensor*", handle), release)
        address = int(ffi.cast("uintptr_t", check_pointer(lib.clikart_tensor_data(handle))))
        itemsize = DType.of_code(lib.clikart_tensor_dtype(handle)).itemsize
        shape, strides = _dims(handle, lib.clikart_tensor_shape), _dims(handle, lib.clikart_tensor_strides)
        if 0 in shape:
            strides = (0,) * len(shape)  # of no consequence, and too large for NumPy perhaps
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "data": (address, not lib.clikart_tensor_is_writable(handle)),
            "strides": tuple(s * itemsize for s in strides),
        }


def _dims(handle: Any, which: Any) -> tuple[int, ...]:
    return tuple(check_pointer(which(handle))[0 : lib.clikart_tensor_rank(handle)])


def _wait_writable(handle: Any) -> None:
    """The slices grow after a while: work that reads the tensor may keep coming."""
    slices, timeout = 0, WAIT_SLICE_NS
    while (state := lib.clikart_tensor_wait_writable(handle, timeout)) == 0:
        slices += 1
        if slices > 40:
            timeout += timeout // 4
    if state < 0:
        raise_error()


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
            handle, self._handle = self._handle, ffi.NULL  # the garbage collector may still let others look at us
        except AttributeError:  # __init__ refused
            return
        _release(handle)  # release(), without the call
        if returned:
            let_go()

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor, (self._read("pickle"),)

    # ---- metadata: never waits, except that the size of a result that depends on data waits for its operator

    @property
    def dtype(self) -> DType:
        return DType.of_code(lib.clikart_tensor_dtype(self._handle))

    @property
    def shape(self) -> Size:
        self._settle_size()
        return Size(_dims(self._handle, lib.clikart_tensor_shape))

    @property
    def ndim(self) -> int:
        rank: int = lib.clikart_tensor_rank(self._handle)
        return rank

    @property
    def device(self) -> Device:
        return Device(text(lib.clikart_tensor_device(self._handle)))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return (self.numel() * self.dtype.bits + 7) // 8

    def numel(self) -> int:
        """The number of elements."""
        self._settle_size()
        count: int = lib.clikart_tensor_numel(self._handle)
        return count

    def stride(self) -> tuple[int, ...]:
        """The distance between neighbours along each dimension, in elements."""
        return _dims(self._handle, lib.clikart_tensor_strides)

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        contiguous: bool = lib.clikart_tensor_is_contiguous(self._handle)
        return contiguous

    def _settle_size(self) -> None:
        if not lib.clikart_tensor_size_known(self._handle):
            wait(lib.clikart_tensor_wait, self._handle)

    # ---- where the value is: never waits

    @property
    def stream(self) -> Stream:
        """The stream that the tensor's operator rode; the thread's own for a tensor that was born with data."""
        return _wrap_stream(lib.clikart_tensor_stream(self._handle))

    @property
    def status(self) -> str:
        """``"Unscheduled"``: nothing computes it yet (deferred under tracing, standing in for a value, or without storage);
        ``"Evaluated"``: submitted or computed; ``"Available"``: born with data."""
        return ("Unscheduled", "Evaluated", "Available")[check(lib.clikart_tensor_status(self._handle))]

    def is_ready(self) -> bool:
        """Whether reading would not wait."""
        return check(lib.clikart_tensor_is_ready(self._handle)) == 1

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the value, at most ``timeout`` seconds; False when it is not there then.

        Raises:
            ClikaRTError: its computation failed.
        """
        return wait_seconds(lib.clikart_tensor_wait, self._handle, timeout)

    # ---- values: each waits

    def _settle(self) -> None:
        wait(lib.clikart_tensor_wait, self._handle)

    def _check_readable(self, who: str) -> None:
        if scoped:
            apply()
        if lib.clikart_get_mode() == lib.CLIKART_MODE_TRACING:
            raise ClikaRTError(f"{who}: a value cannot be read under tracing(); eval() it after the scope, or compute it under eager()")

    def _read(self, who: str) -> np.ndarray[Any, Any]:
        """A copy of the values, taken while nobody writes them."""
        import numpy as np

        self._check_readable(who)
        handle = self._handle  # once: a parameter may take another value meanwhile
        wait(lib.clikart_tensor_wait, handle)
        dtype = _numpy_dtype(DType.of_code(lib.clikart_tensor_dtype(handle)))
        array = np.empty(_dims(handle, lib.clikart_tensor_shape), dtype)
        check(lib.clikart_tensor_copy_to(handle, ffi.cast("void*", array.ctypes.data), array.nbytes))
        return array

    def numpy(self) -> np.ndarray[Any, Any]:
        """The tensor's memory as a NumPy array, without a copy.

        Waits for the value, and for operators that read the memory now, because the array may be written to.  What you
        write there while operators that were called later still read it reaches them or not: wait for their results first.

        Raises:
            ClikaRTError: the tensor stands for a value while a graph is recorded, has no storage, is read under
                ``tracing()``, or its computation failed.
        """
        import numpy as np

        self._check_readable("numpy")
        handle = self._handle  # once: a parameter may take another value meanwhile
        _wait_writable(handle)
        dtype = _numpy_dtype(DType.of_code(lib.clikart_tensor_dtype(handle)))
        if dtype.kind == "V":  # NumPy's interface cannot name ml_dtypes' types
            return np.asarray(_HostMemory(handle, f"<u{dtype.itemsize}")).view(dtype)
        return np.asarray(_HostMemory(handle, dtype.str))

    def bytes(self) -> bytes:
        """The bytes of all elements in row-major order."""
        return self._read("bytes").tobytes()

    __bytes__ = bytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.array(self.numpy() if copy is False or copy is None else self._read("__array__"), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        options.pop("stream", None)
        array = self.numpy()
        if any(stride < 0 for stride in array.strides):
            array = array.copy()  # some consumers take negative strides for corruption and abort
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def item(self) -> bool | int | float:
        """The value of a tensor with one element.

        Raises:
            RuntimeError: more or fewer elements.
        """
        self._check_readable("item")
        if self.numel() != 1:
            raise ClikaRTRuntimeError(f"item: needs one element, got shape {list(self.shape)}")
        self._settle()
        dtype = self.dtype
        raw = bytearray(dtype.itemsize)
        check(lib.clikart_tensor_copy_to(self._handle, ffi.from_buffer(raw), len(raw)))
        if dtype is bfloat16:
            raw[:0] = b"\0\0"  # the upper half of a float32
        value: bool | int | float = struct.unpack(f"={_CODES.get(dtype.name, 'f')}", raw)[0]
        return value

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for a 0-d tensor."""
        return self._read("tolist").tolist()

    def __bool__(self) -> bool:
        self._check_readable("bool")
        if self.numel() != 1:
            raise ClikaRTRuntimeError(f"bool: the truth of {self.numel()} elements is ambiguous, shape {list(self.shape)}")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        if scoped:
            apply()
        name = type(self).__name__
        if lib.clikart_tensor_is_stand_in(self._handle):
            return f"{name}(stands for a value, shape={list(self.shape)}, dtype={self.dtype.name})"
        if self.device.type == "meta":
            return f"{name}(without storage, shape={list(self.shape)}, dtype={self.dtype.name}, device=meta)"
        if lib.clikart_get_mode() == lib.CLIKART_MODE_TRACING:
            return f"{name}({self.status.lower()}, shape={list(self.shape)}, dtype={self.dtype.name})"
        import numpy as np

        values = np.array2string(self._read("repr"), separator=", ", prefix="Tensor(")
        return f"{name}({values}, dtype={self.dtype.name})"

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ClikaRTTypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    # ---- operators

    if TYPE_CHECKING:  # the operators themselves, see below

        def __add__(self, other: TensorLike) -> Tensor: ...
        def __sub__(self, other: TensorLike) -> Tensor: ...
        def __mul__(self, other: TensorLike) -> Tensor: ...
        def __truediv__(self, other: TensorLike) -> Tensor: ...
        def __matmul__(self, other: TensorLike) -> Tensor: ...

    def __radd__(self, other: TensorLike) -> Tensor:
        return _ops.add(other, self)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return _ops.sub(other, self)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return _ops.mul(other, self)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return _ops.div(other, self)

    def __iadd__(self, other: TensorLike) -> Tensor:
        return _ops.add_(self, other)

    def __isub__(self, other: TensorLike) -> Tensor:
        return _ops.sub_(self, other)

    def __imul__(self, other: TensorLike) -> Tensor:
        return _ops.mul_(self, other)

    def __itruediv__(self, other: TensorLike) -> Tensor:
        return _ops.div_(self, other)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return _ops.matmul(other, self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise ClikaRTNotImplementedError("==: comparing tensors is not part of this version; compare t.numpy()")

    __hash__ = object.__hash__

    def __neg__(self) -> Tensor:
        return _ops.mul(self, -1)

    # ---- in place: what was called before still sees the old values

    def add_(self, other: TensorLike) -> Tensor:
        """See :func:`clika_runtime.add_`."""
        return _ops.add_(self, other)

    def sub_(self, other: TensorLike) -> Tensor:
        """See :func:`clika_runtime.sub_`."""
        return _ops.sub_(self, other)

    def mul_(self, other: TensorLike) -> Tensor:
        """See :func:`clika_runtime.mul_`."""
        return _ops.mul_(self, other)

    def div_(self, other: TensorLike) -> Tensor:
        """See :func:`clika_runtime.div_`."""
        return _ops.div_(self, other)

    def relu_(self) -> Tensor:
        """See :func:`clika_runtime.relu_`."""
        return _ops.relu_(self)

    def exp_(self) -> Tensor:
        """See :func:`clika_runtime.exp_`."""
        return _ops.exp_(self)

    def tanh_(self) -> Tensor:
        """See :func:`clika_runtime.tanh_`."""
        return _ops.tanh_(self)

    def abs_(self) -> Tensor:
        """See :func:`clika_runtime.abs_`."""
        return _ops.abs_(self)

    def copy_(self, other: TensorLike) -> Tensor:
        """Copies a tensor or a number, broadcast and converted, over this one."""
        from ._convert import operand

        if scoped:
            apply()
        status = lib.clikart_copy_(self._handle, operand(other))
        if origins:
            attend()
        check(status)
        return self

    fill_ = copy_

    def zero_(self) -> Tensor:
        """Fills the tensor with zeros."""
        return self.copy_(0)

    def uniform_(self, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Tensor:
        """See :func:`clika_runtime.uniform_`."""
        from .creation import uniform_

        return uniform_(self, low, high, generator)

    def normal_(self, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
        """See :func:`clika_runtime.normal_`."""
        from .creation import normal_

        return normal_(self, mean, std, generator)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """See :func:`clika_runtime.reshape`; the sizes one by one or as one sequence."""
        return _ops.reshape(self, _unpacked(shape))

    def permute(self, *dims: int | Sequence[int]) -> Tensor:
        """See :func:`clika_runtime.permute`; the dimensions one by one or as one sequence."""
        return _ops.permute(self, _unpacked(dims))


def _unpacked(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


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
        data = data._read("tensor")
    array = np.asarray(data)
    if array.dtype.name not in BY_NUMPY_NAME:
        raise ClikaRTTypeError(f"tensor: dtype {array.dtype} has no equivalent here")
    if dtype is not None:
        if not isinstance(dtype, DType):
            raise ClikaRTTypeError(f"tensor: expected a dtype such as clika_runtime.float32, got {dtype!r}")
        array = array.astype(_numpy_dtype(dtype), copy=False)
    elif array.dtype == np.float64 and not isinstance(data, (np.ndarray, np.generic)):
        array = array.astype(np.float32)
    known = BY_NUMPY_NAME[array.dtype.name]
    if scoped:
        apply()
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    address = ffi.cast("void*", array.__array_interface__["data"][0])
    return wrap(lib.clikart_tensor_from_data(address, known.code, array.shape or ffi.NULL, array.ndim))


from . import ops as _ops  # noqa: E402  (ops needs the class above)

# Without a method of Python in between, which would take as long as the rest of the way into the library.
for _name, _operator in (("add", _ops.add), ("sub", _ops.sub), ("mul", _ops.mul), ("truediv", _ops.div), ("matmul", _ops.matmul)):
    setattr(Tensor, f"__{_name}__", _operator)
