"""Faults that users of peer runtimes reported, and weak places of asynchronous runtimes: each tried here.

The numbers are those of the two lists they were taken from, the docstrings say what went wrong there.
"""

import gc
import hashlib
import os
import subprocess
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime import _library
from test_documentation import compiled
from waiting import busy, failing, in_thread, run

C = (Path(__file__).parent / "pains.h").read_text()


def program(code, tmp_path, runs=1, language="c", **environment):
    """What a C or C++ program, written for the installed package, printed; it must end well and without a word."""
    source = tmp_path / f"program.{language}"
    source.write_text(C + textwrap.dedent(code))
    binary = compiled(source, tmp_path / "program")
    for _ in range(runs):
        done = subprocess.run([binary], capture_output=True, text=True, timeout=40, env=os.environ | environment, check=False)
        assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stdout, done.stderr)
    return done.stdout


def raises_failure(read):
    with pytest.raises(crt.ClikaRTError, match="failed as it was told to"):
        read()


def threads_of(pid="self"):
    return len(os.listdir(f"/proc/{pid}/task"))


def rss():
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


# ---- 1: asynchrony ---------------------------------------------------------------------------------------------------


def test_pain_01_an_error_of_the_cpu_ends_the_process():
    """A kernel that failed after an asynchronous submission threw on a thread where nobody caught it."""
    run("""
        import clika_runtime as crt
        from clika_runtime._library import lib
        x = crt.ones((64, 64))
        lib.clikart_fail_kernel(crt.graph.OpCode.MatMul.value, 0)
        y = crt.matmul(x, x)
        for read in (y.numpy, y.wait, lambda: crt.sum(y).item()):
            try:
                read()
                raise SystemExit("no error")
            except crt.ClikaRTError:
                pass
        crt.synchronize()
        crt.synchronize()
        assert crt.sum(crt.matmul(x, x)).item() == 64**3
    """)


def test_pain_02_an_operator_that_fails_amid_others():
    """Results before the failing operator were never written, and who waited for one after it waited for ever."""
    x = crt.full((64, 64), 2.0)
    gate = busy(0.05)
    with failing():
        before, bad = x * 3, crt.exp(x)
        dependent, after = bad + 1, x * 4
        assert before.numpy().min() == 6 == before.numpy().max()
        in_thread(lambda: raises_failure(dependent.numpy))
    assert after.numpy().min() == 8 and gate.is_ready()


def test_pain_03_a_failure_is_raised_by_the_wrong_operator():
    """A failure was silent for its own result, and raised by whatever came next."""
    x = crt.ones(100)
    with failing():
        bad = crt.exp(x)
        unrelated = x + 1
        in_between = crt.tensor([1.0, 2.0])
        assert unrelated.numpy().sum() == 200 and in_between.tolist() == [1, 2]
        crt.eval([unrelated, crt.tanh(x)])
    raises_failure(bad.numpy)
    raises_failure(bad.numpy)


CALLBACK = """
    static void done(const clikart_tensor* tensor, const clikart_error* error, void* user_data) {
        (void)tensor;
        CHECK(!error);
        CHECK(write(1, (const char*)user_data, 1) == 1);
    }
"""


def test_pain_04_a_callback_at_the_end_of_the_process(tmp_path):
    """A completion came while the interpreter was being taken apart: its thread was killed with a lock in hand.
    Here from C, by three roads; from Python see anchor 10."""
    for end in ("return 0;", "exit(0);", "clikart_shutdown(); return 0;"):
        out = program(
            CALLBACK
            + f"""
            int main(void) {{
                clikart_tensor* y = products(3, 512);
                for (int i = 0; i < 5; ++i) CHECK(clikart_tensor_on_complete(y, &done, "c", NULL) == 0);
                clikart_tensor_release(y);
                {end}
            }}
            """,
            tmp_path,
            runs=8,
        )
        assert out == "ccccc"  # what is due is called


