#!/usr/bin/env python3
"""Ratios against torch eager, in one run, with equal threads.

    python benchmarks/bench.py [--cases GLOB,...] [--rounds 7] [--seconds 0.3] [--markdown]

Each engine lives in a process of its own; results are compared before anything is timed; engines take turns, so that
what else the machine does hits both.  The figure is the ratio of the minima (and of the medians): below 1 is faster
than torch.  A call ends when its result is ready.  Needs torch beside the package; for the C cases gcc and pkg-config.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES
from engines import ENGINES

HERE = Path(__file__).resolve().parent


def worker(engine: str) -> None:
    """Answers requests, one JSON line each: prepare (saves the result), measure (seconds of each call)."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    o = ENGINES[engine]()
    inputs: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        arrays, fn, _ = CASES[request["case"]]
        if request["do"] == "prepare":
            inputs = [o.array(a) for a in arrays]
            np.save(request["file"], o.numpy(o.first(fn(o, *inputs))))
            answer: Any = "ok"
        else:
            times = []
            end = time.perf_counter() + request["seconds"]
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                result = fn(o, *inputs)
                o.wait(o.first(result))
                times.append(time.perf_counter() - start)
                del result
            answer = [min(times), statistics.median(times)]
        out.write(json.dumps(answer) + "\n")
        out.flush()


class Engine:
    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def import_milliseconds() -> tuple[float, float]:
    """Importing the package in a fresh interpreter, and a bare interpreter: minima of ten."""

    def best(code: str) -> float:
        times = []
        for _ in range(10):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return min(times) * 1e3

    return best("import clika_runtime"), best("pass")


def c_nanoseconds(folder: str, source: str, *arguments: str) -> float:
    import clika_runtime

    environment = os.environ | {"PKG_CONFIG_PATH": clika_runtime.pkgconfig_dir()}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "clikart"], check=True, capture_output=True, text=True, env=environment).stdout.split()
    program = os.path.join(folder, "program")
    subprocess.run(["gcc", "-O2", "-std=c11", HERE / source, "-o", program, *flags], check=True)
    # What else the machine does shows for tenths of a second, as long as one of these runs.
    return min(float(subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout) for _ in range(8))


def saved_graph(case: str, name: str, file: str) -> str:
    """The graph that a case replays, in a file."""
    arrays, fn, _ = CASES[case]
    o = ENGINES["clika"]()
    fn(o, *(o.array(a) for a in arrays))
    o.graphs[name].save(file)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker")
    parser.add_argument("--cases", default="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return
    engines = {name: Engine(name) for name in ("torch", "clika")}
    print("| case | torch | clika | ratio of minima | ratio of medians |\n|---|---|---|---|---|")

    def row(case: str, torch: float, clika: float, medians: float | None) -> None:
        shown = [f"{s * 1e6:.2f} µs" if s < 1e-3 else f"{s * 1e3:.2f} ms" for s in (torch, clika)]
        print(f"| {case} | {shown[0]} | {shown[1]} | {clika / torch:.2f} | {'' if medians is None else f'{medians:.2f}'} |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for case, (_, _, operators) in CASES.items():
            if not any(fnmatch.fnmatch(case, pattern) for pattern in args.cases.split(",")):
                continue
            files = {name: os.path.join(folder, f"{name}.npy") for name in engines}
            for name, engine in engines.items():
                engine.ask(do="prepare", case=case, file=files[name])
            results = [np.load(file) for file in files.values()]
            coarse = 2e-2 if "bf16" in case else 1e-3
            np.testing.assert_allclose(results[1], results[0], rtol=coarse, atol=coarse * np.abs(results[0]).max())
            best: dict[str, list[float]] = {name: [] for name in engines}
            medians: dict[str, list[float]] = {name: [] for name in engines}
            for k in range(args.rounds):
                for name in list(engines)[:: 1 if k % 2 else -1]:
                    time.sleep(0.05)  # lets the other engine's threads go to sleep
                    low, middle = engines[name].ask(do="measure", case=case, seconds=args.seconds)
                    best[name].append(low / operators)
                    medians[name].append(middle / operators)
            row(case, min(best["torch"]), min(best["clika"]), statistics.median(c / t for c, t in zip(medians["clika"], medians["torch"], strict=True)))
            if case.startswith("dispatch/add16"):
                row("dispatch/add16_x1000 from C", min(best["torch"]), c_nanoseconds(folder, "dispatch.c") * 1e-9, None)
            if case == "graph/mlp10":
                graph = saved_graph(case, "mlp10", os.path.join(folder, "mlp10.graph"))
                row("graph/mlp10 from C", min(best["torch"]), c_nanoseconds(folder, "replay.c", graph) * 1e-9, None)
    package, bare = import_milliseconds()
    print(f"\nimport clika_runtime: {package:.0f} ms (a bare interpreter: {bare:.0f} ms)")


if __name__ == "__main__":
    main()
