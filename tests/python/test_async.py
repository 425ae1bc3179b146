"""Asynchrony as a program sees it: streams, scopes, waiting, reading, deferred calls."""

import asyncio
import dataclasses
import pickle
import threading

import numpy as np
import pytest

import clika_runtime as crt
from waiting import busy, in_thread, run, until


def mode():
    """What becomes of this thread's calls."""
    return "tracing" if crt.add(crt.ones(2), 1).status == "Unscheduled" else "eager"


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_operators_ride_the_lane_of_their_thread():
    y = busy()
    lane = crt.Stream.current()
    assert y.stream == lane and not lane.is_default and lane.device == "cpu"
    assert not lane.query_idle() and not y.is_ready() and y.status == "Evaluated"
    lane.synchronize()
    assert lane.query_idle() and y.is_ready()
    assert in_thread(crt.Stream.current) != lane


def test_a_stream_runs_beside_the_lane():
    other = crt.Stream.create()
    with crt.stream(other):
        y = busy()
    assert y.stream == other and not other.query_idle()
    x = crt.ones(4, stream=other)  # a placement is used as given
    assert x.stream == other and crt.ones(4).stream == crt.Stream.current() != other
    assert crt.add(crt.ones(4), 1).tolist() == [2] * 4
    assert not y.is_ready(), "a read on the lane waited for another stream"
    assert (x + 1).tolist() == [2] * 4
    assert y.is_ready(), "a stream runs in order"


def test_the_default_stream_is_synchronous():
    default = crt.Stream.default_stream("cpu")
    assert default.is_default and default == crt.Stream.default_stream() and hash(default) == hash(crt.Stream.default_stream())
    with crt.stream(default):
        assert crt.matmul(crt.ones((1024, 1024)), crt.ones((1024, 1024))).is_ready()
        with pytest.raises(MemoryError):
            crt.zeros(2**50)
    assert "default" in repr(default) and "idle" in repr(default)


def test_results_know_their_stream_and_status():
    born = crt.tensor([1.0, 2.0])
    assert born.status == "Available" and born.is_ready() and born.stream == crt.Stream.current()
    s = crt.Stream()
    with crt.stream(s):
        made = born * 2
    assert made.stream == s and made.status == "Evaluated"
    with crt.tracing():
        deferred = born * 2
        assert deferred.status == "Unscheduled" and not deferred.is_ready()
    crt.async_eval(deferred)
    assert deferred.status == "Evaluated"


def test_what_is_no_stream_is_refused():
    for what in (None, 0, "s"):
        with pytest.raises(TypeError):
            crt.stream(what)
    with pytest.raises(TypeError):
        crt.ones(2, stream="s")


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_waiting_for_a_limited_time():
    y = busy()
    for what in (y, y.stream):
        assert what.wait(0) is False and what.wait(0.001) is False and what.wait(-1) is False
    assert y.wait(60) is True and y.stream.wait(60) is True
    assert y.wait() is True and y.wait(0) is True and y.stream.wait(0) is True


@pytest.mark.parametrize("target", ["nothing", "tensor", "stream", "device", "name"])
def test_synchronize(target):
    y = busy(0.05)
    crt.synchronize(*{"nothing": [], "tensor": [y], "stream": [y.stream], "device": [crt.Device("cpu")], "name": ["cpu"]}[target])
    assert y.is_ready()


def test_synchronize_waits_for_its_target_alone():
    s = crt.Stream()
    with crt.stream(s):
        y = busy()
    crt.synchronize()
    crt.synchronize(crt.ones(3))
    assert not y.is_ready()
    with crt.stream(s):
        crt.synchronize()  # the stream that operators ride here
    assert y.is_ready()
    with crt.stream(s):
        y = busy(0.05)
    crt.synchronize("cpu")  # all its streams
    assert y.is_ready()
    with pytest.raises(TypeError, match="synchronize"):
        crt.synchronize(3)
    with pytest.raises(ValueError):
        crt.synchronize("abacus")


