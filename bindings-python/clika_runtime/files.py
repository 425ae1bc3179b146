"""Tensors in safetensors files."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ._enums import ClikaRTFileError, ClikaRTTypeError, ClikaRTValueError
from ._library import c_text, check, check_pointer, ffi, lib, naming, renamed, text
from ._refused import shown
from .nn.module import Module
from .tensor import Tensor, wrap


class ClikaRTFileNotFoundError(ClikaRTFileError, FileNotFoundError):
    """There is no such file or folder."""


class ClikaRTFileExistsError(ClikaRTFileError, FileExistsError):
    """Something of that name is there already."""


class ClikaRTIsADirectoryError(ClikaRTFileError, IsADirectoryError):
    """A folder, where a file is needed."""


class ClikaRTNotADirectoryError(ClikaRTFileError, NotADirectoryError):
    """A file, where the path needs a folder."""


class ClikaRTPermissionError(ClikaRTFileError, PermissionError):
    """The file may not be read or written."""


_FILE_ERRORS = {kind.__bases__[1]: kind for kind in ClikaRTFileError.__subclasses__()}


def _file_error(message: str, path: str | os.PathLike[str]) -> ClikaRTFileError:
    """The error of a file as Python has it.  The library's message ends in the system's words for it."""
    number = next((number for number in errno.errorcode if message.endswith(f": {os.strerror(number)}")), None)
    if number is None and os.path.isdir(path):
        number = errno.EISDIR
    if number is None:
        return ClikaRTFileError(message)
    error = _FILE_ERRORS.get(type(OSError(number, "")), ClikaRTFileError)(number, os.strerror(number), os.fspath(path))
    error.message = message
    return error


@contextlib.contextmanager
def naming_file(who: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors under the name of what was called."""
    with naming(who, "safetensors"):
        try:
            yield
        except ClikaRTFileError as error:
            raise _file_error(renamed(str(error), who, "safetensors"), path) from None


def path_bytes(path: str | os.PathLike[str], who: str) -> bytes:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise ClikaRTTypeError(f"{who}: path must be a str or a path, got {shown(path)}")
    return os.fsencode(path)


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
        OSError: the file cannot be written; of the subclass that Python's own ``open`` raises, with ``errno`` and ``filename``.
        ValueError: two tensors come to the same name.
        TypeError: something else than tensors in the tree.
    """
    named = list(_leaves(tree, ""))
    names = [c_text(name, "save") for name, _ in named]
    for _, leaf in named:
        leaf._check_readable("save")
        leaf._settle("save")
    with naming_file("save", path):
        check(lib.clikart_archive_save(c_text(path_bytes(path, "save"), "save"), names, [leaf._handle for _, leaf in named], len(named)))


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by their (dotted) names.

    Raises:
        OSError: the file cannot be read; of the subclass that Python's own ``open`` raises, with ``errno`` and ``filename``.
        ValueError: it is not a well-formed safetensors file.
        TypeError: it holds a dtype that does not exist here.
    """
    with naming_file("load", path):
        archive = ffi.gc(check_pointer(lib.clikart_archive_load(c_text(path_bytes(path, "load"), "load"))), lib.clikart_archive_release)
    names = [lib.clikart_archive_name(archive, i) for i in range(lib.clikart_archive_count(archive))]
    return {text(name): wrap(lib.clikart_archive_get(archive, name)) for name in names}
