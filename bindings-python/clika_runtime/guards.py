"""What a captured function took from outside of its arguments: whether it is still what it was."""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Callable, Iterable
from typing import Any

from .capture import fixed_key, np_generic
from .devices import Device
from .dtype import DType
from .nn.module import Module
from .tensor import Tensor

__all__ = ["State", "changed", "kept", "moved", "state_of"]

#: What was found under each name: objects that have to be the same ones, and tuples that have to be equal.  They are kept, so that
#: no other object can take their place in memory.
State = dict[tuple[Any, ...], Any]

_LONGEST = 256  # elements of a list or dict that are looked at
_VALUES = (bool, int, float, complex, str, bytes, type(None), DType, Device)


def state_of(fn: Callable[..., Any], arguments: Iterable[Any]) -> State:
    """The tensors, modules and numbers that a function names, and those in objects among its arguments.

    Looked at are the function's own globals, what it encloses, its defaults, the object that a method belongs to or that is called,
    what a partial holds, and the attributes of modules and of such objects.  Of functions that it calls by global names it only
    matters that they are the same ones; of lists and dicts the first 256 elements are looked at.
    """
    state: State = {}
    seen: set[int] = set()
    _look(fn, (), state, seen)
    for i, argument in enumerate(arguments):
        if not isinstance(argument, (*_VALUES, Tensor, type)):
            if isinstance(argument, (types.FunctionType, types.MethodType, functools.partial)):
                _look(argument, ("argument", i), state, seen)
            elif hasattr(argument, "__dict__"):
                _look_into(argument, ("argument", i), state, seen)
    return state


def moved(before: State, after: State) -> str:
    """The name of something that was bound anew meanwhile, which a replay would not do; empty when nothing was.  What is added to
    lists and dicts does not count: they are more often records than parameters."""
    for name, key in before.items():
        if name[-1:] != ("length",) and not _same(after.get(name, after), key):
            return _shown(name)
    return ""


def kept(before: State, after: State) -> State:
    """What a function left as it was."""
    return {name: key for name, key in before.items() if _same(after.get(name, after), key)}


def changed(taken: State, now: State) -> str:
    """The name of the first thing that is not what it was; empty when all is."""
    for name, key in taken.items():
        if not _same(now.get(name, now), key):
            return _shown(name)
    return ""


def _shown(name: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in name) or "the function"


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is tuple and type(b) is tuple and a == b)


def _look(value: Any, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    if isinstance(value, (*_VALUES, np_generic())):
        state[name] = fixed_key(value)
    elif isinstance(value, Tensor):
        state[name] = value._handle  # a parameter may take another
    elif isinstance(value, (list, tuple, dict)):
        _look_into_container(value, name, state, seen)
    elif isinstance(value, functools.partial):
        for i, part in enumerate((value.func, *value.args, *value.keywords.values())):
            _look(part, (*name, i), state, seen)
    elif isinstance(value, types.MethodType):
        _look_into(value.__self__, (*name, "self"), state, seen)
        _look(value.__func__, name, state, seen)
    elif isinstance(value, types.FunctionType):
        state[name] = value.__code__
        if id(value) not in seen:
            seen.add(id(value))
            _look_into_function(value, name, state, seen)
    elif isinstance(value, Module) or not name:
        _look_into(value, name, state, seen)
    else:
        state[name] = value


def _look_into_container(value: Any, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    state[(*name, "length")] = (int, len(value))
    elements = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in itertools.islice(elements, _LONGEST):
        _look(part, (*name, key), state, seen)


@functools.lru_cache(maxsize=4096)
def _globals_of(code: types.CodeType) -> tuple[str, ...]:
    """The global names that a function reads, and the functions that are written in it."""
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_globals_of(constant))
    return tuple(sorted(names))


def _look_into_function(fn: types.FunctionType, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    for used, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        _look(value, (*name, used), state, seen)
    for used in _globals_of(fn.__code__):
        if used in fn.__globals__:
            value = fn.__globals__[used]
            if isinstance(value, (types.FunctionType, types.ModuleType)):
                state[(*name, used)] = value
            else:
                _look(value, (*name, used), state, seen)
    for i, value in enumerate((*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())):
        _look(value, (*name, f"default {i}"), state, seen)


def _look_into(value: Any, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    """Into a module, or an object with attributes."""
    state[name] = value
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Module):
        for own, part in itertools.chain(value._parameters.items(), value._modules.items()):
            _look(part, (*name, own), state, seen)
    for own, part in getattr(value, "__dict__", {}).items():
        if own not in ("_parameters", "_modules"):
            _look(part, (*name, own), state, seen)
    for own, part in vars(type(value)).items():
        if isinstance(part, (Tensor, *_VALUES)) and not own.startswith("__"):
            _look(part, (*name, "class", own), state, seen)
    entry = "forward" if isinstance(value, Module) else "__call__"
    code = getattr(type(value), entry, None)
    if isinstance(code, types.FunctionType):
        _look(code, (*name, entry), state, seen)
