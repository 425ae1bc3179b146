"""The tensor: a handle to a value that may still be on its way."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from . import _shorthands
from ._enums import (
    BY_NUMPY_NAME,
    ClikaRTError,
    ClikaRTMemoryError,
    ClikaRTOverflowError,
    ClikaRTRuntimeError,
    ClikaRTTypeError,
    ClikaRTValueError,
    bfloat16,
    int8,
    uint8,
)
from ._library import WAIT_SLICE_NS, attend, check, check_pointer, ffi, let_go, lib, origins, raise_error, returned, text, wait
from ._methods import DIRECT, SPREADING, Methods
from ._operators import Operators, install
from ._refused import refused, whole_numbers
from ._shorthands import Shorthands, spreading
from .devices import Device
from .dtype import DType, numpy_dtype
from .scopes import apply, scoped
from .sizes import captures, sizes_of
from .streams import Stream, wait_seconds
from .streams import wrap as _wrap_stream

if TYPE_CHECKING:
    import numpy as np

    from ._hints import Data, Index, TensorLike
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


def _beyond_numpy(who: str, shape: tuple[int, ...], error: Exception) -> ClikaRTError:
    """For a shape that NumPy has no arrays of, empty ones with a huge size among them."""
    kind = ClikaRTMemoryError if isinstance(error, MemoryError) else ClikaRTValueError
    return kind(f"{who}: NumPy makes no array of shape {list(shape)}: {error}")


def _asked(size: Any) -> Any:
    if origins:  # a graph that is recorded holds for this size only
        attend()
    return size


def _dims(handle: Any, which: Any) -> tuple[int, ...]:
    return tuple(_asked(check_pointer(which(handle)))[0 : lib.clikart_tensor_rank(handle)])


def wait_writable(handle: Any, who: str) -> None:
    """Waits until the memory may be written to.  The slices grow after a while: work that reads the tensor may keep coming."""
    slices, timeout = 0, WAIT_SLICE_NS
    while (state := lib.clikart_tensor_wait_writable(handle, timeout)) == 0:
        slices += 1
        if slices > 40:
            timeout += timeout // 4
    if state < 0:
        raise_error(who, "wait")
    if origins:  # a graph that is recorded may have been given up here
        attend()


class Tensor(Operators, Shorthands, Methods):
    """A multi-dimensional array of one dtype.

    Operators return at once; what reads a value (``numpy``, ``item``, ``tolist``, ``repr``, ``bool``) waits for it.
    Make one with :func:`clika_runtime.tensor` or an operator such as :func:`clika_runtime.full`.
    """

    __slots__ = ("__weakref__", "_handle")
    __hash__ = Operators.__hash__

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
        return _of_bytes, (self.bytes(), self.dtype, tuple(self.shape))

    def __copy__(self) -> Tensor:
        return _ops.copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return _ops.copy(self)

    # ---- metadata: never waits, except that the size of a result that depends on data waits for its operator

    @property
    def dtype(self) -> DType:
        return DType.of_code(lib.clikart_tensor_dtype(self._handle))

    @property
    def shape(self) -> Size:
        self._settle_size()
        return Size((sizes_of(self._handle) if captures else None) or _dims(self._handle, lib.clikart_tensor_shape))

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
        return self.shape.numel()

    if TYPE_CHECKING:

        @overload
        def stride(self) -> tuple[int, ...]: ...
        @overload
        def stride(self, dim: int) -> int: ...

    def stride(self, dim: int | None = None) -> Any:
        """The distance between neighbours along each dimension, or one, in elements."""
        strides = _dims(self._handle, lib.clikart_tensor_strides)
        return strides if dim is None else strides[self._dim(dim, "stride")]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype.is_floating_point

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return bool(_asked(lib.clikart_tensor_is_contiguous(self._handle)))

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

    def _settle(self, who: str = "") -> None:
        wait(lib.clikart_tensor_wait, self._handle, who=who)

    def _check_readable(self, who: str) -> None:
        if scoped:
            apply()
        if lib.clikart_get_mode() == lib.CLIKART_MODE_TRACING:
            raise ClikaRTRuntimeError(f"{who}: a value cannot be read under tracing(); eval() it after the scope, or compute it under eager()")

    def _read(self, who: str) -> np.ndarray[Any, Any]:
        """A copy of the values, taken while nobody writes them."""
        import numpy as np

        self._check_readable(who)
        handle = self._handle  # once: a parameter may take another value meanwhile
        wait(lib.clikart_tensor_wait, handle, who=who)
        own = DType.of_code(lib.clikart_tensor_dtype(handle))
        dtype = numpy_dtype(own)
        if own.is_packed:
            return _ops.cast(self, _unpacked(own))._read(who).astype(dtype)
        shape = _dims(handle, lib.clikart_tensor_shape)
        try:
            array = np.empty(shape, dtype)
        except (ValueError, MemoryError) as error:
            raise _beyond_numpy(who, shape, error) from None
        check(lib.clikart_tensor_copy_to(handle, ffi.cast("void*", array.ctypes.data), array.nbytes))
        return array

    def numpy(self) -> np.ndarray[Any, Any]:
        """The tensor's memory as a NumPy array, without a copy; of int4 and uint4, which NumPy has a byte each for, a copy.

        Waits for the value, and for operators that read the memory now, because the array may be written to.  What you
        write there while operators that were called later still read it reaches them or not: wait for their results first.

        Raises:
            ClikaRTError: the tensor stands for a value while a graph is recorded, has no storage, is read under
                ``tracing()``, or its computation failed.
        """
        import numpy as np

        self._check_readable("numpy")
        if self.dtype.is_packed:
            return self._read("numpy")
        handle = self._handle  # once: a parameter may take another value meanwhile
        wait_writable(handle, "numpy")
        dtype = numpy_dtype(DType.of_code(lib.clikart_tensor_dtype(handle)))
        memory = _HostMemory(handle, dtype.str if dtype.isbuiltin == 1 else f"<u{dtype.itemsize}")  # it cannot name ml_dtypes' types
        try:
            return np.asarray(memory).view(dtype)
        except ValueError as error:
            raise _beyond_numpy("numpy", self.shape, error) from None

    def bytes(self) -> bytes:
        """The bytes of all elements in row-major order."""
        if not self.dtype.is_packed:
            return self._read("bytes").tobytes()
        self._check_readable("bytes")
        self._settle("bytes")
        raw = bytearray(self.nbytes)
        check(lib.clikart_tensor_copy_to(self._handle, ffi.from_buffer(raw), len(raw)))
        return b"" + raw

    __bytes__ = bytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.array(self.numpy() if copy is False or copy is None else self._read("__array__"), dtype=dtype, copy=copy)

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """NumPy's functions see arrays; it would call methods that have the same names."""
        return function(*_as_arrays(args), **_as_arrays(kwargs))

    def data_ptr(self) -> int:
        """The address of the first element; waits as :meth:`numpy` does."""
        self._check_readable("data_ptr")
        handle = self._handle  # once: a parameter may take another value meanwhile
        wait_writable(handle, "data_ptr")
        return int(ffi.cast("uintptr_t", check_pointer(lib.clikart_tensor_data(handle))))

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory for another library, which calls this in its ``from_dlpack``; waits as :meth:`numpy` does.

        Raises:
            BufferError: it cannot be handed out in the way that was asked for.
        """
        from .dlpack import export

        return export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device.type != "cpu":
            raise ClikaRTRuntimeError(f"__dlpack_device__: the tensor is on device {self.device} and has no memory that others could use")
        return (1, 0)

    def item(self) -> Any:
        """The value of a tensor with one element.

        Raises:
            RuntimeError: more or fewer elements.
        """
        return self._value("item")

    def _value(self, who: str) -> Any:
        """The value of the only element."""
        self._check_readable(who)
        if self.numel() != 1:
            raise ClikaRTRuntimeError(f"{who}: needs one element, got shape {list(self.shape)}")
        self._settle(who)
        dtype = self.dtype
        if dtype.is_packed:
            return _ops.cast(self, _unpacked(dtype))._value(who)
        raw = bytearray(dtype.itemsize)
        check(lib.clikart_tensor_copy_to(self._handle, ffi.from_buffer(raw), len(raw)))
        if dtype is bfloat16:
            raw[:0] = b"\0\0"  # the upper half of a float32
        elif dtype.name not in _CODES:
            import numpy as np

            number = np.frombuffer(raw, numpy_dtype(dtype))[0]
            return float(number) if dtype.is_floating_point else number.item()
        value: bool | int | float = struct.unpack(f"={_CODES.get(dtype.name, 'f')}", raw)[0]
        return value

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for a 0-d tensor."""
        return self._read("tolist").tolist()

    def __bool__(self) -> bool:
        self._check_readable("bool")
        if self.numel() != 1:
            raise ClikaRTRuntimeError(f"bool: the truth of {self.numel()} elements is ambiguous, shape {list(self.shape)}")
        return bool(self._value("bool"))

    def __float__(self) -> float:
        return float(self._value("float"))

    def __int__(self) -> int:
        return int(self._value("int"))

    def __complex__(self) -> complex:
        return complex(self._value("complex"))

    def __index__(self) -> int:
        if self.ndim or self.dtype.is_floating_point or self.dtype.name == "bool":
            raise ClikaRTTypeError(f"index: only a 0-d tensor of integers can be an index, got {self.dtype.name} {list(self.shape)}")
        return int(self._value("index"))

    def __format__(self, spec: str) -> str:
        if spec and self.numel() != 1:
            raise ClikaRTTypeError(f"format: {spec!r} formats one element, got shape {list(self.shape)}")
        return format(self.item(), spec) if spec or (self.ndim == 0 and self._text_without_values() is None) else str(self)

    def _text_without_values(self) -> str | None:
        """What is shown of a tensor that has no value now."""
        if scoped:
            apply()
        name = type(self).__name__
        if lib.clikart_tensor_is_stand_in(self._handle):
            return f"{name}(stands for a value, shape={list(self.shape)}, dtype={self.dtype.name})"
        if self.device.type == "meta":
            return f"{name}(without storage, shape={list(self.shape)}, dtype={self.dtype.name}, device=meta)"
        if lib.clikart_get_mode() == lib.CLIKART_MODE_TRACING:
            return f"{name}({self.status.lower()}, shape={list(self.shape)}, dtype={self.dtype.name})"
        return None

    def __repr__(self) -> str:
        if (without := self._text_without_values()) is not None:
            return without
        from ._show import values_text

        name = type(self).__name__
        return f"{name}({values_text(self, name + '(')}, dtype={self.dtype.name})"

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ClikaRTTypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """The tensor's parts along its first dimension, which are views."""
        if self.ndim == 0:
            raise ClikaRTTypeError("iter: a 0-d tensor has no parts")
        return (_ops.select(self, 0, i) for i in range(self.shape[0]))

    def __contains__(self, value: object) -> bool:
        """Whether an element equals the value."""
        equal: Any = self == value
        return equal is not False and bool(_ops.sum(equal))

    def __getitem__(self, key: Index) -> Tensor:
        """``x[key]``, by NumPy's rules: a view, or with masks or arrays of integers a copy.

        Raises:
            IndexError: out of range, too many, or nothing that can be an index.
        """
        return _indexing.get(self, key)

    def __setitem__(self, key: Index, value: Data) -> None:
        """Writes a number, a tensor or an array, broadcast and converted, to what ``x[key]`` names.

        Raises:
            IndexError: as above.
            ValueError: the value's shape does not broadcast.
        """
        _indexing.put(self, key, value)

    # ---- in place: what was called before still sees the old values

    def copy_(self, other: TensorLike) -> Tensor:
        """Copies a tensor, a number or an array, broadcast and converted, over this one."""
        return self._copy("copy_", other)

    def fill_(self, value: TensorLike) -> Tensor:
        """See :meth:`copy_`."""
        return self._copy("fill_", value)

    def _copy(self, who: str, other: TensorLike) -> Tensor:
        if scoped:
            apply()
        try:
            status = lib.clikart_copy_(self._handle, other._handle if type(other) is Tensor else operand(other))
        except (TypeError, OverflowError) as error:
            raise refused(error, who, "Tensor value" if who == "fill_" else "Tensor other", other)  # noqa: B904
        if origins:
            attend()
        check(status, who, "copy_")
        return self

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


