"""The shared library: finding it, opening it, and turning its errors into exceptions."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from . import _cdef
from ._enums import ERRORS, ClikaRTError, ClikaRTTypeError, ClikaRTValueError

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

#: How long a wait lasts before Python may look at signals, so that Ctrl-C ends it.
WAIT_SLICE_NS = 50_000_000


def finish() -> None:
    """Before the interpreter is taken apart.  Not a shutdown: another interpreter of this process may go on."""
    try:
        while lib.clikart_finish_within(WAIT_SLICE_NS) == 0:
            pass
    except KeyboardInterrupt:
        lib.clikart_cancel_queued()
        lib.clikart_finish()  # what runs already goes on to its end
        raise


atexit.register(finish)

_words = int(ffi.cast("uintptr_t", lib.clikart_attention()))
#: True while calls wait to be told where they were made.  A ctypes object: its truth is that of the library's memory, which
#: is the cheapest look from Python there is.
origins = ctypes.c_int32.from_address(_words)
#: True while borrowed memory that is needed no more waits to be let go.
returned = ctypes.c_int32.from_address(_words + 4)

#: Python objects whose memory tensors, or work under way, may still use, by token.  The library reports by token what it
#: needs no more: that may be on any of its threads, at any time, where no Python can run.
lent: dict[int, Any] = {}
# A thread that goes on to the very end may leave work under way; what it uses must outlive the interpreter's own end.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(lent))

# From anywhere: other interpreters of the process draw tokens too, and who collects one that is not its own must not take it
# for one that is.
_tokens = itertools.count(int.from_bytes(os.urandom(7), "little") | 1)


def next_token() -> int:
    """A token for something that is lent."""
    return next(_tokens)


def let_go() -> None:
    """Gives up what was lent and is needed no more."""
    tokens = ffi.new("uint64_t[64]")
    while count := lib.clikart_take_returned(tokens, 64):
        for i in range(count):
            lent.pop(tokens[i], None)


#: What the files of this package begin with.
PACKAGE = os.path.dirname(__file__) + os.sep


def attend() -> None:
    """Tells the calls that this thread queued where they were made: the first line outside of this package."""
    frame: Any = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"
    lib.clikart_tell_origin(place.encode(errors="replace"))


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


def raise_error(who: str = "", inner: str = "") -> NoReturn:
    """Raises the calling thread's error; called when a function of the library reported one.

    Args:
        who: what was called, where that is not the function of the library.
        inner: the name that the function of the library gives itself in messages.
    """
    if origins:
        attend()
    error = lib.clikart_error_take()
    kind, message = lib.clikart_error_get_kind(error), text(lib.clikart_error_message(error))
    lib.clikart_error_release(error)
    raise ERRORS[kind](renamed(message, who, inner))


def renamed(message: str, who: str, inner: str) -> str:
    """A message under the name of what was called; that of another operator's failure stays as it is."""
    if who and inner and message.startswith(f"{inner}: "):
        return who + message[len(inner) :]
    return f"{who}: {message}" if who and message.startswith("out of memory") else message


@contextlib.contextmanager
def naming(who: str, inner: str) -> Iterator[None]:
    """Errors of the operator ``inner`` are those of ``who``, which is made of it."""
    try:
        yield
    except ClikaRTError as error:
        message = str(error)
        if not message.startswith(f"{inner}: "):
            raise
        raise type(error)(renamed(message, who, inner)) from None


def check(status: int, who: str = "", inner: str = "") -> int:
    """The status of a call, unless it is that of a failure; the names as in :func:`raise_error`."""
    if status < 0:
        raise_error(who, inner)
    if origins:
        attend()
    return status


def wait(waiting: Any, *what: Any, who: str = "") -> None:
    """Calls a function of the library that waits until it is over, in slices between which Python may look at signals."""
    while (state := waiting(*what, WAIT_SLICE_NS)) == 0:
        pass
    if state < 0:
        raise_error(who, "wait")


def check_pointer(pointer: Any, who: str = "", inner: str = "") -> Any:
    """The pointer a call returned, unless it is NULL; the names as in :func:`raise_error`."""
    if not pointer:
        raise_error(who, inner)
    return pointer
