"""Sizes while a function is captured for inputs of any sizes."""

from __future__ import annotations

import numbers
import operator
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._library import check, check_pointer, ffi, lib, raise_error

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SymInt"]

_ERROR = -1
_LARGEST = 2**62  # that is computed with, below and above zero: codes lie beyond


class Capture:
    """What the sizes of one capture share."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.open = True
        #: Something depends on a size in a way that the graph cannot tell: it holds for these sizes only.
        self.fixed = False

    def __enter__(self) -> Capture:
        captures[self._thread] = self
        return self

    def __exit__(self, *error: object) -> None:
        self.open = False
        del captures[self._thread]

    def is_at_work(self) -> bool:
        """Whether sizes may still be computed with as such.  Another thread has no part in the capture, and fixes them."""
        if not self.open:
            return False
        if threading.get_ident() != self._thread:
            self.fixed = True
            return False
        return True


#: The captures for any sizes that are under way, by thread.
captures: dict[int, Capture] = {}


def sizes_of(handle: Any) -> tuple[Any, ...] | None:
    """The shape of a tensor, with sizes in it that follow the inputs'; None where the thread captures nothing."""
    capture = captures.get(threading.get_ident())
    if capture is None or not lib.clikart_capturing():
        return None
    now = ffi.new("int64_t*")
    sizes: list[Any] = []
    for dim in range(lib.clikart_tensor_rank(handle)):
        code = lib.clikart_capture_size(handle, dim, now)
        if code == _ERROR:
            raise_error()
        sizes.append(code if code >= 0 else SymInt(capture, code, now[0]))
    return tuple(sizes)


class SymInt:
    """A size, or a number that is computed of sizes, while :func:`clika_runtime.compile` captures a function with ``dynamic=True``.

    ``+``, ``-``, ``*``, ``//`` and ``%`` with whole numbers make others, and operators take them where they take whole numbers: there
    the graph follows the sizes of its inputs.  Everything else, from ``int(n)`` and ``range(n)`` to ``n > 1`` and ``n / 2``, sees the
    number that it is now, and what was seen becomes a condition of the graph: inputs for which it is otherwise are captured anew.  Once
    the capture is over it is a number like any other.
    """

    __slots__ = ("_capture", "_code", "_now")

    def __init__(self, capture: Capture, code: int, now: int) -> None:
        self._capture = capture
        self._code = code
        self._now = now

    def code(self) -> int:
        """What stands for it in a call of the library."""
        return self._code if self._capture.is_at_work() else self._now

    def __index__(self) -> int:
        if self._capture.is_at_work():
            check(lib.clikart_capture_require_size(self._code))
        return self._now

    __int__ = __trunc__ = __floor__ = __ceil__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __complex__(self) -> complex:
        return complex(int(self))

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        return repr(int(self))

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __getattr__(self, name: str) -> Any:
        """What ints have besides: ``numerator``, ``bit_length`` ..."""
        if name.startswith("_"):
            raise AttributeError(f"'SymInt' object has no attribute '{name}'")
        return getattr(int(self), name)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """NumPy's functions see the number, but that its whole numbers are as good as Python's in arithmetic."""
        import numpy as np

        follows = _UFUNCS.get(function.__name__) if method == "__call__" and not named else None
        if follows and all(isinstance(value, (SymInt, np.integer)) for value in inputs):
            return follows(*(value if type(value) is SymInt else int(value) for value in inputs))
        return getattr(function, method)(*map(plain, inputs), **named)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.array(int(self), dtype=dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)

    def __pos__(self) -> SymInt:
        return self

    def __neg__(self) -> Any:
        return 0 - self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __invert__(self) -> Any:
        return -1 - self

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __round__(self, digits: int | None = None) -> int:
        return round(int(self), digits) if digits is not None else int(self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    if TYPE_CHECKING:  # what is made below

        def __add__(self, other: Any, /) -> Any: ...
        def __sub__(self, other: Any, /) -> Any: ...
        def __mul__(self, other: Any, /) -> Any: ...
        def __floordiv__(self, other: Any, /) -> Any: ...
        def __mod__(self, other: Any, /) -> Any: ...
        def __truediv__(self, other: Any, /) -> Any: ...
        def __radd__(self, other: Any, /) -> Any: ...
        def __rsub__(self, other: Any, /) -> Any: ...
        def __rmul__(self, other: Any, /) -> Any: ...
        def __rfloordiv__(self, other: Any, /) -> Any: ...
        def __rmod__(self, other: Any, /) -> Any: ...
        def __rtruediv__(self, other: Any, /) -> Any: ...
        def __eq__(self, other: object, /) -> bool: ...
        def __ne__(self, other: object, /) -> bool: ...
        def __lt__(self, other: Any, /) -> bool: ...
        def __le__(self, other: Any, /) -> bool: ...
        def __gt__(self, other: Any, /) -> bool: ...
        def __ge__(self, other: Any, /) -> bool: ...


numbers.Integral.register(SymInt)


def operand_of(size: SymInt) -> Any:
    """The handle of a number that follows the size, as an operand; None once that is over."""
    if not size._capture.is_at_work():
        return None
    return ffi.gc(check_pointer(lib.clikart_capture_size_number(size._code)), lib.clikart_tensor_release)


def plain(value: Any) -> Any:
    """What goes out of a capture: numbers in the place of sizes."""
    if type(value) is SymInt:
        return int(value)
    if isinstance(value, tuple) and any(type(size) is SymInt for size in value):
        return type(value)(map(plain, value))
    return value


def _whole(value: Any) -> tuple[int, int] | None:
    """What stands for a whole number, and what it is now; None for anything else."""
    if type(value) is SymInt:
        return value.code(), value._now
    if isinstance(value, (int, numbers.Integral)):
        number = int(value)
        return number, number
    return None


#: NumPy's names of what the graph follows.
_UFUNCS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "floor_divide": operator.floordiv, "remainder": operator.mod}


