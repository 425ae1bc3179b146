"""Graphs in files: what is saved is loaded, without its source, and nothing in a file is trusted."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clika_runtime as crt
from compiling import array, same

load = crt.graph.load


def model(path, optimize=2):
    w, bias, table = crt.tensor(array(4, 3)), crt.tensor(array(3, seed=1)), crt.tensor(array(10, 4, seed=2))

    def fn(inputs):
        x, ids = inputs
        y = crt.embedding(ids, table) + x
        y = crt.layer_norm(y, [4], eps=1e-5)
        values, places = crt.topk(crt.clamp(y, -1.0), 2)
        z = crt.cast(crt.softmax(crt.gelu(y @ w + bias, approximate="tanh") * 1.5, dim=-1), crt.float16)
        return [z, values, crt.reshape(places, (-1,)), crt.masked_fill(y, y > 0, float("inf"))]

    inputs = [crt.tensor(array(2, 4)), crt.tensor(np.array([3, 7]))]
    graph = crt.trace(fn, inputs, ["x", "ids"], ["z", "values", "places", "filled"], optimize=optimize)
    graph.save(path)
    return graph, inputs


def test_a_loaded_graph_computes_the_same(tmp_path):
    graph, inputs = model(tmp_path / "m.graph")
    want = [t.bytes() for t in graph.run(inputs)]
    for level in (0, 1, 2):
        loaded = load(tmp_path / "m.graph", optimize=level)
        assert loaded.input_names() == ["x", "ids"] and loaded.output_names() == ["z", "values", "places", "filled"]
        assert [t.bytes() for t in loaded.run(inputs)] == want
    assert [(n.op_code, n.epilogues, n.shape) for n in load(tmp_path / "m.graph").nodes()] == [(n.op_code, n.epilogues, n.shape) for n in graph.nodes()]
    load(str(tmp_path / "m.graph")).save(tmp_path / "again.graph")  # over and over
    assert [t.bytes() for t in load(tmp_path / "again.graph").run(inputs)] == want
    assert any(n.place.startswith(__file__) for n in load(tmp_path / "again.graph").nodes())


def test_the_source_is_not_needed(tmp_path):
    graph, inputs = model(tmp_path / "m.graph")
    np.save(tmp_path / "x.npy", inputs[0].numpy())
    code = f"""
import numpy as np, clika_runtime as crt
graph = crt.graph.load({str(tmp_path / "m.graph")!r})
print(graph.run({{"x": crt.tensor(np.load({str(tmp_path / "x.npy")!r})), "ids": crt.tensor(np.array([3, 7]))}})[1].tolist())
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(graph.run(inputs)[1].tolist())


def test_any_reader_sees_the_tensors(tmp_path):
    model(tmp_path / "m.graph")
    _, description, _ = take_apart(tmp_path / "m.graph")
    names = {step["tensor"] for step in description["steps"] if step["kind"] == "external"}
    tensors = crt.load(tmp_path / "m.graph")
    assert tensors.keys() == names and {tuple(t.shape) for t in tensors.values()} == {(4, 3), (3,), (10, 4)}


def test_memory_that_several_tensors_share_and_the_graph_writes_is_refused(tmp_path):
    base = crt.zeros(4)
    head, tail = base[:2], base[1:]

    def fn(inputs):
        head.add_(inputs[0])
        return [tail * 1]

    graph = crt.trace(fn, [crt.ones(2)])
    with pytest.raises(NotImplementedError, match=r"^graph\.save: the graph writes over memory that several of its tensors share"):
        graph.save(tmp_path / "m.graph")
    assert not (tmp_path / "m.graph").exists()


def test_other_sizes_hold_where_they_did(tmp_path):
    step = crt.compile(lambda x: crt.softmax(x * 2, dim=-1), dynamic=True)
    step(crt.ones((2, 3)))
    step.take_graph().save(tmp_path / "m.graph")
    loaded = load(tmp_path / "m.graph")
    for n in (1, 2, 5):
        x = crt.tensor(array(n, 3))
        same(loaded.run([x])[0], step(x))