def test_pain_05_a_callback_that_uses_the_library(tmp_path):
    """It hung, because the only thread was the one that ran the callback."""
    code = """
        #include <semaphore.h>
        static sem_t calls;
        static void done(const clikart_tensor* tensor, const clikart_error* error, void* user_data) {
            CHECK(!error);
            clikart_tensor* y = clikart_matmul(tensor, tensor);
            clikart_tensor* sum = clikart_sum(y, NULL, 0, false);
            float value = 0;
            CHECK(clikart_tensor_copy_to(sum, &value, sizeof value) == 0);
            clikart_tensor_release(y);
            clikart_tensor_release(sum);
            CHECK(write(1, value == 512 ? "y" : "n", 1) == 1);
            if (user_data) CHECK(clikart_tensor_on_complete(tensor, &done, NULL, NULL) == 0);
            sem_post(&calls);
        }
        int main(void) {
            CHECK(sem_init(&calls, 0, 0) == 0);
            for (int i = 0; i < 4; ++i) {
                clikart_tensor* y = products(2, 512);
                CHECK(clikart_tensor_on_complete(y, &done, y, NULL) == 0);
                CHECK(clikart_tensor_wait(y, -1) == 1);
                clikart_tensor_release(y);
            }
            for (int i = 0; i < 8; ++i) CHECK(sem_wait(&calls) == 0);
            return 0;
        }
    """
    assert program(code, tmp_path, CLIKA_NUM_THREADS="1") == "y" * 8


def test_pain_06_the_process_ends_before_its_work(tmp_path):
    """Work that was queued, and would have written something, ran or did not as chance had it.  Here it runs."""
    for i in range(5):
        file = tmp_path / f"file{i}"
        file.write_bytes(bytes(4 * 1024))
        run(f"""
            import numpy as np, clika_runtime as crt
            memory = np.memmap({str(file)!r}, np.float32, "r+")
            x = y = crt.full((512, 512), 1 / 512)
            for _ in range(20): y = crt.matmul(y, x)
            crt.from_numpy(memory).add_(crt.sum(y))
        """)
        assert np.fromfile(file, np.float32).tolist() == [512] * 1024


def test_pain_07_inputs_that_are_collected_meanwhile():
    """The inputs of a run under way were garbage for the host, whose collector moved or freed them."""
    for _ in range(10):
        gate = busy(0.01)
        results = [crt.sum(crt.from_numpy(np.full((300, 300), i, np.float32)) * crt.tensor(np.ones(300, np.float32))) for i in range(20)]
        gc.collect()
        garbage = [np.full((300, 300), 99, np.float32) for _ in range(40)]
        assert [r.item() for r in results] == [i * 90_000 for i in range(20)]
        del garbage, gate


def test_pain_08_the_first_call_of_a_process_is_not_asynchronous(tmp_path):
    """Something had to be run synchronously once before asynchronous calls worked."""
    code = """
        int main(void) {
            clikart_tensor* y = products(6, 1024);
            CHECK(clikart_tensor_is_ready(y) == 0);
            clikart_stream* lane = clikart_stream_current();
            CHECK(clikart_stream_is_idle(lane) == 0);
            CHECK(clikart_stream_synchronize(lane) == 0);
            CHECK(clikart_tensor_is_ready(y) == 1);
            clikart_stream_release(lane);
            clikart_tensor_release(y);
            return 0;
        }
    """
    program(code, tmp_path)


def test_pain_09_a_model_that_was_run_before_a_fork():
    """The child crashed when it freed the session it had inherited."""
    run("""
        import gc, os, clika_runtime as crt
        linear = crt.nn.Linear(64, 64)
        graph = crt.trace(lambda inputs: [crt.relu(linear(inputs[0]))], [crt.ones((8, 64))])
        want = graph.run([crt.ones((8, 64))])[0].bytes()
        for use in (False, True):
            if (pid := os.fork()) == 0:
                got = graph.run([crt.ones((8, 64))])[0].bytes() if use else want
                del graph, linear
                gc.collect()
                os._exit(0 if got == want else 1)
            assert os.waitpid(pid, 0)[1] == 0
        assert graph.run([crt.ones((8, 64))])[0].bytes() == want
    """)