def test_eval_and_async_eval_of_trees():
    @dataclasses.dataclass
    class Pair:
        first: object
        second: object

    x = crt.ones((2, 2))
    with crt.tracing():
        a, b, c, d, e, f, g = (x * i for i in range(7))
    module = crt.nn.Module()
    module.weight = crt.nn.Parameter(g)
    tree = {"a": a, "b": [b, None, "text", 3], "c": (c, {"d": d})}
    tree["self"] = tree  # entered once
    crt.async_eval(tree, Pair(e, module), {1: f}.values(), "text", None, 5)
    assert [t.status for t in (a, b, c, d, e, g)] == ["Evaluated"] * 6
    assert f.status == "Unscheduled"  # no container that is entered
    y = busy(0.05)
    crt.eval(f, [y], Pair(y, [f]))
    assert y.is_ready() and f.tolist() == [[5, 5], [5, 5]]
    crt.eval()
    y = busy()
    crt.async_eval(y)
    assert not y.is_ready()


# ---- which questions wait --------------------------------------------------------------------------------------------


def test_what_never_settles():
    y = busy()
    assert (y.dtype, y.device, y.ndim, y.stride(), y.is_contiguous()) == (crt.float32, "cpu", 2, (1024, 1), True)
    assert (y.shape, y.numel(), y.nbytes, len(y)) == ((1024, 1024), 1024**2, 4 * 1024**2, 1024)
    assert y.status == "Evaluated" and y.stream == crt.Stream.current() and hash(y) == hash(y)
    view = y.reshape(-1).reshape(1024, 1024).permute(1, 0)
    assert view.stride() == (1, 1024) and not view.is_contiguous()
    z = crt.nonzero(y)  # its size depends on data that is still to come
    assert (z.dtype, z.device, z.ndim, z.stride(), z.is_contiguous()) == (crt.int64, "cpu", 2, (2, 1), True)
    assert not y.is_ready() and not z.is_ready()
    assert z.shape == (1024**2, 2) and y.is_ready()  # the one that does


READS = {
    "numpy": lambda t: t.numpy(),
    "bytes": lambda t: t.bytes(),
    "item": lambda t: t.item(),
    "tolist": lambda t: t.tolist(),
    "repr": repr,
    "print": lambda t: print(t),
    "bool": bool,
    "float": float,
    "int": int,
    "__array__": np.asarray,
    "__dlpack__": lambda t: t.__dlpack__(),
    "pickle": pickle.dumps,
    "eval": lambda t: crt.eval({"t": t}),
    "synchronize": crt.synchronize,
    "wait": lambda t: t.wait(),
    "tensor": crt.tensor,
}


@pytest.mark.parametrize("read", [*READS, "save"])
def test_what_settles(read, tmp_path):
    y = crt.sum(busy(0.03))
    READS.get(read, lambda t: crt.save({"t": t}, tmp_path / "file"))(y)
    assert y.is_ready() and y.item() == 1024


@pytest.mark.parametrize("read", [*list(READS)[:11], "tensor", "save"])
def test_no_value_is_read_under_tracing(read, tmp_path):
    x = crt.ones(1)
    READS["numpy"](x)
    with crt.tracing():
        for t in (x, crt.add(x, 1)):
            if read in ("repr", "print"):  # a debugger shows tensors at any time
                assert "unscheduled" in repr(t) or "available" in repr(t) or "evaluated" in repr(t)
                continue
            with pytest.raises(crt.ClikaRTError):
                READS.get(read, lambda t: crt.save({"t": t}, tmp_path / "file"))(t)


def test_the_size_of_nonzero():
    x = crt.tensor([[0.0, 2.0], [float("nan"), 0.0]])
    z = crt.nonzero(x)
    assert z.tolist() == [[0, 1], [1, 0]] and z.shape == (2, 2) and z.numel() == 4 and z.nbytes == 32
    assert crt.nonzero(crt.zeros((3, 2))).shape == (0, 2)
    assert crt.nonzero(crt.tensor(5)).shape == (1, 0) and crt.nonzero(crt.zeros((0, 4))).tolist() == []
    assert (crt.nonzero(x) * 2).tolist() == [[0, 2], [2, 0]]  # eager consumers wait for the size
    assert crt.nonzero(busy(0.05)).shape == (1024**2, 2)
    with crt.tracing(), pytest.raises(crt.ClikaRTError, match="nonzero"):
        crt.nonzero(x)
    with crt.tracing(), crt.eager():
        assert crt.nonzero(x).shape == (2, 2)
    with pytest.raises(NotImplementedError, match="nonzero"):
        crt.trace(lambda inputs: [crt.nonzero(inputs[0])], [x])


