#!/usr/bin/env python3
"""expect_report.py TEXT PROGRAM [ARGUMENT ...]: succeeds when the program fails and its output contains the text."""

import subprocess
import sys

text, *command = sys.argv[1:]
done = subprocess.run(command, capture_output=True, text=True, check=False)
reported = done.returncode != 0 and text in done.stdout + done.stderr
print(f"exit {done.returncode}, {'reported' if reported else 'NOT reported'}: {text}")
sys.exit(0 if reported else 1)
