"""Python's operators on tensors: ``+``, ``==``, ``@=`` and their like.

Each goes straight into the library.  What is no tensor, number or array is left to Python, which asks the other operand's
class and then raises TypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._library import attend, lib, origins, raise_error
from ._refused import refused
from .scopes import apply, scoped

if TYPE_CHECKING:
    from ._hints import Matrix
    from ._hints import TensorLike as Operand
    from .tensor import Tensor

#: Python's names, and the operator's in the table.
ARITHMETIC = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Operators:
    """The base of :class:`clika_runtime.Tensor` that has the operators."""

    __slots__ = ()
    #: NumPy's arrays leave a mixed expression to this class; NumPy's functions see a tensor as an array.
    __array_priority__ = 1000

    if TYPE_CHECKING:

        def __add__(self, other: Operand, /) -> Tensor: ...
        def __sub__(self, other: Operand, /) -> Tensor: ...
        def __mul__(self, other: Operand, /) -> Tensor: ...
        def __truediv__(self, other: Operand, /) -> Tensor: ...
        def __floordiv__(self, other: Operand, /) -> Tensor: ...
        def __mod__(self, other: Operand, /) -> Tensor: ...
        def __pow__(self, other: Operand, /) -> Tensor: ...
        def __matmul__(self, other: Matrix, /) -> Tensor: ...
        def __and__(self, other: Operand, /) -> Tensor: ...
        def __or__(self, other: Operand, /) -> Tensor: ...
        def __xor__(self, other: Operand, /) -> Tensor: ...
        def __lshift__(self, other: Operand, /) -> Tensor: ...
        def __rshift__(self, other: Operand, /) -> Tensor: ...
        def __radd__(self, other: Operand, /) -> Tensor: ...
        def __rsub__(self, other: Operand, /) -> Tensor: ...
        def __rmul__(self, other: Operand, /) -> Tensor: ...
        def __rtruediv__(self, other: Operand, /) -> Tensor: ...
        def __rfloordiv__(self, other: Operand, /) -> Tensor: ...
        def __rmod__(self, other: Operand, /) -> Tensor: ...
        def __rpow__(self, other: Operand, /) -> Tensor: ...
        def __rmatmul__(self, other: Matrix, /) -> Tensor: ...
        def __rand__(self, other: Operand, /) -> Tensor: ...
        def __ror__(self, other: Operand, /) -> Tensor: ...
        def __rxor__(self, other: Operand, /) -> Tensor: ...
        def __rlshift__(self, other: Operand, /) -> Tensor: ...
        def __rrshift__(self, other: Operand, /) -> Tensor: ...
        def __iadd__(self, other: Operand, /) -> Tensor: ...
        def __isub__(self, other: Operand, /) -> Tensor: ...
        def __imul__(self, other: Operand, /) -> Tensor: ...
        def __itruediv__(self, other: Operand, /) -> Tensor: ...
        def __ifloordiv__(self, other: Operand, /) -> Tensor: ...
        def __imod__(self, other: Operand, /) -> Tensor: ...
        def __ipow__(self, other: Operand, /) -> Tensor: ...
        def __iand__(self, other: Operand, /) -> Tensor: ...
        def __ior__(self, other: Operand, /) -> Tensor: ...
        def __ixor__(self, other: Operand, /) -> Tensor: ...
        def __ilshift__(self, other: Operand, /) -> Tensor: ...
        def __irshift__(self, other: Operand, /) -> Tensor: ...
        def __eq__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
        def __lt__(self, other: Operand, /) -> Tensor: ...
        def __le__(self, other: Operand, /) -> Tensor: ...
        def __gt__(self, other: Operand, /) -> Tensor: ...
        def __ge__(self, other: Operand, /) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...

    #: One tensor, one key: ``==`` compares values, and sets and dicts go by identity.
    __hash__ = object.__hash__

    def __pos__(self) -> Tensor:
        return self  # type: ignore[return-value]

    def __divmod__(self, other: Operand, /) -> tuple[Tensor, Tensor]:
        quotient: Any = self // other
        return quotient, self % other

    def __rdivmod__(self, other: Operand, /) -> tuple[Tensor, Tensor]:
        quotient: Any = other // self
        return quotient, other % self


# Set by install(): the class that the operators return, and what makes a handle of an operand that is no plain tensor.
_Tensor: Any = None
_new: Any = None
_operand: Any = None


def _finish(handle: Any) -> Any:
    if origins:
        attend()
    if not handle:
        raise_error()
    result = _new(_Tensor)
    result._handle = handle
    return result


def _converted(name: str, other: Any) -> Any:
    """The handle of an operand that is no plain tensor; None for what Python is to ask the other's class about."""
    try:
        return _operand(other)
    except (TypeError, OverflowError) as error:
        raise refused(error, name, "Tensor operand", other)  # noqa: B904