def test_an_operator_over_an_open_size_is_refused_while_deferred():
    z = crt.nonzero(busy(0.05))
    with crt.tracing(), pytest.raises(crt.ClikaRTError, match="depends on data"):
        z + 1
    assert (z + 1).shape == (1024**2, 2)


def test_meta():
    with crt.meta_init():
        x = crt.ones((3, 4))
        assert crt.zeros(2, device="cpu").tolist() == [0, 0]
    with crt.device("meta"):
        w = crt.full((4, 10**9), 0.5)  # no storage
    y = crt.relu(crt.matmul(x, w))
    assert y.device == "meta" and y.shape == (3, 10**9) and y.dtype == crt.float32 and y.status == "Unscheduled" and not y.is_ready()
    y += 1
    y.copy_(2)
    for read in (y.numpy, x.item, x.tolist, y.bytes, lambda: crt.eval(x), lambda: crt.async_eval(x), lambda: crt.synchronize(x), x.wait):
        with pytest.raises((crt.ClikaRTError, RuntimeError)):
            read()
    assert "meta" in repr(y)
    with pytest.raises(ValueError, match="meta"):
        x + crt.ones((3, 4))
    with pytest.raises(ValueError):
        x + crt.ones(5)
    assert (x + 1).device == "meta"
    with pytest.raises(crt.ClikaRTError, match="nonzero"):
        crt.nonzero(x)
    with pytest.raises(ValueError):
        crt.device("abacus")
    with pytest.raises(NotImplementedError):
        crt.device("cuda:0")
    assert crt.ones(1).device == "cpu"


# ---- scopes ----------------------------------------------------------------------------------------------------------


def test_tracing_runs_nothing_until_somebody_asks():
    t = crt.ones((8, 8))
    with crt.tracing():
        y = t * 2 + 1
        with crt.eager():
            assert (t * 2).tolist() == [[2] * 8] * 8
        assert mode() == "tracing"
    assert (y.status, y.shape, y.dtype) == ("Unscheduled", (8, 8), crt.float32)
    z = y + 1  # an operator outside asks too
    assert y.status == "Evaluated" and z.tolist() == [[4] * 8] * 8


def test_synchronous_is_over_when_the_call_returns():
    x = crt.full((1024, 1024), 1 / 1024)
    with crt.synchronous():
        assert crt.matmul(x, x).is_ready()
        source = np.zeros(3, np.float32)
        crt.from_numpy(source).add_(3)
        assert source.tolist() == [3, 3, 3]
    assert not crt.matmul(busy(), x).is_ready()


def test_stream_scopes_nest():
    a, b = crt.Stream(), crt.Stream()
    lane = crt.Stream.current()
    with crt.stream(a):
        with crt.stream(b), crt.stream(b):
            assert crt.ones(2).stream == b == crt.Stream.current()
            assert crt.ones(2, stream=a).stream == a
        assert (crt.ones(2) + 1).stream == a
    assert crt.ones(2).stream == lane


def test_a_scope_object_can_be_entered_again():
    scope = crt.tracing()
    with scope:
        with crt.eager():
            with scope:
                assert mode() == "tracing"
            assert mode() == "eager"
        assert mode() == "tracing"
    assert mode() == "eager"

    @crt.synchronous()
    def recurse(n):
        """Text."""
        return crt.ones(1) if n == 0 else recurse(n - 1) + 1

    assert recurse(5).item() == 6 and (recurse.__name__, recurse.__doc__) == ("recurse", "Text.")


def test_exceptions_end_scopes():
    with pytest.raises(ZeroDivisionError), crt.tracing(), crt.stream(crt.Stream()), crt.meta_init(), crt.synchronous():
        raise ZeroDivisionError
    assert mode() == "eager" and crt.ones(1).device == "cpu" and crt.ones(1).stream == crt.Stream.current()
    x = crt.ones(1)
    x += 1
    assert not crt.matmul(busy(), crt.ones((1024, 1))).is_ready()


