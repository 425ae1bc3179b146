"""Waiting for values, and starting deferred ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ._enums import ClikaRTError, ClikaRTTypeError
from ._library import check, lib, wait
from .devices import Device, device_text
from .nn.module import Module
from .scopes import apply, scoped
from .streams import Stream
from .tensor import Tensor


def _leaves(trees: Any) -> Iterator[Tensor]:
    """The tensors of dicts, lists, tuples, sets, dataclasses and modules, at any depth; each container is entered once."""
    stack, seen = [trees], set()
    while stack:
        item = stack.pop()
        if isinstance(item, Tensor):
            yield item
            continue
        if isinstance(item, Mapping):
            inner: Any = item.values()
        elif isinstance(item, (list, tuple, set, frozenset)):
            inner = item
        elif isinstance(item, Module):
            inner = item.state_dict().values()
        elif is_dataclass(item) and not isinstance(item, type):
            inner = [getattr(item, field.name) for field in fields(item)]
        else:
            continue
        if id(item) not in seen:
            seen.add(id(item))
            stack.extend(reversed(list(inner)))


def async_eval(*trees: Any) -> None:
    """Submits what the tensors in the trees wait for, if it was deferred; returns without waiting.

    Args:
        trees: tensors, and dicts, lists, tuples, dataclasses and modules of them; everything else is passed over.

    Raises:
        ClikaRTError: a tensor has no value to come (storage-free, or standing in for a value).
    """
    if scoped:
        apply()
    for leaf in _leaves(trees):
        check(lib.clikart_tensor_start(leaf._handle), "async_eval", "start")


def eval(*trees: Any) -> None:
    """Waits until every tensor in the trees has its value, computing it first if it was deferred.

    Args:
        trees: as for :func:`async_eval`.

    Raises:
        ClikaRTError: the first failure among them, after all are settled.
    """
    leaves = list(_leaves(trees))
    async_eval(leaves)
    first: ClikaRTError | None = None
    for leaf in leaves:
        try:
            leaf._settle("eval")
        except ClikaRTError as error:
            first = first or error
    if first:
        raise first


def synchronize(target: Tensor | Stream | Device | str | None = None) -> None:
    """Waits for what was submitted.

    Args:
        target: nothing: the stream that the calling thread's operators ride; a stream; a device or its name: all its
            streams; or a tensor: its value.

    Raises:
        ClikaRTError: the tensor's failure, or one on the streams that nobody was told of yet.
    """
    if scoped:
        apply()
    if target is None:
        Stream.current().synchronize()
    elif isinstance(target, Tensor):
        target._settle("synchronize")
    elif isinstance(target, Stream):
        target.synchronize()
    elif isinstance(target, (str, Device)):
        wait(lib.clikart_device_wait, device_text(target, "synchronize"))
    else:
        raise ClikaRTTypeError(f"synchronize: expected a tensor, a stream or a device, got {type(target).__name__}")
