#!/usr/bin/env python3
"""Prints the shared libraries that the wheel carries inside, one path a line: Debian's fmt, Highway and SLEEF, GCC's OpenMP."""

import subprocess
import sys
from pathlib import Path

for name in ("libfmt.so.9", "libhwy.so.1", "libsleef.so.3", "libgomp.so.1"):
    found = Path(subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip())
    if not found.is_absolute():
        sys.exit(f"{name} was not found; is the package of tools/debian-packages.txt installed?")
    print(found)