def test_scopes_hold_for_their_thread():
    with crt.tracing(), crt.meta_init(), crt.stream(crt.Stream()):
        assert in_thread(lambda: (mode(), str(crt.ones(1).device))) == ("eager", "cpu")
    inside, leave = threading.Event(), threading.Event()

    def other():
        with crt.tracing():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60)
    assert mode() == "eager"
    leave.set()
    thread.join(60)


def test_one_scope_object_in_many_threads():
    scope = crt.tracing()
    barrier = threading.Barrier(4)

    def work():
        for _ in range(50):
            barrier.wait(60)
            with scope:
                seen = mode()
            if (seen, mode()) != ("tracing", "eager"):
                return False
        return True

    results = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == [True] * 4


def test_a_decorated_generator_is_in_the_scope_while_it_runs():
    @crt.tracing()
    def generate():
        got = yield mode()
        try:
            yield got, mode()
        except KeyError:
            yield mode()
        finally:
            ends.append(mode())
        return "end"

    ends = []
    g = generate()
    assert next(g) == "tracing" and mode() == "eager"
    assert g.send(5) == (5, "tracing") and mode() == "eager"
    assert g.throw(KeyError()) == "tracing" and mode() == "eager"
    with pytest.raises(StopIteration, match="end"):
        next(g)
    g = generate()
    next(g), next(g)
    g.close()
    assert ends == ["tracing"] * 2 and mode() == "eager"
    assert list(crt.stream(s := crt.Stream())(lambda: (yield crt.ones(1).stream))()) == [s]


def test_a_suspended_coroutine_does_not_share_its_scope():
    async def traced(entered, leave):
        with crt.tracing():
            entered.set()
            await leave.wait()
            return mode()

    @crt.tracing()
    async def decorated():
        before = mode()
        await asyncio.sleep(0)
        return before, mode()

    @crt.tracing()
    async def generate():
        for _ in range(3):
            yield mode()
            await asyncio.sleep(0)

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(traced(entered, leave))
        await entered.wait()
        assert mode() == "eager"
        with crt.eager():
            assert mode() == "eager"
        assert await asyncio.to_thread(mode) == "eager"
        seen = []
        async for inner in generate():
            seen.append((inner, mode()))
        assert seen == [("tracing", "eager")] * 3
        leave.set()
        assert await task == "tracing" and mode() == "eager"
        assert await decorated() == ("tracing", "tracing") and mode() == "eager"
        with crt.tracing():
            assert await asyncio.to_thread(mode) == "eager"  # another thread

    asyncio.run(main())
    assert mode() == "eager"
    with crt.tracing():  # around the loop: the setting of the thread

        async def inner():
            with crt.eager():
                await asyncio.sleep(0)
                assert mode() == "eager"
            return mode()

        assert asyncio.run(inner()) == "tracing" and mode() == "tracing"
    assert mode() == "eager"


def beside(scope, look):
    """What a coroutine sees while another is suspended inside of a scope."""

    async def other(entered, leave):
        with scope:
            crt.ones(1)
            entered.set()
            await leave.wait()

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(other(entered, leave))
        await entered.wait()
        try:
            return look()
        finally:
            leave.set()
            await task

    return asyncio.run(main())


def test_coroutines_that_share_a_scope_object_may_overlap():
    """As every decorated coroutine function makes them do."""

    @crt.tracing()
    async def decorated(naps):
        for _ in range(naps):
            await asyncio.sleep(0)
        return mode()

    async def main():
        seen = await asyncio.gather(*(decorated(n) for n in (3, 1, 2)))
        return seen, mode()

    assert asyncio.run(main()) == (["tracing"] * 3, "eager")
    assert mode() == "eager"


def test_the_current_stream_of_another_coroutine():
    lane = crt.Stream.current()
    assert beside(crt.stream(crt.Stream()), crt.Stream.current) == lane


def test_every_call_of_another_coroutine_is_outside_of_the_scope():
    s = crt.Stream()
    assert beside(crt.meta_init(), lambda: crt.ones(1).device) == "cpu"
    assert beside(crt.tracing(), lambda: crt.ones(2).tolist()) == [1, 1]
    x = crt.ones(2)
    assert beside(crt.stream(s), lambda: x.copy_(3).tolist()) == [3, 3]