def test_weights_are_mapped(tmp_path):
    w = crt.tensor(array(1000, 1000))
    crt.trace(lambda i: [i[0] @ w], [crt.ones((1, 1000))]).save(tmp_path / "m.graph")
    before = crt.memory.current()
    loaded = load(tmp_path / "m.graph")
    assert crt.memory.current() - before < 100_000
    same(loaded.run([crt.ones((1, 1000))])[0], crt.ones((1, 1000)) @ w)


def test_what_is_written_over_is_the_loaded_graph_s_own(tmp_path):
    count = crt.zeros(2)

    def fn(inputs):
        count.add_(1)
        return [inputs[0] * count]

    crt.trace(fn, [crt.ones(2)]).save(tmp_path / "m.graph")
    first, second = load(tmp_path / "m.graph"), load(tmp_path / "m.graph")
    assert [first.run([crt.ones(2)])[0].tolist() for _ in range(2)] == [[1, 1], [2, 2]]
    assert second.run([crt.ones(2)])[0].tolist() == [1, 1] and count.tolist() == [0, 0]


def test_random_operators_draw_from_the_process_s_generator(tmp_path):
    graph = crt.trace(lambda i: [crt.dropout(i[0], 0.5)], [crt.ones(8)])
    graph.save(tmp_path / "m.graph")
    crt.manual_seed(3)
    want = graph.run([crt.ones(8)])[0].tolist()
    crt.manual_seed(3)
    assert load(tmp_path / "m.graph").run([crt.ones(8)])[0].tolist() == want
    own = crt.Generator(1)
    with pytest.raises(NotImplementedError, match=r"^graph\.save: node \d+ \(dropout\) draws from a generator of its own"):
        crt.trace(lambda i: [crt.dropout(i[0], 0.5, generator=own)], [crt.ones(8)]).save(tmp_path / "n.graph")


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^\[Errno 2\]|graph.load"):
        load(tmp_path / "nowhere")
    with pytest.raises(crt.ClikaRTFileError):
        crt.trace(lambda i: [i[0]], [crt.ones(1)]).save(tmp_path / "no" / "folder")
    crt.save({"w": crt.ones(3)}, tmp_path / "tensors")
    with pytest.raises(ValueError, match=r"^graph\.load: .* holds tensors and no graph"):
        load(tmp_path / "tensors")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^graph\.load"):
        load(tmp_path / "empty")
    with pytest.raises(TypeError, match=r"graph\.load: path must be"):
        load(3)


def take_apart(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    return header, json.loads(header["__metadata__"]["clikart.graph"]), data[8 + size :]


def put_together(path, header, description, tensors):
    header["__metadata__"]["clikart.graph"] = description if isinstance(description, str) else json.dumps(description)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + tensors)


def test_a_later_version_is_refused(tmp_path):
    model(tmp_path / "m.graph")
    header, description, tensors = take_apart(tmp_path / "m.graph")
    assert description["version"] == 1
    description["version"] = 3
    put_together(tmp_path / "n.graph", header, description, tensors)
    with pytest.raises(ValueError, match=r"^graph\.load: .* is of version 3, this library reads versions up to 2"):
        load(tmp_path / "n.graph")


