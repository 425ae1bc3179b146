#!/usr/bin/env python3
"""Prints the include folder and the library folder of the oneDNN that pip installed, one a line.

The distributions are onednn-devel-cpu-gomp (headers) and onednn-cpu-gomp (library); see pyproject.toml.
"""

import importlib.metadata
import sys
from pathlib import Path


def folder(distribution: str, file: str) -> Path:
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"oneDNN was not found: no system 'dnnl' of version 3 and no Python package {distribution}")
    for entry in files:
        if entry.as_posix().endswith(file):
            return Path(entry.locate()).resolve().parent
    sys.exit(f"{distribution} has no {file}")


print(folder("onednn-devel-cpu-gomp", "include/oneapi/dnnl/dnnl.hpp").parents[1])
print(folder("onednn-cpu-gomp", "libdnnl.so.3"))
