"""What type checkers are told of arguments; nothing of it is needed at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence, Set, ValuesView
    from types import EllipsisType
    from typing import Any, Protocol, SupportsIndex, TypeAlias

    import numpy as np

    from .tensor import Tensor

    class SupportsArray(Protocol):
        """What NumPy can make an array of: arrays, NumPy's numbers, tensors of any library."""

        def __array__(self) -> np.ndarray[Any, Any]: ...

    _Array: TypeAlias = np.ndarray[Any, Any] | np.generic

    #: A tensor; a number, which gives way to tensors in type promotion; an array, which is copied.
    TensorLike: TypeAlias = Tensor | bool | int | float | _Array
    #: Several of them.  A tensor is none, though it can be looped over.
    TensorLikes: TypeAlias = Sequence[TensorLike] | Iterator[TensorLike] | Set[TensorLike] | ValuesView[TensorLike]
    #: The other side of ``@``, where numbers mean nothing.
    Matrix: TypeAlias = Tensor | np.ndarray[Any, Any]
    #: What :func:`clika_runtime.tensor` takes.
    Data: TypeAlias = complex | SupportsArray | Tensor | _Array | list[Any] | tuple[Any, ...] | range | Sequence[complex] | memoryview | array[Any]
    _Item: TypeAlias = SupportsIndex | slice | EllipsisType | Tensor | _Array | list[Any] | range | None
    #: What stands in the brackets of ``x[...]``.
    Index: TypeAlias = _Item | tuple[_Item | tuple[Any, ...], ...]
