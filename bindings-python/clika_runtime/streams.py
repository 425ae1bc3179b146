"""Streams: queues of work that run in order, beside each other."""

from __future__ import annotations

import math
import time
from typing import Any, NoReturn

from ._enums import ClikaRTError, ClikaRTTypeError, ClikaRTValueError
from ._library import WAIT_SLICE_NS, check, check_pointer, ffi, lib, text, wait
from ._refused import shown
from .devices import Device, device_text

#: What is as good as for ever, in seconds.
_LONGEST = 1e9


class Stream:
    """A queue of work.  Operators ride the calling thread's own stream, its *lane*, unless they are placed elsewhere."""

    __slots__ = ("__weakref__", "_handle")

    _handle: Any

    def __init__(self, device: str | Device = "cpu") -> None:
        self._handle = _owned(lib.clikart_stream_create(device_text(device, "Stream")), "Stream", "stream_create")

    @staticmethod
    def create(device: str | Device = "cpu") -> Stream:
        """A new stream, as ``Stream(device)``."""
        return Stream(device)

    @staticmethod
    def default_stream(device: str | Device = "cpu") -> Stream:
        """The device's synchronous stream: an operator placed on it is over when its call returns."""
        return wrap(lib.clikart_stream_default(device_text(device, "default_stream")), "default_stream", "stream_default")

    @staticmethod
    def current(device: str | Device = "cpu") -> Stream:
        """Where work on the bare device goes now: the stream of the innermost ``stream()`` scope, else the thread's lane."""
        from .scopes import apply, scoped  # which need the class

        if scoped:
            apply()
        return wrap(lib.clikart_resolve(device_text(device, "current")))

    @property
    def is_default(self) -> bool:
        """Whether it is a device's synchronous stream."""
        default: bool = lib.clikart_stream_is_default(self._handle)
        return default

    @property
    def device(self) -> Device:
        return Device(text(lib.clikart_stream_device(self._handle)))

    def query_idle(self) -> bool:
        """Whether all that was submitted is over; does not wait."""
        return check(lib.clikart_stream_is_idle(self._handle)) == 1

    def synchronize(self) -> None:
        """Waits until all that was submitted is over.

        Raises:
            ClikaRTError: work on the stream failed, and nobody was told of it yet.
        """
        wait(lib.clikart_stream_wait, self._handle)

    def wait(self, timeout: float | None = None) -> bool:
        """The same for at most ``timeout`` seconds; False when it is not over then."""
        return wait_seconds(lib.clikart_stream_wait, self._handle, timeout)

    def __reduce__(self) -> NoReturn:
        raise ClikaRTTypeError("Stream: a stream belongs to its process and cannot be pickled or copied")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and bool(self._handle == other._handle)

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        kind = "default " if self.is_default else ""
        return f"<clika_runtime.Stream: {kind}stream of {self.device}, {'idle' if self.query_idle() else 'busy'}>"


def _owned(handle: Any, who: str = "", inner: str = "") -> Any:
    return ffi.gc(check_pointer(handle, who, inner), lib.clikart_stream_release)


def wrap(handle: Any, who: str = "", inner: str = "") -> Stream:
    """A stream that owns the handle."""
    stream = Stream.__new__(Stream)
    stream._handle = _owned(handle, who, inner)
    return stream


def wait_seconds(waiting: Any, handle: Any, timeout: float | None) -> bool:
    """Waits with a function of the library in slices, for as long as it takes or the seconds given; True when it is over."""
    try:
        seconds = math.inf if timeout is None else math.fsum((timeout,))  # unlike float() takes no texts
    except OverflowError:
        seconds = math.inf
    except TypeError as error:
        if isinstance(error, ClikaRTError):
            raise
        raise ClikaRTTypeError(f"wait: timeout must be a number of seconds or None, got {shown(timeout)}") from None
    if math.isnan(seconds):
        raise ClikaRTValueError("wait: timeout is nan")
    if seconds > _LONGEST:
        wait(waiting, handle)
        return True
    end = time.monotonic_ns() + int(max(0.0, seconds) * 1e9)
    while True:
        left = end - time.monotonic_ns()
        if check(waiting(handle, max(0, min(left, WAIT_SLICE_NS)))) == 1:
            return True
        if left <= 0:
            return False
