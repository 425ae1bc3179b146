"""Processes and threads that come and go: fork, spawn, exit by every road, threads that end, handles in any order."""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import clika_runtime as crt
from waiting import busy, in_thread, run, until

# ---- fork ------------------------------------------------------------------------------------------------------------

FORK = """
    import os, sys, threading, time, numpy as np, clika_runtime as crt
    def forked(child, status=0):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            child()
            os._exit(0)
        while True:
            done, how = os.waitpid(pid, os.WNOHANG)
            if done: break
            assert time.monotonic() < end, "the child hangs"
            time.sleep(0.002)  # waitpid has no timeout
        assert os.waitstatus_to_exitcode(how) == status, how
    end = time.monotonic() + 40
    def compute():
        x = crt.tensor(np.ones((300, 300), np.float32))
        assert crt.sum(crt.matmul(x, x)).item() == 300**3
        with crt.stream(crt.Stream()):
            assert (x * 2).numpy()[1, 1] == 2
        with crt.tracing():
            y = x + 1
        assert y.numpy().max() == 2
    def chain(n=6):
        x = y = crt.full((1024, 1024), 1 / 1024)
        for _ in range(n): y = crt.matmul(y, x)
        return y
"""


def forking(code, **environment):
    return run(textwrap.dedent(FORK) + textwrap.dedent(code), **environment)


@pytest.mark.parametrize("before", ["pass", "crt.ones(3).wait()", "compute()", "crt.zeros((2000, 2000)).wait()"])
def test_a_child_of_an_idle_process_computes(before):
    forking(f"""
        {before}
        forked(compute)
        compute()
    """)


def test_a_child_computes_while_its_parent_is_at_work():
    forking("""
        s = crt.Stream()
        y = chain()
        with crt.stream(s):
            z = chain()
        assert not y.is_ready()
        def child():
            compute()
            assert y.numpy()[3, 3] == z.numpy()[5, 5] == np.float32(1 / 1024)  # pending tensors of the parent
            assert crt.sum(y + z).item() == 2048
            crt.synchronize("cpu")
        forked(child)
        forked(lambda: None)
        forked(lambda: forked(child))  # a child's child
        assert y.numpy()[3, 3] == z.numpy()[5, 5] == np.float32(1 / 1024)
        compute()
    """)


@pytest.mark.parametrize("end", ["os._exit(3)", "sys.exit(3)", "raise SystemExit(3)", "raise KeyError('on purpose')", "pass"])
@pytest.mark.parametrize("used", [False, True])
def test_a_child_ends_by_every_road(end, used):
    """Also with work of its own pending, and without having touched the library at all."""
    status = 3 if "3" in end else 1 if "raise" in end else 0
    out = forking(f"""
        y = chain()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a traceback is fine
            if {used}:
                compute()
                z = chain(3)
            {end}
        else:
            while not (done := os.waitpid(pid, os.WNOHANG))[0]:
                assert time.monotonic() < end, "the child hangs"
                time.sleep(0.002)  # waitpid has no timeout
            assert os.waitstatus_to_exitcode(done[1]) == {status}, done
            assert y.numpy()[3, 3] == np.float32(1 / 1024)
            print("parent")
    """)
    assert out == "parent\n"


def test_many_forks_under_load():
    """Other threads submit, wait and read all the while."""
    forking("""
        stop, rounds = threading.Event(), [0, 0, 0]
        def load(i):
            x = crt.full((256, 256), 1 / 256)
            while not stop.is_set():
                with crt.stream(crt.Stream()) if i else crt.eager():
                    assert crt.sum(crt.matmul(x, x) + 1).item() == 256 * 257
                    np.ones(10_000_000 // 4) + 1
                rounds[i] += 1
        threads = [threading.Thread(target=load, args=(i,)) for i in range(3)]
        for t in threads: t.start()
        x = crt.ones((64, 64))
        for i in range(30):
            shared = x * i
            def child():
                assert shared.numpy()[0, 0] == i and crt.sum(crt.matmul(shared, x)).item() == 64**3 * i
            forked(child)
        stop.set()
        for t in threads: t.join(20)
        assert min(rounds) > 0
        compute()
    """)


def test_a_childs_work_is_its_own():
    """What a child writes in place, fails at, limits or sets is not seen in the parent, and the other way round."""
    forking("""
        x, limit = crt.ones(4), crt.memory.set_limit(None)
        shared = np.zeros(4, np.float32)
        t = crt.from_numpy(shared)
        def child():
            x.add_(5)
            t.add_(1)
            crt.set_num_threads(1)
            assert x.tolist() == [6] * 4
            crt.synchronize()
            assert shared.tolist() == [1] * 4
            crt.memory.set_limit(0)
        forked(child)
        assert x.tolist() == [1] * 4 and shared.tolist() == [0] * 4 and crt.num_threads() == 3 and crt.memory.set_limit(None) is None
        compute()
    """, CLIKA_NUM_THREADS="3")  # fmt: skip


