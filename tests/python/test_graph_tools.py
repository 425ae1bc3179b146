"""What a graph tells of itself: peak, audit, profile, the page; and results in memory of the caller's."""

from __future__ import annotations

import gc
import json
import threading
from html.parser import HTMLParser

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime._library import lib
from compiling import array, same


@pytest.fixture
def spoilt():
    lib.clikart_spoil_fused(True)
    yield
    lib.clikart_spoil_fused(False)


def network(sizes=(16, 64, 32)):
    n, k, m = sizes
    w, bias = crt.tensor(np.abs(array(k, m)) / k), crt.tensor(array(m, seed=1))

    def fn(inputs):
        y = crt.gelu(inputs[0] @ w + bias)
        z = crt.tanh(y * y + y) * 0.5
        return [crt.softmax(z, dim=-1)]

    x = crt.tensor(np.abs(array(n, k, seed=2)))
    return fn, x, crt.trace(fn, [x], ["x"], ["p"])


# ---- audit -----------------------------------------------------------------------------------------------------------


def test_audit_finds_nothing_where_nothing_is_wrong():
    fn, x, graph = network()
    assert graph.audit([x]) == ""
    step = crt.compile(lambda a: fn([a])[0], audit=1.0)
    for _ in range(3):
        same(step(x), fn([x])[0])


def test_audit_names_the_first_node_that_differs(spoilt):
    fn, x, graph = network()
    told = graph.audit([x])
    assert told.startswith("output 'p' has ") and "as element 0 of float32 [16, 32]" in told
    line = fn.__code__.co_firstlineno + 1
    assert f"the first node that differs is 3 (matmul + add + gelu, at {__file__}:{line}): it has " in told
    step = crt.compile(lambda a: fn([a])[0], audit=1.0)
    step(x)
    with pytest.raises(RuntimeError, match=r"^compile: a replay does not compute what its operators do one by one: output 'output' has"):
        step(x)
    never = crt.compile(lambda a: fn([a])[0])
    for _ in range(20):
        never(x)


def test_audit_looks_at_its_share_of_replays(spoilt):
    fn, x, _ = network((2, 4, 3))
    step = crt.compile(lambda a: fn([a])[0], audit=0.2)
    step(x)
    found = 0
    for _ in range(200):
        try:
            step(x)
        except RuntimeError:
            found += 1
    assert 10 < found < 90


def test_audit_of_a_graph_for_all_sizes(spoilt):
    step = crt.compile(lambda x, y: crt.tanh(x * y) * 0.5 + y, dynamic=True, audit=1.0)
    x, y = crt.tensor(array(3, 4)), crt.tensor(array(3, 4, seed=1))
    step(x, y)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^compile: a replay does not compute"):
            step(x, y)
    assert step.recapture_count == 0


def test_what_cannot_be_audited():
    graph = crt.trace(lambda i: [crt.dropout(i[0], 0.5)], [crt.ones(3)])
    with pytest.raises(NotImplementedError, match=r"^audit: the graph writes over memory or draws random numbers"):
        graph.audit([crt.ones(3)])
    step = crt.compile(lambda x: crt.dropout(x, 0.5), audit=1.0)
    for _ in range(3):
        step(crt.ones(3))  # passed over
    for share in (-0.1, 1.5, "half", True):
        with pytest.raises(ValueError, match=r"^compile: audit is a share from 0 to 1"):
            crt.compile(lambda x: x, audit=share)


# ---- peak ------------------------------------------------------------------------------------------------------------


def measured(graph, inputs):
    """What a run takes at most."""
    graph.run(inputs)[0].wait()
    gc.collect()
    crt.memory.reset_peak()
    before = crt.memory.current()
    results = graph.run(inputs)
    results[0].wait()
    return crt.memory.peak() - before


@pytest.mark.parametrize("n", [1, 100, 5000])
def test_peak_is_what_a_run_takes(n):
    w = crt.tensor(array(64, 64))

    def fn(inputs):
        (x,) = inputs
        a = crt.softmax(x, dim=-1)
        b = crt.cumsum(a, 0)
        c = crt.concat([a, b], 1)
        d = crt.layer_norm(c, [128])
        return [crt.sum(d, dims=[1]), crt.cumsum(b, 1)]

    x = crt.tensor(array(n, 64))
    graph = crt.trace(fn, [x], ["x"])
    peak, real = graph.peak(), measured(graph, [x])
    assert peak <= real <= peak * 1.05 + 16_384
    assert peak < sum(node.shape.numel() * node.dtype.itemsize for node in graph.nodes())
    assert graph.peak([(n, 64)]) == graph.peak({"x": (n, 64)}) == peak
    del w


def test_a_long_chain_needs_little():
    def fn(inputs):
        (x,) = inputs
        for _ in range(50):
            x = crt.cumsum(x, 0) * 0.5
        return [x]

    x = crt.ones((100, 100))
    graph = crt.trace(fn, [x])
    assert graph.peak() <= 3 * 40_000


