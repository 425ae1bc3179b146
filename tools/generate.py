#!/usr/bin/env python3
"""Writes what the tables imply.

    python tools/generate.py            rewrite the committed files
    python tools/generate.py --check    exit 1 and name the committed files that differ
    python tools/generate.py --build D  write the files of one build into D (meson does this)

The tables are src/ops/table/*.toml, src/ops/enums.toml, src/core/dtypes.toml and src/base/errors.toml; docs/operators_table.md tells
what each column means.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generator import c_abi, cpp, docs, internal, python
from generator.tables import ROOT, read_ops


def committed() -> dict[str, str]:
    ops = read_ops()
    return {
        "capi/include/clikart/enums.h": c_abi.enums_h(ops),
        "capi/include/clikart/ops.h": c_abi.ops_h(ops),
        "include/ClikaRT/enums.h": cpp.enums_h(ops),
        "include/ClikaRT/ops.h": cpp.ops_h(ops),
        "include/ClikaRT/tensor_methods.h": cpp.tensor_methods_h(ops),
        "bindings-python/clika_runtime/_enums.py": python.enums_py(ops),
        "bindings-python/clika_runtime/ops.py": python.ops_py(ops),
        "bindings-python/clika_runtime/_methods.py": python.methods_py(ops),
        "docs/operators.md": docs.operators_md(ops),
    }


def write(path: Path, text: str) -> None:
    """Writes only what changed, so that nothing is compiled again for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def build(folder: Path) -> None:
    ops = read_ops()
    headers = folder / "generated"
    write(headers / "base/error_kind.h", internal.error_kind_h())
    write(headers / "core/dtype_enum.h", internal.dtype_enum_h())
    write(headers / "core/dtype_table.h", internal.dtype_table_h())
    write(headers / "ops/op_code.h", internal.op_code_h(ops))
    write(headers / "ops/op_table.inc", internal.op_table_inc(ops))
    write(headers / "ops/op_calls.h", internal.op_calls_h(ops))
    write(headers / "backends/cpu/kernels.h", internal.cpu_kernels_h(ops))
    write(folder / "capi_ops.cpp", c_abi.ops_cpp(ops))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--cffi", type=Path, help="write the cffi module here")
    args = parser.parse_args()
    if args.cffi:
        c_abi.cffi_module(args.cffi)
        return 0
    if args.build:
        build(args.build)
        return 0
    files = committed()
    if not args.check:
        for name, text in files.items():
            write(ROOT / name, text)
        write(ROOT / "capi/exports.txt", c_abi.exports_txt())  # read from the headers just written
        return 0
    files["capi/exports.txt"] = c_abi.exports_txt()
    stale = [name for name, text in files.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    if stale:
        print("differ from the tables (run tools/generate.py):", *stale, sep="\n  ")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