def test_pain_10_a_server_that_loads_before_it_forks():
    """Under a web server that forks its workers after loading the model, requests hung or threads were gone."""
    run("""
        import os, signal, socket, struct, threading, clika_runtime as crt
        linear = crt.nn.Linear(128, 128)
        linear.weight.fill_(1)
        linear.bias.fill_(0)
        linear(crt.ones((4, 128))).wait()  # warmed up
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        def serve():
            while True:
                connection, _ = listener.accept()
                def answer(connection=connection):
                    with connection:
                        (n,) = struct.unpack("i", connection.recv(4))
                        connection.sendall(struct.pack("f", crt.sum(linear(crt.full((4, 128), float(n)))).item()))
                threading.Thread(target=answer, daemon=True).start()
        workers = []
        for _ in range(2):
            if (pid := os.fork()) == 0:
                serve()
            workers.append(pid)
        answers = {}
        def ask(start):
            for n in range(start, 100, 5):
                with socket.create_connection(listener.getsockname(), timeout=20) as connection:
                    connection.sendall(struct.pack("i", n))
                    answers[n] = struct.unpack("f", connection.recv(4))[0]
        clients = [threading.Thread(target=ask, args=(i,)) for i in range(5)]
        for c in clients: c.start()
        for c in clients: c.join()
        for pid in workers:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        assert answers == {n: 4 * 128 * 128 * n for n in range(100)}
    """)


def test_pain_11_a_stream_of_the_main_thread_in_a_worker():
    """A stream could be used in the thread that made it only."""
    s = crt.Stream()

    def work():
        with crt.stream(s):
            y = crt.sum(crt.ones((200, 200)))
        return y.stream == s, y.item(), crt.ones(3, stream=s).tolist()

    assert in_thread(work) == (True, 40_000, [1] * 3) == work()


# ---- 2: memory -------------------------------------------------------------------------------------------------------


def test_pain_12_a_loop_whose_results_nobody_reads():
    """Every round added to a graph, until some limit of the system was reached."""
    t, u = crt.ones(16), crt.full(16, 2.0)

    def rounds(count):
        nonlocal t
        for _ in range(count):
            t = 0.1 * t + 0.9 * u

    rounds(20_000)
    crt.synchronize()
    gc.collect()
    memory, resident = crt.memory.current(), rss()
    rounds(256_000)
    assert crt.memory.current() - memory < 1 << 20 and rss() - resident < 16 << 20
    assert np.allclose(t.numpy(), 2)


def test_pain_15_memory_is_not_returned():
    """The arena of a large run stayed, and what was to shrink it had no effect."""
    run("""
        import os, clika_runtime as crt
        def rss():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
        crt.matmul(crt.ones((64, 64)), crt.ones((64, 64))).wait()
        small = rss()
        kept = [crt.full((4096, 4096), i) for i in range(3)]
        crt.eval(kept)
        large = rss()
        assert large - small > 150 << 20
        del kept
        crt.ones((64, 64)).wait()
        crt.memory.trim()
        assert rss() - small < (large - small) / 10
    """)


# ---- 3: threads ------------------------------------------------------------------------------------------------------


def test_pain_19_another_library_gets_slow():
    """PyTorch in the same process took fifty times as long after a run: two thread pools fought for the cores."""
    pytest.importorskip("torch")
    out = run("""
        import time, torch, clika_runtime as crt
        a = torch.full((512, 512), 1 / 512)
        def best():
            times = []
            for _ in range(30):
                begin = time.perf_counter()
                torch.mm(a, a)
                times.append(time.perf_counter() - begin)
            return min(times)
        best()
        before, threads = best(), torch.get_num_threads()
        x = y = crt.full((512, 512), 1 / 512)
        for _ in range(20): y = crt.softmax(crt.matmul(y, x))
        y.wait()
        after = best()
        assert torch.get_num_threads() == threads
        assert torch.mm(a, a)[0, 0] == 1 / 512 and crt.matmul(x, x).numpy()[0, 0] == 1 / 512
        print(after / before)
    """)
    assert float(out) < 5  # of fifty


