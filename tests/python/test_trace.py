"""crt.trace, over lists and over pytrees."""

import gc

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime._library import check, lib


def graph_of(fn, *inputs, **names):
    return crt.trace(fn, example_inputs=list(inputs), **names)


def test_names_nodes_and_runs():
    w = crt.tensor(np.full((4, 3), 0.1, np.float32))
    x = crt.tensor(np.ones((2, 4), np.float32))
    calls = []

    def fn(inputs):
        calls.append([(t.shape, t.dtype) for t in inputs])
        return [crt.relu(crt.add(crt.matmul(inputs[0], w), 1.5)), inputs[0]]

    graph = graph_of(fn, x, input_names=["x"], output_names=["y", "same"])
    assert graph.input_names() == ["x"] and graph.output_names() == ["y", "same"]
    assert [n.op_code for n in graph.nodes()] == [getattr(crt.graph.OpCode, c) for c in ("Input", "External", "Constant", "MatMul")]
    assert graph.nodes()[-1].epilogues == (crt.graph.OpCode.Add, crt.graph.OpCode.Relu)
    assert sum(n.kind == crt.graph.NodeKind.Input for n in graph.nodes()) == 1
    assert graph.nodes()[-1].shape == (2, 3)
    for inputs in ([x], (x,), {"x": x}):
        y, same = graph.run(inputs)
        np.testing.assert_allclose(y.numpy(), 1.9, rtol=1e-6)
        assert same.numpy().ctypes.data == x.numpy().ctypes.data
    assert calls == [[((2, 4), crt.float32)]]
    assert isinstance(graph, crt.graph.ModelGraph)
    assert graph_of(fn, x).input_names() == ["input_0"] and graph_of(fn, x).output_names() == ["output_0", "output_1"]


def test_the_graph_outlives_what_it_was_made_of():
    gc.collect()
    lib.clikart_drain()  # what other tests left under way
    before = crt.memory.current()

    def make():
        w = crt.tensor(np.eye(3, dtype=np.float32))
        return graph_of(lambda i: [crt.matmul(i[0], w)], crt.zeros((2, 3)))

    graph = make()
    gc.collect()
    assert crt.memory.current() > before  # the weight lives on in the graph
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(graph.run([crt.tensor(x)])[0].numpy(), x)


@pytest.mark.parametrize("read", ["numpy", "item", "tolist", "bool", "asarray", "dlpack", "save"])
def test_reading_a_value_raises(read, tmp_path):
    def fn(inputs):
        t = crt.sum(inputs[0])
        {
            "numpy": t.numpy,
            "item": t.item,
            "tolist": t.tolist,
            "bool": lambda: bool(t),
            "asarray": lambda: np.asarray(t),
            "dlpack": lambda: np.from_dlpack(t),
            "save": lambda: crt.save({"t": t}, tmp_path / "t"),
        }[read]()
        return [t]

    with pytest.raises(crt.ClikaRTError, match="stands for a value"):
        graph_of(fn, crt.zeros(3))
    assert crt.sum(crt.ones(3)).item() == 3  # the thread computes again


def test_a_stand_in_shows_no_value():
    seen = []

    def fn(inputs):
        seen.append(repr(crt.exp(inputs[0])))
        return inputs

    graph_of(fn, crt.zeros(3))
    assert seen == ["Tensor(stands for a value, shape=[3], dtype=float32)"]


