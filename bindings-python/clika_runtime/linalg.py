"""Products beyond the operator table."""

from __future__ import annotations

from typing import Any

from ._convert import operands as handles_of
from ._library import attend, c_text, lib, origins, raise_error
from ._refused import refused
from .scopes import apply, scoped
from .tensor import Tensor, wrap

__all__ = ["einsum"]


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """Sums of products in index notation: ``einsum("ij,jk->ik", a, b)`` is the matrix product.

    Letters name dimensions.  ``...`` stands for any number of dimensions, which broadcast; a letter that is repeated in one
    term takes the diagonal; names that the result lacks are summed over.  Without ``->`` the result has the dimensions of the
    ellipsis and the letters that occur once, in alphabetical order.

    Args:
        equation: the terms of the operands, separated by commas, and that of the result.
        operands: as many tensors, of one dtype.  They are multiplied from left to right; integers wrap around.

    Raises:
        ValueError: an equation that cannot be read or does not fit the shapes.
        TypeError: numbers, different dtypes, or bools that would be summed or multiplied.

    Example:
        >>> y = crt.einsum("ij,j->i", crt.full([2, 3], 1.0), crt.full([3], 2.0))
    """
    text = c_text(equation, "einsum")
    handles: list[Any]
    try:
        handles, count, kept = handles_of(operands)
    except (TypeError, OverflowError) as error:
        raise refused(error, "einsum", "Tensor[] operands", operands)  # noqa: B904
    if scoped:
        apply()
    handle = lib.clikart_einsum(text, handles, count)
    if origins:
        attend()
    if not handle:
        raise_error()
    del kept
    return wrap(handle)
