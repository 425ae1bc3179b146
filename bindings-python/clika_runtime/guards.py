"""What a captured function took from outside of its arguments: whether it is still what it was."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable
from typing import Any

from ._library import ffi
from .capture import fixed_key
from .nn.module import Module
from .tensor import Tensor

__all__ = ["State", "changed", "kept", "state_of"]

#: What was found under each name.
State = dict[Hashable, Hashable]

_LONGEST = 256  # elements of a list or dict that are looked at
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))


def state_of(fn: Callable[..., Any]) -> State:
    """The tensors, modules and numbers that a function names.

    Looked at are the function's own globals, what it encloses, the object that a method belongs to, what a partial holds, and of
    modules the parameters, modules and simple attributes below them.  Of functions that it calls only the ones it encloses, of
    lists and dicts the tensors and modules among the first 256 elements.
    """
    state: State = {}
    _look(fn, (), state, set())
    return state


def kept(before: State, after: State) -> State:
    """What a function left as it was: a counter that it moves on itself is no reason to capture it again."""
    return {name: key for name, key in before.items() if after.get(name, after) == key}


def changed(taken: State, now: State) -> str:
    """The name of the first thing that is not what it was; empty when all is."""
    for name, key in taken.items():
        if now.get(name, now) != key:
            return ".".join(str(part) for part in name) if isinstance(name, tuple) and name else "the function"
    return ""


def _look(value: Any, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    if isinstance(value, _NUMBERS):
        state[name] = fixed_key(value)
    elif isinstance(value, Tensor):
        state[name] = int(ffi.cast("uintptr_t", value._handle))  # stays taken as long as a graph uses the tensor
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, Module):
            _look_into_module(value, name, state, seen)
        elif isinstance(value, functools.partial):
            for i, part in enumerate((value.func, *value.args, *value.keywords.values())):
                _look(part, (*name, i), state, seen)
        elif isinstance(value, (list, tuple, dict)):
            elements = value.values() if isinstance(value, dict) else value
            for i, part in enumerate(itertools.islice(elements, _LONGEST)):
                if not isinstance(part, _NUMBERS):
                    _look(part, (*name, i), state, seen)
        elif hasattr(value, "__func__") and hasattr(value, "__self__"):
            _look(value.__self__, (*name, 0), state, seen)
            _look(value.__func__, (*name, 1), state, seen)
        elif hasattr(value, "__code__"):
            _look_into_function(value, name, state, seen)


def _look_into_function(fn: Any, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    state[name] = id(fn.__code__)
    for used, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        _look(value, (*name, used), state, seen)
    for used in fn.__code__.co_names:
        value = fn.__globals__.get(used)
        if isinstance(value, (*_NUMBERS, Tensor, Module)):
            _look(value, (*name, used), state, seen)
    for i, value in enumerate(fn.__defaults__ or ()):
        _look(value, (*name, "default", i), state, seen)


def _look_into_module(module: Module, name: tuple[Any, ...], state: State, seen: set[int]) -> None:
    state[name] = id(module)
    for own, value in itertools.chain(module._parameters.items(), module._modules.items()):
        _look(value, (*name, own), state, seen)
    for own, value in module.__dict__.items():
        if isinstance(value, (*_NUMBERS, Tensor)):
            _look(value, (*name, own), state, seen)
    _look(type(module).forward, (*name, "forward"), state, seen)
