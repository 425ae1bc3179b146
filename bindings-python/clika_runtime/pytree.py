"""Containers of tensors: taking them apart into a flat list and putting them together again.

A pytree is a list, a tuple, a dict, a named tuple, a dataclass or ``None``, in any depth, or a registered class.  All else is a
leaf.  The leaves of a dict come in the order in which its keys were inserted.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ._enums import ClikaRTTypeError, ClikaRTValueError

__all__ = [
    "TreeSpec",
    "register",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_paths",
    "tree_structure",
    "tree_unflatten",
]

T = TypeVar("T")


class _Kind(NamedTuple):
    """How one class is taken apart and put together."""

    #: The children, and what else it takes to make the container again.
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]]
    unflatten: Callable[[Any, list[Any]], Any]
    #: What the children are called.
    names: Callable[[Any, int], Sequence[str]]


class TreeSpec:
    """The structure of a pytree without its leaves.  Equal for equal structures, and hashable."""

    __slots__ = ("_hash", "children", "context", "num_leaves", "type")

    def __init__(self, type: type | None, context: Hashable, children: tuple[TreeSpec, ...]) -> None:
        #: The container's class; None for a leaf.
        self.type = type
        #: What else makes the container: the keys of a dict.
        self.context = context
        self.children = children
        self.num_leaves: int = 1 if type is None else sum(child.num_leaves for child in children)
        self._hash = hash((type, context, children))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec) or self._hash != other._hash:
            return False
        return (self.type, self.context, self.children) == (other.type, other.context, other.children)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        names = _kinds_of(self.type).names(self.context, len(self.children))
        return f"{self.type.__name__}({', '.join(f'{n}={c!r}' for n, c in zip(names, self.children, strict=True))})"


_LEAF = TreeSpec(None, None, ())


def _numbers(context: Any, count: int) -> list[str]:
    return [str(i) for i in range(count)]


def _keys(context: Any, count: int) -> list[str]:
    return [str(key) for key in context[0]]


def _take_dict_apart(tree: dict[Any, Any]) -> tuple[Iterable[Any], Hashable]:
    """The keys with their types: 1, 1.0 and True are equal."""
    keys = tuple(tree)
    return tree.values(), (keys, tuple([type(key) for key in keys]))


_kinds: dict[type, _Kind] = {
    type(None): _Kind(lambda tree: ((), None), lambda context, children: None, _numbers),
    list: _Kind(lambda tree: (tree, None), lambda context, children: list(children), _numbers),
    tuple: _Kind(lambda tree: (tree, None), lambda context, children: tuple(children), _numbers),
    dict: _Kind(_take_dict_apart, lambda keys, children: dict(zip(keys[0], children, strict=True)), _keys),
    OrderedDict: _Kind(_take_dict_apart, lambda keys, children: OrderedDict(zip(keys[0], children, strict=True)), _keys),
}


def _named_tuple(cls: Any) -> _Kind:
    fields: tuple[str, ...] = cls._fields
    return _Kind(lambda tree: (tree, None), lambda context, children: cls._make(children), lambda context, count: fields)


def _dataclass(cls: Any) -> _Kind:
    fields = tuple(field.name for field in dataclasses.fields(cls))

    def flatten(tree: Any) -> tuple[Iterable[Any], Hashable]:
        names = tuple(name for name in fields if hasattr(tree, name))  # one may not be set yet, and others may be beside them
        names += tuple(name for name in getattr(tree, "__dict__", ()) if name not in fields)
        return [getattr(tree, name) for name in names], names

    def unflatten(names: Any, children: list[Any]) -> Any:
        tree = object.__new__(cls)  # __init__ may check or change what it is given
        for name, child in zip(names, children, strict=True):
            object.__setattr__(tree, name, child)
        return tree

    return _Kind(flatten, unflatten, lambda names, count: names)


_PLAIN = frozenset((bool, int, float, complex, str, bytes))  # no containers, that much is known
_found: dict[type, _Kind] = {}  # named tuples and dataclasses that were met


def _kind_of(cls: type) -> _Kind | None:
    kind = _kinds.get(cls) or _found.get(cls)
    if kind is None and cls not in _PLAIN:
        from .nn.module import Module  # which needs what needs this

        if issubclass(cls, Module):
            return None
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            kind = _found[cls] = _named_tuple(cls)
        elif "__dataclass_fields__" in cls.__dict__:  # a subclass that is no dataclass itself may have more to it
            kind = _found[cls] = _dataclass(cls)
    return kind


def _kinds_of(cls: type) -> _Kind:
    kind = _kind_of(cls)
    assert kind is not None  # a spec is made of known classes only
    return kind


def register(
    cls: type[T],
    flatten: Callable[[T], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, list[Any]], T],
    names: Callable[[Any, int], Sequence[str]] | None = None,
) -> None:
    """Makes a class a container: its instances are taken apart wherever a pytree is expected.

    Args:
        cls: the class itself; subclasses are registered on their own.
        flatten: from an instance to its children and the rest, which is hashable and tells instances of different structure apart.
        unflatten: from that rest and as many children to an instance.
        names: from the rest and the number of children to what these are called; without it they are numbered.

    Raises:
        TypeError: ``cls`` is no class.
        ValueError: it is known already.

    Example:
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> crt.pytree.register(Pair, lambda p: ((p.a, p.b), None), lambda rest, children: Pair(*children))
        >>> crt.pytree.tree_leaves({"p": Pair(1, [2, 3])})
        [1, 2, 3]
    """
    if not isinstance(cls, type):
        raise ClikaRTTypeError(f"register: expected a class, got {type(cls).__name__}")
    if cls in _kinds:
        raise ClikaRTValueError(f"register: {cls.__name__} is known as a container already")
    _kinds[cls] = _Kind(flatten, unflatten, names or _numbers)


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a pytree, in order, and its structure.

    Example:
        >>> leaves, spec = crt.pytree.tree_flatten({"b": 1, "a": (2, None)})
        >>> leaves
        [1, 2]
        >>> crt.pytree.tree_unflatten(spec, [10, 20])
        {'b': 10, 'a': (20, None)}
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> TreeSpec:
    kind = _kind_of(type(tree))
    if kind is None:
        leaves.append(tree)
        return _LEAF
    children, context = kind.flatten(tree)
    return TreeSpec(type(tree), context, tuple([_flatten(child, leaves) for child in children]))


def children_of(tree: Any) -> tuple[list[Any], Hashable] | None:
    """What a container holds, and what else makes it: of a dataclass the names; None for a leaf."""
    kind = _kind_of(type(tree))
    if kind is None:
        return None
    children, context = kind.flatten(tree)
    return list(children), context


def take_apart(tree: Any, leaves: list[Any], structure: list[Any]) -> None:
    """Adds the leaves, and the structure as a flat list that is as equal and as hashable as the ``TreeSpec``, and quicker to make."""
    kind = _kinds.get(type(tree)) or _kind_of(type(tree))
    if kind is None:
        leaves.append(tree)
        structure.append(None)
        return
    children, context = kind.flatten(tree)
    structure.append(type(tree))
    structure.append(context)
    at = len(structure)
    structure.append(0)
    count = 0
    for child in children:
        take_apart(child, leaves, structure)
        count += 1
    structure[at] = count


def tree_unflatten(spec: TreeSpec, leaves: Iterable[Any]) -> Any:
    """The pytree of a structure with these leaves.

    Raises:
        TypeError: ``spec`` is none.
        ValueError: another number of leaves than the structure has.
    """
    if not isinstance(spec, TreeSpec):
        raise ClikaRTTypeError(f"tree_unflatten: expected a TreeSpec and leaves, got {type(spec).__name__}")
    given = list(leaves)
    if len(given) != spec.num_leaves:
        raise ClikaRTValueError(f"tree_unflatten: {len(given)} leaves given, the structure {spec!r} has {spec.num_leaves}")
    return _unflatten(spec, iter(given))


def _unflatten(spec: TreeSpec, leaves: Any) -> Any:
    if spec.type is None:
        return next(leaves)
    return _kinds_of(spec.type).unflatten(spec.context, [_unflatten(child, leaves) for child in spec.children])


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a pytree, in order."""
    return tree_flatten(tree)[0]


