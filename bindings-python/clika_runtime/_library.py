"""The shared library: finding it, opening it, and turning its errors into exceptions."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any, NoReturn

from . import _cdef
from ._enums import ERRORS, ClikaRTTypeError, ClikaRTValueError

ffi: Any = _cdef.ffi
NULL: Any = ffi.NULL

#: The library must be of this version: the wheel that carries it also carries these declarations.
_VERSION = 100


def _find() -> str:
    if chosen := os.environ.get("CLIKA_LIBRARY"):
        return chosen
    in_wheel = Path(__file__).parent.parent / ".clika_runtime.mesonpy.libs" / "libclikart.so"
    return str(in_wheel) if in_wheel.exists() else "libclikart.so.0"


lib: Any = ffi.dlopen(_find())
if lib.clikart_version() != _VERSION:
    raise ImportError(f"clika_runtime needs libclikart {_VERSION}, {_find()} is {lib.clikart_version()}")

# Before the interpreter is taken apart.  Not a shutdown: another interpreter of this process may go on.
atexit.register(lib.clikart_finish)


def text(pointer: Any) -> str:
    """A C string of the library as str."""
    value: bytes = ffi.string(pointer)
    return value.decode(errors="replace")


def c_text(value: str | bytes, what: str) -> Any:
    """A zero-terminated string that the caller keeps alive; refuses what C would cut short."""
    if not isinstance(value, (str, bytes)):
        raise ClikaRTTypeError(f"{what}: expected a str, got {type(value).__name__}")
    encoded = value.encode() if isinstance(value, str) else value
    if b"\0" in encoded:
        raise ClikaRTValueError(f"{what}: embedded null byte in {value!r}")
    return ffi.new("char[]", encoded)


def raise_error() -> NoReturn:
    """Raises the calling thread's error; called when a function of the library reported one."""
    error = lib.clikart_error_take()
    kind, message = lib.clikart_error_get_kind(error), text(lib.clikart_error_message(error))
    lib.clikart_error_release(error)
    raise ERRORS[kind](message)


def check(status: int) -> int:
    """The status of a call, unless it is that of a failure."""
    if status < 0:
        raise_error()
    return status


def check_pointer(pointer: Any) -> Any:
    """The pointer a call returned, unless it is NULL."""
    if not pointer:
        raise_error()
    return pointer
