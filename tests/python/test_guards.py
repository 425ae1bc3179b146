"""What brings a new capture of a compiled function besides its arguments, and what keeps it from being captured."""

from __future__ import annotations

import collections
import copy
import dataclasses
import threading
import types

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime import nn

State = crt.State


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


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


class Scale(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x):
        return x * self.w


ONE, TEN = crt.tensor([1.0, 2.0]), crt.tensor([10.0, 20.0])
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


def test_arguments_that_may_change_unseen():
    for fn, given in [
        (lambda x, v: x + crt.tensor(v), [np.full(2, float(i), np.float32) for i in range(3)]),
        (lambda x, v: x * len(v), [{1}, {1, 2}, {1, 2, 3}]),
    ]:
        step = crt.compile(fn)
        for value in given:
            same(step(ONE, value), fn(ONE, value))
        assert step.state is State.Fallback and "is neither a tensor nor a value that stays what it is" in step.fallback_reason
        with pytest.raises(TypeError, match=r"compile: a .* is neither a tensor"):
            crt.compile(fn, fullgraph=True)(ONE, given[0])
    step = crt.compile(lambda x, where: x[where])
    assert [step(ONE, slice(a, b)).tolist() for a, b in ((0, 1), (1, 2), (0, 2))] == [[1.0], [2.0], [1.0, 2.0]]
    step = crt.compile(lambda x, v: x * v)
    assert [str(step(ONE, np.float64(v)).tolist()) for v in (0.0, -0.0)] == ["[0.0, 0.0]", "[-0.0, -0.0]"]
    step = crt.compile(lambda d: [str(key) for key in d])
    assert [step({key: ONE}) for key in (1, True, 1.0)] == [["1"], ["True"], ["1.0"]]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: types.SimpleNamespace(y=y),
        lambda y: collections.defaultdict(list, y=y),
        lambda y: (v for v in [y]),
        lambda y: {"y": y}.values(),
        lambda y: (y, {1}),
        lambda y: np.ones(2),
    ],
)
def test_results_that_a_graph_cannot_give_again(wrap):
    step = crt.compile(lambda x: wrap(x * 2))
    for x in (ONE, TEN):
        got, want = step(x), wrap(x * 2)
        assert type(got) is type(want)
        if hasattr(got, "y"):
            same(got.y, want.y)
    assert step.state is State.Fallback and "is returned, which is neither" in step.fallback_reason
    with pytest.raises(RuntimeError, match=r"compile: a .* is returned"):
        crt.compile(lambda x: wrap(x * 2), fullgraph=True)(ONE)
    with pytest.raises(TypeError, match="trace: the function returned a"):
        crt.trace(lambda x: wrap(x * 2), (ONE,))


def test_generators_are_not_recorded():
    own = crt.Generator(3)

    def seeds(x):
        crt.manual_seed(3)
        return x + crt.rand((2,))

    def makes(x):
        return x + crt.rand((2,), generator=crt.Generator(0))

    def sets(x):
        own.manual_seed(5)
        return x + crt.rand((2,), generator=own)

    for fn in (seeds, makes, sets):
        step = crt.compile(fn)
        assert step(ONE).tolist() == step(ONE).tolist() == step(ONE).tolist()
        assert step.state is State.Fallback and "random generator" in step.fallback_reason


def test_tensors_of_host_data_are_new_ones_each_time():
    def fn(x):
        c = crt.tensor([[1.0, 1.0]])
        return x + c, c, crt.reshape(c, (2,)), c

    step = crt.compile(fn)
    for _ in range(3):
        total, c, view, again = step(ONE)
        assert total.tolist() == [[2.0, 3.0]] and c.tolist() == again.tolist() == [[1.0, 1.0]] and view.tolist() == [1.0, 1.0]
        c.add_(100)
        view.mul_(7)
    assert step.state is State.Compiled
    array = np.ones(2, np.float32)
    borrowed = crt.compile(lambda x: x + crt.from_numpy(array))
    borrowed(ONE)
    assert borrowed.fallback_reason.startswith("the program's memory is borrowed")


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


