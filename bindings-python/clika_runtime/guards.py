"""What a captured function took from outside of its arguments: whether it is still what it was."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .capture import fixed_key, np_generic
from .devices import Device
from .dtype import DType
from .nn.module import Module, Parameter
from .tensor import Tensor

__all__ = ["Surroundings", "Wrapper"]

_LONGEST = 256  # elements of a list or dict that are looked at
_MOST = 4096  # things; functions that are called by name are not looked into when there are more
_VALUES = (bool, int, float, complex, str, bytes, type(None), DType, Device)
_Name = tuple[Any, ...]
_FIRST = "<first>"  # stands for a function's first argument, whatever its name


class Wrapper:
    """Calls a function, and is looked at as that: what else it holds makes no difference."""

    _fn: Callable[..., Any]


class Surroundings:
    """The tensors, modules and numbers that a function names, and those in objects among its arguments.

    Looked at are the function's own globals, what it encloses, its defaults, the object that a method belongs to or that is called,
    what a partial holds, the attributes of modules and of such objects, and those that it takes of other objects that it names
    (``config.rate``).  The functions and methods that it calls by name are looked at as it is, unless they are of a library.  Of lists and
    dicts the first 256 elements are looked at.  Not looked at is what is found under a name of its own only (``c = config; c.rate``).

    Raises:
        Exception: what objects of the user's raise when they are looked at.
    """

    def __init__(self, fn: Callable[..., Any], arguments: Sequence[Any]) -> None:
        #: What was found under each name: objects that have to be the same ones, and tuples that have to be equal.  They are kept,
        #: so that no other object can take their place in memory.
        self._found: dict[_Name, Any] = {}
        self._seen: set[int] = set()
        # Where it was found: as long as the same objects are there, nothing has changed.
        self._slots: list[tuple[Any, Any, Any]] = []  # holder, key, value
        self._cells: list[tuple[types.CellType, Any]] = []
        self._attributes: list[tuple[Any, str, Any]] = []  # of what has no dict of its own, or inherits them
        self._handles: list[tuple[Parameter, Any]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._helpers: list[tuple[types.FunctionType, _Name, Any]] = []  # functions that are called by name, and what they are methods of
        self._helping = False  # one of them is looked into
        self._gathering: list[_Name] = []  # their containers
        self._moved: set[_Name] = set()
        self._records: list[_Name] = []
        self._arguments = [a for a in arguments if not isinstance(a, (*_VALUES, Tensor, type))]
        self._look(fn, ())
        for i, argument in enumerate(self._arguments):
            if isinstance(argument, (types.FunctionType, types.MethodType, functools.partial)):
                self._look(argument, ("argument", i))
            elif not isinstance(argument, types.ModuleType) and (hasattr(argument, "__dict__") or hasattr(type(argument), "__slots__")):
                self._look_into(argument, ("argument", i))
        self._helping = True  # after all that the function itself names
        for helper, name, owner in self._helpers:
            if len(self._slots) < _MOST:
                self._look_into_function(helper, name, owner)
        self._holds: Callable[[], bool] = bool  # False until something is kept; see keep()

    def untouched(self, arguments: Sequence[Any]) -> bool:
        """Whether all is where it was; if not, it may still be equal."""
        try:
            if not self._holds():
                return False
        except Exception:  # a key that is gone, a cell without a value, or what an object of the user's does
            return False
        if not arguments and not self._arguments:
            return True
        objects = [a for a in arguments if not isinstance(a, (*_VALUES, Tensor, type))]
        return len(objects) == len(self._arguments) and all(a is b for a, b in zip(objects, self._arguments, strict=True))

    def _expression(self) -> Callable[[], bool]:
        """Whether the same objects are in all places.  Looked at at every call: written out, it takes a quarter of the time of loops."""
        names: dict[str, Any] = {}

        def named(value: Any) -> str:
            name = f"v{len(names)}"
            names[name] = value
            return name

        def element(holder: Any) -> str:  # not what a class derived from dict or list makes of it, which may be to put it there
            if isinstance(holder, dict) and type(holder) is not dict:
                return f"dict.get({named(holder)}, %s, dict)"
            if isinstance(holder, list) and type(holder) is not list:
                return f"list.__getitem__({named(holder)}, %s)"
            return f"{named(holder)}[%s]"

        terms = [f"{element(holder) % named(key)} is {named(value)}" for holder, key, value in self._slots]
        terms += [f"{named(cell)}.cell_contents is {named(value)}" for cell, value in self._cells]
        terms += [f"getattr({named(owner)}, {named(attribute)}, None) is {named(value)}" for owner, attribute, value in self._attributes]
        terms += [f"{named(parameter)}._handle is {named(handle)}" for parameter, handle in self._handles]
        terms += [f"len({named(container)}) == {length}" for container, length in self._lengths]
        holds: Callable[[], bool] = eval("lambda: " + (" and ".join(terms) or "True"), names)
        return holds

    def changed(self, now: Surroundings) -> str:
        """The name of the first thing that is not what it was, or is new; empty when all is."""
        for name, key in self._found.items():
            if not _same(now._found.get(name, now), key):
                return _shown(name)
        for name in now._found.keys() - self._found.keys():
            if name not in self._moved and not any(name[: len(record)] == record for record in self._records):
                return _shown(name)
        return ""

    def moved(self, after: Surroundings) -> str:
        """The name of something that was bound anew or came into being meanwhile, which a replay would not do; empty when nothing
        was.  What is no tensor may be added to lists: they are more often records than parameters; and helpers may gather what they like."""
        for name, key in self._found.items():
            if name[-1:] != ("length",) and not _same(after._found.get(name, after), key):
                return _shown(name)
        lists = {name[:-1] for name in after._found if name[-1:] == ("length",) and after._found[name][0] is list}
        for name in after._found.keys() - self._found.keys():
            added = any(name[:i] in lists for i in range(len(name)))
            gathered = any(name[: len(place)] == place for place in after._gathering)
            if not gathered and (not added or type(after._found[name]) is not tuple):
                return _shown(name)
        return ""

    def keep(self, before: Surroundings) -> None:
        """Forgets what is not as it was before: the lengths of containers that the function adds to, and what it adds to lists.  What it
        set up otherwise has to stay as it is now."""
        moved = {name for name in self._found if not _same(before._found.get(name, before), self._found[name])}
        self._records = [name[:-1] for name in moved if name[-1:] == ("length",)]
        lists = [record for record in self._records if self._found[(*record, "length")][0] is list]
        self._moved = {name for name in moved if name[-1:] == ("length",) or name in before._found or any(name[: len(record)] == record for record in lists)}
        self._found = {name: key for name, key in self._found.items() if name not in self._moved}
        self._move_to_places_of(self)

    def move_to(self, now: Surroundings) -> None:
        """All is what it was, but elsewhere."""
        self._arguments = now._arguments
        self._move_to_places_of(now)

    def _move_to_places_of(self, now: Surroundings) -> None:
        self._holds = now._expression()
        for places in (self._slots, self._cells, self._attributes, self._handles, self._lengths, self._helpers):
            places.clear()  # what is not there any more is not to be kept alive

    def _look(self, value: Any, name: _Name) -> None:
        if isinstance(value, (*_VALUES, np_generic())):
            self._found[name] = fixed_key(value)
        elif isinstance(value, Tensor):
            self._found[name] = value._handle
            if isinstance(value, Parameter):  # which may take another
                self._handles.append((value, value._handle))
        elif isinstance(value, (list, tuple, dict)):
            self._look_into_container(value, name)
        elif isinstance(value, functools.partial):
            self._found[(*name, "partial")] = (len(value.args), tuple(value.keywords))
            for i, part in enumerate((value.func, *value.args, *value.keywords.values())):
                self._look(part, (*name, i))
        elif isinstance(value, types.MethodType):
            self._look_into(value.__self__, (*name, "self"))
            if isinstance(value.__func__, types.FunctionType):
                self._look_at_function(value.__func__, name, value.__self__)
            else:
                self._look(value.__func__, name)
        elif isinstance(value, types.FunctionType):
            self._look_at_function(value, name)
        elif isinstance(value, Wrapper):
            self._look_at_named(value._fn, name)
        elif isinstance(value, Module) or not name:
            self._look_into(value, name)
        else:
            self._found[name] = value
            call = getattr(type(value), "__call__", None)  # noqa: B004
            if isinstance(call, types.FunctionType) and id(value) not in self._seen:
                self._look_along(value, ("__call__",), name)

    def _look_into_container(self, value: Any, name: _Name) -> None:
        self._found[(*name, "length")] = (type(value), len(value))
        if self._helping:
            self._gathering.append(name)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if not isinstance(value, tuple):  # which stays what it is
            self._lengths.append((value, len(value)))
        elements = dict.items(value) if isinstance(value, dict) else enumerate(value)
        for key, part in list(itertools.islice(elements, _LONGEST)):  # another thread may add to it
            if len(self._slots) > _MOST:
                return
            self._look_at(value, key, part, (*name, key))

    def _look_at(self, holder: Any, key: Any, value: Any, name: _Name) -> None:
        if not isinstance(holder, tuple):
            self._slots.append((holder, key, value))
        self._look(value, name)

    def _look_at_function(self, value: types.FunctionType, name: _Name, owner: Any = None) -> None:
        self._found[name] = value.__code__
        if id(value) not in self._seen:
            self._seen.add(id(value))
            self._look_into_function(value, name, owner)

    def _look_into_function(self, fn: types.FunctionType, name: _Name, owner: Any = None) -> None:
        """`owner`: what it is a method of."""
        self._found[(*name, "code")] = fn.__code__
        self._attributes.append((fn, "__code__", fn.__code__))
        enclosed: dict[str, Any] = {}
        for used, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            enclosed[used] = value
            self._cells.append((cell, value))
            self._look(value, (*name, used))
        for used, attributes in _names_of(fn.__code__):
            if used == _FIRST:
                if owner is not None and attributes:
                    self._look_along(owner, attributes, (*name, "self"))
                continue
            if used in enclosed:
                value = enclosed[used]
            elif used in fn.__globals__:
                value = fn.__globals__[used]
                if not attributes:
                    self._slots.append((fn.__globals__, used, value))
                    self._look_at_named(value, (*name, used))
            else:
                continue
            self._look_along(value, attributes, (*name, used))
        self._lengths.append((fn.__dict__, len(fn.__dict__)))
        for own, value in list(fn.__dict__.items()):
            if own != "__wrapped__":
                self._look_at(fn.__dict__, own, value, (*name, own))
        self._attributes += [(fn, "__defaults__", fn.__defaults__), (fn, "__kwdefaults__", fn.__kwdefaults__)]
        for i, value in enumerate((*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())):
            self._look(value, (*name, f"default {i}"))

    def _look_at_named(self, value: Any, name: _Name) -> None:
        """What stands behind a global name, or an attribute."""
        if isinstance(value, types.FunctionType):
            self._found[name] = value
            self._help(value, name)
        elif isinstance(value, types.ModuleType):
            self._found[name] = value
        else:
            self._look(value, name)

    def _help(self, value: Any, name: _Name, owner: Any = None) -> None:
        """A function that is called by name is looked into later."""
        if isinstance(value, types.FunctionType) and not _is_of_library(value.__globals__.get("__name__")) and id(value) not in self._seen:
            self._seen.add(id(value))
            self._helpers.append((value, name, owner))

    def _look_along(self, owner: Any, attributes: tuple[str, ...], name: _Name) -> None:
        """What is found from an object by these attributes, one after another."""
        for attribute in attributes:
            if isinstance(owner, (Tensor, list, tuple, dict, *_VALUES)):  # which are looked at as a whole
                return
            if isinstance(owner, (types.ModuleType, type)) and _is_of_library(owner.__module__ if isinstance(owner, type) else owner.__name__):
                return
            name = (*name, attribute)
            registered = owner._parameters.get(attribute, owner._modules.get(attribute)) if isinstance(owner, Module) else None
            if registered is not None:
                owner = registered  # as a whole, too
                continue
            held = getattr(owner, "__dict__", {})
            if attribute in held:
                value = held[attribute]
                self._slots.append((held, attribute, value))
                if isinstance(value, (property, staticmethod, classmethod)):  # of a class
                    self._look_at_method(owner, value, name)
                    return
            else:
                classes = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
                kind = next((cls for cls in classes if attribute in vars(cls)), None)
                if kind is None:
                    return
                found = vars(kind)[attribute]
                if isinstance(found, (types.FunctionType, property, staticmethod, classmethod)):
                    self._slots.append((vars(kind), attribute, found))
                    self._look_at_method(owner, found, name)
                    return
                if not isinstance(found, (types.MemberDescriptorType, Tensor, list, dict, tuple, *_VALUES)) or not hasattr(owner, attribute):
                    return
                value = getattr(owner, attribute)
                self._attributes.append((owner, attribute, value))
            self._look_at_named(value, name)
            owner = value

    def _look_at_method(self, owner: Any, method: Any, name: _Name) -> None:
        """What a method or a property of an object names, and the object's attributes."""
        function = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
        self._help(function, name, owner)
        if not isinstance(owner, type) and not _is_of_library(type(owner).__module__) and len(self._slots) < _MOST:
            self._look_into(owner, name[:-1])

    def _look_into(self, value: Any, name: _Name) -> None:
        """Into a module, or an object with attributes."""
        self._found[name] = value
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        attributes = getattr(value, "__dict__", {})
        if isinstance(value, Module):
            for registry in (value._parameters, value._modules):
                self._lengths.append((registry, len(registry)))
                for own, part in registry.items():
                    self._look_at(registry, own, part, (*name, own))
        self._lengths.append((attributes, len(attributes)))
        for own, part in list(attributes.items()):
            if own not in ("_parameters", "_modules"):
                self._look_at(attributes, own, part, (*name, own))
        for cls in value.__mro__ if isinstance(value, type) else type(value).__mro__:
            for own, part in list(vars(cls).items()):
                if isinstance(part, types.MemberDescriptorType) and not isinstance(value, type) and hasattr(value, own):  # a slot
                    self._attributes.append((value, own, getattr(value, own)))
                    self._look(getattr(value, own), (*name, own))
                elif isinstance(part, (Tensor, list, dict, tuple, *_VALUES)) and not own.startswith("__") and own not in attributes:
                    shown = getattr(value, own, None)  # which a class derived from this one may have instead
                    self._attributes.append((value, own, shown))
                    self._look(shown, (*name, "class", own))
        entry = "forward" if isinstance(value, Module) else "__call__"
        code = getattr(type(value), entry, None)
        if isinstance(code, types.FunctionType):
            self._attributes.append((type(value), entry, code))
            self._look_at_function(code, (*name, "class", entry), value)


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names that a function, and those that are written in it, read from outside, each alone and with the attributes it takes of it."""
    names: set[tuple[str, tuple[str, ...]]] = set()
    chain: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            chain = [str(instruction.argval)]
            names.add((chain[0], ()))
        elif instruction.opname.startswith("LOAD_FAST") and code.co_argcount and instruction.argval == code.co_varnames[0]:
            chain = [_FIRST]
        elif chain and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"):
            chain.append(str(instruction.argval))
            names.add((chain[0], tuple(chain[1:])))
        elif instruction.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG", "COPY"):
            chain = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(name for name in _names_of(constant) if name[0] != _FIRST)
    # What it shares with functions that are written in it is not from outside, but for the object of a method.
    own = code.co_varnames[0] if code.co_argcount else ""
    names = {(_FIRST, name[1]) if name[0] == own else name for name in names if name[0] not in code.co_cellvars or name[0] == own}
    longest = {name for name in names if not any(name[0] == n[0] and n[1][: len(name[1])] == name[1] and len(n[1]) > len(name[1]) for n in names)}
    return tuple(sorted(longest | {(root, ()) for root, _ in names if root != _FIRST}))


def _is_of_library(module: str | None) -> bool:
    """Whether code does not change while a program runs."""
    root = (module or "").partition(".")[0]
    return root in ("clika_runtime", "numpy", "torch", "builtins") or root in sys.stdlib_module_names


def _shown(name: _Name) -> str:
    return ".".join(str(part) if isinstance(part, (str, int)) else type(part).__name__ for part in name) or "the function"


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is tuple and type(b) is tuple and a == b)