def test_wrong_uses():
    x = crt.zeros((2, 2))
    graph = graph_of(lambda i: [crt.exp(i[0])], x, input_names=["x"])
    for inputs, kind, text in [
        ([], ValueError, "0 inputs given, the graph has 1: \\['x'\\]"),
        ([x, x], ValueError, "2 inputs given"),
        ({"y": x}, ValueError, "no input is named 'y'"),
        ({}, ValueError, "input 'x' is missing"),
        ([crt.zeros(3)], ValueError, "input 'x' is float32 \\[3\\], the graph was traced for float32 \\[2, 2\\]"),
        ([crt.zeros((2, 2), crt.int32)], TypeError, "int32"),
        ([np.zeros((2, 2))], TypeError, "ndarray"),
        (x, TypeError, "run: expected a list of tensors, or tensors by name, got Tensor"),
        (None, TypeError, "got NoneType"),
    ]:
        with pytest.raises(kind, match=text):
            graph.run(inputs)
    for fn in (lambda i: i[0], lambda i: None, lambda i: [1]):
        with pytest.raises(TypeError, match="must return a list of tensors"):
            graph_of(fn, x)
    for names in ({"input_names": ["a", "b"]}, {"output_names": ["a", "b"]}, {"input_names": []}):
        with pytest.raises(ValueError, match="names given"):
            graph_of(lambda i: i, x, **names)
    with pytest.raises(ValueError, match="two inputs are named 'a'"):
        graph_of(lambda i: i, x, x, input_names=["a", "a"])
    with pytest.raises(TypeError, match="trace: expected a function, got int"):
        crt.trace(3, [x])
    with pytest.raises(TypeError, match="trace: a ndarray is neither a tensor nor a value that stays what it is"):
        crt.trace(lambda a: x, (np.ones(2),))
    with pytest.raises(TypeError, match="example inputs are tensors"):
        crt.trace(lambda i: i, example_inputs=[1])
    with pytest.raises(crt.ClikaRTError, match="already recording"):
        graph_of(lambda i: [graph_of(lambda j: j, x).run([x])[0]], x)
    with pytest.raises(ZeroDivisionError):
        graph_of(lambda i: [1 / 0], x)
    kept = []
    graph_of(lambda i: kept.append(i[0]) or i, x)
    with pytest.raises(crt.ClikaRTError, match="stands for a value"):
        crt.exp(kept[0])
    with pytest.raises(crt.ClikaRTError, match="run: the tensor"):
        graph_of(lambda i: i, x).run([kept[0]])
    with pytest.raises(ValueError, match="another capture"):
        graph_of(lambda i: [crt.exp(kept[0])], x)


def test_real_tensors_may_be_read_while_recording(tmp_path):
    w = crt.permute(crt.tensor([[1.0, 2.0], [3.0, 4.0]]), (1, 0))
    seen = []

    def fn(inputs):
        seen.append(w.tolist())
        crt.save({"w": w}, tmp_path / "w")
        return [inputs[0] @ w]

    graph = graph_of(fn, w)
    assert seen == [[[1.0, 3.0], [2.0, 4.0]]] and crt.load(tmp_path / "w")["w"].tolist() == seen[0]
    assert [n.op_code.name for n in graph.nodes()] == ["Input", "External", "MatMul"]


def test_pytrees_keep_structure_and_names():
    x, m = crt.ones((2, 3)), crt.full((2, 3), 2.0)

    def fn(batch, scale, *, mask):
        return {"y": batch["x"] * scale, "rest": (batch["list"][0] + mask, None, 5)}

    traced = crt.trace(lambda batch, factor: fn(batch, factor, mask=batch["x"]), ({"x": x, "list": [m]}, 3.0))
    assert traced.graph.input_names() == ["batch.x", "batch.list.0"] and traced.graph.output_names() == ["y", "rest.0"]
    out = traced({"x": m, "list": [x]}, 3.0)
    assert list(out) == ["y", "rest"] and out["rest"][1:] == (None, 5)
    np.testing.assert_array_equal(out["y"].numpy(), 6.0)
    np.testing.assert_array_equal(out["rest"][0].numpy(), 3.0)
    with pytest.raises(ValueError, match=r"traced for 3\.0"):
        traced({"x": x, "list": [m]}, 3)
    with pytest.raises(ValueError, match="called with the structure"):
        traced({"x": x}, 3.0)
    with pytest.raises(TypeError, match=r"expected a tensor for 'batch\.list\.0', got int"):
        traced({"x": x, "list": [1]}, 3.0)


