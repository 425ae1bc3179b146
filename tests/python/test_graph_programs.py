"""Random programs of many values: eager = traced at every level of optimisation = compiled, bit by bit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import clika_runtime as crt

N = 36  # all matrices are N x N or a row of N, so that any two fit; long enough for rows to be worked on whole

UNARY = ("relu", "exp", "neg", "tanh", "gelu", "sigmoid", "abs", "square", "floor")
BINARY = ("add", "sub", "mul", "maximum", "div", "lt", "atan2")
OTHERS = (
    "matmul",
    "softmax",
    "sum",
    "transpose",
    "row",
    "where",
    "topk",
    "dropout",
    "copy",
    "cast",
    "scale",
    "linear",
    "mean",
    "amax",
    "rowsum",
    "norm",
    "rms",
    "logsoftmax",
    "both",
)


@dataclass
class Program:
    """Steps over numbered values; the first are the inputs, the next the tensors that are enclosed."""

    steps: list[tuple[str, list[int], Any]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


INPUTS, ENCLOSED = 3, 2
FILE = Path(tempfile.mkdtemp()) / "program.graph"


@st.composite
def programs(draw: st.DrawFn) -> Program:
    program = Program()
    for made in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(UNARY + BINARY + OTHERS))
        value = st.integers(max(0, made + INPUTS + ENCLOSED - 6), made + INPUTS + ENCLOSED - 1) | st.integers(0, made + INPUTS + ENCLOSED - 1)
        number = draw(st.sampled_from([-1.5, 0.0, 1.0, 2.0]))
        program.steps.append((name, [draw(value) for _ in range(3)], number))
    program.outputs = draw(st.lists(st.integers(0, INPUTS + ENCLOSED + len(program.steps) - 1), min_size=1, max_size=4))
    return program


def step(name: str, a: crt.Tensor, b: crt.Tensor, c: crt.Tensor, number: float) -> crt.Tensor:
    """One step; its result is a matrix of N x N, in float32 but for comparisons."""
    match name:
        case "matmul":
            return crt.matmul(a, b)
        case "linear":
            return crt.linear(a, b, crt.select(c, 0, 1))
        case "softmax":
            return crt.softmax(a, dim=-1)
        case "sum":
            return crt.add(crt.sum(a, dims=[0], keepdim=True), b)
        case "mean":
            return crt.sub(b, crt.mean(a, dims=[-1], keepdim=True))
        case "amax":
            return crt.exp(crt.sub(a, crt.amax(a, dims=[1], keepdim=True)))
        case "rowsum":
            return crt.mul(b, crt.sqrt(crt.abs(crt.sum(crt.mul(a, a), dims=[-1], keepdim=True) + number)))
        case "norm":
            return crt.layer_norm(a, [N], crt.select(b, 0, 1), crt.select(c, 0, 0))
        case "rms":
            return crt.rms_norm(a, [N])
        case "logsoftmax":
            return crt.log_softmax(a, dim=1)
        case "both":
            return crt.add(crt.sum(a), crt.mean(b, dims=[0], keepdim=True)) * c
        case "foldrow":  # as many results as a row has elements
            return crt.add(crt.sum(crt.add(a, crt.exp(crt.select(b, 0, 1))), dims=[1]), c)
        case "linear20":  # whose bits depend on how its operands lie
            return crt.matmul(a, crt.permute(b, (1, 0)))
        case "expanded":
            return crt.softmax(crt.expand(crt.slice(a, 1, 2, 3), (N, N)), dim=-1)
        case "transpose":
            return crt.permute(a, (1, 0))
        case "row":
            return crt.expand(crt.slice(a, 0, 1, 2), (N, N))
        case "where":
            return crt.where(crt.gt(a, 0), b, c)
        case "topk":
            values, places = crt.topk(a, N // 2)
            return crt.concat([values, crt.cast(places, crt.float32)], 1)
        case "dropout":
            return crt.dropout(a, 0.5)
        case "copy":
            return crt.copy(a)
        case "cast":
            return crt.cast(crt.cast(a, crt.bfloat16), crt.float32)
        case "scale":
            return crt.mul(a, number)
        case "lt":
            return crt.cast(crt.lt(a, b), crt.float32)
        case _ if name in UNARY:
            return getattr(crt, name)(a)
        case _:
            return getattr(crt, name)(a, b)


def values_of(seed: int, count: int) -> list[crt.Tensor]:
    rng = np.random.default_rng(seed)
    return [crt.tensor(rng.standard_normal((N, N)).astype(np.float32)) for _ in range(count)]


@given(programs(), st.integers(0, 1000))
def test_random_programs_of_many_values(program: Program, seed: int) -> None:
    enclosed = values_of(seed, ENCLOSED)

    def run(inputs: list[crt.Tensor]) -> list[crt.Tensor]:
        values = [*inputs, *enclosed]
        for name, operands, number in program.steps:
            a, b, c = (values[i] for i in operands)
            values.append(step(name, a, b, c, number))
        return [values[i] for i in program.outputs]

    def bits(function: Any, inputs: list[crt.Tensor]) -> list[bytes]:
        crt.manual_seed(seed)
        return [t.bytes() for t in function(inputs)]

    first, second = values_of(seed + 1, INPUTS), values_of(seed + 2, INPUTS)
    want = [bits(run, first), bits(run, second)]
    for level in (0, 1, 2):
        graph = crt.trace(run, first, optimize=level)
        assert [bits(graph.run, first), bits(graph.run, second)] == want
        given = [crt.copy(x) for x in first]  # whose places the results take
        if len(program.outputs) <= INPUTS:
            assert bits(lambda inputs, graph=graph: graph.run(inputs, out=inputs[: len(program.outputs)]), given) == want[0]
        graph.save(FILE)
        assert bits(crt.graph.load(FILE, optimize=level).run, first) == want[0]
        step_ = crt.compile(run, optimize=level)
        assert [bits(step_, first), bits(step_, second), bits(step_, first)] == [*want, want[0]]
        assert step_.state is crt.State.Compiled and step_.recapture_count == 0
    dynamic = crt.compile(run, dynamic=True)
    assert [bits(dynamic, first), bits(dynamic, second)] == want
    deferred, results = crt.compile(run), []
    for inputs in (first, second):
        crt.manual_seed(seed)
        with crt.tracing():
            results.append(deferred(inputs))
    assert [[t.bytes() for t in tensors] for tensors in results] == want
