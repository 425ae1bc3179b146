"""Settings of the calling thread, as context managers that are also decorators.

Each scope changes one setting of the thread, and the innermost wins.  In a task of an event loop a scope holds for that task
alone: others of the thread do not see it, those that it starts included.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._enums import ClikaRTTypeError
from ._library import NULL, c_text, check, ffi, lib, text
from .devices import Device
from .streams import Stream

if TYPE_CHECKING:
    import asyncio  # which takes as long to import as all the rest: at run time only a program that uses it has it

F = TypeVar("F", bound=Callable[..., Any])

#: Scopes that were opened in tasks of an event loop and are open: where there is one, calls look which hold for them.
scoped: list[Scope] = []
#: The open scopes of a task, and the task: a context may be copied into others, and their scopes are their own.
_chain: contextvars.ContextVar[tuple[weakref.ref[asyncio.Task[Any]] | None, tuple[Scope, ...]]] = contextvars.ContextVar(
    "clika_runtime_scopes", default=(None, ())
)


class _Thread(threading.local):
    """What of the chains is in force in the thread, and what was set before each."""

    def __init__(self) -> None:
        self.scopes: tuple[Scope, ...] = ()
        self.before: list[Any] = []


_thread = _Thread()


def _running_task() -> asyncio.Task[Any] | None:
    running = sys.modules.get("asyncio")
    running_loop = getattr(running, "_get_running_loop", None)  # another thread may be in the middle of the import
    if running is None or running_loop is None or (loop := running_loop()) is None:
        return None
    task: asyncio.Task[Any] | None = running.current_task(loop)
    return task


def _own_chain(task: asyncio.Task[Any] | None) -> tuple[Scope, ...]:
    owner, scopes = _chain.get()
    return scopes if scopes and task is not None and owner is not None and owner() is task else ()


def apply() -> None:
    """Puts the scopes of the running task in force, and takes back those of others."""
    wanted = _own_chain(_running_task())
    if wanted == _thread.scopes:
        return
    for scope in reversed(_thread.scopes):
        scope._set(_thread.before.pop())
        scope._in_force -= 1
        scope._forget()
    _thread.scopes = ()
    for scope in wanted:
        _thread.before.append(scope._set(scope._value))
        scope._in_force += 1
        _thread.scopes += (scope,)


class Scope:
    """A setting that holds inside of a ``with`` block or a decorated function, for the calling thread."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._entered = threading.local()
        self._in_force = 0  # in how many threads, of those that were opened in tasks
        self._over = 0  # how many ended that are still listed

    def _set(self, value: Any) -> Any:
        """Sets the thread's setting and returns what it was."""
        raise NotImplementedError

    def __enter__(self) -> None:
        task = _running_task()
        if task is None:
            if _thread.scopes:
                apply()
            self._stack().append(self._set(self._value))
            return
        _chain.set((weakref.ref(task), (*_own_chain(task), self)))
        scoped.append(self)
        try:
            apply()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        task = _running_task()
        scopes = _own_chain(task)
        if task is not None and self in scopes:
            last = len(scopes) - 1 - scopes[::-1].index(self)
            _chain.set((weakref.ref(task), scopes[:last] + scopes[last + 1 :]))
        elif stack := self._stack():
            if _thread.scopes:
                apply()
            self._set(stack.pop())
            return
        # Else an asynchronous generator was left in its scope and is closed by another task: what it set went with its own.
        apply()
        if self in scoped:
            self._over += 1
            self._forget()

    def _forget(self) -> None:
        """Takes what is over off the list, unless it is in force in another thread (which dropped the task that had it): that
        thread has to look once more."""
        while self._over and self._in_force < scoped.count(self):
            scoped.remove(self)
            self._over -= 1

    def _stack(self) -> list[Any]:
        """What was set before, for each time the thread is in the scope outside of tasks."""
        stack: list[Any] = self._entered.__dict__.setdefault("stack", [])
        return stack

    def __call__(self, fn: F) -> F:
        """The function, run inside of the scope at every call; a generator and a coroutine only while they run."""
        if inspect.isclass(fn):
            raise ClikaRTTypeError(f"{type(self).__name__}: decorates functions, {fn.__name__} is a class")
        if inspect.isasyncgenfunction(fn):
            wrapper: Any = self._async_generator(fn)
        elif inspect.iscoroutinefunction(fn):

            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await fn(*args, **kwargs)
        elif inspect.isgeneratorfunction(fn):
            wrapper = self._generator(fn)
        else:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return fn(*args, **kwargs)

        decorated: Any = functools.wraps(fn)(wrapper)
        return cast(F, decorated)

    def _generator(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = fn(*args, **kwargs)
            step: Any = generator.send
            argument: Any = None
            while True:
                try:
                    with self:
                        item = step(argument)
                except StopIteration as stop:
                    return stop.value
                try:
                    step, argument = generator.send, (yield item)
                except GeneratorExit:
                    with self:
                        generator.close()
                    raise
                except BaseException as error:
                    step, argument = generator.throw, error

        return wrapper

    def _async_generator(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            generator = fn(*args, **kwargs)
            step: Any = generator.asend
            argument: Any = None
            while True:
                try:
                    with self:
                        item = await step(argument)
                except StopAsyncIteration:
                    return
                try:
                    step, argument = generator.asend, (yield item)
                except GeneratorExit:
                    with self:
                        await generator.aclose()
                    raise
                except BaseException as error:
                    step, argument = generator.athrow, error

        return wrapper


class synchronous(Scope):
    """Inside, every operator that the calling thread dispatches is over before its call returns, and its failure is
    raised there.  Slow and easy to reason about: for debugging."""

    def __init__(self) -> None:
        super().__init__(True)

    def _set(self, value: Any) -> Any:
        return lib.clikart_set_synchronous(value)


class _ModeScope(Scope):
    def _set(self, value: Any) -> Any:
        return check(lib.clikart_set_mode(value))


class tracing(_ModeScope):
    """Inside, operators are deferred: they return tensors with shape and dtype and no value, and no kernel runs.  Reading a
    value raises ClikaRTError.  ``eval``, ``async_eval``, a read outside, or an operator outside that uses the result
    compute it, with all it depends on."""

    def __init__(self) -> None:
        super().__init__(lib.CLIKART_MODE_TRACING)


class eager(_ModeScope):
    """Inside, operators are submitted at once: the default, restored within ``tracing()``."""

    def __init__(self) -> None:
        super().__init__(lib.CLIKART_MODE_EAGER)


class device(Scope):
    """Inside, tensors that are made without inputs and without a device of their own are made on this one.

    Args:
        device: a device or its name; ``"meta"`` makes tensors with shape and dtype and no storage.

    Raises:
        ValueError: the text names no device.
        NotImplementedError: there is no such device here.
    """

    def __init__(self, device: str | Device) -> None:
        super().__init__(str(Device(device)))
        self._set(self._set(self._value))  # raises here rather than at each entry

    def _set(self, value: Any) -> Any:
        before = lib.clikart_get_device()
        name = text(before) if before else None
        check(lib.clikart_set_device(NULL if value is None else c_text(value, "device")))
        return name


def meta_init() -> device:
    """The same as ``device("meta")``: what is made inside has shape and dtype and no storage."""
    return device("meta")


class stream(Scope):
    """Inside, work on the stream's bare device goes to the stream instead of the thread's lane.

    Raises:
        TypeError: it is no stream.
    """

    def __init__(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise ClikaRTTypeError(f"stream: expected a Stream, got {type(stream).__name__}")
        super().__init__(stream._handle)
        self._device = str(stream.device).encode()

    def _set(self, value: Any) -> Any:
        previous = ffi.new("clikart_stream**")
        check(lib.clikart_set_stream(self._device, value, previous))
        return ffi.gc(previous[0], lib.clikart_stream_release) if previous[0] else NULL