def test_names_of_pytree_inputs_and_outputs():
    x = crt.ones(2)

    def names(fn, example, **given):
        graph = crt.trace(fn, example, **given).graph
        return graph.input_names(), graph.output_names()

    assert names(lambda x: x + 1, (x,)) == (["x"], ["output"])
    assert names(lambda x: x + 1, x) == (["x"], ["output"])
    assert names(lambda a, b: (a, [b]), (x, x)) == (["a", "b"], ["output.0", "output.1.0"])
    assert names(lambda d: d, {"p": x, "q": {"r": x}}) == (["p", "q.r"], ["p", "q.r"])
    assert names(lambda *args: args[0] + args[1], (x, x)) == (["input_0", "input_1"], ["output"])
    assert names(lambda d: d["a.b"] + d["a"]["b"], {"a.b": x, "a": {"b": x}})[0] == ["a.b", "a.b_1"]
    assert names(lambda a: a + 1, (x,), input_names=["one"], output_names=["two"]) == (["one"], ["two"])
    assert names(lambda a: 7, (x,)) == (["a"], [])
    for wrong in ({"input_names": []}, {"output_names": ["a", "b"]}, {"input_names": "x"}):
        with pytest.raises(ValueError, match="names given for 1"):
            names(lambda a: a, (x,), **wrong)


def test_modules():
    class Net(crt.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = crt.nn.Linear(3, 2)

        def forward(self, batch, extra):
            return {"y": self.layer(batch["x"]) + extra}

    net = Net()
    traced = crt.trace(net, ({"x": crt.ones((1, 3))}, crt.ones(2)))
    assert traced.graph.input_names() == ["batch.x", "extra"]
    x = crt.tensor(np.arange(3, dtype=np.float32).reshape(1, 3))
    before = net.layer(x).numpy().copy()
    np.testing.assert_array_equal(traced({"x": x}, crt.zeros(2))["y"].numpy(), before)
    net.load_state_dict({"layer.weight": crt.zeros((2, 3)), "layer.bias": crt.zeros(2)})  # binds anew: the graph keeps what it had
    np.testing.assert_array_equal(traced({"x": x}, crt.zeros(2))["y"].numpy(), before)


def test_the_graph_as_text():
    w = crt.ones((2, 3, 3, 4))
    graph = crt.trace(
        lambda d: {"y": crt.sum(crt.relu(crt.conv2d(d["x"], w)), dims=[3]), "flat": crt.reshape(d["x"], (-1,)), 'say "w"': w}, {"x": crt.ones((1, 5, 5, 4))}
    ).graph
    lines = graph.summary().splitlines()
    columns = [line.split() for line in lines]
    assert [line[1] for line in columns[1:5]] == ["Input", "External", "Conv2d", "Sum"] and "Conv2d + Relu" in lines[3]
    assert columns[3][-2:] == ["72", f"{2 * 18 * 36 + 18:,}"]  # 3 x 3 x 2 results of 36 products, and as many relus
    assert columns[4][-2:] == ["36", "18"] and columns[5][-2:] == ["0", "0"]
    assert lines[-1] == f"3 of 5 nodes compute; 108 bytes of results, {2 * 18 * 36 + 36:,} operations"
    dot = graph.to_dot()
    assert dot.startswith("digraph {") and dot.endswith("}")
    assert "n0 -> n2" in dot and "n1 -> n2" in dot and "n3 -> o0" in dot and "n1 -> o2" in dot and 'Output say \\"w\\""' in dot
    with pytest.raises(IndexError, match="graph_output_node: index 3 is out of range, there are 3"):
        check(lib.clikart_graph_output_node(graph._handle, 3))
    for k, node in ((0, 99), (5, 2)):
        with pytest.raises(IndexError, match=f"graph_node_epilogue: node {node} of 5 has no epilogue {k}"):
            check(lib.clikart_graph_node_epilogue(graph._handle, node, k))


def test_device_meta_is_refused_where_a_graph_would_forget_it():
    for make in (lambda: crt.full((2,), 1.0, device="meta"), lambda: crt.zeros(2, device="meta"), lambda: crt.arange(3, device="meta")):
        with pytest.raises(NotImplementedError, match=r"^\w+: results on device meta cannot be recorded into a graph"):
            graph_of(lambda i, make=make: [make()], crt.ones(1))