def tree_structure(tree: Any) -> TreeSpec:
    """The structure of a pytree."""
    return tree_flatten(tree)[1]


def tree_map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """A pytree of the same structure with ``fn`` of each leaf, or of the leaves that several trees have in one place.

    Raises:
        ValueError: a further tree has another structure.

    Example:
        >>> crt.pytree.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)])
        [11, (22,)]
    """
    if not callable(fn):
        raise ClikaRTTypeError(f"tree_map: expected a function, got {type(fn).__name__}")
    leaves, spec = tree_flatten(tree)
    columns = [leaves]
    for other in rest:
        more, structure = tree_flatten(other)
        if structure != spec:
            raise ClikaRTValueError(f"tree_map: the structures differ: {spec!r} and {structure!r}")
        columns.append(more)
    return tree_unflatten(spec, [fn(*row) for row in zip(*columns, strict=True)])


def tree_paths(spec: TreeSpec) -> list[str]:
    """What each leaf is called: keys, fields and positions from the outermost container inwards, with dots between.

    Example:
        >>> crt.pytree.tree_paths(crt.pytree.tree_structure({"x": 1, "rest": [2, {"y": 3}]}))
        ['x', 'rest.0', 'rest.1.y']
    """
    paths: list[str] = []
    _paths(spec, "", paths)
    return paths


def _paths(spec: TreeSpec, prefix: str, paths: list[str]) -> None:
    if spec.type is None:
        paths.append(prefix)
        return
    for name, child in zip(_kinds_of(spec.type).names(spec.context, len(spec.children)), spec.children, strict=True):
        _paths(child, f"{prefix}.{name}" if prefix else name, paths)
