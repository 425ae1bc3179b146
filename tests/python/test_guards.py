"""What brings a new capture of a compiled function besides its arguments, and what keeps it from being captured."""

from __future__ import annotations

import collections
import functools
import threading

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime import nn
from compiling import ONE, TEN, Scale, array, same

State = crt.State


def test_what_a_function_names_may_change():
    w, scale, box = crt.ones((2, 2)), 2.0, [crt.ones(2)]

    def fn(x):
        return x @ w * scale + box[0]

    step = crt.compile(fn)
    x = crt.tensor(array(3, 2))

    def check(captures):
        same(step(x), fn(x))
        same(step(x), fn(x))
        assert step.recapture_count == captures

    check(0)
    w.mul_(3)  # the same memory: the graph sees it
    check(0)
    w = crt.full((2, 2), 0.5)
    check(1)
    scale = 4.0
    check(2)
    scale = 4  # not the same type
    check(3)
    box[0] = crt.zeros(2)
    check(4)


def test_parameters_may_be_bound_anew():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)
            self.factor = 1.0

        def forward(self, x):
            return self.inner(x) * self.factor

    net = Net()
    step = crt.compile(net)
    x = crt.tensor(array(4, 3))
    same(step(x), net(x))
    for change in (
        lambda: net.load_state_dict({"inner.weight": crt.ones((2, 3)), "inner.bias": crt.ones(2)}),
        lambda: setattr(net.inner, "weight", nn.Parameter(crt.zeros((2, 3)))),
        lambda: setattr(net, "inner", nn.Linear(3, 2, bias=False)),
        lambda: setattr(net, "factor", 3.0),
        lambda: net.load_state_dict({"inner.weight": crt.full((2, 3), 7.0)}, assign=True),
    ):
        change()
        same(step(x), net(x))
    assert step.state is State.Compiled


def test_a_record_that_a_function_keeps_is_no_reason_to_capture_again():
    calls = []

    def fn(x):
        calls.append(("called", len(calls)))
        return x + 1

    step = crt.compile(fn)
    for _ in range(4):
        step(crt.ones(2))
    assert len(calls) == 1 and step.state is State.Compiled and step.recapture_count == 0


