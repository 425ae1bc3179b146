"""crt.compile: capture while running, replay, and what brings a new capture."""

from __future__ import annotations

import gc
import re
import threading
import warnings
from typing import Any

import pytest

import clika_runtime as crt
from clika_runtime._library import lib
from compiling import array, same

State = crt.State


def test_the_first_call_runs_once_and_later_ones_not_at_all():
    w, calls = crt.tensor(array(4, 3)), []

    def fn(x):
        calls.append(1)
        return crt.softmax(crt.relu(x @ w + 1), dim=-1)

    step = crt.compile(fn)
    assert step.state is State.Pending and step.recapture_count == 0 and step.__name__ == "fn"
    for seed in range(3):
        x = crt.tensor(array(2, 4, seed=seed))
        same(step(x), crt.softmax(crt.relu(x @ w + 1), dim=-1))
    assert len(calls) == 1 and step.state is State.Compiled and step.recapture_count == 0
    assert step.take_graph().input_names() == ["x"] and step.take_graph().output_names() == ["output"]


def read_item(x):
    return x * 2 if crt.sum(x).item() > 0 else -x


def read_bool(x):
    return x * 2 if crt.sum(x) > 0 else -x


def size_from_data(x):
    return crt.nonzero(x)


def read_through_numpy(x):
    return crt.tensor(x.numpy() + 1)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (read_item, "the value of float32 [] is read"),
        (read_bool, "the value of bool [] is read"),
        (size_from_data, "nonzero: the size of its result depends on data"),
        (read_through_numpy, "the value of float32 [3] is read"),
    ],
)
def test_what_cannot_be_recorded_is_called(fn, why):
    calls = []

    def counted(x):
        calls.append(1)
        return fn(x)

    step = crt.compile(counted)
    for values in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.0, 4.0, 0.0]):
        same(step(crt.tensor(values)), fn(crt.tensor(values)))
    assert len(calls) == 3  # not a second time for the capture
    assert step.state is State.Fallback and why in step.fallback_reason and step.recapture_count == 0
    line = fn.__code__.co_firstlineno + 1
    assert step.fallback_reason.endswith(f", at {__file__}:{line}")
    with pytest.raises(RuntimeError, match="take_graph: nothing is captured: .*" + re.escape(why)):
        step.take_graph()
    full = crt.compile(fn, fullgraph=True)
    for _ in range(2):
        with pytest.raises(crt.ClikaRTRuntimeError, match=r"^compile: .* cannot be recorded into a graph") as raised:
            full(crt.tensor([1.0, 2.0, 3.0]))
        assert raised.traceback[-1].path != __file__ and any(str(entry.path) == __file__ and entry.name == fn.__name__ for entry in raised.traceback)
    same(crt.ones(2) + 1, [2, 2])  # and the thread computes as before


def test_values_that_are_read_elsewhere_do_not_matter():
    step = crt.compile(lambda x: (crt.exp(x).wait(), crt.exp(x))[1])  # nor does waiting
    x = crt.ones(3)
    y = step(x)
    assert y.numpy().shape == (3,) and step.state is State.Compiled
    assert step(x).tolist() == y.tolist()


def test_one_tensor_for_two_inputs():
    step = crt.compile(lambda a, b: a - 2 * b)
    x, y = crt.tensor([1.0]), crt.tensor([5.0])
    assert step(x, x).tolist() == [-1.0]
    assert step(x, y).tolist() == [-9.0] and step(y, x).tolist() == [3.0]
    assert step.recapture_count == 0


def test_values_that_are_no_tensors_are_part_of_the_key():
    calls = []

    def fn(x, factor, flag=None):
        calls.append((factor, flag))
        return (x * factor, flag)

    step = crt.compile(fn)
    x = crt.ones(2, dtype=crt.int32)
    for factor in (2, 2.0, True, 2, 0.0, -0.0, float("nan"), float("nan")):
        got, flag = step(x, factor, flag="text")
        want = x * factor
        assert got.dtype == want.dtype and flag == "text"
        same(got, want)
    assert len(calls) == 6
    assert str(step(x, 0.0)[0].tolist()) != str(step(x, -0.0)[0].tolist())


