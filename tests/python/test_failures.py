"""What goes wrong later: late errors and where they were called, memory limits, Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime.graph import OpCode
from waiting import busy, failing, here, in_thread, until


@pytest.fixture(autouse=True)
def nothing_untold():
    """No test leaves a failure to the next one."""
    yield
    for _ in range(3):
        try:
            crt.synchronize()
        except crt.ClikaRTError:
            pass


def failed(x=None, op=OpCode.Exp, fn=crt.exp):
    """A tensor whose operator failed, or will."""
    with failing(op):
        y = fn(crt.ones((3, 4)) if x is None else x)
        until(y.is_ready)
    return y


def raised(read):
    with pytest.raises(crt.ClikaRTError) as caught:
        read()
    return str(caught.value)


# ---- late errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queued", [False, True])
def test_a_late_error_says_what_failed_and_where_it_was_called(queued):
    x = crt.ones((3, 4))
    gate = busy(0.05) if queued else None
    with failing():
        y, place = crt.exp(x), here()
        text = raised(y.numpy)
    assert text.startswith("exp: failed as it was told to") and "[3, 4]" in text and "float32" in text
    assert text.endswith(f"called at {place}"), text
    assert raised(y.tolist) == text and raised(lambda: repr(y)) == text  # each time
    assert y.is_ready() and y.status == "Evaluated"
    assert gate is None or gate.is_ready()


def test_a_late_error_of_every_way_to_call():
    x, y = crt.ones((2, 3)), crt.ones((2, 3))
    linear = crt.nn.Linear(3, 3)

    def assign():
        nonlocal y
        y += 1
        return y

    def copy():
        return crt.ones(3).copy_(crt.tensor([1, 2, 3]))

    def traced():
        with crt.tracing():
            return x * 2

    ways = [
        (OpCode.Add, lambda: x + 1),
        (OpCode.Mul, lambda: 2 * x),
        (OpCode.Mul, traced),
        (OpCode.Add, lambda: x.add_(1)),
        (OpCode.Add, assign),
        (OpCode.Copy, copy),
        (OpCode.Full, lambda: crt.zeros(5)),
        (OpCode.MatMul, lambda: linear(x)),
        (OpCode.Concat, lambda: crt.concat([x, x])),
        (OpCode.Nonzero, lambda: crt.nonzero(x)),
    ]
    for op, call in ways:
        for queued in (False, True)[: 1 if op in (OpCode.MatMul, OpCode.Full) else 2]:  # what busy() itself calls
            crt.synchronize()
            gate = busy(0.02) if queued else None
            with failing(op):
                result = call()
                assert gate is None or not gate.is_ready()
                text = raised(lambda result=result: crt.eval(result))
            name = re.escape(op.name.lower())
            lines = range(call.__code__.co_firstlineno, call.__code__.co_firstlineno + 4)
            assert re.match(rf"{name}: failed", text), text
            assert any(text.endswith(f"called at {__file__}:{line}") for line in lines), (op, queued, text)
            x, y = crt.ones((2, 3)), crt.ones((2, 3))


@pytest.mark.parametrize("queued", [False, True])
def test_a_late_error_of_a_graph_names_the_line_that_ran_it(queued):
    graph = crt.trace(lambda inputs: [crt.exp(inputs[0])], [x := crt.ones(3)])
    gate = busy(0.05) if queued else None
    with failing():
        results, place = graph.run([x]), here()
        other = x + 1
        assert raised(results[0].numpy).endswith(f"called at {place}")
    assert other.tolist() == [2] * 3 and (gate is None or gate.is_ready())


def test_errors_belong_to_results():
    x = crt.ones(4)
    with failing():
        good, bad = x + 1, crt.exp(x)
        dependent = crt.concat([crt.sum(bad * 2, keepdim=True), good])
        unrelated = crt.tanh(x) * 0
    assert good.tolist() == [2] * 4 and unrelated.tolist() == [0] * 4
    text = raised(dependent.tolist)  # told of the first cause, with its place
    assert text.startswith("exp: failed") and text == raised(bad.tolist)
    assert raised(lambda: crt.eval({"a": [good, dependent]})) == text == raised(lambda: bool(crt.sum(bad)))
    assert crt.exp(x).tolist() == crt.exp(x).tolist()
    assert (good + 1).tolist() == [3] * 4
    view = bad.reshape(2, 2)
    assert raised(view.numpy) == text and raised(lambda: crt.slice(bad, 0, 1).tolist()) == text


def test_errors_cross_streams_and_threads():
    s = crt.Stream()
    x = crt.ones(4)
    with failing(), crt.stream(s):
        gate = busy(0.05)
        bad = crt.exp(x + crt.sum(gate) * 0)
        dependent = bad + 1
        y = crt.add(x, dependent)
        assert raised(y.numpy) == in_thread(lambda: raised(y.numpy)) == raised(lambda: in_lane(y).numpy())
        assert (x + 1).tolist() == [2] * 4


def in_lane(x):
    return in_thread(lambda: x * 2)


def test_an_error_of_eval_comes_after_all_are_settled():
    bad = failed()
    pending = busy(0.05)
    raised(lambda: crt.eval(bad, pending))
    assert pending.is_ready()


def test_waiting_raises():
    for read in (lambda y: y.wait(), lambda y: y.wait(0), crt.eval, crt.synchronize):
        raised(lambda read=read: read(failed()))
    crt.async_eval(failed())  # does not look


def test_a_failed_size():
    bad = failed(crt.ones(3), OpCode.Nonzero, crt.nonzero)
    for read in (lambda: bad.shape, bad.numel, lambda: bad.nbytes, lambda: len(bad), lambda: bad + 1, bad.numpy):
        assert "nonzero" in raised(read)
    assert bad.ndim == 2 and bad.dtype == crt.int64


def test_a_whole_overwrite_cures():
    bad = failed()
    crt.slice(bad, 0, 0, 1).zero_()  # a part does not
    raised(bad.numpy)
    bad.add_(1)  # nor does what reads it
    raised(bad.numpy)
    bad.fill_(3)
    assert bad.tolist() == [[3] * 4] * 3 and (bad + 1).tolist() == [[4] * 4] * 3


def test_a_failure_in_place_spoils_what_it_would_have_written():
    x = crt.ones(4)
    with failing(OpCode.Add):
        early = x * 2
        x.add_(1)
        late = x * 2
    assert raised(x.numpy) == raised(late.numpy) and early.tolist() == [2] * 4
    source = np.ones(4, np.float32)
    t = crt.from_numpy(source)
    with failing(OpCode.Add):
        t.add_(1)
    raised(crt.synchronize)
    raised(t.numpy)
    assert crt.from_numpy(np.ones(4, np.float32)).tolist() == [1] * 4


def test_synchronous_calls_raise_where_they_are():
    x = crt.ones(4)
    with failing(), crt.synchronous():
        assert "exp: failed" in raised(lambda: crt.exp(x))
        assert crt.exp(x).numpy()[0] > 2
    with failing(), crt.stream(crt.Stream.default_stream()):
        raised(lambda: crt.exp(x))
    crt.synchronize()  # nothing that nobody was told of
    crt.synchronize("cpu")


@pytest.mark.parametrize("queued", [False, True])
def test_synchronize_raises_what_nobody_was_told_of(queued):
    pending = busy(0.03) if queued else None
    with failing():
        bad, place = crt.exp(crt.ones(5)), here()
        text = raised(crt.synchronize)
    assert text.endswith(place) and text == raised(bad.numpy)
    crt.synchronize()  # once
    assert pending is None or pending.is_ready()
    bad = failed()
    raised(bad.numpy)
    crt.synchronize()  # told already
    dependents = [failed() + 1 for _ in range(2)]
    raised(crt.synchronize)
    raised(dependents[0].numpy)
    raised(dependents[1].numpy)


def test_synchronize_tells_of_the_first_of_two():
    failed(crt.ones(11))
    failed(crt.ones(22))
    assert "[11]" in raised(crt.synchronize)


def test_synchronize_tells_of_the_second_when_the_first_was_told():
    first, second = failed(crt.ones(11)), failed(crt.ones(22))
    raised(first.numpy)
    assert "[22]" in raised(crt.synchronize)
    raised(second.numpy)


def test_synchronize_tells_of_each_in_turn():
    failed(crt.ones(11))
    failed(crt.ones(22))
    assert "[11]" in raised(crt.synchronize)
    assert "[22]" in raised(crt.synchronize)
    crt.synchronize()


@pytest.mark.parametrize("idle", [False, True])
def test_synchronizing_a_device_tells_of_all_its_streams(idle):
    s = crt.Stream()
    with crt.stream(s), failing():
        gate = busy(0.05)
        bad = crt.exp(gate)
        if idle:
            until(s.query_idle)
            del gate
        assert raised(lambda: crt.synchronize("cpu")).startswith("exp: failed")
    crt.synchronize("cpu")
    s.synchronize()
    raised(bad.numpy)


def test_the_failure_of_one_stream_is_not_that_of_another():
    s = crt.Stream()
    with crt.stream(s):
        failed()
    crt.synchronize()
    raised(s.synchronize)
    s.synchronize()


def test_failures_of_many_threads_come_with_their_own_places():
    def work(n, results):
        for _ in range(50):
            x = crt.full((n, 7), 2.0**40)
            y = crt.zeros((n, 2**44))  # more than there is
            try:
                y.numpy()
            except MemoryError as error:
                results.append(f"[{n}, " in str(error) and f"called at {__file__}:" in str(error))
            results.append(x.shape == (n, 7))

    results = []
    threads = [threading.Thread(target=work, args=(n, results)) for n in range(11, 15)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(results) == 400 and all(results)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def limited():
    """Sets limits that end with the test."""
    yield lambda extra: crt.memory.set_limit(crt.memory.current() + extra)
    crt.memory.set_limit(None)


def test_a_limit_is_never_exceeded_and_can_be_lived_with(limited):
    assert limited(8 << 20) is None
    limit = crt.memory.set_limit(None)
    assert crt.memory.set_limit(limit) is None and crt.memory.set_limit(limit) == limit
    crt.memory.reset_peak()
    too_much = crt.zeros((1024, 4096))
    with pytest.raises(MemoryError) as caught:
        too_much.numpy()
    assert isinstance(caught.value, crt.ClikaRTError) and "limit" in str(caught.value) and "full" in str(caught.value)
    y = crt.ones((512, 1024))
    for _ in range(100):  # 200 MiB, in time
        y = crt.relu(y)
    assert y.numpy().sum() == 512 * 1024
    assert crt.memory.peak() <= limit
    kept, failures = [], 0
    for _ in range(20):
        kept.append(crt.ones((256, 1024)))
    for t in kept:
        try:
            t.wait()
        except MemoryError:
            failures += 1
    assert 10 <= failures < 20 and crt.memory.peak() <= limit and crt.memory.current() <= limit
    with pytest.raises(MemoryError):
        crt.synchronous()(crt.zeros)((1024, 4096))
    kept.clear()
    del t, y
    assert crt.ones((1024, 1024)).numpy().sum() == 1024**2  # usable afterwards
    crt.memory.set_limit(None)
    assert crt.zeros((1024, 4096)).numpy().sum() == 0
    with pytest.raises(MemoryError):
        too_much.numpy()


def test_limits_that_are_none():
    for limit in (-1, -(2**63)):
        with pytest.raises(ValueError, match="set_limit"):
            crt.memory.set_limit(limit)
    with pytest.raises(TypeError):
        crt.memory.set_limit(1.5)
    assert crt.memory.set_limit(None) is None


def test_a_limit_of_nothing(limited):
    x = crt.ones((64, 64))
    x.wait()
    crt.memory.set_limit(0)
    with pytest.raises(MemoryError):
        (x + 1).wait()
    with pytest.raises(MemoryError):
        crt.tensor(np.ones(100_000))
    x.add_(x)  # needs none
    crt.memory.set_limit(None)
    assert x.numpy().max() == 2


def test_many_threads_share_a_limit(limited):
    limited(6 << 20)
    limit = crt.memory.set_limit(None)
    crt.memory.set_limit(limit)
    crt.memory.reset_peak()
    outcomes = []

    def work():
        for _ in range(40):
            try:
                outcomes.append(crt.relu(crt.ones((512, 512))).numpy().sum() == 512 * 512)
            except MemoryError:
                outcomes.append(True)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert outcomes == [True] * 240 and crt.memory.peak() <= limit


def test_peak_and_trim():
    crt.memory.reset_peak()
    before = crt.memory.current()
    assert crt.memory.peak() == before
    x = crt.zeros((1024, 1024))
    x.wait()
    assert crt.memory.peak() >= before + (4 << 20) and crt.memory.current() >= before + (4 << 20)
    del x
    assert crt.memory.current() == before and crt.memory.peak() >= before + (4 << 20)
    assert crt.memory.cached() >= 4 << 20
    crt.memory.trim()
    assert crt.memory.cached() == 0
    crt.memory.reset_peak()
    assert crt.memory.peak() == crt.memory.current() == before
    array = np.ones(1 << 20, np.float32)
    t = crt.from_numpy(array)
    assert crt.memory.current() == before and t.numel() == 1 << 20  # borrowed memory does not count


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------

# A child queues work for many seconds and is sent SIGINT.  The slack is for a busy machine; the work would take far longer.
CHAIN = """
    import os, signal, sys, threading, time, clika_runtime as crt
    x = y = crt.full((2048, 2048), 1 / 2048)
    sent = []
    def interrupt():
        time.sleep(0.3)  # the main thread is inside of a call then, where no event could tell
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    def over():
        assert time.monotonic() - sent[0] < 1, time.monotonic() - sent[0]
        print("interrupted")
    def chain(n=24):  # a second's work for the fastest two cores
        global y
        for _ in range(n): y = crt.matmul(y, x)
    interrupter = threading.Thread(target=interrupt, daemon=True)
