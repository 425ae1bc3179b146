"""How far functions of one operand are from the right result, in units of the last place of their dtype.

    python tests/python/accuracy.py     prints the table of docs/numerics.md as measured now

The oracle of float32 and of the half-sized floats is double; that of float64 is x87's 80-bit format, or mpmath with 40 digits
where NumPy has no function.  The operands are bit patterns from all over the dtype, and denser ones where things happen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import scipy.special

import clika_runtime as crt

DTYPES = ("float16", "bfloat16", "float32", "float64")
Function = Callable[[np.ndarray], np.ndarray]


def _digits(function: Callable[[Any], Any]) -> Function:
    """An element at a time, with 40 digits."""

    def over(x: np.ndarray) -> np.ndarray:
        with mpmath.workdps(40):
            values = [function(mpmath.mpf(float(v))) if np.isfinite(v) else mpmath.nan for v in x.reshape(-1)]
            high = [float(v) for v in values]  # in two parts, which is more than an 80-bit number holds
            low = [float(v - h) if np.isfinite(h) else 0.0 for v, h in zip(values, high, strict=True)]
        return np.array(high, np.longdouble) + np.array(low, np.longdouble)

    return over


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _erfinv(x: Any) -> Any:
    return mpmath.nan if abs(x) > 1 else mpmath.erfinv(x) if abs(x) < 1 else x * mpmath.inf


def _lgamma(x: Any) -> Any:
    return mpmath.inf if x <= 0 and x == mpmath.floor(x) else mpmath.loggamma(x).real


#: Functions that NumPy has for 80-bit numbers, by our names.
WIDE: dict[str, Function] = {name: getattr(np, name) for name in "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sqrt reciprocal".split()}
WIDE |= {name: getattr(np, f"arc{name[1:]}") for name in "asin acos atan asinh acosh atanh".split()}
WIDE |= {"rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _sigmoid}
#: The others: for the narrower floats in double, for float64 with more digits.
NARROW: dict[str, Function] = {"erf": scipy.special.erf, "erfc": scipy.special.erfc, "erfinv": scipy.special.erfinv, "lgamma": scipy.special.gammaln}
DIGITS: dict[str, Function] = {
    "erf": _digits(lambda x: mpmath.erf(x) if abs(x) < 1e3 else mpmath.sign(x)),
    "erfc": _digits(lambda x: mpmath.erfc(x) if abs(x) < 1e3 else mpmath.mpf(x < 0) * 2),
    "erfinv": _digits(_erfinv),
    "lgamma": _digits(_lgamma),
}
NAMES = [*WIDE, *NARROW]


def operands(name: str, dtype: str, share: float = 1.0) -> np.ndarray:
    """Of the half-sized floats all there are."""
    if dtype in ("float16", "bfloat16"):
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
        return np.arange(65536, dtype=np.uint16).view(kind)
    count = int((2_000 if name in DIGITS and dtype == "float64" else 200_000) * share)
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32 if dtype == "float32" else 2**64, count, dtype=np.uint32 if dtype == "float32" else np.uint64)
    dense = [np.linspace(low, high, count) for low, high in ((-1, 1), (-10, 10), (-110, 100), (0.5, 2))]
    return np.concatenate([bits.view(dtype), *(d.astype(dtype) for d in dense)])


def worst_ulp(name: str, dtype: str, share: float = 1.0) -> float:
    x = operands(name, dtype, share)
    got = getattr(crt, name)(crt.tensor(x)).numpy()
    with np.errstate(all="ignore"):
        if name in WIDE:
            want = WIDE[name](x.astype(np.longdouble if dtype == "float64" else np.float64))
        else:
            want = DIGITS[name](x) if dtype == "float64" else NARROW[name](x.astype(np.float64))
        if name == "lgamma":  # its zeros between negative integers are nowhere near a number of the dtype
            keep = (x > 0) & np.isfinite(want)
            x, got, want = x[keep], got[keep], want[keep]
        info = ml_dtypes.finfo(got.dtype)
        magnitude = np.maximum(np.abs(want).astype(np.longdouble), np.longdouble(info.smallest_normal))
        # The weight of the last digit of numbers of that size.
        ulp = np.exp2(np.floor(np.log2(magnitude))) * np.longdouble(info.eps)
        limit = np.longdouble(info.max) * (1 + np.longdouble(info.eps) / 4)  # what rounds to infinity
        there = np.isfinite(want) & (np.abs(want) < limit)
        assert np.all(np.isnan(got[np.isnan(want)])), f"{name} {dtype}: a number where there is none"
        far = np.isinf(want) | (np.abs(want) > 1.001 * limit)
        assert np.all(np.isinf(got[far].astype(np.float64)) & (np.signbit(got[far].astype(np.float64)) == np.signbit(want[far]))), (
            f"{name} {dtype}: not infinite"
        )
        off = np.abs(got[there].astype(np.longdouble) - want[there]) / ulp[there]
    assert not np.isnan(off).any(), f"{name} {dtype}: NaN for {x[there][np.isnan(off)][:5]}"
    return float(off.max())


if __name__ == "__main__":
    print("| operator |" + "".join(f" {dtype} |" for dtype in DTYPES) + "\n|---|" + "---|" * len(DTYPES))
    for name in NAMES:
        print(f"| {name} |" + "".join(f" {worst_ulp(name, dtype):.2f} |" for dtype in DTYPES), flush=True)