def test_a_graph_is_recorded_beside_another_coroutines_scope():
    run("""
        import asyncio, clika_runtime as crt
        x = crt.ones(2)
        async def other(recorded):
            with crt.tracing():
                crt.ones(1)
                await recorded.wait()
        async def main():
            recorded = asyncio.Event()
            task = asyncio.create_task(other(recorded))
            await asyncio.sleep(0)  # the other runs up to its wait
            assert len(crt.trace(lambda inputs: [inputs[0] + 1], [x]).nodes()) == 3
            recorded.set()
            await task
        asyncio.run(main())
        assert (x + 1).status == "Evaluated"
    """)


def test_a_graph_runs_beside_another_coroutines_scope():
    x = crt.ones(2)
    graph = crt.trace(lambda inputs: [inputs[0] + 1], [x])
    assert beside(crt.tracing(), lambda: graph.run([x])[0].status) == "Evaluated"


def test_a_task_that_was_started_in_a_scope_does_not_depend_on_strangers():
    """Whether the child is inside of its parent's scope after that ended: always or never, whatever other tasks do."""
    seen = run("""
        import asyncio, clika_runtime as crt
        async def child(go):
            await go.wait()
            return crt.add(crt.ones(2), 1).status
        async def main(strange):
            go = asyncio.Event()
            with crt.tracing():
                task = asyncio.create_task(child(go))
                await asyncio.sleep(0)
            with strange():  # opened here, and no concern of the child's
                go.set()
                return await task
        import contextlib
        for strange in (contextlib.nullcontext, crt.synchronous, contextlib.nullcontext):
            print(asyncio.run(main(strange)))
    """).split()
    assert len(seen) == 3 and len(set(seen)) == 1


def test_an_abandoned_async_generator_takes_its_scope_with_it():
    """The loop closes it, in a context of its own; nothing is said on stderr and nothing stays open."""
    run("""
        import asyncio, clika_runtime as crt
        from clika_runtime import scopes
        async def generate():
            with crt.tracing():
                yield 1
                yield 2
        async def main():
            g = generate()
            await anext(g)
            return g
        asyncio.run(main())
        assert crt.add(crt.ones(2), 1).tolist() == [2, 2]
        assert scopes.scoped == []
    """)


# ---- settings --------------------------------------------------------------------------------------------------------


def test_set_num_threads():
    before = crt.num_threads()
    x = crt.tensor(np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32))
    try:
        seen = set()
        for n in (1, 3, 2, 16, 1):
            y = busy(0.02)
            crt.set_num_threads(n)  # with work under way
            assert crt.num_threads() == n
            seen.add(crt.softmax(crt.matmul(x, x)).bytes())
            assert y.numpy()[5, 5] == np.float32(1 / 1024)
        assert len(seen) == 1
        for n in (0, -1, 1025, 2**31, 2**70):
            with pytest.raises(ValueError, match="set_num_threads"):
                crt.set_num_threads(n)
        assert crt.num_threads() == 1
    finally:
        crt.set_num_threads(before)


def test_the_environment_sets_threads_and_synchrony():
    code = "import os, clika_runtime as crt; print(crt.num_threads(), len(os.sched_getaffinity(0)))"
    for wish in ("1", "3"):
        assert run(code, CLIKA_NUM_THREADS=wish).split()[0] == wish
    for wish in ("", "0", "-2", "many", "2x"):  # what is no number of threads counts for nothing
        threads, cores = map(int, run(code, CLIKA_NUM_THREADS=wish).split())
        assert 1 <= threads <= cores
    code = """
        import clika_runtime as crt
        x = crt.full((1024, 1024), 1 / 1024)
        ready = [crt.matmul(x, x).is_ready() for _ in range(3)]
        try:
            crt.zeros(2**50)
            print(ready, "late")
        except MemoryError:
            print(ready, "here")
    """
    assert run(code, CLIKA_SYNC="1") == "[True, True, True] here\n"
    assert run(code, CLIKA_SYNC="0").endswith("late\n")


def test_callers_are_held_up_rather_than_run_away():
    """A stream holds a limited number of calls; whoever submits more waits for some, and all are right in the end."""
    x = crt.full((64, 64), 1 / 64)
    y = busy(0.05)
    z = x
    for _ in range(2000):
        z = crt.matmul(z, x)
    assert y.is_ready() and z.numpy()[3, 3] == np.float32(1 / 64)
    until(crt.Stream.current().query_idle)