def test_hostile_descriptions(tmp_path):
    model(tmp_path / "m.graph")
    header, description, tensors = take_apart(tmp_path / "m.graph")
    calls = [i for i, step in enumerate(description["steps"]) if step["kind"] == "call"]

    def step(change, op=None):
        def damage(d):
            change(next(d["steps"][i] for i in calls if op is None or d["steps"][i]["op"] == op))

        return damage

    damages = [
        lambda d: d.clear(),
        lambda d: d.pop("steps"),
        lambda d: d.update(steps=3),
        lambda d: d.update(steps=[3]),
        lambda d: d.update(steps=[{"kind": []}]),
        lambda d: d.update(outputs=[{"name": "a", "value": 10**30}]),
        lambda d: d.update(outputs=[{"name": "a", "value": -1}]),
        lambda d: d["outputs"].append(d["outputs"][0]),
        lambda d: d.update(any_sizes="yes"),
        step(lambda s: s.update(op="no such operator")),
        step(lambda s: s.update(op="einsum")),
        step(lambda s: s.update(inputs=[])),
        step(lambda s: s.update(inputs=[0] * 40)),
        step(lambda s: s.update(inputs=[10**6])),
        step(lambda s: s.update(inputs=[1.5])),
        step(lambda s: s.update(inputs=["0"])),
        step(lambda s: s.update(attributes=[]), "softmax"),
        step(lambda s: s.update(attributes=[[1] * 500]), "softmax"),
        step(lambda s: s.update(attributes=["x"]), "softmax"),
        step(lambda s: s.update(attributes=[7]), "gelu"),
        step(lambda s: s.update(attributes=["no dtype"]), "cast"),
        step(lambda s: s.update(attributes=[2, -1, 3, 1]), "topk"),
        step(lambda s: s["attributes"].__setitem__(-1, 7), "layer_norm"),
        step(lambda s: s["attributes"].__setitem__(-1, -1), "layer_norm"),
        step(lambda s: s["attributes"].__setitem__(-1, 2**62), "clamp"),
        step(lambda s: s["attributes"].__setitem__(0, [10**18, 10**18]), "reshape"),
        step(lambda s: s.update(in_place="yes")),
        step(lambda s: s.update(in_place=True), "topk"),
        step(lambda s: s.update(in_place=True), "softmax"),
        step(lambda s: s.update(in_place=True), "reshape"),
        step(lambda s: s.update(attributes=[[1] * 64], op="as_strided"), "reshape"),
        step(lambda s: s.update(op="as_strided", attributes=[[1] * 60, [1] * 60, None]), "reshape"),
        step(lambda s: s.update(place=[])),
        lambda d: d["steps"][0].update(shape=[-1, 4]),
        lambda d: d["steps"][0].update(shape=[2**62, 2**62]),
        lambda d: d["steps"][0].update(shape=[1] * 100),
        lambda d: d["steps"][0].update(dtype="complex99"),
        lambda d: d["steps"][0].update(name="a\0b"),
        lambda d: [s.update(tensor="nowhere") for s in d["steps"] if s["kind"] == "external"],
        lambda d: [s.update(bytes="zz") for s in d["steps"] if s["kind"] == "constant"],
        lambda d: [s.update(bytes="") for s in d["steps"] if s["kind"] == "constant"],
        lambda d: [s.update(dtype="float32", bytes="00000000") for s in d["steps"] if s["kind"] == "constant"],
        lambda d: [s.update(of=0) for s in d["steps"] if s["kind"] == "result"],
    ]
    for number, damage in enumerate(damages):
        damaged = json.loads(json.dumps(description))
        damage(damaged)
        put_together(tmp_path / "n.graph", json.loads(json.dumps(header)), damaged, tensors)
        with pytest.raises(crt.ClikaRTError):
            load(tmp_path / "n.graph")
            raise AssertionError(number)
    for text in ("", "{", "[" * 100_000, "null", '{"version": 1e400}'):
        put_together(tmp_path / "n.graph", json.loads(json.dumps(header)), text, tensors)
        with pytest.raises(ValueError, match=r"^graph\.load"):
            load(tmp_path / "n.graph")
    assert load(tmp_path / "m.graph").input_names() == ["x", "ids"]  # and the thread records as before


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 3000))
def test_damaged_files_never_crash(tmp_path_factory, changes, cut):
    folder = tmp_path_factory.mktemp("damaged")
    _, inputs = model(folder / "m.graph")
    data = bytearray((folder / "m.graph").read_bytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    (folder / "n.graph").write_bytes(bytes(data[: len(data) - cut % 64 if cut % 3 == 0 else len(data)]))
    try:
        for result in load(folder / "n.graph").run(inputs):
            result.wait()
    except (crt.ClikaRTError, UnicodeDecodeError):
        pass
