"""Fifteen weak places of asynchronous runtimes for the CPU, by the numbers of the list they were collected in.

Where one is also a report of a user's in ``test_pains.py``, what is tried here is what that leaves.
"""

import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime._library import ffi
from clika_runtime.graph import OpCode
from test_pains import program, raises_failure, rss, threads_of
from waiting import busy, failing, in_thread, products, run, until


def test_anchor_01_a_kernel_that_throws():
    """Beyond pains 1 and 3: whichever way the kernel was dispatched, the error stays with the result, and synchronizing
    tells of it once."""
    x = crt.full((256, 256), 1 / 256)  # large enough to be queued
    for place in (crt.Stream.current(), crt.Stream()):
        for op, fn in ((OpCode.Exp, crt.exp), (OpCode.MatMul, lambda t: crt.matmul(t, t)), (OpCode.Sum, lambda t: crt.sum(t, 1))):
            with failing(op), crt.stream(place):
                bad = fn(x)
                unrelated = crt.tanh(x)
                raises_failure(place.synchronize)
                place.synchronize()
                place.synchronize()
            raises_failure(bad.numpy)
            assert np.allclose(unrelated.numpy(), np.tanh(1 / 256))
    with failing(), crt.tracing():
        bad = crt.exp(x)
        with crt.eager():
            raises_failure(lambda: crt.eval(bad))
    raises_failure(bad.numpy)


def test_anchor_02_the_third_of_five_throws():
    """Beyond pain 2: thrown while dispatching, and with others waiting for what comes after."""
    x = crt.ones((32, 32))
    gate = busy(0.05)
    first, second = x + 1, x + 2
    with pytest.raises(ValueError, match="matmul"):
        crt.matmul(x, crt.ones((5, 5)))
    fourth, fifth = first + second, x * 5
    assert [t.numpy()[0, 0] for t in (first, second, fourth, fifth)] == [2, 3, 5, 5] and gate.is_ready()
    with failing():
        gate = busy(0.05)
        bad = crt.exp(x) + 1
        woken = []

        def wait():
            raises_failure(bad.wait)
            woken.append(True)

        waiters = [threading.Thread(target=wait) for _ in range(5)]
        for t in waiters:
            t.start()
        for t in waiters:
            t.join(30)
    assert woken == [True] * 5


def test_anchor_03_inputs_dropped_just_after_dispatch():
    """Two streams share an input, and nobody else keeps it; its memory is wanted by others at once."""
    for i in range(20):
        streams = [crt.Stream() for _ in range(2)]
        x = crt.full((300, 300), i)
        results = []
        for s in streams:
            with crt.stream(s):
                results.append(crt.sum(crt.matmul(x * 1.0, crt.ones((300, 300)))))
        del x, s, streams
        overwriting = [crt.full((300, 300), -1) for _ in range(4)]
        assert [r.item() for r in results] == [300**3 * i] * 2
        del overwriting


def test_anchor_04_a_long_loop_that_never_waits():
    """Memory grew with the number of calls ahead of the work, as results were allocated while dispatching."""
    x = crt.full((512, 512), 1 / 512)
    crt.matmul(x, x).wait()
    crt.memory.reset_peak()
    before = crt.memory.current()
    y = x
    for _ in range(700):
        y = crt.matmul(y, x)
    y.wait()
    assert crt.memory.peak() - before < 32 << 20  # of 700 MiB


def test_anchor_05_a_tiny_limit_and_two_streams():
    """Each waited for memory that the other's queued work held."""
    streams = [crt.Stream(), crt.Stream()]
    x = crt.full((256, 256), 1 / 256)
    x.wait()
    crt.memory.set_limit(crt.memory.current() + (2 << 20))
    try:
        y = z = x
        for _ in range(150):
            with crt.stream(streams[0]):
                y = crt.matmul(z, x)
            with crt.stream(streams[1]):
                z = crt.matmul(y, x)
        for t in (y, z):
            try:  # no deadlock: a value or a typed error
                assert t.numpy()[3, 3] == 1 / 256
            except MemoryError:
                pass
        for s in streams:
            try:
                s.synchronize()
            except MemoryError:
                pass
        del y, z, t
        assert crt.matmul(x, x).numpy()[3, 3] == 1 / 256
    finally:
        crt.memory.set_limit(None)


