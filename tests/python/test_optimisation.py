"""What the passes over graphs put together, and that it keeps the bits."""

from __future__ import annotations

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime._library import lib
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
        assert [step for step in steps(plain) if step[0] != "Full"] == steps(folded)
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
    assert steps(graph) == [("Exp", ["Mul", "Add"]), ("Exp", []), ("Exp", []), ("Exp", []), ("Reshape", [])]
    results = graph.run([x])
    for got, want in zip(results, fn([x]), strict=True):
        assert got.bytes() == want.bytes()
    results[1].add_(1)
    results[3].mul_(7)
    assert results[2].bytes() == crt.exp(x).bytes()


def test_what_depends_on_nothing_is_computed_once():
    def fn(i):
        (x,) = i
        mask = crt.where(crt.arange(0, 4) < 2, 0.0, float("-inf"))
        mine = crt.zeros(4)
        mine.add_(x)
        return [crt.softmax(x + mask, dim=-1), mine, crt.ones(2)]

    x = crt.tensor(array(4))
    graph = crt.trace(fn, [x])
    assert [name for name, _ in steps(graph)] == ["Full", "Add", "Add", "Softmax", "Full"]  # what is written over, or goes out, is made anew
    for _ in range(2):
        results = graph.run([x])
        for got, want in zip(results, fn([x]), strict=True):
            assert got.bytes() == want.bytes()
        results[1].add_(5)
        results[2].add_(5)


def test_what_nobody_reads_is_not_computed():
    def fn(i):
        (x,) = i
        y = crt.exp(x)
        y.mul_(2)
        z = crt.tanh(x)
        z[0] = 3
        return [y]

    graph = crt.trace(fn, [crt.ones(3)])
    assert [name for name, _ in steps(graph)] == ["Exp", "Mul"]
    assert graph.run([crt.zeros(3)])[0].tolist() == [2, 2, 2]


# ---- fused elementwise steps -----------------------------------------------------------------------------------------


def fused_and_plain(fn, inputs):
    """The graph, after a check that it has the bits of the function and of the graph as it was recorded."""
    plain, graph = (crt.trace(fn, inputs, optimize=level) for level in (0, 2))
    for got, want in zip(graph.run(inputs), fn(inputs), strict=True):
        assert got.dtype is want.dtype and got.bytes() == want.bytes()
    for got, want in zip(plain.run(inputs), fn(inputs), strict=True):
        assert got.bytes() == want.bytes()
    return graph


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (300, 5), (3, 1000), (70_000,), (2, 0, 3)])
def test_chains_are_one_step_with_the_same_bits(dtype, shape):
    def fn(i):
        x, y = i
        a = crt.maximum(x, y) * 3 + x
        b = crt.where(a > y, a, x)
        return [crt.cast(crt.abs(b * b - a), crt.float32) * 0.37 + crt.tanh(crt.cast(y, crt.float32))]

    x, y = (crt.cast(crt.tensor(array(*shape, seed=s) * 4), getattr(crt, dtype.replace("bool", "bool_"))) for s in (0, 1))
    if dtype == "bool":
        fn = lambda i: [crt.cast(crt.where(crt.logical_and(i[0], crt.logical_not(i[1])), i[0], i[1]), crt.float32) * 2 + 1]  # noqa: E731
    graph = fused_and_plain(fn, [x, y])
    assert len(steps(graph)) == 1


def test_operands_that_lie_otherwise():
    """Broadcast, transposed, strided and scalar operands of one fused step."""
    x = crt.tensor(array(40, 30))
    others = [
        crt.tensor(array(30)),
        crt.tensor(array(40, 1)),
        crt.tensor(array(30, 40)).T,
        crt.tensor(array(80, 60))[::2, ::2],
        crt.tensor(array(1, 1)),
        crt.tensor(np.float32(0.3)),
        crt.cast(crt.tensor(array(40, 30)), crt.float64),
        crt.expand(crt.tensor(array(1, 30)), (40, 30)),
    ]
    for a in others:
        for b in others:
            graph = fused_and_plain(lambda i: [crt.tanh(i[0] * i[1] + i[2]) - i[1]], [x, a, b])
            assert len(steps(graph)) == 1


