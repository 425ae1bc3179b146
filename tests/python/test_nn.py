"""Modules, parameters and state."""

import threading

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(crt.ones(1))

    def forward(self, x):
        return self.second(crt.relu(self.first(x))) * self.scale


def test_linear():
    layer = nn.Linear(4, 2)
    assert layer.weight.shape == (2, 4) and layer.bias.shape == (2,) and repr(layer) == "Linear(in_features=4, out_features=2, bias=True)"
    assert np.abs(layer.weight.numpy()).max() <= 0.5
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(layer(crt.tensor(x)).numpy(), x @ layer.weight.numpy().T + layer.bias.numpy(), rtol=1e-5, atol=1e-6)
    assert nn.Linear(4, 2, bias=False)(crt.zeros((1, 4))).tolist() == [[0.0, 0.0]]


def test_names_order_and_ties():
    m = Tied()
    assert list(m.state_dict()) == ["scale", "first.weight", "first.bias", "second.weight"]
    assert [name for name, _ in m.named_parameters()] == ["scale", "first.weight", "first.bias"]
    assert len(list(m.parameters())) == 3
    assert [name for name, _ in m.named_modules()] == ["", "first", "second"]
    assert isinstance(m.scale, crt.Tensor) and m.scale.nbytes == 4
    del m.second
    assert "second.weight" not in m.state_dict()
    with pytest.raises(AttributeError, match="no attribute 'second'"):
        _ = m.second


def test_load_state_dict():
    a, b = Tied(), Tied()
    b.load_state_dict(a.state_dict())
    x = crt.tensor(np.ones((1, 3), np.float32))
    assert a(x).tolist() == b(x).tolist()
    assert b.second.weight is b.first.weight
    state = {name: crt.zeros(t.shape) for name, t in b.state_dict().items()}
    b.load_state_dict(state, assign=True)
    assert b.first.weight.numpy().ctypes.data == state["first.weight"].numpy().ctypes.data
    b.load_state_dict({"scale": crt.tensor(np.array([2.0]))}, strict=False)
    assert b.scale.item() == 2.0 and b.scale.dtype is crt.float32  # cast to the parameter's dtype


def test_load_state_dict_is_strict_and_changes_nothing_on_failure():
    m = Tied()
    before = {name: t.tolist() for name, t in m.state_dict().items()}
    good = {name: crt.zeros(t.shape) for name, t in m.state_dict().items()}
    for bad, text in [
        ({}, "missing: first.bias; missing: first.weight"),
        (good | {"more": crt.zeros(1)}, "unexpected: more"),
        (good | {"scale": crt.zeros(2)}, r"scale: shape \[2\] instead of \[1\]"),
    ]:
        with pytest.raises(ValueError, match=text):
            m.load_state_dict(bad)
    with pytest.raises(TypeError, match="'scale' is no tensor"):
        m.load_state_dict(good | {"scale": 1.0})
    assert {name: t.tolist() for name, t in m.state_dict().items()} == before


def test_wrong_uses():
    class NoInit(nn.Module):
        def __init__(self):
            self.x = 1

    with pytest.raises(AttributeError, match="super"):
        NoInit()
    with pytest.raises(TypeError, match="expected a tensor"):
        nn.Parameter(1.0)
    with pytest.raises(NotImplementedError):
        nn.Module()(1)


def test_an_array_outlives_the_value_it_was_taken_of():
    layer = nn.Linear(300, 300)
    before = layer.weight.numpy()
    kept = before.copy()
    layer.load_state_dict({name: crt.zeros(t.shape) for name, t in layer.state_dict().items()})
    for _ in range(20):
        crt.ones((300, 300)).numpy()
    np.testing.assert_array_equal(before, kept)
    assert not layer.weight.numpy().any()


def test_half_a_state_is_never_loaded():
    m = Tied()
    before = m.first.weight.numpy().copy()
    state = {name: crt.zeros(t.shape) for name, t in m.state_dict().items()}
    state["second.weight"] = crt.zeros((3, 4))
    with pytest.raises(ValueError):
        m.load_state_dict(state)
    np.testing.assert_array_equal(m.first.weight.numpy(), before)


def test_parameters_may_be_read_while_they_are_loaded():
    m = nn.Linear(64, 64)
    states = [{"weight": crt.full((64, 64), float(i)), "bias": crt.zeros(64)} for i in range(2)]
    stop = threading.Event()
    problems = []

    def read():
        try:
            while not stop.is_set():
                values = m.weight.numpy()
                assert m.weight.shape == (64, 64) and m.weight.stride() == (64, 1)
                assert len(set(values.reshape(-1).tolist())) == 1
                (m.weight + 1).numpy()
        except Exception as error:
            problems.append(error)

    m.load_state_dict(states[0])
    threads = [threading.Thread(target=read) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(300):
        m.load_state_dict(states[i % 2])
    stop.set()
    for t in threads:
        t.join()
    assert problems == []


def test_registering_parameters():
    m = nn.Linear(2, 2)
    for value in (crt.ones((2, 2)), 3):
        with pytest.raises(TypeError, match="'weight' is a parameter"):
            m.weight = value
    m.bias = None
    assert list(m.state_dict()) == ["weight"] and m(crt.ones((1, 2))).shape == (1, 2)
    p = nn.Parameter(crt.ones(1))
    for name, value, kind in [
        (5, p, TypeError),
        ("x", 5, TypeError),
        ("x", crt.ones(1), TypeError),
        ("a.b", p, ValueError),
        ("forward", p, ValueError),
        ("", p, ValueError),
    ]:
        with pytest.raises(kind, match="register_parameter"):
            m.register_parameter(name, value)
    m.register_parameter("scale", p)
    m.register_parameter("scale", None)
    assert m.scale is None and "scale" not in m.state_dict()


def test_loading_while_recording_is_refused():
    m = nn.Linear(2, 2)
    with pytest.raises(crt.ClikaRTError, match="while a graph is recorded"):
        crt.trace(lambda i: (m.load_state_dict(m.state_dict()), i)[1], [crt.ones(1)])
    m.weight.numpy()


def test_an_attribute_of_the_class_hides_no_parameter():
    class Net(nn.Module):
        bias = None
        part: nn.Module

    net = Net()
    for name, value in (("bias", nn.Parameter(crt.ones(1))), ("forward", nn.Linear(1, 1))):
        with pytest.raises(ValueError, match=f"Net: '{name}' is an attribute of the class, which would hide what is assigned"):
            setattr(net, name, value)
    net.part = nn.Linear(1, 1)
    assert len(list(net.parameters())) == 2