def test_pain_20_fewer_cores_than_the_machine_has():
    """In a container that may use some of the cores, setting the affinity of as many threads as the machine has failed."""
    out = run("""
        import os
        allowed = sorted(os.sched_getaffinity(0))[-1:]
        os.sched_setaffinity(0, allowed)
        import numpy as np, clika_runtime as crt
        x = crt.tensor(np.ones((700, 700), np.float32))
        assert crt.sum(crt.matmul(x, x)).item() == 700**3
        assert os.sched_getaffinity(0) == set(allowed)
        names = [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
        print(crt.num_threads(), names.count("clikart"))
    """)
    assert out == "1 1\n"
    assert 1 <= crt.num_threads() <= len(os.sched_getaffinity(0))


def test_pain_21_idle_threads_that_spin():
    """The pool kept all cores busy between two runs."""
    used = run("""
        import os, time, clika_runtime as crt
        x = y = crt.full((512, 512), 1 / 512)
        for _ in range(10): y = crt.softmax(crt.matmul(y, x))
        streams = [crt.Stream() for _ in range(20)]
        crt.synchronize("cpu")
        time.sleep(0.1)  # longer than a worker looks for work before it sleeps
        before = os.times()
        time.sleep(1)  # what is used in it is the figure
        after = os.times()
        print(after.user + after.system - before.user - before.system)
    """)
    assert float(used) < 0.05


def test_pain_22_threads_that_call_once():
    """Each calling thread left a pool of OpenMP's behind.  PyTorch brings a second OpenMP into the process."""
    pytest.importorskip("torch")
    run("""
        import os, threading, torch, clika_runtime as crt
        torch.mm(torch.ones(300, 300), torch.ones(300, 300))
        small, large = crt.full((64, 64), 1 / 64), crt.full((256, 256), 1 / 256)  # computed by the caller, and by a worker
        def work():
            assert crt.matmul(small, small).numpy()[1, 1] == 1 / 64 and crt.matmul(large, large).numpy()[1, 1] == 1 / 256
        def some(count):
            for _ in range(count):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
        def vitals():
            return len(os.listdir("/proc/self/task")), int(open("/proc/self/statm").read().split()[1]) * 4096
        some(100)
        threads, memory = vitals()
        some(600)
        assert vitals()[0] <= threads + 1 and vitals()[1] - memory < 16 << 20
    """)


def test_pain_23_one_model_and_many_threads():
    """Results were wrong now and then when threads ran one session at once."""
    rng = np.random.default_rng(0)
    linear = crt.nn.Linear(200, 300)
    graph = crt.trace(lambda inputs: [crt.softmax(linear(inputs[0])), crt.sum(inputs[0], 0)], [crt.ones((50, 200))])
    inputs = [crt.tensor(rng.standard_normal((50, 200)).astype(np.float32)) for _ in range(8)]
    want = [[t.bytes() for t in graph.run([x])] for x in inputs]
    wrong = []

    def work(i):
        for k in range(20):
            n = (i + k) % 8
            x = inputs[n]
            eager = [crt.softmax(linear(x)).bytes(), crt.sum(x, 0).bytes()]
            if not [t.bytes() for t in graph.run([x])] == eager == want[n]:
                wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_pain_24_models_made_at_once(tmp_path):
    """Sessions that were made by several threads at the same time raced.  The first use of the process is among it."""
    crt.save({"w": crt.arange(0, 10_000).reshape(100, 100) * 1.0}, tmp_path / "weights")
    run(f"""
        import threading, clika_runtime as crt
        barrier, results = threading.Barrier(16), []
        def work():
            barrier.wait()
            w = crt.load({str(tmp_path / "weights")!r})["w"]
            graph = crt.trace(lambda inputs: [crt.matmul(inputs[0], w)], [w])
            results.append(crt.sum(graph.run([w])[0]).item())
        threads = [threading.Thread(target=work) for _ in range(16)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert len(results) == 16 and len(set(results)) == 1
    """)


