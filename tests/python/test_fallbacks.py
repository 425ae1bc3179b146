"""What a replay would not do as the function does: then there is none."""

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
from compiling import ONE, TEN, Scale, same

State = crt.State


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


def test_containers_of_every_kind_may_stand_beside_a_changed_one():
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: crt.Tensor

    @dataclasses.dataclass(slots=True)
    class Slotted:
        a: crt.Tensor

    def fn(frozen, slotted, log):
        log.append(1)
        slotted.a = frozen.a + slotted.a
        return slotted.a

    step, frozen, slotted, log = crt.compile(fn), Frozen(ONE), Slotted(TEN), []
    for n in (1, 2):
        same(step(frozen, slotted, log), TEN + n * ONE)
        same(slotted.a, TEN + n * ONE)
        assert log == [1] * n and frozen.a is ONE
    still = crt.compile(lambda frozen, slotted: frozen.a * slotted.a)
    for _ in range(2):
        same(still(frozen, Slotted(TEN)), ONE * TEN)
    assert still.state is State.Compiled


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

        crt.nonzero(x)
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