def test_two_dimensional_broadcasts_stay_right():
    """What looks like one shape at the sizes of the example, and is another at others."""
    step = crt.compile(lambda x, y: crt.tanh(crt.exp(x) + y) * y, dynamic=True)
    for n, m in ((4, 4), (4, 1), (1, 4), (3, 3), (1, 1)):
        x, y = crt.tensor(array(n, 5)), crt.tensor(array(m, 5, seed=1))
        same(step(x, y), crt.tanh(crt.exp(x) + y) * y)


def test_operators_that_can_fail_name_themselves():
    graph = crt.trace(lambda i: [crt.floor_divide(i[0] + 1, i[1]) * 2], [crt.ones(3, dtype=crt.int32)] * 2)
    with pytest.raises(RuntimeError, match=r"^floor_divide: integer division by zero"):
        graph.run([crt.ones(3, dtype=crt.int32), crt.zeros(3, dtype=crt.int32)])[0].wait()


def test_large_results_of_many_operators():
    x, y = crt.tensor(array(3_000_001)), crt.tensor(array(3_000_001, seed=1))
    fused_and_plain(lambda i: [crt.sigmoid(crt.relu(crt.tanh(i[0] * i[1] + i[0]) + 1.0) * i[1] - i[0])], [x, y])


def test_every_elementwise_operator_in_a_fused_step():
    from generator.tables import read_ops

    seen = 0
    for op in read_ops():
        if op.kind != "elementwise" or not hasattr(crt, op.name):
            continue
        for dtype in ("float32", "bfloat16", "int32"):
            x = crt.cast(crt.tensor(array(5, 3) * 3), getattr(crt, dtype))
            y = crt.cast(crt.tensor(np.abs(array(5, 3, seed=1)) * 3 + 1), getattr(crt, dtype))
            for operands in ((x,), (x, y), (x, y, y)):
                fn = lambda i, op=op: [crt.abs(crt.cast(getattr(crt, op.name)(*[t + 1 for t in i]), crt.float32)) + 1]  # noqa: E731
                try:
                    want = fn(operands)[0].bytes()
                except (TypeError, ValueError, crt.ClikaRTError):
                    continue
                graph = crt.trace(fn, list(operands))
                assert graph.run(list(operands))[0].bytes() == want, op.name
                seen += 1
    assert seen > 200


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_single_elements_in_wide_lanes(dtype):
    """Tiles have room for what is computed in, not only for what is stored."""
    one, other = (crt.expand(crt.tensor(array(1, seed=s)).to(getattr(crt, dtype)), (5000,)) for s in (0, 1))
    for fn in (
        lambda i: [crt.cast(i[0] * i[1], crt.int8)],
        lambda i: [crt.cast(i[0] + i[1], crt.bfloat16)],
        lambda i: [crt.cast(crt.sqrt(crt.abs(i[0])), crt.uint8)],
        lambda i: [crt.isnan(i[0] / i[1])],
    ):
        for _ in range(20):
            fused_and_plain(fn, [one, other])


# ---- rows ------------------------------------------------------------------------------------------------------------


def weights(*shape, seed=0):
    return crt.tensor(array(*shape, seed=seed))


def same_at_all_levels(fn, inputs):
    """The steps of the optimised graph, after all graphs made the same bits as `fn`."""
    want = fn(inputs)
    graphs = [crt.trace(fn, inputs, optimize=level) for level in (0, 1, 2)]
    for graph in graphs:
        for got, right in zip(graph.run(inputs), want, strict=True):
            assert got.bytes() == right.bytes() and got.shape == right.shape and got.is_contiguous() == right.is_contiguous()
    return steps(graphs[2])