def _as_arrays(values: Any) -> Any:
    """Arguments, with arrays in place of tensors."""
    if isinstance(values, Tensor):
        return values.numpy()
    if isinstance(values, dict):
        return {key: _as_arrays(value) for key, value in values.items()}
    return type(values)(map(_as_arrays, values)) if type(values) in (list, tuple) else values


_new = Tensor.__new__


def wrap(handle: Any, who: str = "", inner: str = "") -> Tensor:
    """A tensor that owns the handle; raises the thread's error when the handle is NULL, the names as in ``raise_error``."""
    if not handle:
        raise_error(who, inner)
    tensor = _new(Tensor)
    tensor._handle = handle
    return tensor


def tensor(data: Data, dtype: DType | None = None) -> Tensor:
    """A tensor with a copy of an array, a nested list or a number.

    Args:
        data: a NumPy array, whose dtype is kept, or what NumPy can make an array of; Python floats become float32,
            complex numbers complex64.
        dtype: the element type, instead.

    Raises:
        TypeError: elements that are no numbers, or of a dtype that does not exist here.
        ValueError: more than 16 dimensions; a number that the dtype, of integers, has not.

    Example:
        >>> crt.tensor([[1, 2], [3, 4]]).shape
        clika_runtime.Size([2, 2])
    """
    import numpy as np

    if isinstance(data, Tensor):
        data = data._read("tensor")
    try:
        array = np.asarray(data)
    except ClikaRTError:
        raise
    except ValueError as error:
        raise ClikaRTValueError(f"tensor: {error}") from None
    except MemoryError as error:
        raise ClikaRTMemoryError(f"tensor: {error}") from None
    except Exception as error:
        raise ClikaRTTypeError(f"tensor: {type(data).__name__} does not become an array: {error}") from error
    if array.dtype == object and array.size and all(isinstance(item, int) for item in array.flat) and not isinstance(data, np.ndarray):
        raise ClikaRTOverflowError("tensor: an int is more than 64 bits can hold")
    if array.dtype.name not in BY_NUMPY_NAME:
        raise ClikaRTTypeError(f"tensor: dtype {array.dtype} has no equivalent here")
    if dtype is not None:
        if not isinstance(dtype, DType):
            raise ClikaRTTypeError(f"tensor: expected a dtype such as clika_runtime.float32, got {dtype!r}")
        if array.dtype.kind == "c" and not dtype.name.startswith("complex"):
            raise ClikaRTTypeError(f"tensor: complex numbers do not become {dtype.name}")
        if "int" in dtype.name and not isinstance(data, (np.ndarray, np.generic)):
            array = whole_numbers(data, array, dtype)
        array = array.astype(numpy_dtype(dtype), copy=False)
    elif not isinstance(data, (np.ndarray, np.generic)) and array.dtype.name in ("float64", "complex128"):
        array = array.astype(np.float32 if array.dtype == np.float64 else np.complex64)
    return wrap(handle_of_array(array), "tensor", "tensor_from_data")


