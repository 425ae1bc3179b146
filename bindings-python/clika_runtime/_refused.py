"""What a caller is told whose arguments do not fit: the operator, the argument, what it must be and what was given.

Nothing of this is on the way of a call that fits: :func:`refused` looks at the arguments once a conversion has failed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from operator import index
from typing import Any

from ._enums import BY_NUMPY_NAME, ClikaRTError, ClikaRTIndexError, ClikaRTOverflowError, ClikaRTTypeError
from .dtype import DType

#: Parameters that name dimensions or places: out of range is an IndexError there.
_PLACES = {"dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim", "source", "destination", "index"}


class UnfitError(ClikaRTTypeError):
    """An argument cannot be converted, and who converts it does not know the operator."""


def shown(value: Any) -> str:
    """A value as a message shows it: what it is where that is short, else its type."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an int of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, type)):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"
    return type(value).__name__


def _unfit(name: str, need: str, value: Any) -> ClikaRTError:
    return ClikaRTTypeError(f"{name} must be {need}, got {shown(value)}")


def _number(name: str, value: Any) -> ClikaRTError | None:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return ClikaRTOverflowError(f"{name} is {shown(value)}, more than 64 bits can hold")
    return None


def _tensor(name: str, value: Any) -> ClikaRTError | None:
    if isinstance(value, (bool, int, float)):
        return _number(name, value)
    if hasattr(value, "_handle"):
        return None
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, (numpy.ndarray, numpy.generic)):
        return None if value.dtype.name in BY_NUMPY_NAME else ClikaRTTypeError(f"{name} is an array of {value.dtype}, which has no equivalent here")
    return ClikaRTTypeError(f"{name} must be a tensor or a number, got {shown(value)}; clika_runtime.tensor() makes a tensor of other things")


def _destination(name: str, value: Any) -> ClikaRTError | None:
    return None if hasattr(value, "_handle") else ClikaRTTypeError(f"{name} must be a tensor to write to, got {shown(value)}")


def _tensors(name: str, value: Any) -> ClikaRTError | None:
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        return _unfit(name, "a sequence of tensors", value)
    return next((problem for i, item in enumerate(value) if (problem := _tensor(f"{name}[{i}]", item))), None)


def _int(name: str, value: Any) -> ClikaRTError | None:
    try:
        number = index(value)
    except ClikaRTError as error:  # a tensor's: it is no int, or its computation failed
        return _unfit(name, "an int", value) if str(error).startswith("index: only") else error
    except TypeError:
        return _unfit(name, "an int", value)
    if -(2**63) <= number < 2**63:
        return None
    place = name.partition("[")[0] in _PLACES
    return (
        ClikaRTIndexError(f"{name} {shown(number)} is out of range")
        if place
        else ClikaRTOverflowError(f"{name} is {shown(number)}, more than 64 bits can hold")
    )


def _ints(name: str, value: Any) -> ClikaRTError | None:
    if hasattr(value, "__index__") and not getattr(value, "shape", ()):
        return _int(name, value)
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping, Set)):
        return _unfit(name, "an int or a sequence of ints", value)
    return next((problem for i, item in enumerate(value) if (problem := _int(f"{name}[{i}]", item))), None)


def _float(name: str, value: Any) -> ClikaRTError | None:
    if isinstance(value, (str, bytes)):
        return _unfit(name, "a number", value)
    try:
        float(value)
    except ClikaRTError as error:
        return error
    except OverflowError:
        return ClikaRTOverflowError(f"{name} is {shown(value)}, more than a float can hold")
    except (TypeError, ValueError):
        return _unfit(name, "a number", value)
    return None


def _bool(name: str, value: Any) -> ClikaRTError | None:
    try:
        fits = type(value).__name__ in ("bool", "bool_") or index(value) in (0, 1)
    except (TypeError, ValueError, ClikaRTError):
        fits = False
    return None if fits else _unfit(name, "a bool", value)


