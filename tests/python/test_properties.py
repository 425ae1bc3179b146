"""Random programs of views and operators: ClikaRT = NumPy, and eager = synchronous = traced = compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import clika_runtime as crt
import samples_shaping


def dims_of(x: np.ndarray) -> st.SearchStrategy[int]:
    return st.integers(-x.ndim, x.ndim - 1)


def a_slice(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    bound = st.none() | st.integers(-7, 7)
    return draw(st.integers(0, x.ndim - 1)), draw(bound), draw(bound), draw(st.integers(-3, 3).filter(bool))


def a_select(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    dim = draw(st.integers(0, x.ndim - 1))
    return dim, draw(st.integers(-x.shape[dim], x.shape[dim] - 1))


def an_expansion(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    front = draw(st.lists(st.integers(0, 3), max_size=2))
    return (front + [draw(st.integers(0, 4)) if size == 1 else draw(st.sampled_from([-1, size])) for size in x.shape],)


def a_split_dimension(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    dim = draw(dims_of(x))
    return dim, draw(st.sampled_from([(x.shape[dim], 1), (1, x.shape[dim]), (1, -1)]))


def a_stretch(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    dim = draw(dims_of(x))
    start = draw(st.integers(0, x.shape[dim]))
    return dim, start, draw(st.integers(0, x.shape[dim] - start))


def windows(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    dim = draw(dims_of(x))
    return dim, draw(st.integers(0, x.shape[dim])), draw(st.integers(1, 3))


def a_padding(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    n = draw(st.integers(0, x.ndim))
    entries = [draw(st.integers(-(size // 2), 2)) for size in x.shape[x.ndim - n :][::-1] for _ in range(2)]
    return entries, "constant", draw(st.integers(-2, 2))


def a_roll(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    dims = draw(st.lists(st.integers(0, x.ndim - 1), max_size=2))
    return [draw(st.integers(-7, 7)) for _ in dims], dims


def places(draw: st.DrawFn, x: np.ndarray) -> tuple[Any, ...]:
    n = draw(st.integers(0, x.ndim))
    return tuple(draw(st.permutations(range(x.ndim)))[:n] for _ in range(2))


#: Every step: the least number of dimensions, and what draws its arguments.
STEPS: dict[str, tuple[int, Callable[[st.DrawFn, np.ndarray], tuple[Any, ...]]]] = {
    "relu": (0, lambda draw, x: ()),
    "add": (0, lambda draw, x: ()),
    "concat": (1, lambda draw, x: ()),
    "reshape": (0, lambda draw, x: (draw(st.sampled_from([(x.size,), (1, x.size), (x.size, 1), (*x.shape, 1), tuple(reversed(x.shape))])),)),
    "sum": (0, lambda draw, x: (draw(st.none() | st.integers(0, max(0, x.ndim - 1))), draw(st.booleans()))),
    "permute": (1, lambda draw, x: (draw(st.permutations(range(x.ndim))),)),
    "slice": (1, a_slice),
    "select": (1, a_select),
    "expand": (0, an_expansion),
    "unsqueeze": (0, lambda draw, x: (draw(st.integers(-x.ndim - 1, x.ndim)),)),
    "stack": (0, lambda draw, x: (draw(st.integers(-x.ndim - 1, x.ndim)),)),
    "squeeze": (0, lambda draw, x: (draw(st.none() | st.lists(st.integers(0, x.ndim - 1), unique=True) if x.ndim else st.none()),)),
    "flatten": (0, lambda draw, x: tuple(sorted(draw(st.tuples(*[st.integers(0, max(0, x.ndim - 1))] * 2))))),
    "unflatten": (1, a_split_dimension),
    "transpose": (1, lambda draw, x: (draw(dims_of(x)), draw(dims_of(x)))),
    "movedim": (1, places),
    "narrow": (1, a_stretch),
    "unfold": (1, windows),
    "diagonal": (2, lambda draw, x: (draw(st.integers(-4, 4)), *draw(st.permutations(range(x.ndim)))[:2])),
    "pad": (1, a_padding),
    "flip": (1, lambda draw, x: (draw(st.lists(st.integers(0, x.ndim - 1), unique=True)),)),
    "roll": (1, a_roll),
    "repeat": (1, lambda draw, x: (draw(st.lists(st.integers(0, 2), min_size=x.ndim, max_size=x.ndim + 1)),)),
}


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]:
    """A shape, and steps that are valid one after the other."""
    shape = draw(st.lists(st.integers(0, 5), max_size=4).map(tuple))
    x, steps = np.empty(shape), []
    for _ in range(draw(st.integers(1, 6))):
        choices = [name for name, (rank, _) in STEPS.items() if x.ndim >= rank and (name != "select" or x.size)]
        if x.ndim > 6 or x.size > 20_000:  # it may not grow for ever
            choices = ["sum"]
        name = draw(st.sampled_from(choices))
        steps.append((name, *STEPS[name][1](draw, x)))
        x = in_numpy(x, steps[-1])
    return shape, steps


def in_numpy(x: np.ndarray, step: tuple[Any, ...]) -> np.ndarray:
    name, *rest = step
    if name == "slice":
        dim, *bounds = rest
        return x[(slice(None),) * dim + (slice(*bounds),)]
    if name == "sum":
        return np.asarray(x.sum(axis=None if x.ndim == 0 else rest[0], keepdims=rest[1]))
    return {
        "permute": lambda: x.transpose(rest[0]),
        "select": lambda: np.asarray(np.take(x, rest[1], axis=rest[0])),
        "reshape": lambda: x.reshape(rest[0]),
        "relu": lambda: np.maximum(x, 0),
        "add": lambda: x + 1,
        "concat": lambda: np.concatenate([x, x], axis=-1),
        "expand": lambda: samples_shaping.expand_oracle(x, *rest),
        "unsqueeze": lambda: np.expand_dims(x, rest[0]),
        "stack": lambda: np.stack([x, x], rest[0]),
        "squeeze": lambda: samples_shaping.squeeze_oracle(x, *rest),
        "flatten": lambda: samples_shaping.flatten_oracle(x, *rest),
        "unflatten": lambda: samples_shaping.unflatten_oracle(x, rest[0], [x.shape[rest[0]] if size == -1 else size for size in rest[1]]),
        "transpose": lambda: np.swapaxes(x, *rest),
        "movedim": lambda: np.moveaxis(x, *rest),
        "narrow": lambda: samples_shaping.narrow_oracle(x, *rest),
        "unfold": lambda: samples_shaping.unfold_oracle(x, *rest),
        "diagonal": lambda: np.diagonal(x, *rest),
        "pad": lambda: samples_shaping.pad_oracle(x, *rest),
        "flip": lambda: np.flip(x, rest[0]),
        "roll": lambda: np.roll(x, rest[0], rest[1]),
        "repeat": lambda: np.tile(x, rest[0]),
    }[name]()


def in_clika(x: crt.Tensor, step: tuple[Any, ...]) -> crt.Tensor:
    name, *rest = step
    match name:
        case "add":
            return crt.add(x, 1)
        case "concat":
            return crt.concat([x, x], -1)
        case "stack":
            return crt.stack([x, x], *rest)
        case _:
            return getattr(crt, name)(x, *rest)


@given(programs())
def test_random_programs(program: tuple[tuple[int, ...], list[tuple[Any, ...]]]) -> None:
    shape, steps = program
    source = np.arange(np.prod(shape, dtype=int)).reshape(shape) - 7  # integers: every order of additions is exact

    def run(inputs: list[crt.Tensor]) -> list[crt.Tensor]:
        (x,) = inputs
        for step in steps:
            x = in_clika(x, step)
        return [x]

    want = source
    for step in steps:
        want = in_numpy(want, step)
    x = crt.tensor(source)
    (eager,) = run([x])
    with crt.synchronous():
        (synchronous,) = run([x])
    results = [eager, synchronous]
    for level in (0, 2):
        results += crt.trace(run, example_inputs=[x], optimize=level).run([x])
    for dynamic in (False, True):
        compiled = crt.compile(run, dynamic=dynamic)
        results += [compiled([x])[0], compiled([x])[0]]  # captured, then replayed
        assert compiled.state is crt.State.Compiled
    for got in results:
        assert got.shape == want.shape
        np.testing.assert_array_equal(got.numpy(), want)
        assert got.stride() == eager.stride()
