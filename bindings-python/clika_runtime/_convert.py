"""Python arguments as the C ABI wants them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import index
from typing import Any

from ._enums import BY_NUMPY_NAME, ClikaRTTypeError, ClikaRTValueError
from ._library import NULL, check_pointer, ffi, lib
from ._refused import UnfitError
from .devices import Device, DeviceLike, device_text
from .dtype import DType
from .random import Generator
from .sizes import SymInt, captures, operand_of
from .streams import Stream
from .tensor import Tensor, handle_of_array, release

_EMPTY = ffi.new("int64_t[1]")
_CACHED_NUMBERS = 1024
_NUMBERS = (int, float, bool)
_numbers: dict[tuple[type, float], Any] = {}


def _number(value: bool | int | float) -> Any:
    """An owned handle; programs use few different numbers, so they are kept."""
    key = (type(value), value)
    handle = _numbers.get(key)
    if handle is None:
        make = lib.clikart_scalar_bool if type(value) is bool else lib.clikart_scalar_float
        if type(value) is int:
            make = lib.clikart_scalar_int if value < 2**63 else lib.clikart_scalar_uint
        handle = ffi.gc(check_pointer(make(value)), lib.clikart_tensor_release)
        if value and len(_numbers) < _CACHED_NUMBERS:  # not zero: 0.0 and -0.0 are equal keys
            _numbers[key] = handle
    return handle


def operand(value: Any) -> Any:
    """The handle of a tensor, a number or an array, which is copied.  The handle owns what it needs while it is referred to."""
    if isinstance(value, Tensor):
        return value._handle
    if type(value) in _NUMBERS:
        return _number(value)
    handle = operator_operand(value)
    if handle is None:
        raise UnfitError(f"expected a tensor or a number, got {type(value).__name__}")
    return handle


def operator_operand(value: Any) -> Any:
    """The same for an operator of Python's, which leaves anything else to others: None."""
    if isinstance(value, Tensor):
        return value._handle
    if type(value) is SymInt:
        return operand_of(value) or _number(int(value))
    if isinstance(value, (bool, int, float)):
        return _number(value if type(value) in (bool, int, float) else float(value) if isinstance(value, float) else int(value))
    numpy = sys.modules.get("numpy")  # without it nobody can have made an array
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    if isinstance(value, numpy.generic) and isinstance(number := value.item(), (bool, int, float)):
        return _number(number)
    return ffi.gc(check_pointer(handle_of_array(value)), release) if value.dtype.name in BY_NUMPY_NAME else None


def destination(value: Any) -> Any:
    """The handle of a tensor that is written to."""
    if not isinstance(value, Tensor):
        raise UnfitError(f"expected a tensor to write to, got {type(value).__name__}")
    return value._handle


def operands(values: Iterable[Any]) -> tuple[list[Any], int, list[Any]]:
    """The handles of tensors, how many they are, and what keeps the handles valid."""
    kept = list(values)
    handles = [operand(value) for value in kept]
    return handles, len(handles), kept


def as_int(value: Any) -> int:
    """A whole number; while a function is captured for any sizes also what stands for one that follows them."""
    return value.code() if captures and type(value) is SymInt else index(value)


def int_list(values: int | Sequence[int] | None) -> tuple[Any, int]:
    """Pointer and length; None is NULL, one int a list of one."""
    if values is None:
        return NULL, 0
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise UnfitError(f"expected an int or a sequence of ints, got {values!r}")
    if hasattr(values, "__index__"):
        return (as_int(values),), 1
    integers = tuple(map(as_int if captures else index, values))
    return (integers, len(integers)) if integers else (_EMPTY, 0)


#: What the words for the padding of a convolution are in the C ABI.
_PADDINGS = {"valid": (0,), "same": (lib.CLIKART_PADDING_SAME,)}


def padding_list(op: str, values: int | str | Sequence[int]) -> tuple[Any, int]:
    """The same for a padding, which may be a word."""
    if isinstance(values, str):
        if values not in _PADDINGS:
            raise ClikaRTValueError(f"{op}: padding is {values!r}, expected numbers, 'same' or 'valid'")
        return _PADDINGS[values], 1
    return int_list(values)


def optional_int(value: int | None) -> Any:
    return NULL if value is None else (as_int(value),)


def optional_float(value: float | None) -> Any:
    return NULL if value is None else ffi.new("double*", value)


def choice(op: str, name: str, word: str, words: dict[str, int]) -> int:
    """The number of a word of an enum."""
    if not isinstance(word, str):
        raise ClikaRTTypeError(f"{op}: {name} must be one of {', '.join(map(repr, words))}, got {word!r}")
    number = words.get(word)
    if number is None:
        raise ClikaRTValueError(f"{op}: {name} is {word!r}, expected one of {', '.join(map(repr, words))}")
    return number


def generator_handle(generator: Generator | None) -> Any:
    if generator is None:
        return NULL
    if not isinstance(generator, Generator):
        raise UnfitError(f"expected a Generator, got {type(generator).__name__}")
    return generator._handle


def dtype_code(dtype: DType | None) -> int:
    """The number of a dtype; 0 for None."""
    if dtype is None:
        return 0
    if not isinstance(dtype, DType):
        raise UnfitError(f"expected a dtype such as clika_runtime.float32, got {dtype!r}")
    return dtype.code


def placement(device: DeviceLike, stream: Stream | None) -> Any:
    if device is None and stream is None:
        return NULL
    if stream is not None and not isinstance(stream, Stream):
        raise UnfitError(f"expected a Stream, got {type(stream).__name__}")
    if device is not None and not isinstance(device, (str, Device)):
        raise UnfitError(f"expected a device or its name, got {type(device).__name__}")
    name = NULL if device is None else device_text(device, "device")
    handle = NULL if stream is None else stream._handle
    where = ffi.new("clikart_placement*", {"struct_size": ffi.sizeof("clikart_placement"), "device": name, "stream": handle})
    _kept_alive[where] = name, stream
    return where


# cffi does not keep what a struct's field points at; this does, for as long as the struct lives.
_kept_alive: Any = weakref.WeakKeyDictionary()
