"""ClikaRT: a tensor runtime in which every operator returns at once and the work happens behind it."""

from pathlib import Path as _Path

from .tensor import Size, Tensor, tensor  # first: the other modules need the class, and it needs them

# isort: split
from . import graph, memory, nn
from ._enums import (
    ClikaRTError,
    ClikaRTFileError,
    ClikaRTIndexError,
    ClikaRTMemoryError,
    ClikaRTNotImplementedError,
    ClikaRTRuntimeError,
    ClikaRTTypeError,
    ClikaRTValueError,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._library import lib as _lib
from ._library import text as _text
from .creation import is_available, ones, zeros
from .dtype import DType
from .files import load, save
from .graph import trace
from .ops import *  # noqa: F403
from .ops import __all__ as _operators
from .scopes import synchronous

__version__ = "0.1.0"


def pkgconfig_dir() -> str:
    """The folder of ``clikart.pc``, for the PKG_CONFIG_PATH of C and C++ programs that link the library of this package."""
    return str(_Path(__file__).parent / "pkgconfig")


def build_report() -> str:
    """What was built and what it found on this machine, one line each."""
    return _text(_lib.clikart_build_report())


__all__ = [  # noqa: PLE0604
    "ClikaRTError",
    "ClikaRTFileError",
    "ClikaRTIndexError",
    "ClikaRTMemoryError",
    "ClikaRTNotImplementedError",
    "ClikaRTRuntimeError",
    "ClikaRTTypeError",
    "ClikaRTValueError",
    "DType",
    "Size",
    "Tensor",
    "bfloat16",
    "bool_",
    "build_report",
    "pkgconfig_dir",
    "float16",
    "float32",
    "float64",
    "graph",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_available",
    "load",
    "memory",
    "nn",
    "ones",
    "save",
    "synchronous",
    "tensor",
    "trace",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "zeros",
    *_operators,
]