"""


def child(code, timeout=40):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHAIN) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"CLIKA_NUM_THREADS": "2"},
        check=False,
    )


@pytest.mark.parametrize(
    "wait", ["y.numpy()", "y.wait()", "y.wait(100)", "crt.synchronize()", "crt.synchronize('cpu')", "y.stream.wait()", "crt.sum(y).item()"]
)
def test_ctrl_c_ends_a_wait_and_not_the_work(wait):
    done = child(f"""
        chain()
        interrupter.start()
        try:
            {wait}
        except KeyboardInterrupt:
            over()
        assert not y.is_ready() and not y.stream.query_idle()
        with crt.stream(crt.Stream()):
            assert (crt.ones(3) + 1).tolist() == [2] * 3
        os._exit(0)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_ctrl_c_while_dispatching_more_than_a_stream_holds():
    done = child("""
        interrupter.start()
        try:
            chain(10**6)
        except KeyboardInterrupt:
            over()
        assert not y.is_ready()
        with crt.stream(crt.Stream()):
            assert crt.ones(3).tolist() == [1] * 3
        os._exit(0)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_ctrl_c_at_exit():
    """The process waits for its work at its end, and stops waiting when it is told to."""

    def end(interrupt):
        done = child(f"""
            begin = time.monotonic()
            chain()
            import atexit
            atexit.register({interrupt})  # runs before the library's own
            print(os.times().elapsed)
        """)
        return os.times().elapsed - float(done.stdout), done

    whole, undisturbed = end("lambda: None")
    assert (undisturbed.returncode, undisturbed.stderr) == (0, "")
    short, done = end("interrupter.start")
    assert "KeyboardInterrupt" in done.stderr and done.returncode in (0, 1, 130, -signal.SIGINT)
    assert short < whole / 2, (short, whole)
