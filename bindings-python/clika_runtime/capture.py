"""Recording what a function does to tensors: ``trace``, and what it shares with ``compile``."""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast, overload

from ._convert import operand
from ._enums import ClikaRTRuntimeError, ClikaRTTypeError, ClikaRTValueError
from ._library import c_text, check, check_pointer, ffi, lib
from ._refused import int_argument
from .devices import Device
from .dtype import DType
from .graph import ModelGraph
from .pytree import TreeSpec, children_of, tree_flatten, tree_paths, tree_unflatten
from .scopes import apply, scoped
from .sizes import SymInt, captures
from .tensor import Size, Tensor, wrap

__all__ = ["Traced", "trace"]


class Recording:
    """The calling thread records what happens inside; what is not ended there is dropped."""

    def __init__(self, who: str, begin: Callable[[], int]) -> None:
        self._who = who
        self._begin = begin
        self._open = False

    def __enter__(self) -> Recording:
        if scoped:
            apply()
        check(self._begin())
        if (outer := captures.get(threading.get_ident())) is not None:
            outer.open = False  # one that runs its calls is given up
        self._open = True
        return self

    def __exit__(self, *error: object) -> None:
        if self._open:
            lib.clikart_capture_cancel()

    def end(self, results: Sequence[Tensor], names: Sequence[str], optimize: int, any_sizes: bool = False) -> ModelGraph:
        """The graph of what was recorded."""
        out_names = [c_text(name, self._who) for name in names]
        handles = [operand(r) for r in results]
        options = ffi.new("clikart_graph_options*", {"struct_size": ffi.sizeof("clikart_graph_options"), "any_sizes": any_sizes, "optimize": optimize})
        self._open = False
        return ModelGraph(check_pointer(lib.clikart_capture_end_with(handles, out_names, len(handles), options)))


def names_or_default(given: Sequence[str] | None, default: Sequence[str], what: str) -> list[str]:
    """The names that a caller gave, or others."""
    if given is None:
        return list(default)
    if isinstance(given, str) or len(given) != len(default):
        raise ClikaRTValueError(f"trace: {len(given)} {what} names given for {len(default)} {what}s")
    return list(given)


def numbered(what: str, count: int) -> list[str]:
    return [f"{what}_{i}" for i in range(count)]


class Outputs:
    """The structure of what a function returned: tensors, and among them values that are no tensors and stay as they are."""

    __slots__ = ("_fixed", "_one", "_positions", "_spec")

    def __init__(self, spec: TreeSpec, leaves: Sequence[Any]) -> None:
        self._spec = spec
        self._one = not spec.children and [isinstance(leaf, Tensor) for leaf in leaves] == [True]  # a tensor, and nothing around it
        self._positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._fixed = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def tensors(self, leaves: Sequence[Any]) -> list[Tensor]:
        return [leaves[i] for i in self._positions]

    def names(self) -> list[str]:
        """Keys and fields; what has none is an ``output``."""
        paths = tree_paths(self._spec)
        return unique([named("output", paths[i]) for i in self._positions])

    def build(self, tensors: Sequence[Tensor]) -> Any:
        if self._one:
            return tensors[0]
        leaves = list(self._fixed)
        for i, tensor in zip(self._positions, tensors, strict=True):
            leaves[i] = tensor
        return tree_unflatten(self._spec, leaves)


def named(prefix: str, path: str) -> str:
    """A path as a name of its own; positions alone are none."""
    if not path:
        return prefix
    return f"{prefix}.{path}" if path.split(".", 1)[0].isdigit() else path