def test_structures_dtypes_and_shapes_are_part_of_the_key():
    step = crt.compile(lambda tree: {"sum": crt.pytree.tree_leaves(tree)[0] + 1, "none": None, "tree": tree})
    x = crt.ones(2)
    trees: list[Any] = [[x], (x,), {"a": x}, {"b": x}, [x, x], [crt.ones(3)], [crt.ones(2, dtype=crt.int64)], [crt.ones((1, 2))]]
    for i, tree in enumerate(trees):
        for _ in range(2):
            out = step(tree)
            assert list(out) == ["sum", "none", "tree"] and out["none"] is None and type(out["tree"]) is type(tree)
        assert step.recapture_count == i


def test_dynamic_keeps_one_graph_while_no_size_is_looked_at():
    def plain(x):
        return crt.softmax(crt.reshape(x, (-1, 2)) * 2, dim=0)

    step = crt.compile(plain, dynamic=True)
    for n in (4, 8, 2, 16):
        x = crt.tensor(array(n))
        same(step(x), plain(x))
    assert step.recapture_count == 0

    def mean(x):
        return crt.sum(x) / x.shape[0]

    def composite(x):
        return crt.einsum("i,i->", x, x)

    def numel(x):
        return x * x.numel()

    for fn in (mean, composite, numel, lambda x: x[: len(x) // 2], lambda x: crt.normalize(x, dim=0)):
        step = crt.compile(fn, dynamic=True)
        for n in (4, 8, 2, 4):
            x = crt.tensor(array(n))
            same(step(x), fn(x))
        assert step.recapture_count <= 2
    with pytest.raises(ValueError, match="the graph was traced for float32 of rank 1"):
        graph = crt.compile(plain, dynamic=True)
        graph(crt.ones(2))
        graph.take_graph().run([crt.ones((2, 2))])


def test_random_operators_go_on():
    def fn(x):
        return crt.dropout(x, 0.5) + crt.rand_like(x)

    step = crt.compile(fn)
    x = crt.ones(100)
    crt.manual_seed(7)
    want = [fn(x).tolist() for _ in range(4)]
    crt.manual_seed(7)
    assert [step(x).tolist() for _ in range(4)] == want
    assert len({tuple(values) for values in want}) == 4 and step.recapture_count == 0


def test_several_results_inputs_and_what_is_enclosed_come_back():
    w = crt.ones(3)

    def fn(x):
        values, places = crt.topk(x, 2)
        return x, w, values, places

    step = crt.compile(fn)
    for seed in range(2):
        x = crt.tensor(array(3, seed=seed))
        for got, want in zip(step(x), fn(x), strict=True):
            same(got, want)


def test_parts_of_another_capture():
    inner = crt.compile(lambda x: x * 2)
    outer = crt.compile(lambda x: inner(x) + 1)
    for v in (1.0, 2.0):
        assert outer(crt.tensor([v])).tolist() == [2 * v + 1]
    assert inner.state is State.Pending and outer.state is State.Compiled
    graph = crt.trace(lambda i: [inner(i[0])], [crt.ones(1)])
    assert graph.run([crt.ones(1)])[0].tolist() == [2.0]
    tracing = crt.compile(lambda x: crt.trace(lambda i: [i[0] * 2], [x]).run([x])[0] + 1)
    for v in (1.0, 2.0):
        assert tracing(crt.tensor([v])).tolist() == [2 * v + 1]
    assert tracing.fallback_reason.startswith("another graph is recorded") and not lib.clikart_capturing()
    with pytest.raises(ZeroDivisionError):
        crt.compile(lambda x: crt.trace(lambda i: 1 / 0, [x]))(crt.ones(1))
    with pytest.raises(TypeError, match="must return a list"):
        crt.compile(lambda x: crt.trace(lambda i: 1, [x]))(crt.ones(1))
    with pytest.raises(RuntimeError, match="compile: another graph is recorded"):
        crt.compile(lambda x: crt.trace(lambda i: i, [x]), fullgraph=True)(crt.ones(1))
    assert not lib.clikart_capturing()
    replayed = crt.compile(lambda x: graph.run([x])[0] + 1)
    assert replayed(crt.ones(1)).tolist() == [3.0] and replayed(crt.zeros(1)).tolist() == [1.0]


def test_an_error_of_the_function_leaves_it_pending():
    broken = [True]

    def fn(x):
        y = x + 1
        if broken[0]:
            raise KeyError("own")
        return y

    step = crt.compile(fn)
    with pytest.raises(KeyError, match="own"):
        step(crt.ones(1))
    assert step.state is State.Pending and not lib.clikart_capturing()
    broken[0] = False
    assert step(crt.ones(1)).tolist() == [2.0] and step.state is State.Compiled
    with pytest.raises(ValueError, match="matmul"):
        crt.compile(lambda x: x @ x)(crt.ones((2, 3)))
    assert not lib.clikart_capturing()


def test_threads_call_it_at_once():
    step = crt.compile(lambda x: crt.exp(x) * 2 - x)
    inputs = [crt.tensor(array(n % 7 + 1, seed=n)) for n in range(64)]
    want = [(crt.exp(x) * 2 - x).tolist() for x in inputs]
    wrong, start = [], threading.Barrier(8)

    def work(k):
        start.wait()
        for i in range(k, 64, 8):
            if step(inputs[i]).tolist() != want[i]:
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong and step.state is State.Compiled


def test_a_capture_keeps_no_values():
    def fn(x):
        for _ in range(8):
            x = x + 1
        return crt.sum(x)

    step = crt.compile(fn)
    x = crt.zeros(1 << 18)
    gc.collect()
    lib.clikart_drain()
    before = crt.memory.current()
    assert step(x).item() == 8 << 18
    gc.collect()
    lib.clikart_drain()
    assert crt.memory.current() - before < 1 << 16


def test_only_so_many_graphs_are_kept():
    step = crt.compile(lambda x: x + 1)
    for n in range(1, 80):
        step(crt.ones(n))
    assert step.recapture_count == 78
    step(crt.ones(79))
    assert step.recapture_count == 78
    step(crt.ones(1))
    assert step.recapture_count == 79


def test_the_list_form():
    spec = crt.TensorSpec("x", crt.float32, [2, 4])
    assert spec.shape == (2, 4) and spec == crt.TensorSpec("x", crt.float32, (2, 4))
    step = crt.compile(lambda i: [crt.relu(i[0]), i[1]], [spec, crt.TensorSpec("n", crt.int64, [])])
    x, n = crt.tensor(array(2, 4)), crt.tensor(3)
    for _ in range(2):
        same(step([x, n])[0], crt.relu(x))
    graph = step.take_graph()
    assert graph.input_names() == ["x", "n"] and graph.output_names() == ["output_0", "output_1"]
    for given, kind, text in [
        ([x], ValueError, r"1 inputs given, there are specs of 2: \['x', 'n'\]"),
        ([x, x], TypeError, "input 'n' is .*float32, expected .*int64"),
        ([crt.ones(2), n], ValueError, r"input 'x' has the shape \[2\], expected one like \[2, 4\]"),
        ((x, 1), TypeError, "takes one list of tensors"),
        (x, TypeError, "takes one list of tensors"),
    ]:
        with pytest.raises(kind, match=text):
            step(given)
    with pytest.raises(TypeError, match="must return a list of tensors"):
        crt.compile(lambda i: i[0], [spec])([x])
    for wrong in (("x", "float32", [2]), (1, crt.float32, [2])):
        with pytest.raises(TypeError, match="TensorSpec: expected a name, a dtype and a shape"):
            crt.TensorSpec(*wrong)
    with pytest.raises(ValueError, match="TensorSpec: 'x' has the shape"):
        crt.TensorSpec("x", crt.float32, [-1])
    with pytest.raises(TypeError, match="TensorSpec: the shape of 'x' is a list of sizes, got int"):
        crt.TensorSpec("x", crt.float32, 5)
    with pytest.raises(TypeError, match="compile: expected a function, got int"):
        crt.compile(3)
    for specs in (spec, [1], 5, iter([spec])):
        with pytest.raises(TypeError, match="compile: specs are a list of TensorSpec"):
            crt.compile(lambda i: i, specs)


def test_reset():
    step = crt.compile(read_item)
    step(crt.ones(1))
    assert step.state is State.Fallback
    step.reset()
    assert step.state is State.Pending and step.fallback_reason == ""
    with pytest.raises(RuntimeError, match="take_graph: nothing is captured yet"):
        step.take_graph()


def test_explain():
    scale = 2

    def fn(x, y=None, *, flag=True):
        return x * scale if flag else x

    step = crt.compile(fn)
    assert step.explain() == "nothing is captured yet"
    x = crt.ones(2)
    step(x)
    step(crt.ones((1, 3)))
    step(x, 5)
    step(x, 6.5)
    step(x, 6.5)
    scale = 3
    step(x, 6.5)
    step(x, flag=False)
    step(x, [7])
    assert step.explain().splitlines() == [
        "capture 1: the first call",
        "capture 2: x is float32 [1, 3], was float32 [2]",
        "capture 3: 2 values were given, 1 before",
        "capture 4: y is 6.5, was 5",
        "capture 5: scale is not what it was",
        "capture 6: flag is False, where y is 6.5 was given before",
        "capture 7: y.0 is 7, where flag is False was given before",
    ]
    step.reset()
    assert step.explain() == "nothing is captured yet"
    fallback = crt.compile(read_item)
    fallback(x)
    assert fallback.explain() == f"fallback: {fallback.fallback_reason}"


def test_the_capture_taken_last_is_not_taken_for_others():
    """What is called again and again is found without looking it up: never for what it was not captured for."""
    scale = [2.0]
    step = crt.compile(lambda x: (x[0] if isinstance(x, (list, tuple)) else x) * scale[0])
    x, y = crt.ones(2), crt.full([2], 5.0)
    for given, want in (([x], 2), ([x], 2), (x, 2), (x, 2), ([y], 10), ((y,), 10), (y, 10), (y, 10), (crt.ones(2, dtype=crt.float64), 2), (x, 2), (x, 2)):
        assert step(given).tolist() == [want] * 2 and step(given).dtype is (given[0] if isinstance(given, (list, tuple)) else given).dtype
    scale[0] = 3.0
    assert [step(x).tolist() for _ in range(3)] == [[3.0, 3.0]] * 3
    assert step(crt.ones(2, 2)[0]).tolist() == step(crt.ones(2, 2)[:, 0]).tolist() == step(crt.nn.Parameter(x)).tolist() == [3.0, 3.0]
    graph = crt.trace(lambda i: [step(i[0])], [x])  # a part of another recording
    assert graph.run([y])[0].tolist() == [15.0] * 2
    step.reset()
    assert step.state is crt.State.Pending and step(x).tolist() == [3.0, 3.0] and step.recapture_count == 0
    listed = crt.compile(lambda i: [i[0] * (2 if isinstance(i, tuple) else 1)], [crt.TensorSpec("x", crt.float32, [2])])
    for _ in range(3):
        assert listed([x])[0].tolist() == [1.0] * 2 and listed((x,))[0].tolist() == [2.0] * 2
    with pytest.raises(crt.ClikaRTTypeError, match="float64"):
        listed([crt.ones(2, dtype=crt.float64)])


def test_it_says_why_a_graph_does_not_hold_for_all_sizes():
    def fn(x):
        y = x * 2
        return y / float(y.shape[0])

    step = crt.compile(fn, dynamic=True)
    step(crt.ones(3)), step(crt.ones(4))
    line = f"{__file__}:{fn.__code__.co_firstlineno + 2}"
    assert step.explain().splitlines() == [
        f"capture 1: the first call; it holds where mul(...).shape[0] == 3, at {line}",
        f"capture 2: x is float32 [4], was float32 [3]; the one before holds where mul(...).shape[0] == 3, at {line}; "
        f"it holds where mul(...).shape[0] == 4, at {line}",
    ]
    looks = {
        "x.shape[0] == 3": len,
        "x.shape[0] > 2": lambda x: x.numel() > 2,
        "x.shape[0] <= 7": lambda x: 7 < x.shape[0],
        "x.is_contiguous()": lambda x: x.is_contiguous(),
        "x.shape[0] == 3; x.stride(0) == 1": lambda x: x.stride(),
        "(x.shape[0] // 2) != 2": lambda x: x.shape[0] // 2 == 2,
        "((x.shape[0] + 1) * x.shape[0] % 5) == 2": lambda x: int((x.shape[0] + 1) * x.shape[0] % 5),
    }
    for condition, look in looks.items():
        step = crt.compile(lambda x, look=look: (look(x), x + 1)[1], dynamic=True)
        step(crt.ones(3))
        told = step.explain()
        assert told.startswith("capture 1: the first call; it holds where ") and told.count(f", at {__file__}:") == 1 + condition.count(";")
        assert all(part in told for part in condition.split("; ")), told
    step = crt.compile(lambda x: x + 1, dynamic=True)
    step(crt.ones(3))
    assert step.explain() == "capture 1: the first call"


def test_many_captures_are_told_once():
    step = crt.compile(lambda x: x * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 9):
            step(crt.ones(n))
    with pytest.warns(RuntimeWarning, match=r"^compile: .*<lambda> is captured for the 9th time: x is float32 \[9\], was float32 \[8\]; explain\(\)") as told:
        step(crt.ones(9))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(10, 20):
            step(crt.ones(n))
