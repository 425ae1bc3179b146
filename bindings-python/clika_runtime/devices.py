"""Devices: where tensors live."""

from __future__ import annotations

from typing import Any

from ._enums import ClikaRTTypeError
from ._library import c_text, check, lib


class Device:
    """Where a tensor lives: ``Device("cpu")``, ``Device("cuda:0")``; equal to its name.

    ``meta`` holds tensors with shape and dtype and no storage.

    Raises:
        ValueError: the text names no device.
    """

    __slots__ = ("index", "type")

    type: str
    index: int

    def __init__(self, name: str | Device = "cpu") -> None:
        check(lib.clikart_is_available(device_text(name, "device")))  # knows which names there are
        self.type, _, index = str(name).partition(":")
        self.index = int(index or 0)

    @staticmethod
    def cpu() -> Device:
        return Device("cpu")

    def is_available(self) -> bool:
        """Whether tensors can live there in this process."""
        return check(lib.clikart_is_available(c_text(str(self), "device"))) == 1

    def __str__(self) -> str:
        return self.type if self.type in ("cpu", "meta") else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"clika_runtime.Device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (str, Device)):
            return str(self) == str(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def device_text(device: str | Device, what: str) -> Any:
    """The name as C wants it."""
    if not isinstance(device, (str, Device)):
        raise ClikaRTTypeError(f"{what}: expected a name such as 'cpu' or a Device, got {type(device).__name__}")
    return c_text(str(device), what)


#: Where something is to live; None leaves it to the calling thread's settings.
DeviceLike = str | Device | None