def test_anchor_06_a_callback_that_dispatches_while_the_limit_is_reached(tmp_path):
    """The callback waited for room in the queue, and the queue for the callback."""
    code = """
        #include <semaphore.h>
        static sem_t calls;
        static clikart_stream* lane;
        static clikart_tensor* last;
        static void done(const clikart_tensor* tensor, const clikart_error* error, void* user_data) {
            CHECK(!error && !user_data);
            CHECK(clikart_set_stream("cpu", lane, NULL) == 0);
            for (int i = 0; i < 600; ++i) {
                clikart_tensor* y = clikart_matmul(tensor, tensor);
                CHECK(y);
                clikart_tensor_release(last);
                last = y;
            }
            CHECK(clikart_set_stream("cpu", NULL, NULL) == 0);
            sem_post(&calls);
        }
        int main(void) {
            CHECK(sem_init(&calls, 0, 0) == 0);
            lane = clikart_stream_current();
            clikart_tensor* y = products(1, 256);
            CHECK(clikart_tensor_on_complete(y, &done, NULL, NULL) == 0);
            for (int i = 0; i < 1000; ++i) {
                clikart_tensor* z = clikart_matmul(y, y);
                CHECK(z);
                clikart_tensor_release(z);
            }
            CHECK(sem_wait(&calls) == 0);
            float values[65536];
            CHECK(clikart_tensor_copy_to(last, values, sizeof values) == 0 && values[77] == 1.0f / 256);
            clikart_tensor_release(last);
            clikart_tensor_release(y);
            clikart_stream_release(lane);
            return 0;
        }
    """
    program(code, tmp_path)
    program(code, tmp_path, CLIKA_NUM_THREADS="1")


def test_anchor_07_loops_inside_a_saturated_pool():
    """Every worker ran a kernel whose parallel loop waited for a worker."""
    x = crt.tensor(np.random.default_rng(0).standard_normal((400, 500)).astype(np.float32))
    want = crt.softmax(x).bytes(), crt.sum(x).bytes(), crt.matmul(x, x.permute(1, 0)).bytes()
    before = crt.num_threads()
    try:
        for threads in (1, 2, 5):
            crt.set_num_threads(threads)
            results = []
            for _ in range(3 * threads):
                with crt.stream(crt.Stream()):
                    results.append((crt.softmax(x), crt.sum(x), crt.matmul(x, x.permute(1, 0))))
            assert {tuple(t.bytes() for t in r) for r in results} == {want}
    finally:
        crt.set_num_threads(before)