def test_forking_from_a_thread_and_in_a_scope():
    forking("""
        def fork():
            with crt.stream(crt.Stream()), crt.tracing():
                y = crt.ones(4) + 1
                def child():
                    with crt.eager():
                        compute()
                        assert y.tolist() == [2] * 4
                forked(child)
            assert y.tolist() == [2] * 4
        chain()
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        fork()
    """)


def test_a_child_keeps_the_failures_of_its_parent():
    forking("""
        bad = crt.zeros(2**50)
        chain(2)
        def child():
            try:
                bad.wait()
            except MemoryError:
                os._exit(7)
        forked(child, status=7)
        try:
            bad.wait()
        except MemoryError:
            compute()
        else:
            raise AssertionError
    """)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import multiprocessing, clika_runtime as crt
            def work(pair):
                n, t = pair
                return n, crt.sum(crt.matmul(t, t)).item(), t * n
            if __name__ == "__main__":
                context = multiprocessing.get_context("{method}")
                x = y = crt.ones((50, 50))
                for _ in range(100): y = crt.matmul(y, x) / 50
                with context.Pool(2) as pool:
                    for n, total, t in pool.imap(work, [(n, y) for n in range(6)]):
                        assert total == 50**3 and t.numpy().max() == n
                assert y.numpy().min() == 1
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- exit ------------------------------------------------------------------------------------------------------------

PENDING = """
    import atexit, os, signal, sys, threading, time, numpy as np, clika_runtime as crt
    x = y = crt.full((1024, 1024), 1 / 1024)
    for _ in range(5): y = crt.matmul(y, x)
    kept = [y, crt.Stream()]
    with crt.stream(kept[1]):
        z = crt.sum(y)
    small = crt.full((256, 256), 1 / 256)
    def dispatch():
        t = small
        while True: t = crt.matmul(t, small)
    reading = threading.Event()
    def read():
        while True:
            crt.relu(small).numpy()
            reading.set()
    def borrow():
        array = np.zeros((1000, 1000), np.float32)
        return crt.from_numpy(array).add_(z)
"""

