"""Asynchrony as Python sees it: threads, the synchronous scope, the end of the process, instruction sets."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import clika_runtime as crt


def run(code, **environment):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env=os.environ | environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_synchronous_as_context_manager_and_decorator():
    with crt.synchronous(), pytest.raises(MemoryError):
        crt.zeros(2**50)
    crt.zeros(2**50)  # late again

    @crt.synchronous()
    def step(t):
        return crt.relu(t)

    assert step(crt.ones(2)).tolist() == [1, 1]
    assert step(crt.ones(2)).tolist() == [1, 1]
    with pytest.raises(ZeroDivisionError), crt.synchronous():
        raise ZeroDivisionError
    crt.zeros(2**50)


def test_threads():
    x = crt.tensor(np.ones((64, 64), np.float32))
    results = []

    def work(i):
        for _ in range(20):
            results.append(crt.sum(crt.matmul(x, x) + i).item() == 64 * 64 * (64 + i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 120


FOREVER = "threading.Thread(target=lambda: [crt.matmul(y, x) for _ in iter(int, 1)], daemon=True).start()"


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "os._exit(0)", FOREVER])
def test_the_process_ends_with_work_queued(end):
    run(f"""
        import os, sys, threading
        import clika_runtime as crt
        x = crt.full((1024, 1024), 1 / 1024)
        y = x
        for _ in range(20):
            y = crt.matmul(y, x)
        {end}
    """)


@pytest.mark.parametrize("simd", ["baseline", "avx2", "avx512"])
def test_every_instruction_set_gives_the_same_sums_and_close_values(simd):
    code = """
        import numpy as np, clika_runtime as crt
        x = np.random.default_rng(0).standard_normal((300, 5001)).astype(np.float32)
        t = crt.tensor(x)
        for got, want in [
            (crt.exp(t), np.exp(x.astype(np.float64))), (crt.tanh(t), np.tanh(x.astype(np.float64))),
            (crt.sum(t, 1), x.sum(1, dtype=np.float64)), (crt.sum(t, 0), x.sum(0, dtype=np.float64)),
        ]:
            assert np.abs(got.numpy() - want).max() <= 1e-5 * max(1, np.abs(want).max())
        print(crt.build_report().split("simd: ")[1].split()[0], crt.sum(t).item().hex(), crt.sum(t, 0).numpy().tobytes().hex()[:64])
    """
    supported = run("import clika_runtime as crt; print(crt.build_report().split('simd: ')[1].split()[0])").split()[0]
    known = ["baseline", "avx2", "avx512"]
    if known.index(simd) > known.index(supported):
        with pytest.raises(AssertionError, match="CLIKA_SIMD"):
            run(code, CLIKA_SIMD=simd)
        return
    name, *sums = run(code, CLIKA_SIMD=simd).split()
    assert name == simd
    assert sums == run(code, CLIKA_SIMD="baseline").split()[1:]


def test_an_unknown_instruction_set_is_an_error():
    with pytest.raises(AssertionError, match="CLIKA_SIMD is 'mmx'"):
        run("import clika_runtime as crt; crt.ones(2)", CLIKA_SIMD="mmx")


def test_a_subinterpreter_that_ends_does_not_end_the_runtime():
    run("""
        import _xxsubinterpreters as interpreters
        import clika_runtime as crt
        other = interpreters.create()
        try:
            interpreters.run_string(other, "import clika_runtime")
        except interpreters.RunFailedError:
            pass  # NumPy or cffi may refuse to load there
        interpreters.destroy(other)
        assert crt.ones(2).tolist() == [1, 1]
    """)


def test_the_same_bits_for_any_number_of_threads():
    code = """
        import hashlib, os, numpy as np
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:{cores}])
        import clika_runtime as crt
        rng = np.random.default_rng(0)
        a, b = (crt.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((700, 900), (900, 1100)))
        h = hashlib.sha256()
        for t in (crt.matmul(a, b), crt.matmul(crt.permute(b, (1, 0)), crt.permute(a, (1, 0))), crt.sum(a), crt.sum(a, 0), crt.softmax(a, 0), crt.mean(a, 1)):
            h.update(t.numpy().tobytes())
        print(crt.build_report().split("threads: ")[1].split()[0], h.hexdigest())
    """
    threads, one = run(code.format(cores=1)).split()
    assert threads == "1"
    assert run(code.format(cores=99)).split()[1] == one


def test_importing_does_not_import_torch():
    assert "False" in run("import sys, clika_runtime; print('torch' in sys.modules)")
