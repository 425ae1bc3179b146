"""Random programs of views and operators: ClikaRT = NumPy, and eager = synchronous = traced."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import clika_runtime as crt

settings.register_profile("same every time", derandomize=True, deadline=None, max_examples=300)
settings.load_profile("same every time")


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]:
    """A shape, and steps that are valid one after the other."""
    shape = draw(st.lists(st.integers(0, 5), max_size=4).map(tuple))
    x, steps = np.empty(shape), []
    for _ in range(draw(st.integers(1, 6))):
        choices = ["reshape", "relu", "add", "sum"]
        if x.ndim:
            choices += ["permute", "slice", "concat"]
        if x.ndim and x.size:
            choices.append("select")
        step: tuple[Any, ...]
        match draw(st.sampled_from(choices)):
            case "permute":
                step = ("permute", draw(st.permutations(range(x.ndim))))
            case "slice":
                bound = st.none() | st.integers(-7, 7)
                step = ("slice", draw(st.integers(0, x.ndim - 1)), draw(bound), draw(bound), draw(st.integers(-3, 3).filter(bool)))
            case "select":
                dim = draw(st.integers(0, x.ndim - 1))
                step = ("select", dim, draw(st.integers(-x.shape[dim], x.shape[dim] - 1)))
            case "reshape":
                step = ("reshape", draw(st.sampled_from([(x.size,), (1, x.size), (x.size, 1), (*x.shape, 1), tuple(reversed(x.shape))])))
            case "sum":
                step = ("sum", draw(st.none() | st.integers(0, max(0, x.ndim - 1))), draw(st.booleans()))
            case name:
                step = (name,)
        steps.append(step)
        x = in_numpy(x, step)
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
    }[name]()


def in_clika(x: crt.Tensor, step: tuple[Any, ...]) -> crt.Tensor:
    name, *rest = step
    match name:
        case "add":
            return crt.add(x, 1)
        case "concat":
            return crt.concat([x, x], -1)
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
    (traced,) = crt.trace(run, example_inputs=[x]).run([x])
    for got in (eager, synchronous, traced):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got.numpy(), want)
        assert got.stride() == eager.stride()
