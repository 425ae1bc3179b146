"""What the library says outside of calls: failures when they happen, what callbacks threw."""

from __future__ import annotations

import atexit
import os
import threading
import traceback
from collections.abc import Callable

from ._enums import ClikaRTTypeError
from ._library import ffi, finish, lib, text

#: Takes the level (those of ``logging``: 10 debug, 20 info, 30 warning, 40 error) and the message.
LogHook = Callable[[int, str], object]


class _Pump:
    """Carries messages to the hook on a Python thread.

    No thread of the library ever runs Python: this one waits inside of the library, without the interpreter's lock.
    """

    def __init__(self) -> None:
        self.hook: LogHook | None = None
        self.ended = False
        self.after_fork()

    def after_fork(self) -> None:
        """The child of a fork has none of its parent's threads."""
        self.lock = threading.Lock()  # guards the two others
        self.thread: threading.Thread | None = None
        if self.hook is not None:
            self.set(self.hook)

    def set(self, hook: LogHook | None) -> None:
        with self.lock:
            self.hook = hook
            lib.clikart_log_keep(hook is not None)
            if hook is not None and self.thread is None:
                self.thread = threading.Thread(target=self.run, name="clika_runtime log", daemon=True)
                self.thread.start()
        if hook is None:
            self.join()

    def run(self) -> None:
        level, room = ffi.new("clikart_log_level*"), ffi.new("char[]", 8192)
        while True:
            if lib.clikart_log_next(level, room, len(room), -1) != 1:
                with self.lock:  # a new hook may have come meanwhile
                    if self.hook is None or self.ended:
                        self.thread = None
                        return
                continue
            if hook := self.hook:
                try:
                    hook(level[0], text(room))
                except BaseException:  # as logging does: who reports failures must not make any
                    traceback.print_exc()

    def join(self) -> None:
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def end(self) -> None:
        """Before the interpreter is taken apart, which no thread may see from inside of a call; after the last work."""
        if self.thread is None:
            return
        try:
            finish()
        finally:
            self.ended = True
            lib.clikart_log_keep(False)
            self.join()


_pump = _Pump()
atexit.register(_pump.end)
os.register_at_fork(after_in_child=_pump.after_fork)


def set_log_hook(hook: LogHook | None) -> None:
    """All that the library says goes to the hook, in order, on one Python thread of its own, shortly after it was said;
    None brings back the default, which writes warnings and errors to stderr.

    Example:
        >>> crt.set_log_hook(lambda level, message: logging.getLogger("clika_runtime").log(level, message))
        >>> crt.set_log_hook(None)
    """
    if hook is not None and not callable(hook):
        raise ClikaRTTypeError(f"set_log_hook: expected something that can be called, got {type(hook).__name__}")
    _pump.set(hook)
