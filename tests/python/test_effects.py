"""Functions that write in place: as effects of a graph, in their order, on the memory that eager code would write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import clika_runtime as crt
from clika_runtime import nn
from compiling import array, same

State = crt.State


def both(fn):
    """A function as a graph and compiled."""
    yield lambda *args: crt.trace(fn, args)(*args)
    step = crt.compile(fn, fullgraph=True)
    yield step


def test_what_is_made_inside_may_be_written():
    def fn(x):
        y = x * 1
        y[0] = 5
        y += 1
        return y

    x = crt.tensor(array(3))
    for function in both(fn):
        for _ in range(3):
            same(function(x), fn(x))


def test_inputs_are_written():
    def fn(x, y):
        x.mul_(2)
        return x + y

    for function in both(fn):
        for _ in range(3):
            x, y = crt.tensor(array(3)), crt.tensor(array(3, seed=1))
            same(function(x, y), array(3) * 2 + array(3, seed=1))
            same(x, array(3) * 2)
    assert function.state is State.Compiled and function.recapture_count == 0


def test_tensors_from_outside_are_written_at_each_run():
    count = crt.zeros(())
    seen = crt.zeros(3)

    def fn(x):
        count.add_(1)
        seen[1:].copy_(x[1:])
        return x * count

    graph = crt.trace(lambda inputs: [fn(inputs[0])], [crt.ones(3)])
    assert count.item() == 0  # tracing computes nothing
    step = crt.compile(fn, fullgraph=True)
    for i in range(1, 4):
        x = crt.full((3,), float(i))
        same(step(x), np.full(3, i * count.item()))
        assert count.item() == 2 * i - 1
        same(graph.run([x])[0], np.full(3, i * 2 * i))
        same(seen, [0, i, i])
    assert {n.in_place for n in graph.nodes()} == {True, False}


def test_what_was_read_before_the_write_keeps_its_value():
    def fn(x):
        before = x + 0
        alias = x[1:]
        x.mul_(3)
        after = x + 0
        return before, alias * 1, after

    for function in both(fn):
        for _ in range(2):
            got = function(crt.tensor([1.0, 2.0, 3.0]))
            assert [t.tolist() for t in got] == [[1, 2, 3], [6, 9], [3, 6, 9]]


def test_a_product_does_not_move_behind_a_write():
    w = crt.tensor(array(3, 3))

    def fn(x, bias):
        y = x @ w
        x.mul_(0)
        return crt.relu(y + bias) + x

    for function in both(fn):
        for _ in range(2):
            x = crt.tensor(array(2, 3, seed=1))
            same(function(x, crt.ones(3)), crt.relu(crt.tensor(array(2, 3, seed=1)) @ w + 1))


def test_equal_steps_around_a_write_stay_two():
    def fn(x):
        a = crt.exp(x)
        x.add_(1)
        return a, crt.exp(x)

    for function in both(fn):
        for _ in range(2):
            a, b = function(crt.zeros(2))
            assert a.tolist() == [1, 1] and b.tolist() == crt.exp(crt.ones(2)).tolist()


def test_outputs_share_memory_as_in_eager():
    def fn(x):
        y = x * 2
        return x, x[1:], y, y[0]

    for function in both(fn):
        for _ in range(2):
            x = crt.ones(3)
            same_x, tail, y, first = function(x)
            x.add_(1)
            assert same_x.tolist() == [2, 2, 2] and tail.tolist() == [2, 2] and y.tolist() == [2, 2, 2]
            y.mul_(5)
            assert first.item() == 10


def test_host_data_is_made_anew_at_each_run():
    def fn(x):
        c = crt.tensor([1.0, 2.0])
        view = c[1:]
        c.add_(x)
        return c, view

    for function in both(fn):
        for _ in range(3):
            c, view = function(crt.tensor([1.0, 1.0]))
            assert c.tolist() == [2, 3] and view.tolist() == [3]
            c.add_(100)


def test_overlapping_inputs_after_separate_ones():
    def fn(x, y):
        x.mul_(2)
        return x + y

    step = crt.compile(fn, fullgraph=True)
    for _ in range(2):
        step(crt.ones(3), crt.ones(3))
    for _ in range(2):
        base = crt.tensor([1.0, 2.0, 3.0, 4.0])
        assert step(base[:3], base[1:]).tolist() == [6, 10, 10]
        assert base.tolist() == [2, 4, 6, 4]
        one = crt.ones(3)
        assert step(one, one).tolist() == [4, 4, 4]


def test_an_input_that_is_also_enclosed():
    buffer = crt.zeros(2)

    def fn(x):
        buffer.add_(1)
        return x + buffer

    step = crt.compile(fn, fullgraph=True)
    assert step(buffer).tolist() == [2, 2]
    assert step(crt.zeros(2)).tolist() == [2, 2]
    assert step(buffer).tolist() == [6, 6]


def test_statistics_of_a_module():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.running = crt.zeros(3)
            self.steps = crt.zeros((), dtype=crt.int64)

        def forward(self, x):
            self.steps += 1
            self.running.mul_(0.5).add_(crt.mean(x, dims=[0]) * 0.5)
            return x - self.running

    eager, compiled = Mean(), Mean()
    step = crt.compile(compiled, fullgraph=True)
    for seed in range(4):
        x = crt.tensor(array(5, 3, seed=seed))
        same(step(x), eager(x))
    same(compiled.running, eager.running)
    assert compiled.steps.item() == 4 and step.recapture_count == 0


def test_a_cache_that_grows_in_place():
    cache = crt.zeros((8, 4))

    def append(row, at):
        cache[at] = row
        return crt.sum(cache, dims=[0])

    step = crt.compile(append, fullgraph=True)
    want = np.zeros((8, 4), np.float32)
    for i in range(8):
        row = array(1, 4, seed=i)
        want[i] = row[0]
        np.testing.assert_allclose(step(crt.tensor(row), crt.tensor([i])).numpy(), want.sum(0), rtol=1e-5, atol=1e-6)
    same(cache, want)
    assert step.recapture_count == 0


def test_random_numbers_that_are_written_advance():
    def fn(x):
        x.copy_(crt.randn_like(x))
        return x * 1

    step = crt.compile(fn, fullgraph=True)
    x = crt.zeros(4)
    crt.manual_seed(1)
    got = [step(x).tolist() for _ in range(3)]
    crt.manual_seed(1)
    assert got == [fn(x).tolist() for _ in range(3)] and got[0] != got[1]


def test_what_tracing_wrote_is_not_read():
    buffer = crt.zeros(2)

    def fn(inputs):
        buffer.add_(inputs[0])
        return [inputs[0] * buffer.tolist()[0]]

    with pytest.raises(crt.ClikaRTRuntimeError, match=r"trace: the value of float32 \[2\] is read after the function wrote over it"):
        crt.trace(fn, [crt.ones(2)])
    assert buffer.tolist() == [0, 0]


def test_wrong_writes_are_refused_where_they_are():
    for fn in (lambda x: x.add_(crt.ones((2, 3))), lambda x: crt.expand(x[:1], (3,)).add_(1), lambda x: crt.cast(x, crt.int32).add_(0.5)):
        with pytest.raises(crt.ClikaRTError):
            crt.trace(fn, (crt.ones(3),))
        with pytest.raises(crt.ClikaRTError):
            crt.compile(fn, fullgraph=True)(crt.ones(3))


# ---- random programs -------------------------------------------------------------------------------------------------

N = 4
INPUTS, ENCLOSED = 2, 2
PURE = ("add", "mul", "matmul", "exp", "sum", "copy", "scale")
VIEWS = ("transpose", "row", "tail", "flat")
WRITES = ("add_", "mul_", "copy_", "set", "fill", "relu_")


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[str, int, int, float]], list[int]]:
    steps = []
    count = INPUTS + ENCLOSED
    for _ in range(draw(st.integers(1, 10))):
        value = st.integers(0, count - 1)
        name = draw(st.sampled_from(PURE + VIEWS + WRITES))
        steps.append((name, draw(value), draw(value), draw(st.sampled_from([-1.0, 0.5, 2.0]))))
        count += name not in WRITES
    return steps, draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4))


def perform(name: str, a: crt.Tensor, b: crt.Tensor, number: float) -> crt.Tensor | None:
    match name:
        case "add":
            return crt.sum(a) + b
        case "mul":
            return a * number
        case "matmul":
            return crt.matmul(crt.expand(crt.reshape(a, (-1,))[:1], (N, N)), crt.ones((N, N)))
        case "exp":
            return crt.tanh(a)
        case "sum":
            return crt.expand(crt.reshape(crt.sum(a), (1, 1)), (N, N)) + 0
        case "copy":
            return crt.copy(a)
        case "scale":
            return a * number + number
        case "transpose":
            return crt.permute(a, tuple(reversed(range(a.ndim))))
        case "row":
            return a[0] if a.ndim > 1 else a
        case "tail":
            return a[1:] if a.shape[0] > 1 else a
        case "flat":
            return crt.reshape(a, (-1,))  # a view or a copy, as the strides have it
        case "add_":
            a.add_(crt.sum(b))
        case "mul_":
            a.mul_(number)
        case "copy_":
            a.copy_(b)
        case "set":
            a[0] = number
        case "fill":
            a.copy_(crt.tensor(number))
        case "relu_":
            a.relu_()
    return None


@given(programs(), st.integers(0, 100), st.sampled_from(["apart", "same", "overlap"]), st.sampled_from(["apart", "same", "overlap"]))
def test_random_programs_that_write(program: Any, seed: int, captured: str, replayed: str) -> None:
    steps, outputs = program
    enclosed = [crt.zeros((N, N)) for _ in range(ENCLOSED)]

    def fn(inputs: list[crt.Tensor]) -> list[crt.Tensor]:
        values = [*inputs, *enclosed]
        for name, a, b, number in steps:
            made = perform(name, values[a], values[b], number)
            if made is not None:
                values.append(made)
        return [values[i] for i in outputs]

    def start(how: str, at: int) -> tuple[list[crt.Tensor], list[crt.Tensor]]:
        """The inputs, and all memory whose content counts."""
        rng = np.random.default_rng(at)
        for tensor in enclosed:
            tensor.copy_(crt.tensor(rng.standard_normal((N, N)).astype(np.float32)))
        base = crt.tensor(rng.standard_normal((2 * N, N)).astype(np.float32))
        first = base[:N]
        second = {"apart": base[N:], "same": first, "overlap": base[2 : N + 2]}[how]
        return [first, second], [base, *enclosed]

    def outcome(function: Any, how: str, at: int) -> list[bytes]:
        inputs, memory = start(how, at)
        results = function(inputs)
        told = [t.bytes() for t in [*results, *memory]]
        try:
            results[0].add_(1)  # who shares its memory sees that
        except crt.ClikaRTError:
            told.append(b"refused")
        return told + [t.bytes() for t in [*results, *memory]]

    try:
        want = [outcome(fn, captured, seed), outcome(fn, replayed, seed + 1)]
    except crt.ClikaRTError:
        assume(False)
    for level in (0, 1, 2):
        inputs, _ = start(captured, seed)
        graph = crt.trace(fn, inputs, optimize=level)
        assert [outcome(graph.run, captured, seed), outcome(graph.run, replayed, seed + 1)] == want
        step = crt.compile(fn, optimize=level, fullgraph=True)
        assert [outcome(step, captured, seed), outcome(step, replayed, seed + 1), outcome(step, captured, seed)] == [*want, want[0]]


# ---- what reviews found ----------------------------------------------------------------------------------------------


def test_memory_that_may_not_be_written_is_refused_at_a_replay_too():
    def fn(x):
        return x.add_(1)

    for function in both(fn):
        function(crt.zeros(3))
        a = np.zeros(3, np.float32)
        a.flags.writeable = False
        with pytest.raises(ValueError, match=r"^add: the memory of float32 \[3\] was borrowed read-only"):
            function(crt.from_numpy(a))
        assert a.tolist() == [0, 0, 0]
        with pytest.raises(ValueError, match="share memory"):
            function(crt.expand(crt.zeros(1), (3,)))


def test_a_view_or_a_copy_as_the_strides_have_it():
    def fn(x):
        y = x.transpose(0, 1).reshape((-1,))
        y.add_(10)
        return y * 1

    for make in (lambda x: fn, lambda x: crt.trace(fn, (x,)), lambda x: crt.compile(fn), lambda x: crt.compile(fn, dynamic=True)):
        for lies in (lambda t: t, lambda t: t.transpose(0, 1)):
            x = lies(crt.tensor([[1.0, 2.0], [3.0, 4.0]]))
            function = make(x)
            for again in (lambda t: t, lambda t: t.transpose(0, 1)):
                x, right = again(crt.tensor([[1.0, 2.0], [3.0, 4.0]])), again(crt.tensor([[1.0, 2.0], [3.0, 4.0]]))
                same(function(x), fn(right))
                same(x, right)


def test_dynamic_graphs_look_at_strides():
    def fn(x):
        x.reshape((-1,)).add_(1)
        return x * 1

    for function in (fn, crt.compile(fn), crt.compile(fn, dynamic=True)):
        base = crt.zeros((3, 4))
        function(base[:, :2])  # a copy
        function(base[:, 3:])  # a view
        assert base.tolist() == [[0, 0, 0, 1]] * 3


@pytest.mark.parametrize("level", [0, 1, 2])
def test_tensors_from_outside_that_share_borrowed_memory(level):
    array_ = np.arange(4, dtype=np.float32)
    a, b, part = crt.from_numpy(array_), crt.from_numpy(array_), crt.from_numpy(array_[2:])

    def fn(inputs):
        first, tail = b * 2, part * 1
        a.add_(10)
        return [first + inputs[0], b * 2 + inputs[0], tail + 0]

    graph = crt.trace(fn, [crt.zeros(4)], optimize=level)
    assert [t.tolist() for t in graph.run([crt.zeros(4)])] == [[0, 2, 4, 6], [20, 22, 24, 26], [2, 3]]


def test_second_results_have_memory_of_their_own():
    def fn(x):
        _, i = crt.sort(x)
        i.add_(10)
        _, k = crt.sort(x)
        return i * 1, k * 1

    def out(x):
        return crt.sort(x)[1], crt.sort(x)[1]

    x = crt.tensor([3.0, 1.0, 2.0])
    for function in both(fn):
        for _ in range(2):
            assert [t.tolist() for t in function(x)] == [[11, 12, 10], [1, 2, 0]]
    for function in both(out):
        for _ in range(2):
            i, k = function(x)
            i.add_(100)
            assert k.tolist() == [1, 2, 0]


def test_packed_dtypes_keep_their_last_element():
    graph = crt.trace(lambda i: [crt.cast(crt.copy(crt.cast(i[0], crt.int4)), crt.float32)], [crt.ones(3)])
    assert graph.run([crt.tensor([1.0, 2.0, 3.0])])[0].tolist() == [1, 2, 3]


def test_a_failure_spoils_what_depends_on_it_and_nothing_else():
    def fn(w, x, i):
        w.add_(1)
        return crt.gather(x, 0, i), x * 2

    for function in (fn, *both(fn)):
        w, x = crt.zeros(3), crt.ones(3)
        for i in (0, 7, 0):
            got, twice = function(w, x, crt.tensor([i]))
            if i == 7:
                with pytest.raises(IndexError, match=r"^gather: index 7"):
                    got.tolist()
            else:
                assert got.tolist() == [1]
            assert twice.tolist() == [2, 2, 2]
        assert w.tolist() == [3, 3, 3]


def spoilt():
    """A value that is none; its failure was told."""
    bad = crt.gather(crt.ones(3), 0, crt.tensor([5]))
    with pytest.raises(IndexError, match=r"^gather: index 5"):
        bad.wait()
    return bad


def test_what_is_spoiled_before_a_run_spoils_what_reads_it():
    def fn(x, y):
        return x + 1, y + 1

    def cure(x, y):
        x.copy_(y)
        return x + 1, y + 1

    for function in both(fn):
        bad = spoilt()
        first, second = function(bad, crt.ones(1))
        assert second.tolist() == [2]
        with pytest.raises(IndexError, match=r"^gather: index 5"):
            first.tolist()
    for function in both(cure):
        function(crt.ones(1), crt.ones(1))
        bad = spoilt()
        assert [t.tolist() for t in function(bad, crt.ones(1))] == [[2], [2]] and bad.tolist() == [1]


def test_what_was_written_is_not_written_again_after_a_refusal():
    def fn(x, z):
        x.add_(1)
        return x + z

    step = crt.compile(fn, dynamic=True)
    step(crt.zeros(3), crt.zeros(3))
    x = crt.zeros(3)
    with crt.tracing(), pytest.raises(ValueError, match=r"^add: "):
        step(x, crt.zeros(4))
    assert x.tolist() in ([0, 0, 0], [1, 1, 1])


def test_synchronous_runs_whose_results_are_views():
    a = crt.tensor(array(700, 700))
    graph = crt.trace(lambda i: [crt.transpose(crt.exp(i[0]), 0, 1)], [crt.ones((40, 30))])
    x = crt.tensor(array(40, 30))
    for _ in range(5):
        busy = a @ a
        with crt.synchronous():
            (y,) = graph.run([x])
        same(y, crt.transpose(crt.exp(x), 0, 1))
        del busy


def test_a_part_that_is_overwritten_does_not_cure_the_rest():
    def fn(x, z, y):
        x.copy_(y)
        return x + 1, z + 1

    for function in (fn, *both(fn)):
        function(crt.ones(1), crt.ones(1), crt.ones(1))
        base = crt.gather(crt.ones(3), 0, crt.tensor([5, 0]))
        with pytest.raises(IndexError):
            base.wait()
        _, rest = function(base[:1], base[1:], crt.ones(1))
        for value in (rest, base, base[1:]):
            with pytest.raises(IndexError, match=r"^gather: index 5"):
                value.tolist()


def test_weights_that_the_program_lent_may_change():
    w, kernel = np.ones((256, 256), np.float32), np.ones((64, 3, 3, 64), np.float32)
    lent, lent_kernel = crt.from_numpy(w), crt.from_numpy(kernel)
    product = crt.trace(lambda i: [i[0] @ lent], [crt.ones((64, 256))])
    convolution = crt.trace(lambda i: [crt.conv2d(i[0], lent_kernel, padding=1)], [crt.ones((1, 16, 16, 64))])
    for factor in (1, 2, 3):
        w[:], kernel[:] = factor, factor
        for _ in range(2):
            assert product.run([crt.ones((64, 256))])[0][3, 5].item() == 256 * factor
            assert convolution.run([crt.ones((1, 16, 16, 64))])[0][0, 8, 8, 3].item() == 9 * 64 * factor


def test_a_place_that_does_not_fit_is_refused_before_anything_is_written():
    def fn(inputs):
        inputs[0].add_(1)
        return [inputs[0] * 2]

    graph = crt.trace(fn, [crt.ones(3)])
    x = crt.zeros(3)
    for out in (crt.zeros(4), crt.zeros(3, dtype=crt.int32)):
        with pytest.raises((ValueError, TypeError), match=r"^run: output 'output_0' is float32 \[3\], a tensor for it was given"):
            graph.run([x], out=[out])
    assert x.tolist() == [0, 0, 0]
