"""Branches and loops that depend on values, and may be parts of a graph."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import ops
from ._enums import ClikaRTError, ClikaRTTypeError, ClikaRTValueError, bool_
from ._library import PACKAGE, c_text, check, check_pointer, ffi, lib, text
from .pytree import TreeSpec, tree_flatten, tree_unflatten
from .sizes import plain
from .tensor import Tensor, tensor, wrap

__all__ = ["cond", "while_loop"]


def cond(condition: Tensor | bool, on_true: Callable[..., Any], on_false: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """What one of two functions returns, as the value of a tensor says.

    While a graph is recorded, by :func:`trace` or :func:`compile`, both are called, once, and become parts of it; each run computes one of
    them, and nobody waits for the value.  Elsewhere the condition is waited for, and one function is called.

    Args:
        condition: one element, which is true where it is not zero; or a bool of Python's, which is decided now.
        on_true: called with the operands; it may use other tensors as well.  In a graph it writes over no memory and draws no random numbers.
        on_false: the same; it returns the same structure, with tensors of the same dtypes and shapes.
        operands: the arguments.

    Returns:
        A tensor, or any pytree of them, which have memory of their own, also where a function returns what it was given.

    Raises:
        TypeError: something else than tensors is returned, or other dtypes or structures by one function than by the other.
        ValueError: a condition of more elements than one; other shapes by one function than by the other.

    Example:
        >>> def halve(x):
        ...     return x / 2
        >>> graph = crt.trace(lambda i: [crt.cond(crt.sum(i[0]) > 10, halve, lambda x: x + 1, (i[0],))], [crt.ones(2)])
        >>> graph.run([crt.tensor([1.0, 2.0])])[0].tolist(), graph.run([crt.tensor([10.0, 20.0])])[0].tolist()
        ([2.0, 3.0], [5.0, 10.0])
    """
    operands = _listed("cond", "operands", operands)
    if not isinstance(condition, Tensor):
        if not isinstance(condition, bool) and type(condition).__module__ != "numpy":
            raise ClikaRTTypeError(f"cond: the condition is a tensor or a bool, got {type(condition).__name__}")
        return (on_true if condition else on_false)(*operands)

    def call() -> Any:
        leaves, spec = _tensors("cond", (on_true if bool(_truth("cond", condition)) else on_false)(*operands), None)
        return tree_unflatten(spec, [ops.copy(leaf) for leaf in leaves])  # as a graph's, they have memory of their own

    def record() -> Any:
        truth = _truth("cond", condition)
        regions, specs = zip(*(_region("cond", function, operands) for function in (on_true, on_false)), strict=True)
        if specs[0] != specs[1]:
            raise ClikaRTTypeError(f"cond: one function returns the structure {specs[0]!r}, the other {specs[1]!r}")
        outputs = ffi.new("clikart_tensor*[]", specs[0].num_leaves)
        check(lib.clikart_cond(truth._handle, *regions, outputs, len(outputs)))
        return tree_unflatten(specs[0], [wrap(handle) for handle in outputs])

    return _recorded("cond", record, call)


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Any]) -> Any:
    """Calls ``body`` with what it returned before, as long as ``condition`` of that is true.

    While a graph is recorded, by :func:`trace` or :func:`compile`, both are called once, and the loop becomes a part of it; each run goes
    round as often as its values say, and nobody waits for them.  Elsewhere each value of the condition is waited for.

    Args:
        condition: takes what is carried, and returns a tensor with one element.
        body: takes what is carried, and returns a tuple or list like it: the same structure, dtypes and shapes.  Both may use other tensors as
            well.  In a graph neither writes over memory or draws random numbers.
        carried: what is carried at first, pytrees of tensors and numbers, which become tensors.

    Returns:
        A tuple of what is carried at last.

    Raises:
        TypeError: other structures or dtypes than what was carried.
        ValueError: other shapes; a condition of more elements than one.

    Example:
        >>> crt.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, crt.tensor(1.0)))[1].item()
        8.0
    """
    leaves, spec = tree_flatten(_listed("while_loop", "carried", carried))
    leaves = [plain(leaf) for leaf in leaves]
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, bool, int, float)):
            raise ClikaRTTypeError(f"while_loop: tensors and numbers are carried, got {type(leaf).__name__}")
    if not leaves:
        raise ClikaRTValueError("while_loop: nothing is carried")
    first = [leaf if isinstance(leaf, Tensor) else tensor(leaf) for leaf in leaves]

    def make(values: Any) -> Any:
        return tree_unflatten(spec, values)

    def test(*values: Any) -> Any:
        found = condition(*values)
        if not isinstance(found, Tensor):
            raise ClikaRTTypeError(f"while_loop: the condition is a tensor, got {type(found).__name__}")
        return _truth("while_loop", found)

    def step(*values: Any) -> Any:
        made = body(*values)
        return tuple(made) if isinstance(made, list) else made

    def call() -> Any:
        values = [leaf.contiguous() for leaf in first]  # as in a graph: bits of what is computed of it may depend on how it lies
        while bool(test(*make(values))):
            made = [leaf.contiguous() for leaf in _tensors("while_loop", step(*make(values)), spec)[0]]
            for i, (now, before) in enumerate(zip(made, values, strict=True)):
                if now.dtype is not before.dtype or now.shape != before.shape:
                    error = ClikaRTValueError if now.dtype is before.dtype else ClikaRTTypeError
                    raise error(f"while_loop: result {i} is {now.dtype.name} {list(now.shape)}, and before {before.dtype.name} {list(before.shape)}")
            values = made
        return make([ops.copy(value) for value in values])

    def record() -> Any:
        regions = []
        for function, returned in ((test, None), (step, spec)):
            regions.append(_region("while_loop", lambda *values, function=function: function(*make(values)), first, returned, parameters=True)[0])
        handles, outputs = [leaf._handle for leaf in first], ffi.new("clikart_tensor*[]", len(first))
        check(lib.clikart_while_loop(handles, *regions, outputs, len(outputs)))
        return make([wrap(handle) for handle in outputs])

    return _recorded("while_loop", record, call)


def _truth(who: str, condition: Tensor) -> Tensor:
    """A condition as a bool without dimensions."""
    if condition.ndim:
        if any(size != 1 for size in condition.shape):
            raise ClikaRTValueError(f"{who}: the condition has one element, got shape {list(condition.shape)}")
        condition = ops.reshape(condition, ())
    return condition if condition.dtype is bool_ else ops.ne(condition, 0)


def _listed(who: str, name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, (Tensor, str, Mapping)) or not isinstance(values, Iterable):
        raise ClikaRTTypeError(f"{who}: {name} is a tuple or a list, got {type(values).__name__}")
    return tuple(values)


def _tensors(who: str, result: Any, spec: TreeSpec | None) -> tuple[list[Tensor], TreeSpec]:
    """The tensors that a function returned, which have this structure, if any is given."""
    leaves, returned = tree_flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ClikaRTTypeError(f"{who}: {type(leaf).__name__} is returned, expected a tensor")
    if spec is not None and returned != spec:
        raise ClikaRTTypeError(f"{who}: the structure {returned!r} is returned, {spec!r} is carried")
    return leaves, returned


def _region(who: str, function: Callable[..., Any], given: Sequence[Any], spec: TreeSpec | None = None, parameters: bool = False) -> tuple[Any, TreeSpec]:
    """What a function does, recorded as a program of its own; with parameters in the place of the tensors that it is given."""
    check(lib.clikart_region_begin())
    try:
        if parameters:
            given = [wrap(lib.clikart_region_input(value._handle)) for value in given]
        leaves, returned = _tensors(who, function(*given), spec)
    except BaseException:
        lib.clikart_region_cancel()
        raise
    region = check_pointer(lib.clikart_region_end([leaf._handle for leaf in leaves], len(leaves)))
    return ffi.gc(region, lib.clikart_region_release), returned


def _recorded(who: str, record: Callable[[], Any], call: Callable[[], Any]) -> Any:
    """The one where a graph is recorded, else the other."""
    if not lib.clikart_capturing() or text(lib.clikart_capture_obstacle()):
        return call()
    if lib.clikart_get_mode() == lib.CLIKART_MODE_CAPTURE:
        return record()
    try:
        return record()
    except Exception as error:  # the calls go on, without a graph
        kind = "" if isinstance(error, ClikaRTError) else f"{type(error).__name__}: "
        message = f"{kind}{error}"
        status = lib.clikart_capture_give_up(c_text(message if message.startswith(f"{who}: ") else f"{who}: {message}", who))
        if line := _line_of(error):
            lib.clikart_tell_origin(line.encode(errors="replace"))
        check(status)
    return call()


def _line_of(error: BaseException) -> str:
    """The line of a branch or a body that an error comes from; empty where it comes from here."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [f"{file}:{line}" for file, line in places if not file.startswith(PACKAGE)]
    return own[-1] if own else ""