def test_left_over_stand_ins_are_refused():
    left = []
    crt.trace(lambda x: (left.append(x * 2), x)[1], (ONE,))
    for fullgraph in (False, True):
        with pytest.raises(RuntimeError, match=r"compile: the tensor .* stands for a value"):
            crt.compile(lambda x: x * 2, fullgraph=fullgraph)(left[0])


def test_a_graph_with_fixed_sizes_inside_a_dynamic_one():
    inner = crt.trace(lambda i: [crt.sum(i[0]) / i[0].numel()], [crt.ones((2, 3))])
    step = crt.compile(lambda x: inner.run([x])[0], dynamic=True)
    assert step(crt.ones((2, 3))).item() == 1
    with pytest.raises(ValueError, match=r"traced for float32 \[2, 3\]"):
        step(crt.ones((3, 3)))


def test_fullgraph_does_not_forget_what_a_function_caught():
    def fn(x):
        try:
            return x + float(x[0])
        except RuntimeError:
            return x

    with pytest.raises(RuntimeError, match="the value of float32"):
        crt.compile(fn, fullgraph=True)(ONE)


def test_reset_during_a_capture_holds():
    settings, inside, go = {"k": 2.0}, threading.Event(), threading.Event()

    def fn(x):
        y = x * settings["k"]
        inside.set()
        go.wait()
        return y

    step = crt.compile(fn)
    worker = threading.Thread(target=step, args=(ONE,))
    worker.start()
    inside.wait()
    settings["k"] = 3.0
    step.reset()
    go.set()
    worker.join()
    assert step.state is State.Pending and step(ONE).tolist() == [3.0, 6.0]


def test_finalizers_may_call_the_wrapper():
    step = crt.compile(lambda x, flag: x * 2)

    class Resets:
        def __del__(self):
            step.reset()

    class Compares:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            step(ONE, 1)
            return True

    step(ONE, Resets())
    step.reset()
    step(ONE, Compares())
    assert step(ONE, Compares()).tolist() == [2.0, 4.0]


def test_containers_among_the_arguments_may_be_changed():
    def grow(cache, x):
        cache["k"] = crt.cat([cache["k"], x])
        cache["log"].append("grown")
        cache["parts"][0]["n"] = cache["parts"][0]["n"] + 1
        del cache["old"]
        return crt.sum(cache["k"])

    def make():
        return {"k": ONE, "log": [], "old": 1, "parts": ({"n": 0},)}

    eager, compiled, step = make(), make(), crt.compile(grow)
    log, part = compiled["log"], compiled["parts"][0]
    for x in (TEN, ONE):
        eager["old"] = compiled["old"] = x
        assert step(compiled, x).item() == grow(eager, x).item()
        same(compiled["k"], eager["k"])
        assert compiled["log"] is log and compiled["parts"][0] is part and (log, part) == (eager["log"], eager["parts"][0])
        assert list(compiled) == list(eager)
    assert step.fallback_reason == "a container among the arguments is changed"
    with pytest.raises(RuntimeError, match="trace: the function changes a container among its arguments"):
        crt.trace(grow, (make(), ONE))

    @dataclasses.dataclass
    class Box:
        a: crt.Tensor
        b: int = dataclasses.field(init=False)

        def __post_init__(self):
            self.extra = 3

    box = Box(ONE)
    crt.compile(lambda box: setattr(box, "a", box.a * box.extra))(box)
    assert box.a.tolist() == [3.0, 6.0]


