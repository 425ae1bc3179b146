"""``compile``: capture a function while it runs, and replay the graph from then on."""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import itertools
import random
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from ._enums import ClikaRTError, ClikaRTRuntimeError, ClikaRTTypeError, ClikaRTValueError
from ._library import c_text, check, ffi, lib, text
from .capture import Copies, NoKeyError, Outputs, Recording, argument_names, fixed_key, is_kept, numbered, optimization, require_list
from .dtype import DType
from .graph import ModelGraph
from .guards import Surroundings, Wrapper
from .pytree import take_apart, tree_flatten, tree_unflatten
from .sizes import Capture, plain
from .tensor import Size, Tensor, wrap

__all__ = ["Compiled", "State", "TensorSpec", "compile"]

_KEPT = 64  # graphs of one wrapper
_FOUND = 256  # sizes that are known to be held for by one of them
_SHOWN = 3  # conditions of a capture
_MANY = 9  # captures, which are more likely a mistake than meant


class State(enum.Enum):
    """What a compiled function does when it is called."""

    #: Nothing is captured yet.
    Pending = 0
    #: It replays a graph, and captures another for inputs of other shapes.
    Compiled = 1
    #: It calls the function: what that does cannot be recorded.
    Fallback = 2

    def __str__(self) -> str:
        return f"State.{self.name}"


@dataclass(frozen=True)
class TensorSpec:
    """What an input of a compiled function is: its name, dtype and shape."""

    name: str
    dtype: DType
    shape: Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.dtype, DType):
            raise ClikaRTTypeError(f"TensorSpec: expected a name, a dtype and a shape, got {self.name!r} and {self.dtype!r}")
        if not isinstance(self.shape, (list, tuple)):
            raise ClikaRTTypeError(f"TensorSpec: the shape of '{self.name}' is a list of sizes, got {type(self.shape).__name__}")
        sizes = [plain(size) for size in self.shape]
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ClikaRTValueError(f"TensorSpec: '{self.name}' has the shape {list(self.shape)}; sizes are whole numbers from 0 on")
        object.__setattr__(self, "shape", Size(sizes))


@dataclass
class _Entry:
    """One capture."""

    graph: ModelGraph
    outputs: Outputs
    #: What the function took from elsewhere.
    taken: Surroundings
    #: Of a graph for any sizes: what its arguments have in common, and whether a run writes over memory.
    kind: Hashable
    writes: bool
    #: When it was last replayed.
    used: int = 0