ROWS = {
    "softmax": lambda x, w, b: (e := crt.exp(x - crt.amax(x, dims=[-1], keepdim=True))) / crt.sum(e, dims=[-1], keepdim=True),
    "rms": lambda x, w, b: x * crt.rsqrt(crt.mean(crt.square(x), dims=[-1], keepdim=True) + 1e-6) * w,
    "moments": lambda x, w, b: (c := x - crt.mean(x, dims=[-1], keepdim=True)) * crt.rsqrt(crt.mean(c * c, dims=[-1], keepdim=True) + 1e-5) * w + b,
    "norm": lambda x, w, b: crt.layer_norm(crt.relu(x + b), [x.shape[-1]], w, b) * 2,
    "loss": lambda x, w, b: crt.mean(crt.square(x - b), dims=[-1]),
    "distance": lambda x, w, b: crt.sqrt(crt.sum(crt.square(x - b), dims=[-1], keepdim=True)),
    "last of all": lambda x, w, b: crt.softmax(x * 0.25 + b, dim=-1),
    "smallest": lambda x, w, b: crt.amin(crt.abs(x), dims=[-1], keepdim=True) * x,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("n", [32, 77, 1024, 2500])
@pytest.mark.parametrize("name", ROWS)
def test_what_looks_at_rows_becomes_one_step(name, n, dtype):
    kind = getattr(crt, dtype)
    values = array(2, 5, n)
    values[0, 1, 3], values[1, 2, 5], values[0, 4, :] = np.nan, -np.inf, 0
    x, w, b = crt.cast(crt.tensor(values), kind), crt.cast(weights(n, seed=1), kind), crt.cast(weights(n, seed=2), kind)
    made = same_at_all_levels(lambda inputs: [ROWS[name](inputs[0], w, b)], [x])
    assert len(made) == 1


def test_rows_that_are_not_worth_it_stay_apart():
    for n in (8, 20_000):
        assert len(same_at_all_levels(lambda i: [crt.softmax(i[0] * 2, dim=-1)], [weights(3, n)])) == 2
    x = weights(4, 40, 40)
    assert len(same_at_all_levels(lambda i: [crt.softmax(i[0] * 2, dim=1)], [x])) == 2  # columns
    assert len(same_at_all_levels(lambda i: [i[0] - crt.mean(i[0], dims=[1], keepdim=True)], [x])) == 2
    assert len(same_at_all_levels(lambda i: [(m := crt.mean(i[0] + 1, dims=[-1], keepdim=True)), i[0] - m], [x])) == 2  # it goes out as well
    assert len(same_at_all_levels(lambda i: [crt.layer_norm(i[0], [40], w := crt.exp(i[1]), w)], [x, weights(40)])) == 2  # weights are not rows
    assert len(same_at_all_levels(lambda i: [crt.sum(crt.cast(i[0], crt.int32), dims=[-1], keepdim=True)], [x])) == 2


def test_rows_of_other_sizes():
    step = crt.compile(lambda x: crt.softmax(crt.relu(x) * 0.5, dim=-1) - crt.mean(x, dims=[-1], keepdim=True), dynamic=True)
    for shape in ((3, 40), (2, 9), (5, 3000), (1, 30_000), (0, 40), (7, 40)):
        x = weights(*shape, seed=shape[0]) if shape[0] else crt.zeros(shape)
        want = crt.softmax(crt.relu(x) * 0.5, dim=-1) - crt.mean(x, dims=[-1], keepdim=True)
        assert step(x).bytes() == want.bytes()
    assert step.recapture_count == 0


def test_results_of_rows_do_not_lie_over_what_other_rows_read():
    n = 64
    x, c, w = weights(n, n), weights(n, seed=1), weights(n, 3, seed=2)
    for fold in (crt.sum, crt.mean, crt.amax):
        same_at_all_levels(lambda i, fold=fold: [crt.matmul(fold(i[0] + crt.exp(i[1]), dims=[1]), w)], [x, c])
        graph = crt.trace(lambda i, fold=fold: [fold(i[0] + i[1], dims=[1])], [x, c])
        state = crt.copy(c)
        want = fold(x + c, dims=[1]).bytes()
        graph.run([x, state], out=[state])
        assert state.bytes() == want


@pytest.mark.parametrize("n", [40, 300, 4096])
def test_rows_of_one_element(n):
    for dtype in (crt.float32, crt.float16):
        a = crt.cast(weights(7, 1), dtype)
        for fn in (
            lambda x: crt.softmax(x, dim=-1) * 2,
            lambda x: crt.exp(crt.sum(x, dims=[1], keepdim=True)),
            lambda x: crt.exp(crt.layer_norm(x, [x.shape[-1]])),
            lambda x: crt.log_softmax(x + 1, dim=-1),
        ):
            same_at_all_levels(lambda i, fn=fn: [fn(crt.expand(i[0], (7, n)))], [a])
            same_at_all_levels(lambda i, fn=fn: [fn(i[0])], [crt.expand(crt.cast(weights(n, seed=3), dtype), (7, n))])
            same_at_all_levels(lambda i, fn=fn: [fn(i[0])], [crt.permute(crt.cast(weights(n, 7, seed=4), dtype), (1, 0))])


def bits_of(*values, shape=None):
    floats = np.array(values, np.uint32).view(np.float32)
    return crt.tensor(floats if shape is None else floats.reshape(shape))


@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_rows_of_several_nan(rows):
    """Which one's bits come out depends on nothing but the row."""
    values = np.full((rows, 40), 0x3F800000, np.uint32)
    values[:, 3], values[:, 17], values[:, 33], values[-1, 38] = 0x7FC00001, 0xFFC00002, 0x7FC00003, 0xFFC00004
    x = crt.tensor(values.view(np.float32))
    for kind in (crt.float32, crt.float64, crt.float16, crt.bfloat16):
        y = crt.cast(x, kind)
        for fold in (crt.sum, crt.mean, crt.amax, crt.amin):
            same_at_all_levels(lambda i, fold=fold: [fold(crt.neg(i[0]), dims=[1], keepdim=True)], [y])
            same_at_all_levels(lambda i, fold=fold: [crt.neg(fold(i[0], dims=[0, 1], keepdim=True))], [crt.permute(y, (1, 0))])
            each = [fold(y[r], dims=[0]).bytes() for r in range(rows)]
            assert [fold(y, dims=[1])[r].bytes() for r in range(rows)] == each


def test_single_elements_of_several_widths():
    for shape in ((), (1,), (1, 1)):
        for number in (-0.83, 2.5, np.nan):
            e = crt.cast(crt.tensor(np.full(shape, number, np.float32)), crt.float16)
            for fn in (
                lambda x: crt.cast(crt.gt(x, 0), crt.float16),
                lambda x: crt.where(crt.gt(x, 0), 6, x),
                lambda x: crt.cast(x + crt.cast(x, crt.float64), crt.bfloat16) * 3,
                lambda x: crt.cast(crt.cast(x, crt.float64) > 1, crt.int8) + 2,
            ):
                same_at_all_levels(lambda i, fn=fn: [fn(i[0])], [e])


def test_signalling_nan_become_quiet_where_they_would():
    s = bits_of(0x7F800001, 0xFF800001, 0x3F800000)
    for op in (crt.exp, crt.tanh, crt.sqrt, crt.sigmoid, crt.relu, crt.abs, crt.neg):
        for last in (lambda y: y * 1, lambda y: y / 1, lambda y: y - 0, lambda y: crt.cast(crt.cast(y, crt.float64), crt.float32)):
            same_at_all_levels(lambda i, op=op, last=last: [crt.neg(last(op(i[0])))], [s])


# ---- what follows a convolution ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("shape", [(1, 56, 56, 8), (9, 6, 6, 8), (2, 40, 33, 8), (1, 3, 3, 8), (40, 5, 5, 8)])
def test_what_follows_a_convolution_is_made_with_it(shape, dtype):
    kind = getattr(crt, dtype)
    k = crt.cast(weights(8, 3, 3, 8), kind)
    mean, shift, scale = (crt.cast(weights(8, seed=i), kind) for i in (1, 2, 3))
    variance = crt.abs(crt.cast(weights(8, seed=4), kind))

    def fn(inputs):
        (x,) = inputs
        y = crt.relu(crt.batch_norm(crt.conv2d(x, k, None, [1, 1], [1, 1]), mean, variance, scale, shift))
        z = crt.batch_norm(crt.conv2d(y, k, shift, [1, 1], [1, 1]), mean, variance)
        return [crt.relu(z + x), crt.relu(crt.conv2d(y + x, k, None, [1, 1], [1, 1]))]

    x = crt.cast(weights(*shape, seed=5), kind)
    made = same_at_all_levels(fn, [x])
    assert sorted((op, len(epilogues)) for op, epilogues in made) == [("Add", 0), ("Conv2d", 1), ("Conv2d", 2), ("Conv2d", 3)]
    graph = crt.trace(fn, [x])
    threads = crt.num_threads()
    want = [t.bytes() for t in fn([x])]
    try:
        for n in (1, 3):
            crt.set_num_threads(n)
            assert [t.bytes() for t in graph.run([x])] == want
    finally:
        crt.set_num_threads(threads)


def test_a_residual_that_is_the_convolutions_input_is_not_written_over():
    k = weights(8, 3, 3, 8)

    def fn(inputs):
        x = inputs[0] * 2
        return [crt.conv2d(x, k, None, [1, 1], [1, 1]) + x]

    same_at_all_levels(fn, [weights(1, 64, 64, 8)])


# ---- identities and layout -----------------------------------------------------------------------------------------------


def test_what_changes_nothing_is_taken_out():
    x = weights(3, 4)
    for fn, left in (
        (lambda x: crt.exp(crt.relu(crt.relu(crt.neg(crt.neg(crt.exp(x)))))), [("Exp", ["Relu", "Exp"])]),
        (lambda x: crt.exp((x + 1) * 1 / 1.0 - 0.0), [("Add", ["Exp"])]),
        (lambda x: crt.exp(crt.cast(crt.cast(x + 1, crt.float64), crt.float32)), [("Add", ["Exp"])]),
        (lambda x: crt.exp(crt.copy(x + 1)), [("Add", ["Exp"])]),
        (lambda x: crt.exp(crt.cast(crt.reshape(x, (3, 4)), crt.float32)), [("Exp", [])]),
        (lambda x: crt.exp(crt.reshape(crt.reshape(x, (2, 6)), (4, 3))), [("Reshape", []), ("Exp", [])]),
        (lambda x: crt.exp(x * 1), [("Mul", ["Exp"])]),  # x may hold signalling NaN
        (lambda x: crt.exp((x + 1) + 0.0), [("Add", ["Add", "Exp"])]),  # of -0
        (lambda x: crt.exp(crt.cast(crt.cast(x + 1, crt.float16), crt.float32)), [("Add", ["Cast", "Cast", "Exp"])]),
        (lambda x: crt.exp((x + 1) * crt.ones(2, 1, 1)), [("Full", []), ("Add", []), ("Mul", ["Exp"])]),
    ):
        assert [s for s in same_at_all_levels(lambda i, fn=fn: [fn(i[0])], [x]) if s[0] != "Full"] == [s for s in left if s[0] != "Full"]
    x = crt.tensor(np.array([0x7F800001, 0xFF800001, 0x80000000], np.uint32).view(np.float32))  # signalling NaN, -0
    same_at_all_levels(lambda i: [crt.copy(i[0] * 1), crt.copy(crt.neg(crt.neg(i[0]))), crt.copy(crt.cast(crt.cast(i[0], crt.float64), crt.float32))], [x])


def test_what_goes_out_has_memory_of_its_own():
    x = weights(3, 4)
    graph = crt.trace(lambda i: [crt.copy(y := i[0] + 1), y, crt.cast(crt.reshape(i[0], (3, 4)), crt.float32)], [x])
    copy, y, z = graph.run([x])
    crt.neg_(y)
    assert copy.bytes() == (x + 1).bytes() and z.bytes() == x.bytes()


def test_permutations_meet_behind_elementwise_steps():
    first, second, scale = weights(8, 3, 3, 3), weights(8, 3, 3, 8), weights(1, 8, 1, 1, seed=1)

    def conv(x, k):
        return crt.permute(crt.conv2d(crt.permute(x, (0, 2, 3, 1)), k, None, [1, 1], [1, 1]), (0, 3, 1, 2))

    x = weights(2, 3, 9, 7)
    made = same_at_all_levels(lambda i: [conv(crt.relu(conv(i[0], first) * scale), second)], [x])
    assert [s for s in made if s[0] != "Permute"] == [("Conv2d", ["Mul", "Relu"]), ("Conv2d", [])]
    assert len([s for s in made if s[0] == "Permute"]) == 3  # before all, of the scale, behind all
    assert same_at_all_levels(lambda i: [crt.exp(crt.transpose(crt.transpose(i[0], 1, 2), 2, 1))], [x]) == [("Exp", [])]
    for fn in (
        lambda x: crt.transpose(crt.exp(crt.transpose(x, 1, 2)), 1, 2),  # goes out, as it was
        lambda x: crt.exp(crt.transpose(crt.exp(crt.transpose(x, 1, 2)) + crt.ones(7), 1, 2)),  # another rank
        lambda x: crt.sum(crt.exp(crt.permute(x, (3, 0, 1, 2))) + crt.permute(x, (3, 0, 1, 2))),
        lambda x: crt.permute(crt.exp(crt.permute(x, (1, 2, 3, 0))) - crt.permute(x, (1, 2, 3, 0)), (2, 0, 1, 3)) * 2,
        lambda x: crt.permute(crt.where(crt.permute(x, (1, 0, 2, 3)) > 0, crt.ones(1, 1, 1, 1), 2.0), (1, 0, 2, 3)) * x,
    ):
        same_at_all_levels(lambda i, fn=fn: [fn(i[0])], [x])


@pytest.mark.parametrize("rows", [8, 20, 64, 100])
def test_what_looks_at_strides_sees_what_it_would(rows):
    """Products choose by strides how they add up; views of memory look at nothing else."""
    x, across, w = weights(rows, 512), weights(512, rows, seed=1), weights(300, 512, seed=2)
    for fn in (
        lambda x, t: crt.matmul(crt.permute(crt.relu(crt.permute(x, (1, 0))), (1, 0)), crt.permute(w, (1, 0))),
        lambda x, t: crt.matmul(crt.neg(crt.neg(crt.permute(t, (1, 0)))), crt.permute(w, (1, 0))),
        lambda x, t: crt.matmul(crt.cast(crt.permute(t, (1, 0)), crt.float32), crt.permute(w, (1, 0))),
        lambda x, t: crt.matmul(crt.reshape(crt.reshape(crt.permute(t, (1, 0)), (-1,)), (rows, 512)), crt.permute(w, (1, 0))),
        lambda x, t: crt.as_strided(crt.cast(crt.permute(t, (1, 0)), crt.float32), (rows, 4), (512, 1), 3) * 1,
        lambda x, t: crt.as_strided(crt.permute(crt.relu(crt.permute(x, (1, 0))), (1, 0)), (rows, 4), (1, rows), 3) * 1,
        lambda x, t: crt.view_dtype(crt.neg(crt.neg(crt.permute(t, (1, 0)))), crt.int32) + 1,
        lambda x, t: crt.max_pool2d(crt.reshape(crt.permute(crt.relu(crt.permute(x, (1, 0))), (1, 0)), (rows, 8, 8, 8)), [2, 2]),
        lambda x, t: crt.avg_pool2d(crt.reshape(crt.neg(crt.neg(crt.permute(t, (1, 0)))), (rows, 8, 8, 8)), [3, 3]),
    ):
        same_at_all_levels(lambda i, fn=fn: [fn(*i)], [x, across])
    cast = crt.trace(lambda i: [crt.matmul(crt.cast(i[0], crt.float32), crt.permute(w, (1, 0)))], [x])
    strided = crt.permute(across, (1, 0))  # an input that lies otherwise than the example
    assert cast.run([strided])[0].bytes() == crt.matmul(crt.cast(strided, crt.float32), crt.permute(w, (1, 0))).bytes()


def test_identities_hold_for_other_sizes():
    step = crt.compile(lambda x: crt.exp(crt.reshape(crt.reshape(crt.permute(x + 1, (1, 0)), (-1, 4)), (2, -1)) * 1), dynamic=True)
    for n in (4, 8, 2):
        x = weights(n, 6, seed=n)
        assert step(x).bytes() == crt.exp(crt.reshape(crt.permute(x + 1, (1, 0)), (2, -1)) * 1).bytes()
    assert step.recapture_count == 0


def test_a_failing_convolution_spoils_what_follows_it_and_nothing_else():
    k = weights(8, 3, 3, 8)

    def fn(inputs):
        x = inputs[0] + 1
        return [crt.relu(crt.conv2d(x, k, None, [1, 1], [1, 1]) * 2), crt.exp(x)]

    x = weights(1, 9, 9, 8)
    graph = crt.trace(fn, [x])
    want = [t.bytes() for t in fn([x])]
    lib.clikart_fail_kernel(crt.graph.OpCode.Conv2d.value, 0)
    failed, right = graph.run([x])
    with pytest.raises(crt.ClikaRTError, match=r"^conv2d: failed as it was told to \(from float32 \[1, 9, 9, 8\]"):
        failed.wait()
    assert right.bytes() == want[1]
    assert [t.bytes() for t in graph.run([x])] == want
