"""Random programs that work with sizes, on inputs of many shapes: eager = captured once for any sizes = saved and loaded, bit by bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import clika_runtime as crt

FILE = Path(tempfile.mkdtemp()) / "sizes.graph"
Step = tuple[str, int, int, list[tuple[str, int]]]


def number(x: crt.Tensor, spec: list[tuple[str, int]]) -> Any:
    """A number that is computed of sizes of x."""
    n: Any = x.shape[0]
    for operation, k in spec:
        match operation:
            case "size":
                n = n + x.shape[k % 3]
            case "add":
                n = n + k
            case "sub":
                n = k - n
            case "mul":
                n = n * k
            case "div":
                n = n // (k + 1)
            case "mod":
                n = n % (x.shape[k % 3] + 1)
    return n


def apply(x: crt.Tensor, step: Step) -> crt.Tensor:
    """One step on three dimensions, which has three again; sizes stay small."""
    name, dim, k, spec = step
    n = number(x, spec)
    match name:
        case "flatten":
            return (x.reshape(x.shape[0] * x.shape[1], x.shape[2]) * 2).reshape(x.shape[0], -1, x.shape[2])
        case "slice":
            return x.narrow(dim, 0, x.shape[dim] - x.shape[dim] // 2)
        case "window":
            return x[:, n % (x.shape[1] + 1) :, : x.shape[2] - k % 2]
        case "number":
            return x * n + k
        case "positions":
            return x + crt.arange(x.shape[2]) * n
        case "grow":
            return crt.pad(x, [k % 2, 0], value=1.5)
        case "zeros":
            return crt.concat([x, crt.zeros(x.shape[0], k, x.shape[2])], 1)
        case "permute":
            return x.permute(*((0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1))[k % 4])
        case "moved":
            return crt.roll(x, [n], [dim])
        case "flip":
            return crt.flip(x, [dim]) if x.shape[dim] > k else x + 1
        case "parity":
            return x if n % 2 == 0 else -x
        case "select":
            return x[n % x.shape[0] : n % x.shape[0] + 1] * x if x.shape[0] else x
        case "write":
            y = x.clone()
            y[:, x.shape[1] // 2 :] += n
            return y
        case "softmax":
            return crt.softmax(x, dim=-1)
        case "relu":
            return crt.relu(x) * 0.5
        case "sum":
            return (x.sum(dim, keepdim=True) / max(x.shape[dim], 1)).expand(*x.shape)
        case _:
            return crt.repeat(x, [1, 1, 1 + (n % 2)])


NAMES = (
    "flatten",
    "slice",
    "window",
    "number",
    "positions",
    "grow",
    "zeros",
    "permute",
    "moved",
    "flip",
    "parity",
    "select",
    "write",
    "softmax",
    "relu",
    "sum",
    "",
)
SPECS = st.lists(st.tuples(st.sampled_from(("size", "add", "sub", "mul", "div", "mod")), st.integers(0, 3)), max_size=3)
STEPS = st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 3), SPECS)
SHAPES = st.lists(st.tuples(*[st.integers(0, 5)] * 3) | st.tuples(st.just(2), st.integers(1, 3), st.just(40)), min_size=2, max_size=5)


@given(st.lists(STEPS, min_size=1, max_size=6), SHAPES)
def test_programs_of_any_sizes(steps: list[Step], shapes: list[tuple[int, int, int]]) -> None:
    def run(x: crt.Tensor) -> crt.Tensor:
        for step in steps:
            x = apply(x, step)
        return x

    def outcome(function: Any, *inputs: Any) -> Any:
        try:
            result = function(*inputs)
            result = result[0] if isinstance(result, list) else result
            return tuple(result.shape), result.bytes()
        except (ValueError, IndexError, ZeroDivisionError) as error:
            return type(error)

    compiled = [crt.compile(run, dynamic=True, optimize=level) for level in (0, 2)]
    for seed, shape in enumerate(shapes):
        x = crt.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
        want = outcome(run, x)
        for function in compiled:
            captures = function.recapture_count
            assert outcome(function, x) == want
            assert outcome(function, x) == want  # once more, which replays it
            if function.recapture_count == captures and seed > 0:
                continue
            if isinstance(want, tuple) and function.state is crt.State.Compiled:
                graph = function.take_graph()
                graph.save(FILE)
                loaded = crt.graph.load(FILE)
                assert loaded.conditions() == graph.conditions()
                for other in shapes:
                    y = crt.tensor(np.random.default_rng(1).standard_normal(other).astype(np.float32))
                    held = outcome(graph.run, [y])
                    assert outcome(loaded.run, [y]) == held
                    if isinstance(held, tuple):
                        assert held == outcome(run, y)
