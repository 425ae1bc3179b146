"""What a type checker makes of right programs and of wrong ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clika_runtime

START = """
from collections import deque
import numpy as np
import clika_runtime as crt
x = crt.ones(2, 2)
c = x > 0
a = np.zeros((2, 2), np.float32)
"""
RIGHT = """
x @ x; x @ a; a @ x; x + 1; 1 + x; x + a; x * np.float32(2); x - True
crt.add(x, 1); crt.add(1, x); crt.add(x, a); crt.where(c, x, 0.0); crt.exp(a)
crt.concat([x, x]); crt.concat((x, x), 1); crt.concat(t for t in [x])
crt.stack({"a": x}.values()); crt.concat(deque([x])); crt.stack([x])
x[0]; x[-1, ..., None]; x[1:, ::2]; x[c]; x[[0, 1]]; x[a > 0]; x[None, [0, 1], 1:]; x[np.int64(1)]; x[crt.tensor(1)]; x[(0, 1), :]; x[True]; x[range(2)]
x[0] = 1; x[c] = x; x[0] = [1.0, 2.0]; x[:] = a; x[0, 0] = np.float32(1); x[0] = (1, 2)
crt.tensor(1); crt.tensor([1, [2]]); crt.tensor(a); crt.tensor(x); crt.tensor((1, 2))
crt.tensor(range(3)); crt.tensor(1j); crt.tensor(deque([1, 2])); crt.tensor(np.float64(1))
crt.zeros(2, 3); crt.zeros([2, 3]); crt.zeros((2, 3), crt.int8); crt.zeros(2, dtype=crt.int8); crt.arange(3); crt.arange(1, 3); crt.arange(1, 3, 2)
x.copy_(a); x.add_(1); round(x); round(x, 2); x.softmax(0); crt.softmax(x, dim=0)
"""
WRONG = """
x @ 3
3 @ x
x + "a"
crt.add(x, "a")
crt.concat(x, 0)
crt.stack(3)
x[1.5]
x["a"]
x[0, "a"]
x[0] = "a"
x[0] = None
x[0] = {1: 2}
crt.where(c, x, None)
crt.tensor({1: 2})
crt.tensor("a")
crt.tensor(None)
crt.softmax(x, "a")
x.sum(1.5)
crt.zeros(1.5)
crt.zeros("a")
x.copy_("a")
"""


def test_right_programs_pass_and_wrong_ones_do_not(tmp_path):
    pytest.importorskip("mypy")
    statements = [part for line in RIGHT.splitlines() for part in re.split(r"; ", line) if part]
    wrong = [line for line in WRONG.splitlines() if line]
    program = tmp_path / "program.py"
    lines = START.splitlines() + statements + wrong
    program.write_text("\n".join(lines) + "\n")
    environment = os.environ | {"MYPYPATH": str(Path(clika_runtime.__file__).parent.parent)} if "site-packages" not in clika_runtime.__file__ else os.environ
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    flagged = {lines[int(number) - 1] for number in re.findall(r"program\.py:(\d+): error", done.stdout)}
    assert flagged == set(wrong), done.stdout + done.stderr
