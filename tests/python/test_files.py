"""Saving and loading trees of tensors."""

import json
import os
import struct
import threading

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime import nn


def test_a_tree_comes_back_by_dotted_keys(tmp_path):
    path = tmp_path / "tree.safetensors"
    layer = nn.Linear(2, 3)
    tree = {"model": layer, "list": [crt.arange(0, 3), (crt.tensor(True),)], "pending": crt.exp(crt.zeros((2, 2)))}
    crt.save(tree, path)
    loaded = crt.load(path)
    assert sorted(loaded) == ["list.0", "list.1.0", "model.bias", "model.weight", "pending"]
    np.testing.assert_array_equal(loaded["model.weight"].numpy(), layer.weight.numpy())
    assert loaded["list.0"].tolist() == [0, 1, 2] and loaded["list.1.0"].item() is True and loaded["pending"].tolist() == [[1.0, 1.0]] * 2
    fresh = nn.Linear(2, 3)
    crt.save(layer, path)
    fresh.load_state_dict(crt.load(str(path)))
    np.testing.assert_array_equal(fresh.weight.numpy(), layer.weight.numpy())


def test_all_dtypes(tmp_path):
    import ml_dtypes

    dtypes = ["bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)), "float16", "float32", "float64", ml_dtypes.bfloat16]
    arrays = {str(np.dtype(d)): np.arange(5).astype(d) for d in dtypes}
    crt.save({name: crt.tensor(a) for name, a in arrays.items()}, tmp_path / "f")
    for name, t in crt.load(tmp_path / "f").items():
        np.testing.assert_array_equal(t.numpy(), arrays[name])


def test_wrong_uses(tmp_path):
    x = crt.ones(2)
    with pytest.raises(ValueError, match="single tensor has no name"):
        crt.save(x, tmp_path / "f")
    with pytest.raises(TypeError, match=r"cannot save int at 'a\.b'"):
        crt.save({"a": {"b": 3}}, tmp_path / "f")
    with pytest.raises(ValueError, match=r"two tensors are named 'a\.b'"):
        crt.save({"a": {"b": x}, "a.b": x}, tmp_path / "f")
    with pytest.raises(OSError, match="cannot be written"):
        crt.save({"x": x}, tmp_path / "no" / "folder")
    with pytest.raises(OSError, match="cannot be opened"):
        crt.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="null byte"):
        crt.load("a\0b")
    assert os.listdir(tmp_path) == []


def test_random_damage_never_crashes(tmp_path):
    path = tmp_path / "f"
    crt.save({"a": crt.arange(0, 7), "b": crt.ones((3, 2))}, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(0, len(data) - 80)] = rng.integers(0, 256)
        path.write_bytes(data[: rng.integers(0, len(data) + 1)] if rng.random() < 0.3 else data)
        try:
            for t in crt.load(path).values():
                t.numpy()
        except (ValueError, TypeError):
            refused += 1
    assert refused > 1500
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(ValueError, match="claims a header"):
        crt.load(path)


def test_names_and_paths_that_are_not_plain_text(tmp_path):
    path = tmp_path / "f"
    header = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in ("a", "a\0b")}).encode()
    for bad in (header, header.replace(b'"a"', b'""'), header.replace(b'"a"', b'"\xff"')):
        path.write_bytes(struct.pack("<Q", len(bad)) + bad)
        with pytest.raises(ValueError) as info:
            crt.load(path)
        assert isinstance(info.value, crt.ClikaRTError)
    with pytest.raises(OSError, match="cannot be opened"):
        crt.load(os.fsdecode(bytes(tmp_path) + b"/\xff"))


def test_many_names_take_no_time_squared(tmp_path):
    path = tmp_path / "f"
    header = json.dumps({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(50_000)}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert len(crt.load(path)) == 50_000


def test_two_savers_of_one_path(tmp_path):
    path, failures = tmp_path / "f", []

    def save(value):
        try:
            for _ in range(50):
                crt.save({"x": crt.full(1000, value)}, path)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=(float(i),)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == [] and os.listdir(tmp_path) == ["f"]
    assert len(set(crt.load(path)["x"].tolist())) == 1
