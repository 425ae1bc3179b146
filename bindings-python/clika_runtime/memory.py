"""Tensor memory of the process, in bytes."""

from __future__ import annotations

from ._library import lib


def current() -> int:
    """Bytes that tensors hold now."""
    value: int = lib.clikart_memory_current()
    return value


def peak() -> int:
    """The most bytes that tensors held at once so far."""
    value: int = lib.clikart_memory_peak()
    return value


def trim() -> None:
    """Returns memory that is kept for reuse to the system."""
    lib.clikart_memory_trim()
