"""What the passes over graphs put together, and that it keeps the bits."""

from __future__ import annotations

import numpy as np
import pytest

import clika_runtime as crt
from compiling import array, same

State = crt.State


def steps(graph):
    return [(n.op_code.name, [e.name for e in n.epilogues]) for n in graph.nodes() if n.kind.name not in ("Input", "External", "Constant")]


def test_products_take_what_follows_them():
    w, bias = crt.tensor(array(4, 3)), crt.tensor(array(3, seed=1))

    def fn(inputs):
        x, residual = inputs
        y = crt.gelu(x @ w + bias) * 0.5
        return [crt.softmax(y + crt.exp(residual), dim=-1)]

    inputs = [crt.tensor(array(5, 4)), crt.tensor(array(5, 3, seed=2))]
    graphs = [crt.trace(fn, inputs, optimize=level) for level in (0, 1, 2)]
    assert len(steps(graphs[0])) == 7 and all(not epilogues for _, epilogues in steps(graphs[0]))
    for graph in graphs[1:]:
        assert steps(graph) == [("Exp", []), ("MatMul", ["Add", "Gelu", "Mul", "Add"]), ("Softmax", [])]
        (product,) = [n for n in graph.nodes() if n.op_code is crt.graph.OpCode.MatMul]
        assert len(product.inputs) == 5 and product.shape == (5, 3)
    want = fn(inputs)[0].bytes()
    for graph in graphs:
        assert graph.run(inputs)[0].bytes() == want


def test_what_is_not_folded():
    w = crt.tensor(array(4, 3))
    x, square = crt.tensor(array(2, 4)), crt.tensor(array(2, 3, seed=3))
    for fn in (
        lambda i: [crt.relu(p := i[0] @ w), p],
        lambda i: [(p := i[0] @ w) * p],
        lambda i: [i[1] - i[0] @ w],
        lambda i: [i[0] @ w + crt.ones((4, 1, 1))],
        lambda i: [i[0] @ w < i[1]],
        lambda i: [crt.cast(i[0] @ w, crt.float64)],
        lambda i: [i[0] @ w + crt.ones(3, dtype=crt.float64)],
    ):
        plain, folded = (crt.trace(fn, [x, square], optimize=level) for level in (0, 2))
        assert steps(plain) == steps(folded)
        for got, want in zip(folded.run([x, square]), fn([x, square]), strict=True):
            assert got.dtype is want.dtype and got.bytes() == want.bytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32"])
def test_folding_keeps_the_bits(dtype):
    """Every elementwise operator of one or two operands behind a product."""
    from generator.tables import read_ops

    kind = getattr(crt, dtype)
    values = array(6, 6) * 3
    values[0, :3] = np.nan, np.inf, -np.inf
    x, w = crt.cast(crt.tensor(values), kind), crt.cast(crt.eye(6), kind)
    other = crt.cast(crt.tensor(array(6, seed=1)), kind)
    folded = 0
    for op in read_ops():
        if op.kind != "elementwise" or len(op.tensors) > 2 or any(a.default is None and a.type not in ("float", "int") for a in op.attributes):
            continue
        given = {a.name: {"float": 0.5, "int": 1}[a.type] for a in op.attributes if a.default is None}
        function, others = getattr(crt, op.name), (other,) * (len(op.tensors) - 1)

        def fn(inputs, function=function, given=given, others=others):
            return [function(inputs[0] @ w, *others, **given)]

        try:
            want = fn([x])[0]
            want.wait()
        except crt.ClikaRTError:
            continue
        graph = crt.trace(fn, [x])
        folded += len(steps(graph)) == 1
        assert graph.run([x])[0].bytes() == want.bytes(), op.name
    assert folded > (15 if dtype == "int32" else 50)


def test_folding_holds_for_other_sizes():
    w = crt.tensor(array(4, 3))
    step = crt.compile(lambda x, y: crt.relu(x @ w + y), dynamic=True)
    for n, m in ((2, 2), (1, 5), (3, 1), (1, 1), (4, 4)):
        x, y = crt.tensor(array(n, 4, seed=n)), crt.tensor(array(m, 3, seed=m))
        same(step(x, y), crt.relu(x @ w + y))
    assert step.recapture_count == 0 and steps(step.take_graph()) == [("MatMul", ["Add", "Relu"])]


def test_a_level_that_is_none():
    for wrong, kind in ((3, ValueError), (-1, ValueError), ("2", TypeError)):
        with pytest.raises(kind, match="optimize"):
            crt.trace(lambda i: i, [crt.ones(1)], optimize=wrong)
        with pytest.raises(kind, match="optimize"):
            crt.compile(lambda x: x, optimize=wrong)


def test_equal_steps_become_one_and_results_stay_apart():
    def fn(i):
        (x,) = i
        a, b = crt.exp(x) * 2, crt.exp(x) * 2
        return [a + b, crt.exp(x), crt.exp(x), crt.reshape(crt.exp(x), (-1,))]

    x = crt.tensor(array(2, 3))
    graph = crt.trace(fn, [x])
    assert [name for name, _ in steps(graph)].count("Exp") == 4 and [name for name, _ in steps(graph)].count("Mul") == 1
    results = graph.run([x])
    for got, want in zip(results, fn([x]), strict=True):
        assert got.bytes() == want.bytes()
    results[1].add_(1)
    results[3].mul_(7)
    assert results[2].bytes() == crt.exp(x).bytes()