def test_what_comes_into_being():
    class Late(nn.Module):
        k = 2.0

        def forward(self, x):
            return x * self.k if not hasattr(self, "b") else x * self.b

    late = Late()
    step = crt.compile(late)
    for change in (
        lambda: None,
        lambda: setattr(late, "k", 5.0),
        lambda: setattr(late, "b", nn.Parameter(TEN)),
        lambda: setattr(late, "forward", lambda x: x * 100),
    ):
        change()
        same(step(ONE), late(ONE))

    class Growing(nn.Module):
        def forward(self, x):
            self.k = crt.cat([self.k, x]) if hasattr(self, "k") else x
            return crt.sum(self.k)

    cache, history = {}, []

    def keeps(x):
        cache["k"] = cache["k"] + x if "k" in cache else x
        return cache["k"]

    def appends(x):
        history.append(x)
        return crt.sum(crt.cat(history))

    def counts(x):
        counts.calls = getattr(counts, "calls", 0) + 1
        return x * counts.calls

    for fn, want in ((Growing(), [3, 6, 9]), (keeps, [3, 6, 9]), (appends, [3, 6, 9]), (counts, [3, 6, 9])):
        step = crt.compile(fn)
        assert [crt.sum(step(ONE)).item() for _ in range(3)] == want
        assert step.state is State.Fallback and "meanwhile" in step.fallback_reason


def test_slots_and_inherited_attributes():
    class Slots:
        __slots__ = ("w",)

        @crt.compile
        def f(self, x):
            return x * self.w

    s = Slots()
    for w in (1.0, 5.0, TEN):
        s.w = w
        same(s.f(ONE), ONE * w)

    class Base(nn.Module):
        k = 2.0

        def forward(self, x):
            return x * self.k

    class Sub(Base):
        pass

    step = crt.compile(Sub())
    for k in (2.0, 4.0):
        Base.k = k
        same(step(ONE), ONE * k)


def test_the_line_of_a_fallback():
    def first(x):
        if crt.sum(x) > 0:
            return x * 2
        return x

    def second(x):
        repr(x)
        return x * 2

    def third(x):
        x = x + 1

        x.add_(1)
        return x

    for fn, line in ((first, 1), (second, 1), (third, 3)):
        step = crt.compile(fn)
        step(ONE)
        assert step.fallback_reason.endswith(f"{__file__}:{fn.__code__.co_firstlineno + line}")


def test_dynamic_notices_what_depends_on_sizes_unseen():
    def squeezes(x):
        y = crt.squeeze(x)
        return y * y.ndim

    def catches(x):
        try:
            return x + crt.ones((3, 4))
        except ValueError:
            return x * 2

    for fn in (squeezes, catches):
        step = crt.compile(fn, dynamic=True)
        for n in (3, 1, 5, 3):
            x = crt.ones((n, 4))
            same(step(x), fn(x))


def test_what_does_not_matter_to_the_guards():
    class Strange:
        def __getattr__(self, name):
            return Strange()

    strange, deep = Strange(), [ONE]
    step = crt.compile(lambda x: (strange, x + deep[0])[1])
    assert step(ONE).tolist() == step(ONE).tolist() == [2.0, 4.0]


def test_methods_and_copies():
    class Net:
        w = ONE

        @crt.compile
        def plain(self, x):
            return x * self.w

        @crt.compile(dynamic=True)
        def dynamic(self, x):
            return x * self.w

    net = Net()
    for step in (net.plain, net.dynamic):
        assert step(ONE).tolist() == step(ONE).tolist() == [1.0, 4.0]
    assert net.plain.__func__.state is State.Compiled
    Net.w = TEN
    assert net.plain(ONE).tolist() == [10.0, 40.0]
    other = copy.deepcopy(crt.compile(Scale(ONE)))
    assert other.state is State.Pending and other(ONE).tolist() == [1.0, 4.0]


def test_racing_first_calls_are_one_capture():
    start = threading.Barrier(4)

    def fn(x):
        start.wait()
        return x + 1

    step = crt.compile(fn)
    workers = [threading.Thread(target=step, args=(ONE,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert step.recapture_count == 0 and step.state is State.Compiled


def test_names_are_cosmetic():
    step = crt.compile(lambda d: {key: value + 1 for key, value in d.items()})
    tree = {"a\0b": ONE, "\ud800": ONE, **{f"k{i}": ONE for i in range(5)}}
    assert list(step(tree)) == list(step(tree)) == list(tree)
    with pytest.raises(ValueError, match="compile: two inputs have one name"):
        crt.compile(lambda i: i, [crt.TensorSpec("x", crt.float32, [1])] * 2)
