"""Tensors in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ._enums import ClikaRTTypeError, ClikaRTValueError
from ._library import c_text, check, check_pointer, ffi, lib, text
from .nn.module import Module
from .tensor import Tensor, wrap


def _leaves(tree: Any, prefix: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        if not prefix:
            raise ClikaRTValueError("save: a single tensor has no name; save {'name': tensor}")
        yield prefix, tree
    elif isinstance(tree, Module):
        yield from _leaves(tree.state_dict(), prefix)
    elif isinstance(tree, (Mapping, list, tuple)):
        for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        raise ClikaRTTypeError(f"save: cannot save {type(tree).__name__} at '{prefix}', only tensors in dicts, lists, tuples and modules")


def save(tree: Any, path: str | os.PathLike[str]) -> None:
    """Writes a tree of tensors to a safetensors file, all or nothing; waits for their values.

    Args:
        tree: dicts, lists, tuples and modules of tensors.  A tensor's name in the file is its path with dots:
            ``{"layer": {"weight": t}}`` is saved as ``layer.weight``.
        path: the file.

    Raises:
        OSError: the file cannot be written.
        ValueError: two tensors come to the same name.
        TypeError: something else than tensors in the tree.
    """
    named = list(_leaves(tree, ""))
    names = [c_text(name, "save") for name, _ in named]
    for _, leaf in named:
        leaf._check_readable("save")
        leaf._settle()
    check(lib.clikart_archive_save(c_text(os.fsencode(path), "save"), names, [leaf._handle for _, leaf in named], len(named)))


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by their (dotted) names.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a well-formed safetensors file.
        TypeError: it holds a dtype that does not exist here.
    """
    archive = ffi.gc(check_pointer(lib.clikart_archive_load(c_text(os.fsencode(path), "load"))), lib.clikart_archive_release)
    names = [lib.clikart_archive_name(archive, i) for i in range(lib.clikart_archive_count(archive))]
    return {text(name): wrap(lib.clikart_archive_get(archive, name)) for name in names}
