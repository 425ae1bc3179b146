"""What the library says outside of calls: failures when they happen, what callbacks threw."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from ._enums import ClikaRTTypeError
from ._library import ffi, finish, lib, text

#: Takes the level (those of ``logging``: 10 debug, 20 info, 30 warning, 40 error) and the message.
LogHook = Callable[[int, str], object]

_hook: LogHook | None = None
_thread: threading.Thread | None = None
_lock = threading.Lock()  # guards the two above


def set_log_hook(hook: LogHook | None) -> None:
    """All that the library says goes to the hook, in order, on one Python thread of its own, shortly after it was said;
    None brings back the default, which writes warnings and errors to stderr.

    Example:
        >>> crt.set_log_hook(lambda level, message: logging.getLogger("clika_runtime").log(level, message))
        >>> crt.set_log_hook(None)
    """
    global _hook
    if hook is not None and not callable(hook):
        raise ClikaRTTypeError(f"set_log_hook: expected something that can be called, got {type(hook).__name__}")
    with _lock:
        _hook = hook
        lib.clikart_log_keep(hook is not None)
        if hook is not None:
            _start()
    if hook is None:
        _join()


def _start() -> None:
    global _thread
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_pump, name="clika_runtime log", daemon=True)
        _thread.start()


def _pump() -> None:
    # No thread of the library ever runs Python: this one waits inside of the library, without the interpreter's lock.
    level, room = ffi.new("clikart_log_level*"), ffi.new("char[]", 8192)
    while lib.clikart_log_next(level, room, len(room), -1) == 1:
        hook = _hook
        if hook is None:
            return
        try:
            hook(level[0], text(room))
        except Exception:  # as logging does: who reports failures must not make any
            import traceback

            traceback.print_exc()


def _join() -> None:
    thread = _thread
    if thread is not None and thread is not threading.current_thread():
        thread.join(5)


def _end() -> None:
    """Before the interpreter is taken apart, which no thread may see from inside of a call; after the last work."""
    try:
        finish()
    finally:
        lib.clikart_log_keep(False)
    _join()


def _restart() -> None:
    """In the child of a fork, which has none of its parent's threads."""
    global _thread, _lock
    _lock = threading.Lock()
    _thread = None
    if _hook is not None:
        _start()


atexit.register(_end)
os.register_at_fork(after_in_child=_restart)
