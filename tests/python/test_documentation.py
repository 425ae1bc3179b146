"""What the documentation shows runs: README code blocks, examples, docstrings."""

import doctest
import importlib
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clika_runtime as crt
from clika_runtime import ops
from conftest import ROOT
from generator.tables import read_ops

README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)
    return code


def flags() -> list[str]:
    environment = {"PKG_CONFIG_PATH": crt.pkgconfig_dir(), "PATH": "/usr/bin:/bin"}
    return subprocess.run(["pkg-config", "--cflags", "--libs", "clikart"], check=True, capture_output=True, text=True, env=environment).stdout.split()


def compiled(source: Path, program: Path) -> Path:
    compiler = ["g++", "-std=c++20"] if source.suffix == ".cpp" else ["gcc", "-std=c11"]
    subprocess.run([*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", str(source), "-o", str(program), *flags()], check=True)
    return program


def output(*command: object, cwd: Path | None = None) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, cwd=cwd).stdout


def test_python_in_the_readme():
    code = block("python")
    shown = [line.split("# ", 1)[1] for line in code.splitlines() if line.startswith("print")]
    assert output(sys.executable, "-c", code).splitlines() == shown


def said(code: str) -> list[str]:
    """What the comments say is printed: behind a line with print, and on lines of their own below it."""
    lines, printing = [], False
    for line in code.splitlines():
        code_part, mark, text = line.rpartition("  # ") if "print(" in line else line.partition("# ")
        printing = "print(" in line or (printing and mark != "" and not code_part.strip())
        if printing and mark:
            lines.append(text.strip())
    return lines


@pytest.mark.parametrize("name", ["python", "pytree", "tracing"])
def test_pages_print_what_they_say(name, tmp_path):
    page = (ROOT / f"docs/{name}.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))
    program = tmp_path / "guide.py"
    program.write_text(code)
    assert [line.strip() for line in output(sys.executable, program, cwd=tmp_path).splitlines()] == said(code)
    for other in re.findall(r"\]\((\w+\.md)\)", page):
        assert (ROOT / "docs" / other).exists(), other


@pytest.mark.parametrize(("language", "shown"), [("cpp", "Tensor(shape=[2, 3], dtype=Float32, device=CPU, numel=6, data=[0.3333, "), ("c", "10\n")])
def test_c_and_cpp_in_the_readme(language, shown, tmp_path):
    source = tmp_path / f"taste.{language}"
    source.write_text(block(language))
    assert output(compiled(source, tmp_path / "taste")).startswith(shown)


def test_the_number_of_operators_is_that_of_the_table():
    said = re.findall(r"(\d+) operators", README + "".join((ROOT / name).read_text() for name in ("docs/status.md", "CHANGELOG.md")))
    assert said and set(said) == {str(len(read_ops()))}


def test_readme_fits_a_screen_and_names_what_exists():
    for name in re.findall(r"\]\(([^)h][^)]*)\)", README) + re.findall(r"tools/[\w.-]+", README):
        assert (ROOT / name).exists(), name


def test_digits_in_three_languages(tmp_path):
    file = tmp_path / "digits.safetensors"
    lines = output(sys.executable, ROOT / "examples/python/digits.py", file).splitlines()
    assert lines[1] == "predictions that agree with scikit-learn: 1797 of 1797"
    accuracy = re.fullmatch(r"accuracy on the held-out third: (0\.\d+) \(\d+ of 599\)", lines[0])
    assert accuracy and float(accuracy[1]) > 0.95
    shared = [lines[0], lines[2], lines[3]]
    assert lines[2] == "eager and traced agree: True"
    for source in ("cpp/digits.cpp", "c/digits.c"):
        program = compiled(ROOT / "examples" / source, tmp_path / "digits")
        assert output(program, file).splitlines() == shared, source
        refused = subprocess.run([program, tmp_path / "absent"], capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "cannot be opened" in refused.stderr


def test_async_examples(tmp_path):
    """Each checks what it says; the chapters are those of the page on asynchronous execution, and more."""
    assert output(sys.executable, ROOT / "examples/python/async.py").count("\n== ") == 10
    assert output(compiled(ROOT / "examples/cpp/async.cpp", tmp_path / "async")).count("\n== ") == 8


def test_tracing_examples(tmp_path):
    """Each checks what it says; what both print of the same things is the same."""
    python = output(sys.executable, ROOT / "examples/python/tracing.py")
    cpp = output(compiled(ROOT / "examples/cpp/tracing.cpp", tmp_path / "tracing"))
    assert python.count("\n== ") == 14 and cpp.count("\n== ") == 9
    for shared in ("the value of float32 [", "which cannot be recorded into a graph", "== compile: the first call runs"):
        assert shared in python and shared in cpp


def test_the_model_has_a_test_for_each_number():
    tests = "".join(path.read_text() for path in (ROOT / "tests/cpp").glob("*.cpp"))
    for number in re.findall(r"\*\*I(\d+)\. ", (ROOT / "docs/execution.md").read_text()):
        assert f"I{number}_" in tests, number


def test_docstring_examples():
    results = doctest.testmod(ops, extraglobs={"crt": crt})
    assert results.attempted >= len(ops.__all__) and results.failed == 0
    log = importlib.import_module("clika_runtime.log")  # the name in the package is the operator's
    results = doctest.testmod(log, extraglobs={"crt": crt, "logging": logging})
    assert results.attempted == 2 and results.failed == 0
    for name, least in (("pytree", 5), ("capture", 4), ("compiled", 7), ("graph", 8), ("profiling", 5), ("control", 4)):
        results = doctest.testmod(importlib.import_module(f"clika_runtime.{name}"), extraglobs={"crt": crt})
        assert results.attempted >= least and results.failed == 0, name
    for name in crt.__all__:
        assert getattr(crt, name).__doc__ is not None or not callable(getattr(crt, name)), name