def _dtype(name: str, value: Any) -> ClikaRTError | None:
    return None if isinstance(value, DType) else _unfit(name, "a dtype such as clika_runtime.float32", value)


def _named(class_name: str, need: str) -> Callable[[str, Any], ClikaRTError | None]:
    """What takes an object of one class of this package, which may need this module to be there first."""
    return lambda name, value: None if type(value).__name__ == class_name else _unfit(name, need, value)


def _device(name: str, value: Any) -> ClikaRTError | None:
    return None if type(value).__name__ == "Device" or isinstance(value, str) else _unfit(name, "a name such as 'cpu' or a Device", value)


_PROBLEMS: dict[str, Callable[[str, Any], ClikaRTError | None]] = {
    "Tensor": _tensor,
    "destination": _destination,
    "Tensor[]": _tensors,
    "int": _int,
    "int[]": _ints,
    "padding": lambda name, value: None if isinstance(value, str) else _ints(name, value),
    "float": _float,
    "bool": _bool,
    "dtype": _dtype,
    "Generator": _named("Generator", "a Generator"),
    "device": _device,
    "stream": _named("Stream", "a Stream"),
}


def int_argument(who: str, name: str, value: Any) -> int:
    """An argument of a function that is no operator, as an int of 64 bits."""
    if problem := _int(name, value):
        raise problem if str(problem).startswith(f"{who}: ") else type(problem)(f"{who}: {problem}")
    return index(value)


def require_tensor(who: str, name: str, value: Any) -> None:
    """Refuses anything else, numbers and arrays too."""
    if not hasattr(value, "_handle"):
        raise ClikaRTTypeError(f"{who}: {name} must be a tensor, got {shown(value)}")


def whole_numbers(data: Any, numbers: Any, dtype: DType) -> Any:
    """Python's numbers as the integers that a dtype of integers makes of them; those it has not are refused.  (Arrays are cast
    instead, as torch and NumPy cast them.)

    Args:
        data: what the array ``numbers`` was made of, whose floats may stand for larger integers.
        numbers: an array of bools, integers or floats.
        dtype: the dtype, of integers.
    """
    import numpy as np

    unsigned = dtype.name.startswith("u")
    least, most = (0, 2**dtype.bits - 1) if unsigned else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    exact = np.asarray(data, dtype=object) if numbers.dtype.kind == "f" else numbers
    for value in exact.flat if exact is not numbers else (numbers.min(initial=0), numbers.max(initial=0)):
        if not math.isfinite(value) or not least <= int(value) <= most:
            raise ClikaRTOverflowError(f"tensor: {value} does not fit {dtype.name}")
    if exact is numbers:
        return numbers
    return np.array([int(value) for value in exact.flat], np.uint64 if unsigned else np.int64).reshape(exact.shape)


def refused(error: Exception, op: str, signature: str, *values: Any) -> Exception:
    """What to raise for a call whose arguments did not fit.

    Args:
        error: what their conversion raised.
        op: the operator's name.
        signature: the parameters, as ``"Tensor x, int? dim"``.
        values: the arguments.

    Returns:
        An error that names the operator and the argument; ``error`` itself where it is another's, such as the failure of a
        tensor that was to be read as an int, or of an iterator's code.
    """
    if isinstance(error, ClikaRTError) and not isinstance(error, UnfitError):
        return error
    for parameter, value in zip(signature.split(", "), values, strict=True):
        kind, name = parameter.split(" ")
        check = _PROBLEMS.get(kind.removesuffix("?"))
        if check is None or (value is None and kind.endswith("?")):
            continue
        if problem := check(name, value):
            problem = problem if str(problem).startswith(f"{op}: ") else type(problem)(f"{op}: {problem}")
            problem.__suppress_context__ = True  # it says more than the error it comes from; so callers raise it without `from`
            return problem
    if isinstance(error, UnfitError):  # of what an iterator gave, which is used up by now
        return ClikaRTTypeError(f"{op}: {error}")
    return error
