"""The class of element types; the types themselves are generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np


class DType:
    """An element type, such as ``clika_runtime.float32``.  One object each: compare with ``is`` or ``==``."""

    __slots__ = ("bits", "code", "name")

    name: str
    code: int
    bits: int

    _by_code: ClassVar[dict[int, DType]] = {}

    def __init__(self, name: str, code: int, bits: int) -> None:
        if code in self._by_code:
            raise TypeError(f"DType: {self._by_code[code]!r} exists already; dtypes are not made by hand")
        self.name, self.code, self.bits = name, code, bits
        self._by_code[code] = self

    @staticmethod
    def of_code(code: int) -> DType:
        """The dtype of a number of the C ABI."""
        return DType._by_code[code]

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for int4 and uint4, two of which share a byte."""
        return self.bits // 8

    @property
    def is_packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.bits < 8

    @property
    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return "float" in self.name

    def __repr__(self) -> str:
        return f"clika_runtime.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return DType.of_code, (self.code,)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype; that of ml_dtypes where NumPy has none."""
    import numpy as np

    if dtype.is_packed or (dtype.is_floating_point and dtype.bits < 32 and dtype.name != "float16"):
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.name))
        return narrow
    return np.dtype(dtype.name)