def _is_operand(value: Any) -> bool:
    """Whether the other operand is one that works with numbers by itself, as tensors do."""
    return hasattr(value, "_handle") or hasattr(value, "__array_interface__")


def _arithmetic(name: str, operation: int, function: Callable[[Any, Any], Any]) -> None:
    def compute(size: SymInt, left: Any, right: Any) -> Any:
        a, b = _whole(left), _whole(right)
        if a is None or b is None:
            other = right if left is size else left
            return NotImplemented if _is_operand(other) else function(*(int(size) if v is size else v for v in (left, right)))
        try:
            now = function(a[1], b[1])
        except ZeroDivisionError:
            int(left), int(right)  # the program may go another way for other sizes
            raise
        if not size._capture.is_at_work() or max(map(abs, (a[1], b[1], now))) >= _LARGEST:
            return function(int(left), int(right))
        code = lib.clikart_capture_computed_size(operation, a[0], b[0])
        if code == _ERROR:
            raise_error()
        return SymInt(size._capture, code, now)

    def forward(self: SymInt, other: Any) -> Any:
        return compute(self, self, other)

    def reflected(self: SymInt, other: Any) -> Any:
        return compute(self, other, self)

    setattr(SymInt, f"__{name}__", forward)
    setattr(SymInt, f"__r{name}__", reflected)


def _comparison(name: str, operation: int, swapped: bool) -> None:
    function = getattr(operator, name)

    def compare(self: SymInt, other: Any) -> Any:
        b = _whole(other)
        if b is None:
            return function(int(self), other) if isinstance(other, numbers.Number) else NotImplemented
        if self._capture.is_at_work() and abs(b[1]) < _LARGEST:
            pair = (b[0], self._code) if swapped else (self._code, b[0])
            code = lib.clikart_capture_computed_size(operation, *pair)
            if code == _ERROR:
                raise_error()
            check(lib.clikart_capture_require_size(code))
        return function(self._now, b[1])

    setattr(SymInt, f"__{name}__", compare)


def _plain_operator(name: str, function: Callable[[Any, Any], Any]) -> None:
    """One that the graph cannot follow."""

    def forward(self: SymInt, other: Any, *more: Any) -> Any:
        if more:  # pow() has a third
            return pow(int(self), plain(other), *map(plain, more))
        return NotImplemented if _is_operand(other) else function(int(self), plain(other))

    def reflected(self: SymInt, other: Any) -> Any:
        return NotImplemented if _is_operand(other) else function(other, int(self))

    setattr(SymInt, f"__{name}__", forward)
    setattr(SymInt, f"__r{name}__", reflected)


for _name, _operation in (("add", "ADD"), ("sub", "SUB"), ("mul", "MUL"), ("floordiv", "FLOOR_DIVIDE"), ("mod", "REMAINDER")):
    _arithmetic(_name, getattr(lib, f"CLIKART_SIZE_{_operation}"), getattr(operator, _name))
for _name, _operation, _swapped in (
    ("eq", "EQUAL", False),
    ("ne", "EQUAL", False),
    ("lt", "LESS", False),
    ("ge", "LESS", False),
    ("gt", "LESS", True),
    ("le", "LESS", True),
):
    _comparison(_name, getattr(lib, f"CLIKART_SIZE_{_operation}"), _swapped)
for _name in ("truediv", "pow", "lshift", "rshift", "and_", "or_", "xor"):
    _plain_operator(_name.rstrip("_"), getattr(operator, _name))