def test_anchor_08_a_stream_whose_thread_is_gone():
    """Beyond pain 11: made in one thread, used in a second, synchronized in a third, the first two gone."""
    s = in_thread(crt.Stream)

    def use():
        with crt.stream(s):
            return products(4)

    y = in_thread(use)
    assert y.stream == s
    in_thread(s.synchronize)
    assert y.is_ready() and s.query_idle() and in_thread(lambda: s.wait(1))


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_anchor_09_the_end_with_caches_full(end):
    """Work was queued and compiled kernels were cached; destroying both at exit crashed."""
    code = f"""
        import sys, clika_runtime as crt
        kept = []
        for n in range(64, 364, 3):
            x = crt.full((n, n + 1), 1.0)
            kept += [crt.matmul(x, crt.full((n + 1, n + 2), 1.0)), crt.softmax(x), crt.sum(x, 1)]
            if n % 7 == 0:
                kept.append(crt.trace(lambda inputs: [crt.matmul(inputs[0], inputs[0])], [crt.ones((n, n))]))
        {end}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == {"": 0, "sys.exit(3)": 3, "raise ValueError": 1}[end], done.stderr
    assert ("ValueError" in done.stderr) == ("ValueError" in end) and (end == "raise ValueError" or done.stderr == "")


def test_anchor_10_a_callback_while_the_interpreter_ends():
    """Beyond pain 4: a callback of Python's, which needs the interpreter.  The package has none; who takes the C function
    gets all that is due before the interpreter is taken apart."""
    assert ffi.typeof("clikart_callback")
    for _ in range(4):
        out = run("""
            import clika_runtime as crt
            from clika_runtime._library import ffi, lib
            x = y = crt.full((512, 512), 1 / 512)
            @ffi.callback("clikart_callback")
            def done(tensor, error, user_data):
                print("called", flush=True)
            for _ in range(10):
                y = crt.matmul(y, x)
                assert lib.clikart_tensor_on_complete(y._handle, done, ffi.NULL, ffi.NULL) == 0
        """)
        assert out.count("called") == 10


def test_anchor_11_spawn_takes_tensors_along():
    """Beyond pains 9 and 10 and the tests of fork: a tensor on its way to another process is waited for first."""
    y = crt.sum(busy(0.05))
    code = "import pickle, sys; sys.stdout.write(repr(pickle.load(sys.stdin.buffer).item()))"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(y), capture_output=True, timeout=40, check=True)
    assert done.stdout == b"1024.0"


def test_anchor_12_the_source_changes_and_the_export_goes():
    """A NumPy array that was imported and then changed; an export that was released before the operator ran."""
    source = np.ones((500, 500), np.float32)
    gate = busy(0.05)
    copied, borrowed = crt.tensor(source), crt.from_numpy(source)
    results = [crt.sum(copied + crt.sum(gate) * 0), crt.sum(borrowed)]
    exported = np.from_dlpack(copied)
    consumer = crt.sum(crt.from_numpy(exported) * 2)
    del exported, copied, borrowed
    gc.collect()
    assert results[1].item() == 250_000  # who borrows waits before writing
    source[:] = 7
    assert results[0].item() == 250_000 and consumer.item() == 500_000
    y = products(3)
    view = np.from_dlpack(y)  # waits
    assert y.is_ready()
    del y
    gc.collect()
    assert crt.sum(crt.ones((1024, 1024))).item() == 1024**2 and view.min() == view.max() == np.float32(1 / 1024)


def deferred(count, other):
    y = crt.ones(2)
    with crt.tracing():
        for _ in range(count):
            y = y + other
    return y


def test_anchor_13_a_chain_of_hundreds_of_thousands():
    """Releasing it node by node, each from within the other, used up the stack."""
    deferred(300_000, 1)
    y = deferred(50_000, 1)
    in_thread(lambda: y.is_ready())
    assert y.tolist() == [50_001] * 2
    x = crt.zeros(2)
    with crt.tracing():
        for _ in range(20_000):
            x.add_(1)
    shared = deferred(1000, 1)
    with crt.tracing():
        branches = [shared + i for i in range(1000)]
    del shared
    assert branches[-1].tolist() == [1001 + 999] * 2 and x.tolist() == [20_000] * 2


def test_anchor_13_a_chain_whose_links_share_an_operand():
    """Beyond the above: releasing takes no time squared.  A chain without the operand says how long is long."""

    def seconds(other):
        y = deferred(80_000, other)
        begin = time.process_time()
        del y
        return time.process_time() - begin

    assert seconds(crt.ones(2)) < 4 * seconds(1) + 0.2


def test_anchor_14_threads_are_no_more_than_cores():
    """Under many user threads the pools added up.  (How fast small operators are is a benchmark's question.)"""
    run("""
        import os, threading, clika_runtime as crt
        x = crt.full((256, 256), 1 / 256)
        barrier = threading.Barrier(31)
        def work():
            with crt.stream(crt.Stream()):
                y = x
                for _ in range(20): y = crt.softmax(crt.matmul(y, x))
                barrier.wait()
                y.wait()
                barrier.wait()
        threads = [threading.Thread(target=work) for _ in range(30)]
        for t in threads: t.start()
        barrier.wait()
        names = [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
        assert names.count("clikart") == crt.num_threads() and len(names) <= 31 + crt.num_threads(), names
        barrier.wait()
        for t in threads: t.join()
    """)
    y = crt.zeros(())
    with crt.synchronous():
        for _ in range(5000):
            y = y + 1
    for _ in range(5000):
        y = y + 1
    assert y.item() == 10_000


def test_anchor_15_the_last_reference_goes_in_a_worker():
    """The thread that released the runtime's last reference was one of its own, and joined itself."""
    threads, memory = threads_of(), rss()
    before = crt.memory.current()
    for i in range(300):
        with crt.stream(crt.Stream()):
            x = crt.full((256, 256), 1 / 256)
            crt.matmul(x, crt.matmul(x, x))
        del x  # stream, operands and results: the queued work has them alone
        if i % 100 == 0:
            crt.from_numpy(np.ones((300, 300), np.float32)).add_(1)
    crt.synchronize("cpu")
    until(lambda: crt.memory.current() <= before)
    assert threads_of() <= threads + crt.num_threads() and rss() - memory < 64 << 20