def unique(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that came before; what C has no text for is escaped."""
    count: dict[str, int] = {}
    result: dict[str, None] = {}
    for given in names:
        name = given.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
        candidate = name
        while candidate in result:
            count[name] = count.get(name, 0) + 1
            candidate = f"{name}_{count[name]}"
        result[candidate] = None
    return list(result)


def argument_names(fn: Callable[..., Any], spec: TreeSpec) -> list[str]:
    """What the leaves of ``(args, kwargs)`` are called: a tensor as its parameter, what is in a dict as its key."""
    positional, keywords = spec.children
    parameters = _parameters(fn)
    names = []
    for i, child in enumerate(positional.children):
        own = parameters[i] if i < len(parameters) else f"input_{i}"
        alone = len(positional.children) == 1 and not keywords.children
        names += [named(own, path) if alone else ".".join(filter(None, (own, path))) for path in tree_paths(child)]
    names += tree_paths(keywords)
    return unique(names)


def _parameters(fn: Callable[..., Any]) -> list[str]:
    """The names of what a function takes by position; a module takes what its forward does."""
    target = getattr(type(fn), "forward", None)
    bound = target is not None
    if target is None:
        target = getattr(fn, "__func__", fn)
        bound = target is not fn
    code = getattr(target, "__code__", None)
    if code is None:
        return []
    return list(code.co_varnames[: code.co_argcount])[1 if bound else 0 :]


class Copies:
    """The containers that a function is given instead of its caller's, with other leaves."""

    def __init__(self, tree: Any, copy: Any) -> None:
        self._containers: list[tuple[Any, Any]] = []
        self._originals: dict[int, Any] = {}
        self._pair(tree, copy)
        self._copy = copy
        self._leaves, self._spec = tree_flatten(copy)

    def _pair(self, original: Any, copy: Any) -> None:
        self._originals[id(copy)] = original
        own, theirs = children_of(copy), children_of(original)
        if own is None or theirs is None:
            return
        self._containers.append((original, copy))
        for pair in zip(theirs[0], own[0], strict=True):
            self._pair(*pair)

    def changed(self) -> bool:
        """Whether the function changed one."""
        leaves, spec = tree_flatten(self._copy)
        return spec != self._spec or any(a is not b for a, b in zip(leaves, self._leaves, strict=True))

    def write_back(self) -> None:
        """Does to the caller's containers what was done to the copies."""
        for original, copy in self._containers:
            own = children_of(copy)
            assert own is not None
            parts = [self._originals.get(id(part), part) for part in own[0]]
            if isinstance(copy, list):
                original[:] = parts
            elif isinstance(copy, dict):
                original.clear()
                original.update(zip(copy, parts, strict=True))
            elif "__dataclass_fields__" in type(copy).__dict__:
                for name, part in zip(cast("tuple[str, ...]", own[1]), parts, strict=True):
                    if getattr(original, name, self) is not part:  # it may be frozen
                        setattr(original, name, part)


class NoKeyError(Exception):
    """A value that is no tensor and may be another one although it looks the same."""


def fixed_key(leaf: Any) -> Hashable:
    """Equal where a function does the same with two values that are no tensors: 1, 1.0 and True are told apart, and so are 0.0
    and -0.0; NaN is like itself.

    Raises:
        NoKeyError: for what may change without becoming another object: arrays, sets and the like.
    """
    if type(leaf) is SymInt:
        leaf = int(leaf)
    if type(leaf) is float:
        return float, leaf.hex()
    if isinstance(leaf, (complex, np_generic())):
        return type(leaf), repr(leaf)
    if type(leaf) is slice:
        return slice, fixed_key(leaf.start), fixed_key(leaf.stop), fixed_key(leaf.step)
    try:
        hash(leaf)
    except TypeError:
        raise NoKeyError(f"a {type(leaf).__name__} is neither a tensor nor a value that stays what it is") from None
    return type(leaf), leaf


def np_generic() -> type:
    """The class of NumPy's numbers, if anybody imported NumPy."""
    numpy = sys.modules.get("numpy")
    return getattr(numpy, "generic", float)


_KEPT = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), DType, Device, enum.Enum, Size, slice, range)


def is_kept(leaf: Any) -> bool:
    """Whether a result can be given again by a graph: a tensor, or a value that stays what it is."""
    return isinstance(leaf, (Tensor, *_KEPT, np_generic()))


