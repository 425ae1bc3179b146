"""Settings of the calling thread, as context managers that are also decorators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ._library import lib


@contextlib.contextmanager
def synchronous() -> Iterator[None]:
    """Inside, every operator that the calling thread dispatches is over before its call returns, and its failure is
    raised there.  Slow and easy to reason about: for debugging."""
    before = lib.clikart_set_synchronous(True)
    try:
        yield
    finally:
        lib.clikart_set_synchronous(before)