def test_peak_of_other_shapes():
    step = crt.compile(lambda x: crt.softmax(crt.softmax(x, dim=0), dim=1), dynamic=True)
    step(crt.ones((4, 8)))
    graph = step.take_graph()
    assert graph.peak([(8, 8)]) == 2 * graph.peak()
    for shapes, told in (([], "0 shapes given"), ([(3,)], "of rank 2"), ([(-1, 3)], "-1"), ({"y": (1, 2)}, "the graph has the inputs")):
        with pytest.raises(ValueError, match=rf"^peak: .*{told}"):
            graph.peak(shapes)


def test_plans_and_weights_of_many_sizes_do_not_pile_up():
    w = crt.tensor(array(256, 256))
    step = crt.compile(lambda x: crt.softmax(x @ w, dim=-1), dynamic=True)
    for n in range(30, 50):
        step(crt.ones((n, 256))).wait()
    gc.collect()
    before = crt.memory.current()
    for n in range(50, 120):
        same(step(crt.ones((n, 256))), crt.softmax(crt.ones((n, 256)) @ w, dim=-1))
    gc.collect()
    assert step.recapture_count == 0 and crt.memory.current() - before < 100_000


# ---- results in the caller's memory ----------------------------------------------------------------------------------


def test_results_go_where_they_are_wanted():
    fn, x, graph = network()
    out = crt.zeros((16, 32))
    view = out[0]
    address = lib.clikart_tensor_data(out._handle)
    (result,) = graph.run([x], out=[out])
    assert result is out and lib.clikart_tensor_data(out._handle) == address
    same(out, fn([x])[0])
    same(view, fn([x])[0][0])
    assert graph.run({"x": x}, out=[out])[0] is out
    rows = crt.zeros((32, 32))
    graph.run([x], out=[rows[16:]])  # a part of a larger tensor
    same(rows[16:], out)
    assert crt.sum(rows[:16]).item() == 0
    across = crt.zeros((32, 16)).T  # not dense
    graph.run([x], out=[across])
    same(across, out)


def test_results_over_their_own_inputs():
    graph = crt.trace(lambda i: [crt.softmax(i[0], dim=0) + i[0], i[0] * 2, i[0]], [crt.ones((3, 3))])
    x = crt.tensor(array(3, 3))
    want = [t.numpy().copy() for t in graph.run([x])]
    outs = [x, crt.zeros((3, 3)), crt.zeros((3, 3))]
    graph.run([x], out=outs)
    for got, right in zip(outs, want, strict=True):
        same(got, right)


def test_results_for_which_there_is_no_place():
    _, x, graph = network()
    for out, error, told in (
        ([], ValueError, "0 outputs given"),
        ([crt.zeros((16, 31))], ValueError, "output 'p' is float32 .16, 32., a tensor for it was given that is float32 .16, 31."),
        ([crt.zeros((16, 32), dtype=crt.float64)], TypeError, "output 'p' is float32"),
        ([crt.expand(crt.zeros((1, 32)), (16, 32))], ValueError, "share memory"),
        ([3], TypeError, "int"),
        (crt.zeros((16, 32)), TypeError, "out is a list of tensors"),
    ):
        with pytest.raises(error, match=told):
            graph.run([x], out=out)


def test_a_result_s_place_may_be_used_over_and_over():
    fn, x, graph = network()
    out = crt.zeros((16, 32))
    for seed in range(20):
        x = crt.tensor(array(16, 64, seed=seed))
        graph.run([x], out=[out])
        kept = out + 0  # reads what that run made, whatever comes after
        graph.run([crt.zeros((16, 64))], out=[out])
        same(kept, fn([x])[0])


def test_results_take_the_places_of_inputs():
    w = crt.tensor(array(64, 64))
    n = 2000
    for fn, kept in (
        (lambda i: [crt.tanh(i[0]) * 2 + i[1]], True),  # element by element
        (lambda i: [crt.softmax(i[0] + i[1], dim=-1)], True),  # row by row
        (lambda i: [crt.relu(i[0]), crt.tanh(i[1]) * 2], True),
        (lambda i: [crt.relu(i[1] @ w), i[0] * 2], False),  # the first is read after that
        (lambda i: [i[1] @ w + i[0]], False),  # the product is written there before the sum
        (lambda i: [i[0] @ w], False),  # a product reads what would be written over
        (lambda i: [crt.relu(i[0] @ w + i[0])], False),
        (lambda i: [i[1] * 2, i[0] * 2], False),
        (lambda i: [crt.cumsum(i[0], 0)], False),
        (lambda i: [i[0] * 2 + crt.sum(i[0])], True),  # the sum is there before
    ):
        inputs = [crt.tensor(array(n, 64, seed=seed)) for seed in (1, 2)]
        want = [t.bytes() for t in fn(inputs)]
        graph = crt.trace(fn, inputs)
        states = [crt.copy(t) for t in inputs]
        out = states[: len(want)]
        graph.run(states, out=out)
        assert [t.bytes() for t in out] == want and all(a is b for a, b in zip(out, states, strict=False))
        needed = 0  # at most: what a run before has not yet given back would hide some of it
        for _ in range(5):
            crt.synchronize()
            gc.collect()
            crt.memory.reset_peak()
            before = crt.memory.current()
            graph.run(states, out=out)
            for t in out:
                t.wait()
            needed = max(needed, crt.memory.peak() - before)
        assert (needed < n * 64 * 4) == kept, needed
    x = crt.tensor(array(64, 64))
    graph = crt.trace(lambda i: [i[0] - i[1]], [x, x])
    want = (x - x).bytes()
    graph.run([x, x], out=[x])  # given twice
    assert x.bytes() == want
    view = (whole := crt.tensor(array(8, 64)))[:4]
    graph = crt.trace(lambda i: [i[0] * 2 + i[1]], [view, view])
    want = (view * 2 + whole[2:6]).bytes()
    graph.run([view, whole[2:6]], out=[view])  # the second overlaps
    assert view.bytes() == want