class Traced:
    """What :func:`trace` makes of a function over pytrees: called like the function, it runs the graph."""

    def __init__(self, graph: ModelGraph, spec: TreeSpec, positions: Sequence[int], fixed: Sequence[Any], outputs: Outputs) -> None:
        #: The runnable graph.
        self.graph = graph
        self._spec = spec
        self._tensors = frozenset(positions)
        self._fixed = fixed
        self._outputs = outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph.

        Raises:
            ValueError: another structure than that of the example, another value that is no tensor, or a wrong shape.
            TypeError: a wrong dtype.
        """
        leaves, spec = tree_flatten((args, kwargs))
        if spec != self._spec:
            raise ClikaRTValueError(f"trace: called with the structure {spec!r}, traced for {self._spec!r}")
        tensors: list[Tensor] = []
        for i, leaf in enumerate(leaves):
            if i in self._tensors:
                if not isinstance(leaf, Tensor):
                    raise ClikaRTTypeError(f"trace: expected a tensor for '{self.graph.input_names()[len(tensors)]}', got {type(leaf).__name__}")
                tensors.append(leaf)
            elif leaf is not self._fixed[i] and (isinstance(leaf, Tensor) or fixed_key(leaf) != fixed_key(self._fixed[i])):
                raise ClikaRTValueError(f"trace: called with {leaf!r}, traced for {self._fixed[i]!r}")
        return self._outputs.build(self.graph.run(tensors))


@overload
def trace(
    fn: Callable[..., Any], example_inputs: list[Tensor], input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, optimize: int = 2
) -> ModelGraph: ...
@overload
def trace(
    fn: Callable[..., Any], example_inputs: Any, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, optimize: int = 2
) -> Traced: ...
def trace(
    fn: Callable[..., Any], example_inputs: Any, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, optimize: int = 2
) -> ModelGraph | Traced:
    """Records what a function does to its inputs as a graph.

    The function runs once, over stand-ins that have the shapes and dtypes of the examples and no values: reading a
    value raises.  Other tensors it uses, parameters among them, are part of the graph: it sees what is written into them
    in place later, not what a name or a parameter is bound to later.

    Args:
        fn: the function, or a module.
        example_inputs: a list of tensors: then the function takes one list and returns one, and the result is the
            :class:`ModelGraph`.  A tuple holds the function's arguments, which are any pytrees, and so is what it returns;
            anything else is the one argument.  The result then is called like the function and has the ``graph``.
        input_names: a name for each input; without it ``input_0``, ... for a list, else keys and the names of parameters.
        output_names: a name for each output; without it ``output_0``, ... for a list, else keys.
        optimize: 0 keeps the steps as they were recorded, 1 and 2 put steps together; the results have the same bits for all.

    Raises:
        RuntimeError: the function read a value.
        TypeError: something that is no tensor in a list, or that was returned instead of a list.
        ValueError: wrong or repeated names.

    Example:
        >>> x = crt.ones((2, 3))
        >>> traced = crt.trace(lambda d: {"sum": crt.sum(d["x"], dims=[1]), "twice": d["x"] * 2}, ({"x": x},))
        >>> traced.graph.input_names(), traced.graph.output_names()
        (['x'], ['sum', 'twice'])
        >>> traced({"x": x})["sum"].tolist()
        [3.0, 3.0]
    """
    optimize = optimization("trace", optimize)
    if not callable(fn):
        raise ClikaRTTypeError(f"trace: expected a function, got {type(fn).__name__}")
    if isinstance(example_inputs, list):
        return _trace_list(fn, example_inputs, input_names, output_names, optimize)
    args = example_inputs if type(example_inputs) is tuple else (example_inputs,)
    leaves, spec = tree_flatten((args, {}))
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            try:
                fixed_key(leaf)
            except NoKeyError as error:
                raise ClikaRTTypeError(f"trace: {error}") from None
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    all_names = argument_names(fn, spec)
    names = names_or_default(input_names, [all_names[i] for i in positions], "input")
    with Recording("trace", lib.clikart_capture_begin) as recording:
        given = list(leaves)
        for name, i in zip(names, positions, strict=True):
            given[i] = _stand_in(name, leaves[i])
        own = tree_unflatten(spec, given)[0]
        copies = Copies(args, own)
        result = fn(*own)
        if copies.changed():
            raise ClikaRTRuntimeError("trace: the function changes a container among its arguments, which a graph cannot; return what is new")
        returned, kept = tree_flatten(result)
        for leaf in returned:
            if not is_kept(leaf):
                raise ClikaRTTypeError(
                    f"trace: the function returned a {type(leaf).__name__}, which is neither a tensor, a number or text, nor a known container of them"
                )
        outputs = Outputs(kept, returned)
        graph = recording.end(outputs.tensors(returned), names_or_default(output_names, outputs.names(), "output"), optimize)
    return Traced(graph, spec, positions, leaves, outputs)


def _trace_list(
    fn: Callable[..., Any], examples: list[Any], input_names: Sequence[str] | None, output_names: Sequence[str] | None, optimize: int
) -> ModelGraph:
    names = names_or_default(input_names, numbered("input", len(examples)), "input")
    for example in examples:
        if not isinstance(example, Tensor):
            raise ClikaRTTypeError(f"trace: example inputs are tensors, got {type(example).__name__}")
    with Recording("trace", lib.clikart_capture_begin) as recording:
        results = require_list("trace", fn([_stand_in(name, example) for name, example in zip(names, examples, strict=True)]))
        return recording.end(results, names_or_default(output_names, numbered("output", len(results)), "output"), optimize)


def optimization(who: str, optimize: int) -> int:
    """A level of optimisation."""
    if isinstance(optimize, bool):
        raise ClikaRTTypeError(f"{who}: optimize is 0, 1 or 2, got {optimize}")
    level = int_argument(who, "optimize", optimize)
    if not 0 <= level <= 2:
        raise ClikaRTValueError(f"{who}: optimize is 0, 1 or 2, got {level}")
    return level


def require_list(who: str, results: Any) -> list[Tensor]:
    """What a function of the list form returned."""
    if not isinstance(results, (list, tuple)) or not all(isinstance(r, Tensor) for r in results):
        raise ClikaRTTypeError(f"{who}: the function must return a list of tensors, it returned {type(results).__name__}")
    return list(results)


def _stand_in(name: str, example: Tensor) -> Tensor:
    return wrap(lib.clikart_capture_input(c_text(name, "trace"), example.dtype.code, tuple(example.shape), example.ndim))
