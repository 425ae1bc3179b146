"""Taking containers apart and putting them together."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clika_runtime as crt
from clika_runtime import pytree

Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass(frozen=True)
class Box:
    low: Any
    high: Any
    label: Any = dataclasses.field(default=None, init=False)

    def __post_init__(self):
        assert self.low is not None, "not called when a tree is put together"


def trees():
    leaves = st.integers() | st.text(max_size=2) | st.floats(allow_nan=False) | st.booleans()
    keys = st.text(max_size=3) | st.integers(0, 9)
    return st.recursive(
        leaves | st.none(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(keys, inner, max_size=4),
            st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
            st.builds(Point, inner, inner),
            st.builds(Box, inner.filter(lambda v: v is not None), inner),
        ),
        max_leaves=20,
    )


def types_of(tree):
    return [type(tree), pytree.tree_structure(tree), pytree.tree_paths(pytree.tree_structure(tree))]


@given(trees())
def test_what_is_taken_apart_is_put_together(tree):
    leaves, spec = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten(spec, leaves)
    assert again == tree and types_of(again) == types_of(tree)
    assert len(leaves) == spec.num_leaves == len(pytree.tree_paths(spec))
    other = pytree.tree_structure(pytree.tree_map(lambda leaf: object(), tree))
    assert other == spec and hash(other) == hash(spec) and repr(other) == repr(spec)
    assert pytree.tree_structure([tree]) != spec


def test_order_and_names():
    tree = {"b": 1, "a": [2, (3, None)], "p": Point(4, Box(5, 6)), 7: 8}
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, 4, 5, 6, 8]  # as inserted, and None has none
    assert pytree.tree_paths(spec) == ["b", "a.0", "a.1.0", "p.x", "p.y.low", "p.y.high", "7"]
    assert list(pytree.tree_unflatten(spec, range(7))) == ["b", "a", "p", 7]
    assert repr(pytree.tree_structure({"x": 1, "y": [2]})) == "dict(x=*, y=list(0=*))"
    assert pytree.tree_structure({"a": 1, "b": 2}) != pytree.tree_structure({"b": 2, "a": 1})
    assert pytree.tree_structure([1]) != pytree.tree_structure((1,))


def test_leaves():
    class Own(dict):
        pass

    x = crt.zeros(2)
    for leaf in (x, 1, "text", Own(a=1), {1, 2}, range(3)):
        assert pytree.tree_leaves(leaf) == [leaf] or pytree.tree_leaves(leaf)[0] is leaf
    assert pytree.tree_leaves(None) == []


def test_registered_classes():
    class Pair:
        def __init__(self, a, b, tag):
            self.a, self.b, self.tag = a, b, tag

    assert len(pytree.tree_leaves(Pair(1, 2, "t"))) == 1
    pytree.register(Pair, lambda p: ((p.a, p.b), p.tag), lambda tag, children: Pair(*children, tag), lambda tag, n: ["a", "b"])
    leaves, spec = pytree.tree_flatten([Pair(1, {"x": 2}, "t")])
    assert leaves == [1, 2] and pytree.tree_paths(spec) == ["0.a", "0.b.x"]
    (pair,) = pytree.tree_unflatten(spec, [10, 20])
    assert (pair.a, pair.b, pair.tag) == (10, {"x": 20}, "t")
    assert spec != pytree.tree_structure([Pair(1, {"x": 2}, "other")])
    with pytest.raises(ValueError, match="register: Pair is known"):
        pytree.register(Pair, lambda p: ((), None), lambda c, children: Pair(1, 2, 3))
    with pytest.raises(TypeError, match="register: expected a class, got int"):
        pytree.register(3, lambda p: ((), None), lambda c, children: 3)


def test_subclasses_and_late_registration():
    class Plain(Box):
        pass

    assert len(pytree.tree_leaves(Plain(1, 2))) == 1  # it may have more to it
    Late = namedtuple("Late", ["a"])
    assert pytree.tree_leaves(Late([1, 2])) == [1, 2]
    pytree.register(Late, lambda t: ((), t.a), lambda a, children: Late(a))
    assert pytree.tree_leaves(Late((1, 2))) == []


def test_wrong_uses():
    spec = pytree.tree_structure([1, 2])
    with pytest.raises(ValueError, match=r"tree_unflatten: 1 leaves given, the structure list\(0=\*, 1=\*\) has 2"):
        pytree.tree_unflatten(spec, [1])
    with pytest.raises(TypeError, match="tree_unflatten: expected a TreeSpec and leaves, got list"):
        pytree.tree_unflatten([1], spec)
    with pytest.raises(ValueError, match="tree_map: the structures differ"):
        pytree.tree_map(lambda a, b: a, [1], (1,))