# ---- 8: the C ABI ----------------------------------------------------------------------------------------------------


def test_pain_57_a_mistake_of_the_caller_ends_the_host(tmp_path):
    """A wrong shape, or memory that could not be had, called abort()."""
    code = """
        int main(void) {
            clikart_tensor *a = full(2, 3, 1), *b = full(4, 5, 1), *huge = full(1 << 20, INT64_C(1) << 36, 0);
            CHECK(!clikart_matmul(a, b));
            expect(CLIKART_ERROR_VALUE, "matmul");
            CHECK(huge && clikart_tensor_wait(huge, -1) == -1);
            expect(CLIKART_ERROR_MEMORY, "full");
            CHECK(clikart_add_(a, b) == -1);
            expect(CLIKART_ERROR_VALUE, "add");
            CHECK(!clikart_relu(NULL));
            expect(CLIKART_ERROR_TYPE, "relu");
            CHECK(clikart_tensor_wait(a, -1) == 1 && !clikart_error_take());
            clikart_memory_set_limit(0);
            clikart_tensor* c = clikart_exp(b);
            CHECK(!c || clikart_tensor_wait(c, -1) == -1);
            expect(CLIKART_ERROR_MEMORY, "");
            clikart_memory_set_limit(-1);
            clikart_tensor* d = clikart_exp(b);
            CHECK(d && clikart_tensor_wait(d, -1) == 1);
            clikart_tensor* all[] = {a, b, c, d, huge};
            for (int i = 0; i < 5; ++i) clikart_tensor_release(all[i]);
            return 0;
        }
    """
    program(code, tmp_path)


def test_pain_58_one_error_for_all_threads(tmp_path):
    """Errors went to one global handler, as text without a kind."""
    code = """
        static pthread_barrier_t barrier;
        static void* work(void* argument) {
            const int mine = argument != NULL;
            for (int i = 0; i < 200; ++i) {
                clikart_tensor *a = full(2, 3 + mine, 1), *b = full(5, 5, 1);
                pthread_barrier_wait(&barrier);
                CHECK(mine ? !clikart_matmul(a, b) : !clikart_select(a, 0, 7));
                pthread_barrier_wait(&barrier);
                expect(mine ? CLIKART_ERROR_VALUE : CLIKART_ERROR_INDEX, mine ? "[2, 4]" : "[2, 3]");
                CHECK(!clikart_error_take());
                clikart_tensor_release(a);
                clikart_tensor_release(b);
            }
            return NULL;
        }
        int main(void) {
            pthread_t other;
            pthread_barrier_init(&barrier, NULL, 2);
            CHECK(pthread_create(&other, NULL, &work, &barrier) == 0);
            work(NULL);
            CHECK(pthread_join(other, NULL) == 0);
            return 0;
        }
    """
    program(code, tmp_path)