def test_what_a_function_binds_anew_itself_is_called():
    count = 0

    def counting(x):
        nonlocal count
        count += 1
        return x * count

    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.total = crt.zeros(2)

        def forward(self, x):
            self.total = self.total + x
            return self.total

    step = crt.compile(counting)
    assert [step(crt.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    assert step.state is State.Fallback and step.fallback_reason == "'count' is bound to something else meanwhile"
    step = crt.compile(Running())
    assert [step(crt.ones(2)).tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert "'total'" in step.fallback_reason
    with pytest.raises(RuntimeError, match="compile: 'total' is bound to something else meanwhile, which cannot be recorded"):
        crt.compile(Running(), fullgraph=True)(crt.ones(2))


class Holder:
    def __init__(self, w):
        self.w = w
        self.scale = 1.0

    def method(self, x):
        return x * self.w * self.scale

    __call__ = method


global_tensor, global_list, global_function, global_number = ONE, [ONE], crt.relu, np.float32(2)


def uses_globals(x):
    return global_function(x * global_tensor + global_list[0]) * next(global_number for _ in range(1))


@pytest.mark.parametrize("name", ["global_tensor", "global_list", "global_function", "global_number"])
def test_globals(name, monkeypatch):
    step = crt.compile(uses_globals)
    step(ONE)
    new = {"global_tensor": TEN, "global_list": [TEN], "global_function": crt.neg, "global_number": np.float32(3)}[name]
    monkeypatch.setitem(globals(), name, new)
    same(step(ONE), uses_globals(ONE))
    assert step.recapture_count == 1 and name in step.explain()


def test_objects_of_methods_and_arguments():
    o = Holder(ONE)
    for step in (crt.compile(o.method), crt.compile(o)):
        for change in (lambda: None, lambda: setattr(o, "w", TEN), lambda: setattr(o, "scale", 3.0)):
            change()
            same(step(ONE), o.method(ONE))
        assert step.recapture_count == 2
        o.w, o.scale = ONE, 1.0
    m = Scale(ONE)
    step = crt.compile(lambda part, x: part(x))
    for change in (
        lambda: None,
        lambda: m.load_state_dict({"w": TEN}),
        lambda: setattr(m, "w", nn.Parameter(ONE)),
        lambda: m.load_state_dict({"w": TEN}, assign=True),
    ):
        change()
        same(step(m, ONE), m(ONE))
    step = crt.compile(lambda holder, x: holder.w * x)
    for w in (ONE, TEN):
        o.w = w
        same(step(o, ONE), w * ONE)


def test_methods_of_a_class_may_be_replaced(monkeypatch):
    class Wide(Scale):
        pass

    m = Wide(ONE)
    step = crt.compile(m)
    step(ONE)
    monkeypatch.setattr(Wide, "forward", lambda self, x: x - self.w)
    same(step(ONE), m(ONE))
    monkeypatch.setattr(Wide, "forward", lambda self, x: x * 5)
    same(step(ONE), m(ONE))


def test_one_object_by_two_names():
    a = Scale(ONE)
    b = a
    step = crt.compile(lambda x: a(x) + b(x))
    step(ONE)
    b = Scale(TEN)
    same(step(ONE), a(ONE) + b(ONE))


def test_objects_that_follow_each_other_in_memory():
    f = eval("lambda x: x * 1.0")
    step = crt.compile(lambda x: f(x))
    for i in range(1, 30):
        f = None
        f = eval(f"lambda x: x * {i}.0")
        assert step(ONE).tolist() == [i * 1.0, i * 2.0]


def test_containers_that_are_enclosed():
    settings, layers = {"scale": 2.0, "shift": 1.0}, [Scale(ONE)]

    def fn(x):
        for layer in layers:
            x = layer(x)
        return x * settings["scale"] + settings["shift"]

    step = crt.compile(fn)
    for change in (
        lambda: None,
        lambda: settings.update(scale=3.0),
        lambda: layers.append(Scale(TEN)),
        lambda: settings.update(scale=settings["shift"], shift=settings["scale"]),
        lambda: layers[0].load_state_dict({"w": TEN}),
    ):
        change()
        same(step(ONE), fn(ONE))


def test_layouts_and_devices_are_part_of_the_key():
    def fn(x):
        return x * 2 if x.is_contiguous() else x * 3 + x.stride(0)

    step = crt.compile(fn)
    dense = crt.tensor(array(2, 3))
    for x in (dense, crt.tensor(array(3, 2)).T, crt.tensor(array(2, 6))[:, ::2], dense):
        same(step(x), fn(x))
    device = crt.compile(lambda x: x + crt.ones_like(x))
    assert device(ONE).device == "cpu"
    with crt.meta_init():
        stand_in = crt.ones(2)
    assert [str(device(stand_in).device) for _ in range(2)] == ["meta", "meta"] and device.state is State.Fallback
    inner = crt.compile(lambda x: crt.full((2,), 1.0, device="meta"))
    assert [str(inner(ONE).device) for _ in range(2)] == ["meta", "meta"]


class Config:
    rate = 1.0

    def __init__(self):
        self.shift, self.inner, self.w = 0.0, None, ONE

    def scaled(self, x):
        return x * self.shift


config = Config()
config.inner = Config()
table = {"by": 1.0}
lazy = None
times = 0


def helper(x, factor=1.0):
    return other_helper(x) * config.inner.shift * factor + table["by"]


def other_helper(x):
    return x + config.w


def lazily(x):
    global lazy  # noqa: PLW0603
    if lazy is None:
        lazy = crt.full((2,), 3.0)
    return x + lazy


def counts(x):
    global times  # noqa: PLW0603
    times += 1
    return x + times


def test_attributes_of_objects_that_a_function_names(monkeypatch):
    enclosed = Config()

    class Settings(Config):
        gain = 1.0

    def fn(x):
        return x * config.shift + config.inner.w * config.rate - enclosed.w * Settings.gain * Settings.rate

    step = crt.compile(fn)
    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(config, "shift", 2.0),
        lambda: monkeypatch.setattr(config.inner, "w", TEN),
        lambda: monkeypatch.setattr(Config, "rate", 5.0),
        lambda: setattr(enclosed, "w", TEN),
        lambda: setattr(Settings, "gain", 7.0),
        lambda: setattr(Settings, "rate", 3.0),
        lambda: monkeypatch.setattr(config, "inner", Config()),
    ):
        change()
        same(step(ONE), fn(ONE))
        same(step(ONE), fn(ONE))
    assert step.state is State.Compiled and "config.inner.w" in step.explain()
    before = step.recapture_count
    monkeypatch.setattr(config.inner, "shift", 9.0)  # which the function does not take
    same(step(ONE), fn(ONE))
    assert step.recapture_count == before


def test_what_helpers_name_may_change(monkeypatch):
    def fn(x):
        return helper(x) + 1

    step = crt.compile(fn)
    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(config.inner, "shift", 2.0),
        lambda: monkeypatch.setattr(config, "w", TEN),
        lambda: monkeypatch.setitem(table, "by", 7.0),
        lambda: monkeypatch.setitem(globals(), "other_helper", lambda x: x * 5),
        lambda: monkeypatch.setattr(helper, "__defaults__", (4.0,)),
    ):
        change()
        same(step(ONE), fn(ONE))
        same(step(ONE), fn(ONE))
    assert step.state is State.Compiled and step.recapture_count == 5


values, cache, RATE = [1.0, 2.0], {}, 2.0


def total(x):
    return x * sum(values)


def cached(x):
    if "w" not in cache:
        cache["w"] = TEN * 2
    return x * cache["w"]


def innermost(x):
    return x + 5


def helper_of_helper(x):
    return innermost(x) * 2


def wraps_another(x):
    return x * RATE


functools.update_wrapper(wraps_another, crt.relu)


class Scaler:
    rates = [2.0]  # noqa: RUF012

    def __init__(self):
        self.rate, self.inner = 2.0, Config()

    def __call__(self, x):
        return self.method(x) * RATE

    def method(self, x):
        return x * self.rate * self.rates[0] + self.inner.shift

    @property
    def computed(self):
        return self.rate * RATE

    @staticmethod
    def fixed(x):
        return x + RATE


scaler = Scaler()


def test_what_can_change_behind_names(monkeypatch):
    """Each change is seen: containers of helpers, caches, methods, properties, partials, code, wrapped functions, compiled ones."""
    inner = crt.compile(lambda x: x * RATE)
    bound = functools.partial(lambda x, scale=1.0, shift=0.0: x * scale + shift, scale=2.0)
    method = scaler.method

    def replaced(x):
        return x + 1

    def in_the_end(x):
        return x - 1

    for fn, changes in (
        (lambda x: total(x) + len(values), [lambda: values.append(3.0), lambda: values.pop()]),
        (lambda x: cached(x), [lambda: cache.update(w=TEN * 5), lambda: cache.clear()]),
        (lambda x: wraps_another(x), [lambda: monkeypatch.setitem(globals(), "RATE", 5.0)]),
        (lambda x: scaler(x) + 1, [lambda: setattr(scaler, "rate", 3.0), lambda: setattr(scaler.inner, "shift", 4.0), lambda: Scaler.rates.insert(0, 7.0)]),
        (lambda x: scaler.method(x), [lambda: setattr(scaler, "rate", 6.0), lambda: monkeypatch.setattr(Scaler, "method", lambda self, x: x * 3)]),
        (lambda x: x * scaler.computed, [lambda: setattr(scaler, "rate", 8.0), lambda: monkeypatch.setitem(globals(), "RATE", 6.0)]),
        (lambda x: Scaler.fixed(x) + scaler.fixed(x), [lambda: monkeypatch.setitem(globals(), "RATE", 7.0)]),
        (method, [lambda: setattr(scaler.inner, "shift", 5.0), lambda: setattr(scaler, "rate", 1.0)]),
        (lambda x: inner(x) + 1, [lambda: monkeypatch.setitem(globals(), "RATE", 8.0)]),
        (lambda x: replaced(x) * 2, [lambda: setattr(replaced, "__code__", in_the_end.__code__)]),
        (lambda x: helper_of_helper(x) * 2, [lambda: monkeypatch.setattr(innermost, "__code__", (lambda x: x * 9).__code__)]),
    ):
        step = crt.compile(fn)
        for change in (lambda: None, *changes):
            change()
            for _ in range(4):
                same(step(ONE), fn(ONE))
        assert step.state is State.Compiled, step.fallback_reason
    step = crt.compile(lambda x: bound(x))
    for keywords in ({"scale": 2.0}, {"shift": 2.0}, {"shift": 3.0}):
        bound = functools.partial(bound.func, **keywords)
        same(step(ONE), bound(ONE))
        same(step(ONE), bound(ONE))


def test_an_attribute_that_a_call_sets_is_no_constant():
    seen = Config()

    def fn(x):
        seen.last = x * 2
        seen.shift += 1
        return x + seen.shift

    step = crt.compile(fn)
    for n in range(1, 5):
        assert step(ONE * n).tolist() == (ONE * n + n).tolist() and seen.last.tolist() == (ONE * 2 * n).tolist()
    assert step.state is State.Fallback


def test_looking_changes_nothing():
    counts = collections.defaultdict(float, a=1.0)

    class Odd(dict):
        def __getitem__(self, key):
            raise RuntimeError("not here")

    class Proxy:
        def __getattr__(self, name):
            raise RuntimeError("unbound")

    odd, proxy = Odd(a=1.0), Proxy()
    step = crt.compile(lambda x: x * (counts["a"] if "a" in counts else 7.0) + len(odd) + (proxy is None))
    for _ in range(3):
        same(step(ONE), ONE + 1)
    del counts["a"]
    for _ in range(3):
        same(step(ONE), ONE * 7 + 1)
    assert "a" not in counts


def test_tables_for_each_shape_and_threads_that_start_together():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = {}

        def forward(self, x):
            if x.shape[0] not in self.tables:
                self.tables[x.shape[0]] = crt.arange(0, x.shape[0])
            return x + self.tables[x.shape[0]]

    step = crt.compile(Tables())
    for n in (2, 3, 4):
        for _ in range(3):
            same(step(crt.ones(n)), crt.ones(n) + crt.arange(0, n))
    assert step.state is State.Compiled
    for _ in range(40):
        step = crt.compile(Tables())
        threads = [threading.Thread(target=lambda step=step: [step(ONE).wait() for _ in range(3)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(3):
            same(step(ONE), ONE + crt.arange(0, 2))
        assert step.state is State.Compiled, step.fallback_reason


def test_what_is_set_up_at_the_first_call_is_no_obstacle(monkeypatch):
    monkeypatch.setitem(globals(), "lazy", None)
    step = crt.compile(lambda x: lazily(x) * 2)
    for _ in range(3):
        same(step(ONE), (ONE + 3) * 2)
    assert step.state is State.Compiled and step.recapture_count == 0
    monkeypatch.setitem(globals(), "times", 0)
    step = crt.compile(lambda x: counts(x))
    assert [(step(ONE) - ONE).tolist()[0] for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    assert step.state is State.Fallback and "times" in step.fallback_reason


def test_what_a_function_shares_with_its_lambdas_is_its_own():
    def fn(x):
        shared = x * 2
        return (lambda: shared + 1)()  # noqa: PLC3002

    step = crt.compile(fn)
    for number in range(3):
        globals()["shared"] = number  # another one of that name
        assert step(ONE).tolist() == [3.0, 5.0]
    assert step.recapture_count == 0

    class Scaled:
        rate = 2.0

        def __call__(self, x):
            return (lambda x: x * self.rate)(x)  # noqa: PLC3002

    scaled = Scaled()
    step = crt.compile(scaled)
    assert step(ONE).tolist() == [2.0, 4.0]
    scaled.rate = 3.0
    assert step(ONE).tolist() == [3.0, 6.0] and step.recapture_count == 1
