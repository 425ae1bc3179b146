"""Shared by all tests: where things are, and the rows of the operator table."""

import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(Path(__file__).parent))

# No test is timed: what else the machine does is not its fault.
settings.register_profile("same every time", derandomize=True, deadline=None, max_examples=300)
settings.load_profile("same every time")