ENDS = {
    "": 0,
    "sys.exit(5)": 5,
    "os._exit(6)": 6,
    "raise KeyError('on purpose')": 1,
    "del kept, x, y, z": 0,
    "sys.exit('text')": 1,
    "os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
    "threading.Thread(target=dispatch, daemon=True).start()": 0,
    "[threading.Thread(target=dispatch, daemon=True).start() for _ in range(4)]": 0,
    "[threading.Thread(target=read, daemon=True).start() for _ in range(3)]; reading.wait()": 0,
    "threading.Thread(target=lambda: y.wait()).start()": 0,
    "threading.Thread(target=lambda: (threading.main_thread().join(), sys.exit(1))).start(); sys.exit(4)": 4,
    "atexit.register(lambda: crt.ones(3).tolist())": 0,
    "atexit.register(lambda: kept.append(crt.matmul(y, x)))": 0,
    "sys.settrace(lambda *_: None); sys.modules.clear()": 0,
    "import gc; gc.disable(); kept.append(kept)": 0,
    "kept.append(borrow())": 0,
    "with crt.tracing(): kept.append(y + 1)": 0,
    "crt.synchronous().__enter__(); crt.stream(kept[1]).__enter__()": 0,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_by_every_road_with_work_pending(end):
    code = textwrap.dedent(PENDING) + end
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == ENDS[end], done.stderr
    if "daemon" in end:  # threads that go on are told so, if they get the chance
        assert all("Error" not in line or "shutting down" in line for line in done.stderr.splitlines()), done.stderr
        return
    expected = {"raise KeyError('on purpose')": "KeyError", "sys.exit('text')": "text"}.get(end, "")
    assert expected in done.stderr if expected else done.stderr == "", done.stderr


# ---- threads ---------------------------------------------------------------------------------------------------------


def vitals():
    """Threads of this process, and KiB of memory."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["Threads"]), int(lines["VmRSS"].split()[0])


def test_a_thread_may_die_with_work_queued():
    def work():
        y = busy(0.05)
        return y, crt.sum(y), y.stream

    y, total, stream = in_thread(work)
    assert total.item() == 1024 and y.numpy()[1, 1] == np.float32(1 / 1024)
    stream.synchronize()
    assert stream.query_idle()
    in_thread(lambda: busy(0.05).ndim)  # nobody has its results
    crt.synchronize("cpu")


def test_thousands_of_short_lived_threads():
    x = crt.full((128, 128), 1 / 128)
    wrong = []

    def work():
        y = crt.relu(crt.matmul(x, x))
        with crt.stream(crt.Stream()):
            if crt.sum(y).item() != 128:
                wrong.append(y)

    def some(count):
        for _ in range(count // 10):
            threads = [threading.Thread(target=work) for _ in range(10)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

    some(200)
    threads, before = vitals()
    some(2000)
    until(lambda: vitals()[0] <= threads + 1)  # a thread ends a moment after join
    assert not wrong and vitals()[1] - before < 16 << 10


def test_a_stream_outlives_the_thread_that_made_it():
    made, leave = threading.Event(), threading.Event()
    streams = []

    def maker():
        streams.extend([crt.Stream(), crt.Stream.current()])  # one to share, and the thread's own lane
        with crt.stream(streams[0]):
            streams.append(busy(0.05))
        made.set()
        leave.wait(60)

    thread = threading.Thread(target=maker)
    thread.start()
    made.wait(60)

    def use():
        results = []
        for s in streams[:2]:
            with crt.stream(s):
                results.append(crt.sum(crt.ones((100, 100)) + 1))
                assert results[-1].stream == s
        return [r.item() for r in results]

    assert use() == [20_000] * 2 == in_thread(use)
    leave.set()
    thread.join(60)
    assert use() == [20_000] * 2 == in_thread(use)
    assert streams[2].stream == streams[0] and streams[2].is_ready()
    for s in streams[:2]:
        s.synchronize()
        assert s.query_idle()


def test_a_stream_of_many_threads_at_once():
    s = crt.Stream()
    counter = crt.zeros(1000)

    def work():
        with crt.stream(s):
            for _ in range(100):
                counter.add_(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert counter.numpy().min() == 600 == counter.numpy().max()


def test_handles_are_released_in_any_order():
    rng = random.Random(3)
    before = crt.memory.current()
    for _ in range(40):
        stream = crt.Stream()
        array = np.ones((64, 64), np.float32)
        with crt.stream(stream):
            x = crt.from_numpy(array)
            y = crt.matmul(x, x)
            view = y.reshape(4096)
            with crt.tracing():
                z = view + 1
                w = crt.sum(z)
        graph = crt.trace(lambda inputs, y=y: [inputs[0] + y], [x])
        names = ["stream", "array", "x", "y", "view", "z", "w", "graph", "exported", "run"]
        exported = y.numpy() if rng.random() < 0.5 else None
        handles = dict(zip(names, (stream, array, x, y, view, z, w, graph, exported, graph.run([x])), strict=True))
        del stream, array, x, y, view, z, w, graph, exported
        rng.shuffle(names)
        for i, name in enumerate(names):
            if i == 5 and "w" in handles:
                assert handles["w"].item() == 4096 * 65
            if rng.random() < 0.3:
                in_thread(handles.__delitem__, name)
            else:
                del handles[name]
    gc.collect()
    crt.synchronize("cpu")
    assert crt.memory.current() <= before


def test_nothing_is_left_of_many_streams():
    """Streams are no threads: a thousand of them with work at once are no burden."""
    threads, before = vitals()
    for _ in range(3):
        results = []
        for i in range(1000):
            with crt.stream(crt.Stream()):
                results.append(crt.full((30, 30), i) * 2)
        assert all(r.numpy()[0, 0] == 2 * i for i, r in enumerate(results))
    now, after = vitals()
    assert now <= threads + crt.num_threads() and after - before < 64 << 10


@pytest.mark.parametrize("how", ["wait", "synchronous", "workers"])
def test_signals_arrive_while_products_are_computed(how):
    """Some of oneDNN's kernels point the stack pointer into the heap, where a signal's frame would destroy what lies there."""
    run(f"""
        import signal, clika_runtime as crt
        how, seen = {how!r}, 0
        def handler(*_):
            global seen
            seen += 1
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        a, b = crt.ones([600, 3000]), crt.ones([3000, 600])
        for i in range(60):
            if how == "synchronous":
                with crt.synchronous():
                    y = a @ b
            else:
                if how == "workers":  # are the only ones left to take the signal
                    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
                y = a @ b
                y.wait()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        assert float(y[0, 0]) == 3000
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert seen > 10, seen
    """)


def test_signals_reach_the_main_thread_while_workers_run():
    """The library's threads take no signals of the program."""
    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread()))
    try:
        y = busy(0.1)
        os.kill(os.getpid(), signal.SIGUSR1)
        y.wait()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert seen == [threading.main_thread()]


def test_a_suspended_task_that_another_thread_drops_takes_its_scope_with_it():
    code = """
        import asyncio, gc, logging, threading
        logging.disable()  # asyncio says that the task was pending
        import clika_runtime as crt

        async def suspended():
            with crt.tracing():
                crt.ones(2) + 1
                await asyncio.Future()

        loop = asyncio.new_event_loop()
        task = loop.create_task(suspended())
        loop.run_until_complete(asyncio.sleep(0))
        box = [task, loop]
        del task, loop
        def drop():
            box.clear()
            gc.collect()
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
        gc.collect()
        assert (crt.ones(2) + 1).status == "Evaluated"
        from clika_runtime.scopes import scoped
        assert not scoped
    """
    run(code)
