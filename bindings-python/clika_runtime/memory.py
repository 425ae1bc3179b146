"""Tensor memory of the process, in bytes: results, scratch memory and packed operands.  Memory that is borrowed from
NumPy does not count."""

from __future__ import annotations

from ._enums import ClikaRTValueError
from ._library import let_go, lib, returned
from ._refused import int_argument


def current() -> int:
    """Bytes that are handed out now."""
    if returned:
        let_go()
    value: int = lib.clikart_memory_current()
    return value


def peak() -> int:
    """The most bytes that were handed out at once, since the start or :func:`reset_peak`."""
    value: int = lib.clikart_memory_peak()
    return value


def reset_peak() -> None:
    """From now on the peak counts from what is handed out now."""
    lib.clikart_memory_reset_peak()


def cached() -> int:
    """Bytes that are kept for reuse."""
    value: int = lib.clikart_memory_cached()
    return value


def trim() -> None:
    """Returns memory that is kept for reuse to the system."""
    if returned:
        let_go()
    lib.clikart_memory_trim()


def set_limit(limit: int | None) -> int | None:
    """From now on no more than ``limit`` bytes are handed out at once; what needs more fails with ``MemoryError``, and
    works again when there is room.

    Args:
        limit: bytes; None: no limit.

    Returns:
        The limit before.
    """
    most = -1 if limit is None else int_argument("set_limit", "limit", limit)
    if limit is not None and most < 0:
        raise ClikaRTValueError(f"set_limit: a limit is not negative, got {most}")
    before: int = lib.clikart_memory_set_limit(most)
    return None if before < 0 else before
