"""ClikaRT: a tensor runtime in which every operator returns at once and the work happens behind it."""

from pathlib import Path as _Path

from .tensor import Size, Tensor, tensor  # first: the other modules need the class, and it needs them

# isort: split
from . import graph, memory, nn, pytree
from ._enums import (
    ClikaRTError,
    ClikaRTFileError,
    ClikaRTIndexError,
    ClikaRTMemoryError,
    ClikaRTNotImplementedError,
    ClikaRTOverflowError,
    ClikaRTRuntimeError,
    ClikaRTTypeError,
    ClikaRTValueError,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int4,
    int8,
    int16,
    int32,
    int64,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._library import check as _check
from ._library import lib as _lib
from ._library import text as _text
from ._refused import int_argument as _int_argument
from .borrow import from_numpy
from .capture import trace
from .compiled import Compiled, State, TensorSpec, compile
from .control import cond, while_loop
from .creation import (
    empty,
    empty_like,
    full_like,
    is_available,
    normal_,
    ones,
    ones_like,
    rand,
    rand_like,
    randn,
    randn_like,
    uniform_,
    zeros,
    zeros_like,
)
from .devices import Device
from .dlpack import ClikaRTBufferError, from_dlpack
from .dtype import DType
from .evaluation import async_eval, eval, synchronize
from .files import load, save
from .linalg import einsum
from .log import set_log_hook
from .ops import *  # noqa: F403
from .ops import __all__ as _operators
from .profiling import profile
from .random import Generator, get_rng_state, manual_seed, set_rng_state
from .scopes import device, eager, meta_init, stream, synchronous, tracing
from .shaping import allclose, aminmax, cat, chunk, clone, contiguous, meshgrid, split, swapaxes, tensor_split, unbind
from .sizes import SymInt
from .streams import Stream

__version__ = "0.1.0"


def pkgconfig_dir() -> str:
    """The folder of ``clikart.pc``, for the PKG_CONFIG_PATH of C and C++ programs that link the library of this package."""
    return str(_Path(__file__).parent / "pkgconfig")


def build_report() -> str:
    """What was built and what it found on this machine, one line each."""
    return _text(_lib.clikart_build_report())


def num_threads() -> int:
    """How many threads compute an operator at most; threads that wait for other results may compute those besides."""
    count: int = _lib.clikart_num_threads()
    return count


def set_num_threads(threads: int) -> None:
    """Sets how many threads compute an operator at most (see :func:`num_threads`).  Results have the same bits for any number.

    Raises:
        ValueError: less than one, or more than 1024.
    """
    count = _int_argument("set_num_threads", "threads", threads)
    if not 1 <= count <= 1024:
        raise ClikaRTValueError(f"set_num_threads: a number from 1 to 1024 is possible, got {count}")
    _check(_lib.clikart_set_num_threads(count))


__all__ = [  # noqa: PLE0604
    "ClikaRTBufferError",
    "ClikaRTError",
    "ClikaRTFileError",
    "ClikaRTIndexError",
    "ClikaRTMemoryError",
    "ClikaRTNotImplementedError",
    "ClikaRTOverflowError",
    "ClikaRTRuntimeError",
    "ClikaRTTypeError",
    "ClikaRTValueError",
    "DType",
    "Compiled",
    "Device",
    "Generator",
    "Size",
    "State",
    "Stream",
    "SymInt",
    "Tensor",
    "TensorSpec",
    "allclose",
    "aminmax",
    "async_eval",
    "bfloat16",
    "bool_",
    "build_report",
    "cat",
    "chunk",
    "clone",
    "compile",
    "complex64",
    "complex128",
    "cond",
    "contiguous",
    "device",
    "eager",
    "empty",
    "empty_like",
    "einsum",
    "eval",
    "pkgconfig_dir",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "full_like",
    "get_rng_state",
    "graph",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_available",
    "load",
    "manual_seed",
    "memory",
    "meshgrid",
    "meta_init",
    "nn",
    "pytree",
    "normal_",
    "num_threads",
    "ones",
    "rand",
    "profile",
    "rand_like",
    "randn",
    "randn_like",
    "ones_like",
    "save",
    "set_log_hook",
    "set_rng_state",
    "set_num_threads",
    "split",
    "stream",
    "swapaxes",
    "synchronize",
    "synchronous",
    "tensor",
    "tensor_split",
    "trace",
    "tracing",
    "uint4",
    "uniform_",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unbind",
    "while_loop",
    "zeros",
    "zeros_like",
    *_operators,
]
