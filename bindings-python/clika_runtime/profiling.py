"""What ran when: a trace for Perfetto."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ._enums import ClikaRTError
from ._library import c_text, check, lib
from .evaluation import synchronize
from .files import naming_file, path_bytes

__all__ = ["profile"]


@contextlib.contextmanager
def profile(path: str | os.PathLike[str]) -> Iterator[None]:
    """Notes what runs inside, on all threads, and writes it as a trace that Perfetto (ui.perfetto.dev) and Chrome show.

    Each operator, and each node of a graph, is a span on the row of the thread that ran it, with the bytes it read and wrote and, as
    far as known, the line of the program it comes from; nodes have their number in the graph.

    Args:
        path: the file.

    Raises:
        RuntimeError: what runs is noted already.
        OSError: the file cannot be written.

    Example:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "run.json"
        >>> with crt.profile(path):
        ...     _ = crt.exp(crt.ones(3))
        >>> [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
        ['full', 'exp']
    """
    name = c_text(path_bytes(path, "profile"), "profile")
    check(lib.clikart_profile_begin())
    try:
        yield
        with contextlib.suppress(ClikaRTError):  # of work that failed, whoever reads its result is told
            synchronize("cpu")
    finally:
        with naming_file("profile", path):
            check(lib.clikart_profile_end(name))
