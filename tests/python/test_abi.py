"""The C ABI: what is exported, and that C and cffi agree on layouts."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import clika_runtime
from clika_runtime._library import _find, ffi, lib
from conftest import ROOT

PACKAGE = Path(clika_runtime.__file__).parent


def test_exports_are_the_list():
    nm = subprocess.run(["nm", "-D", "--defined-only", _find()], check=True, capture_output=True, text=True).stdout
    exported = sorted(line.split()[-1].split("@")[0] for line in nm.splitlines())
    assert exported == (ROOT / "capi/exports.txt").read_text().split()
    assert all(name.startswith("clikart_") for name in exported)


def test_the_library_finds_its_libraries_by_itself():
    dynamic = subprocess.run(["readelf", "-d", _find()], check=True, capture_output=True, text=True).stdout
    runpath = next(line for line in dynamic.splitlines() if "RUNPATH" in line)
    assert all(part.startswith("$ORIGIN") for part in runpath.split("[")[1].rstrip("]").split(":")), runpath
    assert "NODELETE" in dynamic


@pytest.mark.parametrize("struct", ["clikart_placement", "clikart_node"])
def test_layouts_are_those_of_c(struct, tmp_path):
    fields = [name for name, _ in ffi.typeof(struct).fields]
    prints = "".join(f'printf("%zu %zu\\n", offsetof({struct}, {f}), sizeof((({struct}*)0)->{f}));' for f in fields)
    source = tmp_path / "layout.c"
    source.write_text("#include <clikart/clikart.h>\n#include <stdio.h>\n" + f'int main(void) {{ printf("%zu 0\\n", sizeof({struct})); {prints} return 0; }}')
    compiler = shutil.which("gcc") or "cc"
    subprocess.run([compiler, "-std=c11", f"-I{PACKAGE / 'include'}", source, "-o", tmp_path / "layout"], check=True)
    lines = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.splitlines()
    seen = [tuple(map(int, line.split())) for line in lines]
    types = dict(ffi.typeof(struct).fields)
    assert seen == [(ffi.sizeof(struct), 0), *((types[f].offset, ffi.sizeof(types[f].type)) for f in fields)]


def test_numbers_are_those_of_c():
    for dtype in clika_runtime._enums.BY_NUMPY_NAME.values():
        assert getattr(lib, f"CLIKART_{dtype.name.upper()}") == dtype.code
    for code in clika_runtime.graph.OpCode:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", code.name).upper()
        assert getattr(lib, f"CLIKART_OP_{name}") == code.value


def test_generated_files_are_current():
    done = subprocess.run([sys.executable, ROOT / "tools/generate.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