def test_pain_60_exceptions_that_cross_into_c(tmp_path):
    """An exception of C++ went through an entry point into a host that knew none."""
    unary = ["exp", "relu", "tanh", "abs", "copy", "nonzero"]
    binary = ["add", "sub", "mul", "div", "maximum", "matmul"]
    calls = {op: f"clikart_{op}(x)" for op in unary} | {op: f"clikart_{op}(x, y)" for op in binary}
    calls |= {op: f"clikart_{op}(x, NULL, 0, false)" for op in ("sum", "mean", "amax", "argmax")}
    calls |= {"softmax": "clikart_softmax(x, 0)", "cast": "clikart_cast(x, CLIKART_INT32)", "concat": "clikart_concat(both, 2, 0)"}
    calls |= {"full": "clikart_full(shape, 2, one, 0, NULL)", "arange": "clikart_arange(one, one, one, CLIKART_FLOAT32, NULL)"}
    code = "int main(void) { clikart_tensor *x = full(8, 8, 1), *y = full(8, 8, 2), *one = clikart_scalar_int(1);"
    code += "const clikart_tensor* both[] = {x, y}; const int64_t shape[] = {8, 8}; clikart_set_synchronous(true);"
    for op, call in calls.items():
        name = {"matmul": "MAT_MUL"}.get(op, op.upper())
        code += f'CHECK(clikart_fail_kernel(CLIKART_OP_{name}, 0) == 0); CHECK(!{call}); expect(CLIKART_ERROR_ERROR, "{op}: failed as");'
        code += f"clikart_fail_kernel(CLIKART_OP_{name}, -1); clikart_memory_set_limit(0);"
        code += "" if op == "arange" else f'CHECK(!{call}); expect(CLIKART_ERROR_MEMORY, "memory");'
        code += "clikart_memory_set_limit(-1);"
    code += "clikart_tensor_release(x); clikart_tensor_release(y); clikart_tensor_release(one); return 0; }"
    program(code, tmp_path)


def test_pain_62_the_order_of_destructors(tmp_path):
    """Handles in static objects were released after the library had taken itself apart."""
    code = """
        using namespace ClikaRT;
        static Tensor before_main = ops::relu(ops::full({512, 512}, 0.5));
        static Stream stream = Stream::create(Device::cpu());
        struct Last {
            Tensor kept;
            ~Last() {
                try {
                    kept.on_complete([](const Tensor&) {});
                    _exit(8);
                } catch (const Error&) {  // too late; reading is not
                }
                if (kept.item_as_vec<float>()[0] != 512) _exit(9);
                kept = Tensor();
            }
        };
        static thread_local Tensor of_thread;
        int main(int argc, char**) {
            static Last last;
            of_thread = ops::full({512, 512}, 1.0);
            for (int i = 0; i < 8; ++i) before_main = ops::div(ops::matmul(before_main, of_thread), 512.0);
            { StreamScope scope(stream); last.kept = ops::matmul(of_thread, of_thread); }
            std::thread([] { of_thread = ops::relu(before_main); }).join();
            std::atexit([] { clikart_tensor_release(nullptr); static_cast<void>(before_main.status()); });
            if (argc > 5) return 1;
            std::exit(0);
        }
    """
    program("#include <cstdlib>\n#include <thread>\n" + textwrap.dedent(code), tmp_path, 3, "cpp")


def test_pain_62_a_library_that_is_opened_and_closed(tmp_path):
    """The same, when a plug-in was unloaded."""
    code = """
        #include <dlfcn.h>
        int main(void) {
            for (int i = 0; i < 100; ++i) {
                void* library = dlopen("LIBRARY", RTLD_NOW);
                CHECK(library);
                clikart_tensor* y = products(1, 64 + i % 3);
                if (i % 2) CHECK(clikart_tensor_wait(y, -1) == 1);
                clikart_tensor_release(y);
                CHECK(dlclose(library) == 0);
            }
            return 0;
        }
    """
    program(code.replace("LIBRARY", _library._find()), tmp_path)


# ---- 10: numerics ----------------------------------------------------------------------------------------------------


def test_pain_76_bits_that_change_with_threads_and_runs():
    """The same program gave other bits in another run, or with another number of threads."""
    rng = np.random.default_rng(1)
    a, b = (crt.tensor(rng.standard_normal(shape).astype(np.float32)) for shape in ((190, 333), (333, 270)))

    def digest():
        h = hashlib.sha256()
        for t in (crt.matmul(a, b), crt.sum(a), crt.sum(a, 0), crt.mean(a, 1), crt.softmax(a, 0), crt.exp(a), crt.sum(a.permute(1, 0), 0)):
            h.update(t.bytes())
        return h.digest()

    before = crt.num_threads()
    try:
        seen = set()
        for n in range(1, 17):
            crt.set_num_threads(n)
            seen |= {digest(), in_thread(digest)}
    finally:
        crt.set_num_threads(before)
    assert len(seen) == 1
