"""Graphs, a chapter for each idea: trace, modules and pytrees, compile, effects, files, tools.  Run it: every chapter checks what it says."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import clika_runtime as crt
from clika_runtime import nn


def chapter(title):
    print(f"\n== {title}")


rng = np.random.default_rng(0)
w = crt.tensor(rng.standard_normal((4, 3)).astype(np.float32))
b = crt.tensor(rng.standard_normal(3).astype(np.float32))
x = crt.tensor(rng.standard_normal((2, 4)).astype(np.float32))


def head(inputs):
    return [crt.softmax(crt.relu(crt.matmul(inputs[0], w) + b), dim=-1)]


chapter("A function runs once over stand-ins, and is a graph")
graph = crt.trace(head, example_inputs=[x], input_names=["x"], output_names=["p"])
print(graph.input_names(), "->", graph.output_names())
assert graph.run([x])[0].bytes() == graph.run({"x": x})[0].bytes() == head([x])[0].bytes()

chapter("Its nodes: the product has taken the bias and the activation with it")
for number, node in enumerate(graph.nodes()):
    epilogues = "".join(f" + {code.name}" for code in node.epilogues)
    print(f"{number}: {node.op_code.name}{epilogues} of {list(node.inputs)}: {node.dtype} {list(node.shape)}")
plain = crt.trace(head, [x], optimize=0)
assert len(plain.nodes()) == len(graph.nodes()) + 2 and plain.run([x])[0].bytes() == graph.run([x])[0].bytes()

chapter("A value cannot be read while it is recorded")
try:
    crt.trace(lambda inputs: [inputs[0] * inputs[0].numpy().sum()], [x])
except RuntimeError as error:
    print(error)
else:
    raise AssertionError

chapter("Modules and pytrees: names are kept")


@dataclass
class Answer:
    p: crt.Tensor
    best: crt.Tensor


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, batch: dict[str, Any], temperature: float) -> Answer:
        p = crt.softmax(self.layer(batch["pixels"]) / temperature, dim=-1)
        return Answer(p, crt.argmax(p, dims=[1]))


scorer = Scorer()
traced = crt.trace(scorer, ({"pixels": x}, 2.0))
print(traced.graph.input_names(), "->", traced.graph.output_names())
assert traced({"pixels": x}, 2.0).p.bytes() == scorer({"pixels": x}, 2.0).p.bytes()

chapter("compile: the first call runs and is recorded, later ones replay")
calls = []


def counted(inputs):
    calls.append(inputs[0].dtype)
    return head(inputs)


step = crt.compile(counted, [crt.TensorSpec("x", crt.float32, [2, 4])])
print(step.state, end=" ")
for _ in range(3):
    (p,) = step([x])
print("->", step.state, f"after {len(calls)} call of the function, {step.recapture_count} captures more")
assert len(calls) == 1 and step.take_graph().run([x])[0].bytes() == p.bytes()

chapter("Other shapes are captured as well, or held by one graph")
step([crt.ones((5, 4))])
print("two shapes:", step.recapture_count, "capture more;", end=" ")
dynamic = crt.compile(scorer, dynamic=True)
shapes = [list(dynamic({"pixels": crt.ones((n, 4))}, 1.0).p.shape) for n in (1, 3, 7)]
print("dynamic:", shapes, dynamic.recapture_count)
assert step.recapture_count == 1 and dynamic.recapture_count == 0

chapter("Parameters may change, in place or by another tensor")
before = dynamic({"pixels": x}, 1.0).p.bytes()
scorer.layer.weight.mul_(2)  # the graph sees the same memory
assert dynamic.recapture_count == 0 and dynamic({"pixels": x}, 1.0).p.bytes() == scorer({"pixels": x}, 1.0).p.bytes() != before
scorer.layer.weight = nn.Parameter(crt.zeros((3, 4)))
assert dynamic({"pixels": x}, 1.0).p.bytes() == scorer({"pixels": x}, 1.0).p.bytes()
print("bound anew:", dynamic.recapture_count, "capture more")

chapter("What cannot be recorded is called every time, or raises")


def branch(x):
    return x * 2 if crt.sum(x).item() > 0 else -x


step = crt.compile(branch)
assert step(crt.ones(1)).tolist() == [2.0] and step(-crt.ones(1)).tolist() == [1.0]
print(step.state, "because", step.fallback_reason.replace(__file__, "this file"))
try:
    crt.compile(branch, fullgraph=True)(x)
except crt.ClikaRTError as error:
    print(error)
else:
    raise AssertionError
step.reset()
print("and after a reset", step.state)

chapter("Branches and loops by value are parts of a graph")


def collatz(n):
    def advance(n, count):
        return crt.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), count + 1

    return crt.while_loop(lambda n, count: n != 1, advance, (n, 0))[1]


step = crt.compile(collatz, fullgraph=True)
rounds = [step(crt.tensor(n)).item() for n in (6, 7, 27)]
print("rounds of 6, 7 and 27:", rounds, "by one graph" if step.recapture_count == 0 else "")
assert rounds == [8, 16, 111]

chapter("Under dynamic sizes follow the inputs, and branches on them are conditions")


def fold(x):
    rows, columns = x.shape
    y = x.reshape(rows * columns) / columns
    return y if rows < 5 else y[: rows // 2]


step = crt.compile(fold, dynamic=True)
for shape in ((2, 4), (3, 8), (4, 1), (6, 2), (9, 3)):
    assert step(crt.ones(shape)).bytes() == fold(crt.ones(shape)).bytes()
print(step.explain().replace(__file__, "this file"))
assert step.recapture_count == 1

chapter("Writing in place is an effect of the graph")


class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = crt.zeros(4)

    def forward(self, x):
        self.mean.mul_(0.9).add_(crt.mean(x, dims=[0]) * 0.1)
        return x - self.mean


eager, average = Average(), Average()
step = crt.compile(average, fullgraph=True)
for seed in range(5):
    batch = crt.tensor(np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32))
    assert step(batch).bytes() == eager(batch).bytes()
assert average.mean.bytes() == eager.mean.bytes()
print("the average after five steps is that of eager code;", sum(node.in_place for node in step.take_graph().nodes()), "nodes write")

chapter("Elementwise operators are one node; results may go where one wants them")
chain = crt.trace(lambda i: [crt.tanh(i[0] * i[1] + i[0]) * 0.5 - i[1]], [x, x], ["a", "b"], ["y"])
out = crt.zeros((2, 4))
chain.run([x, x], out=[out])
print(" + ".join(code.name for node in chain.nodes() if node.epilogues for code in (node.op_code, *node.epilogues)))
assert out.bytes() == chain.run([x, x])[0].bytes()

with tempfile.TemporaryDirectory() as folder:
    chapter("Graphs travel")
    graph.save(Path(folder) / "head.graph")
    loaded = crt.graph.load(Path(folder) / "head.graph")
    print(loaded.input_names(), "->", loaded.output_names())
    assert loaded.run({"x": x})[0].bytes() == head([x])[0].bytes()

    chapter("And explain themselves")
    print(graph.summary().splitlines()[-1])
    assert graph.audit([x]) == "" and graph.peak() >= 24
    with crt.profile(Path(folder) / "trace.json"):
        graph.run([x])
    spans = json.loads((Path(folder) / "trace.json").read_text())["traceEvents"]
    print("ran:", ", ".join(span["name"] for span in spans))
    (Path(folder) / "head.html").write_text(graph.to_html())