def _binary(call: Any, name: str) -> Callable[..., Any]:
    def operator(self: Any, other: Any) -> Any:
        if type(other) is _Tensor:
            right = other._handle
        else:
            try:  # _converted(), without the call
                right = _operand(other)
            except (TypeError, OverflowError) as error:
                raise refused(error, name, "Tensor operand", other)  # noqa: B904
            if right is None:
                return NotImplemented
        if scoped:
            apply()
        handle = call(self._handle, right)
        if origins:
            attend()
        if not handle:
            raise_error()
        result = _new(_Tensor)  # _finish(), without the call
        result._handle = handle
        return result

    return operator


def _reflected(call: Any, name: str) -> Callable[..., Any]:
    def operator(self: Any, other: Any) -> Any:
        if (left := _converted(name, other)) is None:
            return NotImplemented
        if scoped:
            apply()
        return _finish(call(left, self._handle))

    return operator


def _in_place(call: Any, name: str) -> Callable[..., Any]:
    def operator(self: Any, other: Any) -> Any:
        if (right := _converted(name, other)) is None:
            return NotImplemented
        if scoped:
            apply()
        status = call(self._handle, right)
        if origins:
            attend()
        if status < 0:
            raise_error()
        return self

    return operator


def _unary(call: Any) -> Callable[..., Any]:
    def operator(self: Any) -> Any:
        if scoped:
            apply()
        return _finish(call(self._handle))

    return operator


def install(tensor_class: Any, operand: Callable[[Any], Any]) -> None:
    """Makes the functions, once the class is there that they return.

    Args:
        tensor_class: the class.
        operand: the handle of an operand that is no plain tensor, or None when it cannot be one.
    """
    global _Tensor, _new, _operand
    _Tensor, _new, _operand = tensor_class, tensor_class.__new__, operand

    def define(name: str, function: Callable[..., Any], where: str) -> None:
        function.__name__, function.__qualname__ = name, f"{tensor_class.__name__}.{name}"
        function.__doc__ = f"See :func:`clika_runtime.{where}`."
        setattr(Operators, name, function)

    for word, name in ARITHMETIC.items():
        define(f"__{word}__", _binary(getattr(lib, f"clikart_{name}"), name), name)
        define(f"__r{word}__", _reflected(getattr(lib, f"clikart_{name}"), name), name)
        define(f"__i{word}__", _in_place(getattr(lib, f"clikart_{name}_"), f"{name}_"), f"{name}_")
    define("__matmul__", _binary(lib.clikart_matmul, "matmul"), "matmul")  # @= too: the result's shape may be another
    define("__rmatmul__", _reflected(lib.clikart_matmul, "matmul"), "matmul")
    for name in COMPARISONS:
        define(f"__{name}__", _binary(getattr(lib, f"clikart_{name}"), name), name)
    for word, name in (("neg", "neg"), ("invert", "bitwise_not"), ("abs", "abs")):
        define(f"__{word}__", _unary(getattr(lib, f"clikart_{name}")), name)