def _unpacked(dtype: DType) -> DType:
    """What has a byte for each element of int4 or uint4."""
    return int8 if dtype.name == "int4" else uint8


def handle_of_array(array: np.ndarray[Any, Any]) -> Any:
    """A tensor's handle, with a copy of an array whose dtype exists here; NULL after a failure."""
    import numpy as np

    if scoped:
        apply()
    known = BY_NUMPY_NAME[array.dtype.name]
    if known.is_packed:
        packed = _ops.cast(wrap(handle_of_array(array.astype(_unpacked(known).name))), known)
        handle, packed._handle = packed._handle, ffi.NULL
        return handle
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    address = ffi.cast("void*", array.__array_interface__["data"][0])
    return lib.clikart_tensor_from_data(address, known.code, array.shape or ffi.NULL, array.ndim)


def _of_bytes(data: bytes, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """What was pickled."""
    return wrap(lib.clikart_tensor_from_data(ffi.from_buffer(data), dtype.code, shape or ffi.NULL, len(shape)))


# What needs the class above.
from . import indexing as _indexing  # noqa: E402
from . import ops as _ops  # noqa: E402
from ._convert import operand, operator_operand  # noqa: E402

_shorthands.bind(_ops)
install(Tensor, operator_operand)
# The functions themselves: a method of Python in between would take as long as the rest of the way into the library.
for _name in DIRECT:
    setattr(Methods, _name, getattr(_ops, _name))
for _name in SPREADING:
    setattr(Methods, _name, spreading(getattr(_ops, _name)))
