"""``compile``: capture a function while it runs, and replay the graph from then on."""

from __future__ import annotations

import enum
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from . import guards
from ._enums import ClikaRTRuntimeError, ClikaRTTypeError, ClikaRTValueError
from ._library import c_text, check, lib, text
from .capture import Outputs, argument_names, end, fixed_key, numbered, optimization, recording, require_list, unique
from .dtype import DType
from .graph import ModelGraph
from .pytree import tree_flatten, tree_unflatten
from .tensor import Size, Tensor, wrap

__all__ = ["Compiled", "State", "TensorSpec", "compile"]

_KEPT = 64  # graphs of one wrapper


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
        if not all(isinstance(size, int) and size >= 0 for size in self.shape):
            raise ClikaRTValueError(f"TensorSpec: '{self.name}' has the shape {list(self.shape)}; sizes are whole numbers from 0 on")
        object.__setattr__(self, "shape", Size(self.shape))


@dataclass(frozen=True)
class _Entry:
    """One capture."""

    graph: ModelGraph
    outputs: Outputs
    #: What the function took from elsewhere.
    taken: guards.State


class Compiled:
    """What :func:`compile` makes of a function: called like it.  Any number of threads may call it."""

    def __init__(self, fn: Callable[..., Any], specs: Sequence[TensorSpec] | None, dynamic: bool, fullgraph: bool, optimize: int) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._fn = fn
        self._specs = specs
        self._dynamic = dynamic
        self._fullgraph = fullgraph
        self._optimize = optimize
        self._lock = threading.Lock()  # guards what follows
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._captures = 0
        self._why = ""
        self._last: ModelGraph | None = None

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
            self._entries.clear()
            self._captures, self._why, self._last = 0, "", None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._why or lib.clikart_capturing():  # a part of another capture is recorded with it
            return self._fn(*args, **kwargs)
        leaves, spec = tree_flatten((args, kwargs))
        if self._specs is not None:
            self._check_list(args, kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        fixed = tuple([None if isinstance(leaf, Tensor) else fixed_key(leaf) for leaf in leaves])
        kinds = tuple([(t.dtype.code, t.ndim) for t in tensors])
        shapes = tuple([t.shape for t in tensors])
        state = guards.state_of(self._fn)
        with self._lock:
            for key in ((spec, fixed, kinds, None), (spec, fixed, kinds, shapes)):
                entry = self._entries.get(key)
                if entry is not None and guards.holds(entry.taken, state):
                    self._entries.move_to_end(key)
                    break
            else:
                entry = None
        if entry is not None:
            return entry.outputs.build(entry.graph.run(tensors))
        return self._capture(leaves, spec, (spec, fixed, kinds), shapes, state)

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

    def _capture(self, leaves: list[Any], spec: Any, key: tuple[Hashable, ...], shapes: Hashable, state: guards.State) -> Any:
        """Runs the function, and records it meanwhile."""
        positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if self._specs is not None:
            names = [s.name for s in self._specs]
        else:
            all_names = argument_names(self._fn, spec)
            names = unique([all_names[i] for i in positions])
        given = list(leaves)
        with recording(lambda: int(lib.clikart_capture_begin_running(self._fullgraph))):
            for name, i in zip(names, positions, strict=True):
                given[i] = wrap(lib.clikart_capture_value(c_text(name, "compile"), leaves[i]._handle))
            args, kwargs = tree_unflatten(spec, given)
            result = self._fn(*args, **kwargs)
            if self._specs is not None:
                require_list("compile", result)
            returned, kept = tree_flatten(result)
            outputs = Outputs(kept, returned)
            results = outputs.tensors(returned)
            if why := text(lib.clikart_capture_obstacle()):
                with self._lock:
                    self._why = why
                return result
            any_sizes = self._dynamic and not check(lib.clikart_capture_sizes_asked())
            out_names = numbered("output", len(results)) if self._specs is not None else outputs.names()
            entry = _Entry(end(results, out_names, self._optimize, any_sizes), outputs, guards.kept(state, guards.state_of(self._fn)))
        with self._lock:
            self._entries[(*key, None if any_sizes else shapes)] = entry
            self._captures += 1
            self._last = entry.graph
            while len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        return result


def compile(
    fn: Callable[..., Any], specs: Sequence[TensorSpec] | None = None, *, dynamic: bool = False, fullgraph: bool = False, optimize: int = 2
) -> Compiled:
    """Wraps a function or module: its first call runs and is recorded as a graph, later ones replay the graph.

    Inputs of other shapes, dtypes or structures are captured as well; so is a call after a tensor, number or parameter that the
    function names was bound to another.  Values that are no tensors are part of what a graph was captured for.

    A function that reads a tensor's value, writes into one in place, or calls an operator whose result's size depends on data,
    cannot be recorded; it then is called every time, and the state is ``Fallback``.

    Args:
        fn: the function; what it takes and returns is any pytree.
        specs: names, dtypes and shapes of its inputs; then it takes one list of tensors and returns one.
        dynamic: keep one graph for inputs of all sizes, as long as the function never looks at a size itself.
        fullgraph: raise RuntimeError at what cannot be recorded.
        optimize: 0 keeps the steps as they were recorded, 1 and 2 put steps together; the results have the same bits for all.

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
    if not callable(fn):
        raise ClikaRTTypeError(f"compile: expected a function, got {type(fn).__name__}")
    if specs is not None and (isinstance(specs, TensorSpec) or not all(isinstance(spec, TensorSpec) for spec in specs)):
        raise ClikaRTTypeError("compile: specs are a list of TensorSpec")
    return Compiled(fn, None if specs is None else list(specs), dynamic, fullgraph, optimization("compile", optimize))