class _Again:
    """The capture that was replayed last, for tensors alone: the next call mostly wants the same, and then need not be looked up."""

    __slots__ = ("_count", "_layouts", "_listed", "entries", "entry")

    def __init__(self, entries: dict[Hashable, _Entry], entry: _Entry, layouts: bytes, count: int, listed: bool) -> None:
        self.entries = entries
        self.entry = entry
        self._layouts = ffi.new("int64_t[]", len(layouts) // 8)
        ffi.memmove(self._layouts, layouts, len(layouts))
        self._count = count
        self._listed = listed  # the function takes one list of them

    def run(self, args: tuple[Any, ...]) -> list[Tensor] | None:
        """The results, if that is the capture for these arguments."""
        tensors: Sequence[Any] = args
        if self._listed:
            if len(args) != 1 or type(args[0]) is not list:
                return None
            tensors = args[0]
        if len(tensors) != self._count:
            return None
        handles = [t._handle for t in tensors if type(t) is Tensor]
        if len(handles) != self._count or not self.entry.taken.untouched(()):
            return None
        return self.entry.graph.run_like(handles, self._layouts)


class Compiled(Wrapper):
    """What :func:`compile` makes of a function: called like it.  Any number of threads may call it."""

    def __init__(self, fn: Callable[..., Any], specs: Sequence[TensorSpec] | None, dynamic: bool, fullgraph: bool, optimize: int, audit: float) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._fn = fn
        self._specs = specs
        self._dynamic = dynamic
        self._fullgraph = fullgraph
        self._optimize = optimize
        self._audit = audit
        # Replaced as a whole, and looked into without a lock: keys may be objects of the user's, whose comparison runs anything.
        self._entries: dict[Hashable, _Entry] = {}
        self._found: dict[Hashable, _Entry] = {}  # under dynamic: those of them that hold for other sizes
        self._again: _Again | None = None  # counts as long as it is of these entries
        self._clock = itertools.count()
        self._lock = threading.RLock()  # guards the changes of what follows; again in a thread, as the garbage collector may run anything
        self._captures = 0
        self._why = ""
        self._set_up = False  # the last call bound something anew, which may have been to set it up; what does so again cannot be recorded
        self._open = self._started = 0  # captures under way, and all so far
        self._last: ModelGraph | None = None
        self._seen: list[str] = []  # what the last capture was for
        self._events: deque[str] = deque(maxlen=_KEPT)

    @property
    def state(self) -> State:
        """Whether calls are replayed."""
        if self._why:
            return State.Fallback
        return State.Compiled if self._captures else State.Pending

    @property
    def recapture_count(self) -> int:
        """How many captures came after the first: for other shapes, dtypes and structures, and where a tensor or number that the
        function names was bound to another."""
        return max(0, self._captures - 1)

    @property
    def fallback_reason(self) -> str:
        """What could not be recorded; empty unless the state is ``Fallback``."""
        return self._why

    def explain(self) -> str:
        """Why each of the last captures was made, and what could not be recorded: a line each.

        Example:
            >>> step = crt.compile(lambda x: x * 2)
            >>> _ = step(crt.ones(2)), step(crt.ones(3))
            >>> print(step.explain())
            capture 1: the first call
            capture 2: x is float32 [3], was float32 [2]
        """
        with self._lock:
            lines = list(self._events)
            if self._why:
                lines.append(f"fallback: {self._why}")
        return "\n".join(lines) or "nothing is captured yet"

    def take_graph(self) -> ModelGraph:
        """The graph that was captured last.

        Raises:
            RuntimeError: nothing is captured.
        """
        with self._lock:
            if self._last is None:
                raise ClikaRTRuntimeError("take_graph: nothing is captured" + (f": {self._why}" if self._why else " yet"))
            return self._last

    def reset(self) -> None:
        """Forgets all graphs, and that something could not be recorded: the next call captures."""
        with self._lock:
            before = self._entries, self._found, self._last  # released when the lock is free again
            self._entries, self._found = {}, {}
            self._captures, self._why, self._last, self._set_up = 0, "", None, False
            again, self._again = self._again, None
            self._seen = []
            self._events.clear()
        del before, again

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        again = self._again
        if again is not None and again.entries is self._entries and not kwargs and not self._why and (results := again.run(args)) is not None:
            again.entry.used = next(self._clock)
            return again.entry.outputs.build(results)
        if self._why or lib.clikart_capturing():  # a part of another capture is recorded with it
            return self._fn(*args, **kwargs)
        if self._specs is not None:
            self._check_list(args, kwargs)
        try:
            return self._replay(args, kwargs)
        except NoKeyError as error:  # before the function ran
            self._give_up(str(error))
            return self._fn(*args, **kwargs)

    def _replay(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the graph for these arguments, or captures one.  Raises NoKeyError where they, or what the function names, cannot be known again."""
        leaves, structure = _apart(args, kwargs)
        handles: list[Any] = []
        fixed: list[Any] = []
        kinds: list[Any] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                handles.append(leaf._handle)
                kinds.append(type(leaf))
            else:
                leaf = plain(leaf)  # of a capture that is over
                kinds.append(fixed_key(leaf))
                fixed.append(leaf)
        given = ffi.new("clikart_tensor*[]", handles)
        layouts = _layouts(given, len(handles))
        sized = (tuple(structure), tuple(kinds), layouts)
        entries = self._entries
        entry = entries.get(sized)
        kind, mismatch = (sized[0], sized[1], _without_sizes(layouts)) if self._dynamic else None, ""
        if entry is None and self._dynamic:
            entry, mismatch = self._holding(entries, sized, kind, given, len(handles))
        bound_anew = ""
        if entry is not None:
            if not entry.taken.untouched(fixed):
                now = self._surroundings(fixed)
                if not (bound_anew := entry.taken.changed(now)):
                    entry.taken.move_to(now)
            if not bound_anew:
                entry.used = next(self._clock)
                try:
                    results = entry.graph.run_handles(given, len(handles))
                except ClikaRTError:  # perhaps the function would catch what other sizes are refused with
                    if entry.kind is None or entry.writes:  # what was written would be written again
                        raise
                else:
                    if self._audit and random.random() < self._audit and entry.graph.can_be_audited():
                        if differs := entry.graph.audit_handles(given, len(handles)):
                            raise ClikaRTRuntimeError(f"compile: a replay does not compute what its operators do one by one: {differs}")
                    listed = self._specs is not None
                    given_as = args[0] if listed and type(args[0]) is list else args
                    if all(type(arg) is Tensor for arg in given_as) and not (kwargs or fixed or self._dynamic or self._audit):
                        self._again = _Again(entries, entry, layouts, len(leaves), listed)
                    return entry.outputs.build(results)
        return self._capture(args, kwargs, kind, sized, fixed, entries, bound_anew, mismatch)

    def _holding(self, entries: dict[Hashable, _Entry], sized: Hashable, kind: Hashable, given: Any, count: int) -> tuple[_Entry | None, str]:
        """A capture for other sizes that holds for these; else why the one that was used last does not."""
        first = ""
        if (entry := self._found.get(sized)) is not None:
            return entry, first
        for entry in sorted(list(entries.values()), key=lambda e: -e.used):
            if entry.kind != kind:
                continue
            mismatch = entry.graph.mismatch(given, count)
            first = first or mismatch
            if not mismatch:
                with self._lock:
                    dropped = self._found if len(self._found) >= _FOUND else {}  # its end may run anything: after the lock
                    if dropped:
                        self._found = {}
                    if entries is self._entries:  # no reset meanwhile
                        self._found[sized] = entry
                del dropped
                return entry, ""
        return None, first

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        """A compiled function in a class is a method."""
        return self if owner is None else types.MethodType(self, owner)

    def _give_up(self, why: str) -> None:
        """From now on the function is called; raises where there is to be a graph."""
        if self._fullgraph:
            raise ClikaRTTypeError(f"compile: {why}")
        with self._lock:
            self._why = why

    def _store(self, place: Hashable, entry: _Entry, entries: dict[Hashable, _Entry], seen: list[str], bound_anew: str, holds_for: str) -> None:
        """Keeps a capture, and says why it was made."""
        entry.used = next(self._clock)
        if bound_anew and entry.kind is not None:  # so it is for other sizes
            for other in [other for other, kept in list(entries.items()) if kept.kind == entry.kind]:
                entries.pop(other, None)
            self._found.clear()
        was = entries.get(place)
        entries[place] = entry
        while len(entries) > _KEPT:
            oldest = min(list(entries.items()), key=lambda item: item[1].used)[0]
            entries.pop(oldest, None)
        last, many, reason = None, False, ""
        with self._lock:
            if entries is self._entries and (was is None or bound_anew):  # no reset, and no other thread's capture of the same, meanwhile
                self._captures += 1
                self._set_up = False
                reason = _reason(self._seen, seen, bound_anew)
                many = self._captures == _MANY
                self._events.append(f"capture {self._captures}: {reason}{holds_for}")
                self._last, last = entry.graph, self._last
                self._seen = seen
        del last, was  # whose ends may run anything: after the lock
        if many:
            name = getattr(self._fn, "__qualname__", type(self._fn).__name__)
            warnings.warn(f"compile: {name} is captured for the {_MANY}th time: {reason}{holds_for}; explain() has all captures", RuntimeWarning, stacklevel=5)

    @staticmethod
    def _not_kept(returned: list[Any]) -> str:
        """What a replay could not return again; empty when it would return all."""
        strange = next((leaf for leaf in returned if not is_kept(leaf)), None)
        return "" if strange is None else f"a {type(strange).__name__} is returned, which is neither a tensor, a number or text, nor a known container of them"

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return Compiled(copy.deepcopy(self._fn, memo), self._specs, self._dynamic, self._fullgraph, self._optimize, self._audit)

    def _check_list(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuses what does not fit the specs; other sizes are captured anew."""
        assert self._specs is not None
        if kwargs or len(args) != 1 or not isinstance(args[0], (list, tuple)) or not all(isinstance(t, Tensor) for t in args[0]):
            raise ClikaRTTypeError("compile: a function that was compiled with specs takes one list of tensors")
        given = args[0]
        if len(given) != len(self._specs):
            raise ClikaRTValueError(f"compile: {len(given)} inputs given, there are specs of {len(self._specs)}: {[s.name for s in self._specs]}")
        for tensor, spec in zip(given, self._specs, strict=True):
            if tensor.dtype != spec.dtype:
                raise ClikaRTTypeError(f"compile: input '{spec.name}' is {tensor.dtype}, expected {spec.dtype}")
            if tensor.ndim != len(spec.shape):
                raise ClikaRTValueError(f"compile: input '{spec.name}' has the shape {list(tensor.shape)}, expected one like {list(spec.shape)}")

    def _surroundings(self, fixed: list[Any]) -> Surroundings:
        try:
            return Surroundings(self._fn, fixed)
        except Exception as error:  # of objects of the user's
            raise NoKeyError(f"what the function names cannot be looked at: {type(error).__name__}: {error}") from error

    @contextlib.contextmanager
    def _watching(self) -> Iterator[Callable[[], bool]]:
        """Tells whether no other thread captured meanwhile, which may bind what this one does not."""
        with self._lock:
            self._started += 1
            self._open += 1
            started, alone = self._started, self._open == 1
        try:
            yield lambda: alone and started == self._started
        finally:
            with self._lock:
                self._open -= 1

    def _capture(
        self, args: Any, kwargs: Any, kind: Hashable, sized: Hashable, fixed: list[Any], entries: dict[Hashable, _Entry], bound_anew: str, mismatch: str
    ) -> Any:
        """Runs the function, and records it meanwhile.  `mismatch`: why the last capture for other sizes does not hold."""
        leaves, spec = tree_flatten((args, kwargs))
        positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        all_names = [s.name for s in self._specs] if self._specs is not None else argument_names(self._fn, spec)
        names = [all_names[i] for i in positions]
        given = list(leaves)
        begin = lib.clikart_capture_begin_any_sizes if self._dynamic else lib.clikart_capture_begin_running
        with (
            self._watching() as is_alone,
            contextlib.nullcontext(self._surroundings(fixed)) as before,
            Recording("compile", lambda: int(begin(self._fullgraph))) as recording,
            Capture() if self._dynamic else contextlib.nullcontext() as sizes,
        ):
            for name, i in zip(names, positions, strict=True):
                given[i] = wrap(lib.clikart_capture_value(c_text(name, "compile"), leaves[i]._handle))
            own = tree_unflatten(spec, given)
            copies = Copies((args, kwargs), own)
            result = self._fn(*own[0], **own[1])
            if self._specs is not None:
                require_list("compile", result)
            returned, kept = tree_flatten(result)
            numbers = [plain(leaf) for leaf in returned]
            if any(number is not leaf for number, leaf in zip(numbers, returned, strict=True)):
                returned, result = numbers, tree_unflatten(kept, numbers)
            outputs = Outputs(kept, returned)
            results = outputs.tensors(returned)
            why = text(lib.clikart_capture_obstacle()) or self._not_kept(returned)
            try:
                after = self._surroundings(fixed)
            except NoKeyError as error:
                after, why = before, why or str(error)
            if copies.changed():
                copies.write_back()
                why = why or "a container among the arguments is changed"
            if not why and (bound := before.moved(after)):
                forgiven = not (self._set_up and is_alone())
                self._set_up = True
                if forgiven and not self._fullgraph:
                    return result
                why = f"'{bound}' is bound to something else meanwhile"
            if why and self._fullgraph:
                raise ClikaRTRuntimeError(f"compile: {why}, which cannot be recorded into a graph")
            if why:
                with self._lock:
                    if entries is self._entries:  # no reset meanwhile
                        self._why = why
                return result
            any_sizes = sizes is not None and not sizes.fixed
            out_names = numbered("output", len(results)) if self._specs is not None else outputs.names()
            after.keep(before)
            graph = recording.end(results, out_names, self._optimize, any_sizes)
            entry = _Entry(graph, outputs, after, kind if any_sizes else None, any_sizes and any(node.in_place for node in graph.nodes()))
        seen = [f"{name} is {_shown(leaf)}" for name, leaf in zip(all_names, leaves, strict=True)]
        self._store(sized, entry, entries, seen, bound_anew, _holds_for(graph, sizes, mismatch))
        return result


def _holds_for(graph: ModelGraph, sizes: Capture | None, mismatch: str) -> str:
    """Which sizes a capture for any is for after all, as a part of a sentence; before that, why the last one did not do."""
    if sizes is None:
        return ""
    why = f"; the one before {mismatch}" if mismatch else ""
    if sizes.fixed:
        return f"{why}; it holds for these sizes only, as another thread works with one"
    conditions = graph.conditions()
    more = f", and {len(conditions) - _SHOWN} more" if len(conditions) > _SHOWN else ""
    return why + (f"; it holds where {'; '.join(conditions[:_SHOWN])}{more}" if conditions else "")


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The leaves of the arguments, and what else tells their structure."""
    leaves: list[Any] = []
    structure: list[Any] = []
    for arg in args:
        if type(arg) is Tensor:  # as take_apart does
            leaves.append(arg)
            structure.append(None)
        else:
            take_apart(arg, leaves, structure)
    if kwargs:
        structure.append(len(args))
        take_apart(kwargs, leaves, structure)
    return leaves, structure


def _layouts(handles: Any, count: int) -> bytes:
    """How tensors lie in memory."""
    room = 16 * count
    while True:
        numbers = ffi.new("int64_t[]", room)
        used = check(lib.clikart_tensor_layouts(handles, count, numbers, room))
        if used <= room:
            return bytes(ffi.buffer(numbers, 8 * used))
        room = used


def _without_sizes(layouts: bytes) -> tuple[int, ...]:
    """The same without sizes, and without strides."""
    numbers = memoryview(layouts).cast("q")
    kept: list[int] = []
    at = 0
    while at < len(numbers):
        head = numbers[at : at + 5]  # dtype, device and its index, rank, whether it is dense
        kept += head
        at += 5 + (1 if head[4] else 2) * head[3]
    return tuple(kept)


def _lies_as_new(leaf: Tensor) -> bool:
    """Whether its strides are those of a tensor that is made, also where they do not matter."""
    expected, strides = 1, list(leaf.stride())
    for size, stride in zip(reversed(leaf.shape), reversed(strides), strict=True):
        if stride != expected:
            return False
        expected *= size
    return True


def _shown(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        strides = "" if _lies_as_new(leaf) else f" with strides {list(leaf.stride())}"
        kind = "" if type(leaf) is Tensor else f"{type(leaf).__name__} "
        return f"{kind}{leaf.dtype.name} {list(leaf.shape)}{strides}"
    text = repr(leaf)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _reason(before: list[str], now: list[str], bound_anew: str) -> str:
    """Why a capture was made that follows another."""
    if not before:
        return "the first call"
    if bound_anew:
        return f"{bound_anew} is not what it was"
    if len(before) != len(now):
        return f"{len(now)} values were given, {len(before)} before"
    for old, new in zip(before, now, strict=True):
        if old != new:
            return f"{new}, was {old.partition(' is ')[2]}" if old.partition(" is ")[0] == new.partition(" is ")[0] else f"{new}, where {old} was given before"
    return "the containers, or which arguments are named, are others, or the graph was not kept"


@overload
def compile(
    fn: Callable[..., Any], specs: Sequence[TensorSpec] | None = None, *, dynamic: bool = False, fullgraph: bool = False, optimize: int = 2, audit: float = 0.0
) -> Compiled: ...
@overload
def compile(
    fn: None = None, specs: Sequence[TensorSpec] | None = None, *, dynamic: bool = False, fullgraph: bool = False, optimize: int = 2, audit: float = 0.0
) -> Callable[[Callable[..., Any]], Compiled]: ...
def compile(
    fn: Callable[..., Any] | None = None,
    specs: Sequence[TensorSpec] | None = None,
    *,
    dynamic: bool = False,
    fullgraph: bool = False,
    optimize: int = 2,
    audit: float = 0.0,
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Wraps a function or module: its first call runs and is recorded as a graph, later ones replay the graph.

    Inputs of other shapes, dtypes or structures are captured as well; so is a call after a tensor, number or parameter that the
    function names was bound to another.  Values that are no tensors are part of what a graph was captured for.

    What it writes in place is written at each replay.  A function that reads a tensor's value, or calls an operator whose result's size depends on data,
    cannot be recorded; it then is called every time, and the state is ``Fallback``.

    Args:
        fn: the function; what it takes and returns is any pytree.  Without it, what decorates a function is returned.
        specs: names, dtypes and shapes of its inputs; then it takes one list of tensors and returns one.
        dynamic: keep one graph for inputs of all sizes, as long as what the function sees of them is what it was (docs/tracing.md, "Any sizes").
        fullgraph: raise RuntimeError at what cannot be recorded.
        optimize: 0 keeps the steps as they were recorded, 1 and 2 put steps together; the results have the same bits for all.
        audit: the share of replays, from 0 to 1, that are also computed operator by operator and compared bit by bit; RuntimeError, with
            the first node that differs, where they do not agree.  Graphs that write over memory or draw random numbers are passed over.

    Raises:
        TypeError: ``fn`` cannot be called, or ``specs`` are none.

    Example:
        >>> step = crt.compile(lambda x: crt.relu(x) + 1)
        >>> step.state
        <State.Pending: 0>
        >>> step(crt.tensor([-1.0, 2.0])).tolist(), step(crt.tensor([3.0, -4.0])).tolist()
        ([1.0, 3.0], [4.0, 1.0])
        >>> print(step.state, step.recapture_count)
        State.Compiled 0
    """
    if fn is None:
        return functools.partial(compile, specs=specs, dynamic=dynamic, fullgraph=fullgraph, optimize=optimize, audit=audit)
    if not callable(fn):
        raise ClikaRTTypeError(f"compile: expected a function, got {type(fn).__name__}")
    if isinstance(audit, bool) or not isinstance(audit, (int, float)) or not 0 <= audit <= 1:
        raise ClikaRTValueError(f"compile: audit is a share from 0 to 1, got {audit!r}")
    if specs is not None:
        if not isinstance(specs, (list, tuple)) or not all(isinstance(spec, TensorSpec) for spec in specs):
            raise ClikaRTTypeError("compile: specs are a list of TensorSpec")
        if len({spec.name for spec in specs}) < len(specs):
            raise ClikaRTValueError(f"compile: two inputs have one name: {[spec.name for spec in specs]}")
    return Compiled(fn, None if specs is None else list(specs), dynamic, fullgraph, optimization("compile", optimize), audit)