# ---- profile ---------------------------------------------------------------------------------------------------------


def test_a_profile_has_operators_and_nodes_with_their_places(tmp_path):
    fn, x, graph = network()
    with crt.profile(tmp_path / "trace.json"):
        graph.run([x])
        threads = [threading.Thread(target=lambda: graph.run([x])[0].wait()) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        crt.cumsum(x, 0)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    nodes = [e for e in events if e["cat"] == "graph"]
    assert [e["name"] for e in events if e["cat"] == "eager"] == ["cumsum"] and len(nodes) == 3 * 3
    assert {e["name"] for e in nodes} == {"matmul", "add + gelu", "mul + add + tanh + mul + softmax"}
    product = next(e for e in nodes if e["name"] == "matmul")
    assert graph.nodes()[product["args"]["node"]].op_code.name == "MatMul"
    assert product["args"]["bytes"] >= 4 * 16 * 64 and product["args"]["place"] == f"{__file__}:{fn.__code__.co_firstlineno + 1}"
    assert all(e["ph"] == "X" and e["dur"] >= 0 and e["ts"] >= 0 for e in events)


def test_one_profile_at_a_time(tmp_path):
    with crt.profile(tmp_path / "a.json"), pytest.raises(RuntimeError, match=r"^profile: what runs is noted already"), crt.profile(tmp_path / "b.json"):
        pass
    with pytest.raises(crt.ClikaRTFileError), crt.profile(tmp_path / "no" / "such.json"):
        pass
    with crt.profile(tmp_path / "c.json"):
        pass
    assert json.loads((tmp_path / "c.json").read_text())["traceEvents"] == []


# ---- the page --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that what is opened is closed, and collects what refers elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.boxes, self.rows, self.elsewhere = [], 0, 0, []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag not in ("meta",):
            self.open.append(tag)
        self.rows += tag == "tr"
        self.elsewhere += [value for key, value in attributes if key in ("src", "href") and not value.startswith("#")]
        self.boxes += tag == "g" and named.get("class") == "node"

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone():
    fn, _x, graph = network()
    page = Page()
    page.feed(graph.to_html())
    assert page.open == [] and page.elsewhere == []
    assert page.rows == len(graph.nodes()) + 1 and page.boxes == len(graph.nodes()) + 1
    assert f"{__file__}:{fn.__code__.co_firstlineno + 1}" in graph.to_html()
    hostile = crt.trace(lambda i: [i[0] * 2], [crt.ones(1)], ["<script>alert(1)</script>"], ["</title>"])
    assert "<script>" not in hostile.to_html() and "&lt;script&gt;" in hostile.to_html()


def test_the_page_of_a_large_graph_has_no_drawing():
    def fn(inputs):
        (x,) = inputs
        for _i in range(500):
            x = crt.cumsum(x, 0)
        return [x]

    graph = crt.trace(fn, [crt.ones(3)])
    page = Page()
    page.feed(graph.to_html())
    assert page.boxes == 0 and page.rows == 502 and "No drawing" in graph.to_html()


# ---- size ------------------------------------------------------------------------------------------------------------


def test_five_thousand_operators():
    """Captured, compiled and replayed: twice, as the second call is another path."""

    def fn(x, y):
        for i in range(1700):
            x = crt.cumsum(x * 0.5 + y, 0) if i % 10 == 0 else crt.sigmoid(x * y)
        return x

    step = crt.compile(fn, fullgraph=True)
    x, y = crt.tensor(array(4)), crt.tensor(array(4, seed=1))
    want = fn(x, y).bytes()
    assert [step(x, y).bytes() for _ in range(3)] == [want] * 3
    assert sum(1 + len(n.epilogues) for n in step.take_graph().nodes() if n.kind.name == "Elementwise") > 3000
    np.testing.assert_array_equal(step(x, y).numpy(), fn(x, y).numpy())
