"""Shared by the tests of asynchrony: work that takes a while, kernels that fail, child processes."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager

import clika_runtime as crt
from clika_runtime._library import check, lib
from clika_runtime.graph import OpCode

_SIZE = 1024
_seconds_of_one = []


def run(code, timeout=60, **environment):
    """What a program printed; it must end well, in time, and without a word on stderr."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ | environment, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stderr == "", done.stderr
    return done.stdout


def products(count, size=_SIZE):
    """Work that takes a while: a chain of matrix products, all elements 1 / size."""
    x = crt.full((size, size), 1 / size)
    y = x
    for _ in range(count):
        y = crt.matmul(y, x)
    return y


def busy(seconds=0.2):
    """A tensor that is pending for about so long, on whatever machine this is."""
    if not _seconds_of_one:
        products(2).wait()
        tries = []
        for _ in range(5):  # the fastest: others may use the machine too
            begin = time.monotonic()
            products(4).wait()
            tries.append((time.monotonic() - begin) / 4)
        _seconds_of_one.append(min(tries))
    y = products(min(250, int(seconds / _seconds_of_one[0]) + 2))
    assert not y.is_ready(), "the machine is too fast, or this thread was held up: what follows would test nothing"
    return y


@contextmanager
def failing(op=OpCode.Exp, after=0):
    """One call of the operator's kernel fails: the next, or one later."""
    check(lib.clikart_fail_kernel(op.value, after))
    try:
        yield
    finally:
        check(lib.clikart_fail_kernel(op.value, -1))


def here():
    """The caller's file and line, as late errors show them."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def in_thread(fn, *args):
    """What a function returns, or raises, in a thread of its own, which is over then."""
    results, errors = [], []

    def work():
        try:
            results.append(fn(*args))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the thread hangs"
    if errors:
        raise errors[0]
    return results[0]


def until(condition, seconds=30):
    """Waits for what happens by itself, and gives up in the end."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)
