#!/usr/bin/env python3
"""What asynchrony costs and gives: ratios within one run.

    python benchmarks/execution.py [--markdown]

Each figure comes from a fresh process of its own, so that nothing warms up anything else.  The limits are those the
project set itself (docs/benchmarks.md).  Needs torch beside the package; for the C++ figures g++ and pkg-config.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def best(f: Callable[[], Any], rounds: int) -> float:
    """Seconds, the least of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def against_synchronous(f: Callable[[], Any], rounds: int) -> float:
    """The time of f over that of f inside synchronous(), in turns."""
    import clika_runtime as crt

    asynchronous, synchronous = [], []
    for _ in range(rounds):
        asynchronous.append(best(f, 1))
        with crt.synchronous():
            synchronous.append(best(f, 1))
    return min(asynchronous) / min(synchronous)


def scalar_chain() -> float:
    import numpy as np

    import clika_runtime as crt

    one = crt.tensor(np.float32(1))

    def chain() -> float:
        x = one
        for _ in range(10_000):
            x = crt.add(x, one)
        return x.item()  # type: ignore[return-value]

    return against_synchronous(chain, 15)


def tiny_and_read() -> float:
    import numpy as np

    import clika_runtime as crt

    one = crt.tensor(np.float32(1))
    return against_synchronous(lambda: [crt.add(one, one).item() for _ in range(1000)], 15)


def dispatch_share() -> float:
    import clika_runtime as crt

    w = crt.full((2048, 2048), 1 / 2048)
    crt.matmul(w, w).wait()
    start = time.perf_counter()
    x = w
    for _ in range(48):
        x = crt.matmul(x, w)
    dispatched = time.perf_counter() - start
    x.wait()
    return dispatched / (time.perf_counter() - start)


def results_alive() -> float:
    import clika_runtime as crt

    w = crt.full((2048, 2048), 1 / 2048)
    crt.matmul(w, w).wait()
    before = crt.memory.current()
    crt.memory.reset_peak()
    x = w
    for _ in range(48):
        x = crt.matmul(x, w)
    x.wait()
    return (crt.memory.peak() - before) / (2048 * 2048 * 4)


def idle_share() -> float:
    import clika_runtime as crt

    w = crt.full((1024, 1024), 1 / 1024)
    for _ in range(20):
        crt.matmul(w, w).wait()
    before = os.times()
    time.sleep(5)  # what is used in it is the figure
    after = os.times()
    return max(0.0, after.user + after.system - before.user - before.system) / 5


def torch_after_us() -> float:
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    a = torch.randn(1024, 1024)
    best(lambda: a @ a, 200)  # until the clock of the cores has settled
    before = best(lambda: a @ a, 200)
    import clika_runtime as crt

    w = crt.full((1024, 1024), 1 / 1024)
    for _ in range(5):
        crt.matmul(w, w).wait()
    return best(lambda: a @ a, 200) / before


def tiny_add_against_torch() -> float:
    import numpy as np
    import torch

    import clika_runtime as crt

    data = np.zeros(16, np.float32)
    ours, theirs = crt.tensor(data), torch.from_numpy(data.copy())

    def chain(x: Any, y: Any) -> None:
        for _ in range(1000):
            x = x + y

    with torch.no_grad():
        rounds = [(best(lambda: chain(ours, ours), 3), best(lambda: chain(theirs, theirs), 3)) for _ in range(15)]
    return min(r[0] for r in rounds) / min(r[1] for r in rounds)


FIGURES: list[tuple[str, Callable[[], float], str]] = [
    ("10,000 scalar adds, read at the end / the same under synchronous()", scalar_chain, "must ≤ 1.2"),
    ("one tiny add, submitted and read / the same under synchronous()", tiny_and_read, "must ≤ 1.5"),
    ("dispatch of 48 dependent 2048³ products / their run time", dispatch_share, "must ≤ 0.05"),
    ("results alive meanwhile, at most, packed operand and scratch included", results_alive, "must ≤ 4"),
    ("CPU time over 5 s after a run / wall time", idle_share, "must < 0.01"),
    ("torch's matmul after our first run / before", torch_after_us, "must within 5 %"),
    ("add of 16 floats from Python / torch eager", tiny_add_against_torch, "aim ≤ 1.0"),
]


def cpp_figures() -> dict[str, float]:
    import clika_runtime

    environment = os.environ | {"PKG_CONFIG_PATH": clika_runtime.pkgconfig_dir()}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "clikart"], check=True, capture_output=True, text=True, env=environment).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "execution")
        subprocess.run(["g++", "-O2", "-std=c++20", HERE / "execution.cpp", "-o", program, *flags], check=True)
        figures: dict[str, float] = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
        return figures


def main() -> None:
    if len(sys.argv) > 1:
        print(FIGURES[int(sys.argv[1])][1]())
        return
    print("| figure | value | limit |\n|---|---|---|")
    for i, (name, _, limit) in enumerate(FIGURES):
        value = float(subprocess.run([sys.executable, __file__, str(i)], check=True, capture_output=True, text=True).stdout)
        print(f"| {name} | {value:.4f} | {limit} |", flush=True)
    figures = cpp_figures()
    print(f"| two streams of kernels below the split threshold / one | {figures['two_streams']:.2f}x | aim ≥ 1.6 |")
    times = f"{figures['wait_median_us']:.0f} µs; {figures['callback_median_us']:.0f} µs, {figures['callback_p99_us']:.0f} µs"
    print(f"| from a 256³ product's call to the end of a wait (median); to its callback (median, p99) | {times} | stated |")


if __name__ == "__main__":
    main()
