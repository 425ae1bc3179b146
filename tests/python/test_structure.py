"""The house keeps its shape: who may include whom, and how files are formatted."""

import re
import shutil
import subprocess
import sys

from conftest import ROOT

# Each folder may include itself and what stands behind it; docs/architecture.md draws the same.
MAY_INCLUDE = {
    "src/base": {"base"},
    "src/core": {"base", "core"},
    "src/exec": {"base", "core", "exec"},
    "src/backends": {"base", "core", "exec", "backends", "ops/op_code.h"},
    "src/ops": {"base", "core", "exec", "backends/api.h", "ops"},
    "src/graph": {"base", "core", "exec", "backends/api.h", "ops", "graph"},
    "src/io": {"base", "core", "io"},
    "capi": {"base", "core", "exec", "backends/api.h", "backends/cpu/simd.h", "ops", "graph", "io", "clikart", "boundary.h"},
    "include/ClikaRT": {"clikart", "ClikaRT"},
    "capi/include/clikart": {"clikart"},
}
OURS = {"base", "core", "exec", "backends", "ops", "graph", "io", "clikart", "ClikaRT", "boundary.h"}


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split() if (ROOT / name).exists()]


def room_of(path):
    rooms = [room for room in MAY_INCLUDE if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def test_includes_point_downwards():
    checked, wrong = 0, []
    for path in files("*.h", "*.cpp"):
        room = room_of(path)
        if room is None:
            continue
        for included in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', (ROOT / path).read_text(), re.M):
            first = included.split("/")[0]
            if first not in OURS:
                continue
            checked += 1
            if first not in MAY_INCLUDE[room] and included not in MAY_INCLUDE[room]:
                wrong.append(f"{path} includes {included}")
    assert checked > 100
    assert wrong == []


def test_python_knows_the_c_abi_only():
    for path in files("bindings-python/*.py"):
        text = (ROOT / path).read_text()
        assert not re.search(r"^\s*(import|from)\s+(torch|ctypes)\b", text, re.M), path


def test_files_stay_small():
    long = {p: n for p in files("*.cpp", "*.h", "*.c", "*.py") if (n := (ROOT / p).read_text().count("\n")) > 600}
    assert long == {}


def tool(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_python_is_formatted_and_linted():
    tool(sys.executable, "-m", "ruff", "format", "--check", ".")
    tool(sys.executable, "-m", "ruff", "check", ".")


def test_python_types():
    tool(sys.executable, "-m", "mypy", "bindings-python/clika_runtime", "tools/generate.py", "tools/generator")


def test_cpp_is_formatted():
    name = shutil.which("clang-format") or str(ROOT / ".venv/bin/clang-format")
    generated = {"include/ClikaRT/ops.h", "include/ClikaRT/enums.h", "capi/include/clikart/ops.h", "capi/include/clikart/enums.h"}
    tool(name, "--dry-run", "-Werror", *(p for p in files("*.cpp", "*.h", "*.c") if p not in generated))


def test_nothing_names_a_machine():
    found = subprocess.run(["git", "grep", "-nIE", r"/(root|home)/[a-z]", "--", "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout == ""
