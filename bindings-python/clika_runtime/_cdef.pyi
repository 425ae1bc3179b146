"""The module that the build generates from the public headers."""

from typing import Any

ffi: Any
