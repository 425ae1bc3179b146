"""Arguments and oracles for reductions, and for what works along one dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samples import is_float, numpy_dtype, reduce, row, values, with_specials

FLOATS = ("float16", "bfloat16", "float32", "float64")

#: What the dtype rules answer.
RESULTS = {
    "sum_given": lambda dtype, call: call.get("dtype") or (dtype if dtype in FLOATS else "int64"),
    "reduce_float": lambda dtype, call: dtype if dtype in FLOATS else "float32",
    "with_index": lambda dtype, call: (dtype, "int64"),
}


def _near_one(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Factors whose products neither overflow nor vanish."""
    x = values(shape, dtype, seed)
    if not is_float(dtype):
        return x
    signs = np.where(x < 0, -1.0, 1.0)
    return np.asarray(signs * (1 + np.random.default_rng(seed).uniform(-0.02, 0.02, shape))).astype(numpy_dtype(dtype))


def _along(shape: tuple[int, ...]) -> Iterator[int]:
    yield from range(-1, max(1, len(shape)))


def product(dtype: str) -> Iterator[dict[str, Any]]:
    for i, call in enumerate(reduce(dtype)):
        if call["x"].size < 1000:
            yield {**call, "x": _near_one(call["x"].shape, dtype, i)}
    if dtype not in FLOATS:  # between floats, tolerances do not tell what the operands were rounded to
        for to in ("float32", "float64", "int64", "int32", "uint8"):
            yield {"x": np.abs(_near_one((3, 4), dtype)), "dims": (1,), "keepdim": False, "dtype": to}


def variance(dtype: str) -> Iterator[dict[str, Any]]:
    for i, call in enumerate(reduce(dtype)):
        extent = np.prod([call["x"].shape[d] for d in call["dims"]]) if call["dims"] and call["x"].ndim else call["x"].size
        yield {"x": call["x"], "dims": call["dims"], "correction": (1, 0, 2)[i % 3] if extent > 2 else 0, "keepdim": call["keepdim"]}
    if dtype in ("float32", "float64"):  # an offset that leaves few digits
        x = (values((3, 3000), "float64") + (1e6 if dtype == "float64" else 1e4)).astype(dtype)
        yield {"x": x, "dims": (1,), "correction": 1, "keepdim": False}
        yield {"x": np.ascontiguousarray(x.T), "dims": (0,), "correction": 1, "keepdim": False}


def norm(dtype: str) -> Iterator[dict[str, Any]]:
    for i, call in enumerate(reduce(dtype)):
        p = (2.0, 1.0, 0.0, np.inf, -np.inf, 3.0, 2.5)[i % 7]
        if call["x"].size == 0 and np.isinf(p):
            continue
        yield {"x": call["x"], "p": p, "dims": call["dims"], "keepdim": call["keepdim"]}
    for p in (2.0, 1.0, np.inf, 3.0):
        yield {"x": with_specials((4, 40), dtype), "p": p, "dims": (1,), "keepdim": False}


def extreme_along(dtype: str) -> Iterator[dict[str, Any]]:
    for i, shape in enumerate([(), (1,), (5,), (5000,), (3, 70), (70, 3), (2, 3, 65), (5, 2100), (2100, 20)]):
        for dim in _along(shape):
            yield {"x": with_specials(shape, dtype, i), "dim": dim, "keepdim": bool((i + dim) % 2)}
    yield {"x": np.ones((3, 5), numpy_dtype(dtype)), "dim": 1, "keepdim": False}


def with_zeros(dtype: str) -> Iterator[dict[str, Any]]:
    for i, call in enumerate(reduce(dtype)):
        x = call["x"]
        if i % 3 == 1:
            x = np.zeros_like(x)
        elif i % 3 == 2:
            x = np.ones_like(x)
        yield {**call, "x": x}
    yield {"x": with_specials((3, 9), dtype), "dims": (1,), "keepdim": False}
    if is_float(dtype):
        yield {"x": np.array([[np.nan, -0.0], [-0.0, 0.0]]).astype(numpy_dtype(dtype)), "dims": (1,), "keepdim": False}


def logsumexp(dtype: str) -> Iterator[dict[str, Any]]:
    yield from reduce(dtype)
    if is_float(dtype):
        x = values((6, 2500), dtype)
        x[0, 5], x[1, :], x[2, 2000], x[3, 100], x[4, 7], x[4, 2400], x[5, :] = np.inf, -np.inf, np.nan, -np.inf, np.inf, -np.inf, 300
        yield {"x": x, "dims": (1,), "keepdim": False}
        yield {"x": np.ascontiguousarray(x.T), "dims": (0,), "keepdim": False}


def log_row(dtype: str) -> Iterator[dict[str, Any]]:
    for call in row(dtype):
        if not np.any(np.abs(call["x"].astype(np.float64)) > 100):
            yield call
    if is_float(dtype):
        x = values((3, 20), dtype)
        x[1, 3] = -np.inf
        yield {"x": x, "dim": -1}


SCANNED = [(), (1,), (5,), (0,), (3, 70), (70, 3), (2, 3, 65), (0, 4), (4, 0), (9, 1100), (20000,)]


def scan(dtype: str) -> Iterator[dict[str, Any]]:
    for i, shape in enumerate(SCANNED):
        for dim in _along(shape):
            yield {"x": with_specials(shape, dtype, i), "dim": dim}


def scan_sum(dtype: str) -> Iterator[dict[str, Any]]:
    for i, shape in enumerate([*SCANNED, (17000, 3)]):
        for dim in _along(shape):
            yield {"x": values(shape, dtype, i), "dim": dim}
    if dtype not in FLOATS:
        for to in ("float32", "float64", "int64", "int16"):
            yield {"x": values((3, 7), dtype), "dim": 1, "dtype": to}


def scan_product(dtype: str) -> Iterator[dict[str, Any]]:
    for i, shape in enumerate(SCANNED[:-1]):
        for dim in _along(shape):
            yield {"x": _near_one(shape, dtype, i), "dim": dim}
    if dtype not in FLOATS:
        yield {"x": np.abs(_near_one((3, 4), dtype)), "dim": 1, "dtype": "float32"}


# ---- oracles


def argmin_oracle(x: np.ndarray, dims: tuple[int, ...] | None, keepdim: bool) -> np.ndarray:
    reduced = tuple(range(x.ndim)) if dims is None else tuple(d % x.ndim for d in dims)
    kept = [d for d in range(x.ndim) if d not in reduced]
    flat = x.transpose(kept + sorted(reduced)).reshape([x.shape[d] for d in kept] + [-1])
    result = np.argmin(flat, axis=-1)
    return result.reshape([1 if d in reduced else x.shape[d] for d in range(x.ndim)]) if keepdim else result


def _extreme_along(position: Any, x: np.ndarray, dim: int, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    at = np.expand_dims(position(x, axis=dim), dim)
    best = np.take_along_axis(x, at, dim)
    return (best, at) if keepdim else (np.squeeze(best, dim), np.squeeze(at, dim))


def max_dim_oracle(x: np.ndarray, dim: int, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    return _extreme_along(np.argmax, x, dim, keepdim)


def min_dim_oracle(x: np.ndarray, dim: int, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    return _extreme_along(np.argmin, x, dim, keepdim)


def norm_oracle(x: np.ndarray, p: float, dims: tuple[int, ...] | None, keepdim: bool) -> np.ndarray:
    size = np.abs(x)
    if p == 0:
        return np.sum(x != 0, axis=dims, keepdims=keepdim)
    if np.isinf(p):
        return (np.max if p > 0 else np.min)(size, axis=dims, keepdims=keepdim)
    return np.sum(size**p, axis=dims, keepdims=keepdim) ** (1 / np.longdouble(p))


def logsumexp_oracle(x: np.ndarray, dims: tuple[int, ...] | None, keepdim: bool) -> np.ndarray:
    if x.size == 0:
        return np.log(np.sum(x, axis=dims, keepdims=keepdim))
    top = np.max(x, axis=dims, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0)
    total = np.sum(np.exp(x - shift), axis=dims, keepdims=keepdim)
    return np.log(total) + shift.reshape(total.shape)


def log_softmax_oracle(x: np.ndarray, dim: int) -> np.ndarray:
    if x.ndim == 0:
        return np.zeros_like(x)
    return x - logsumexp_oracle(x, (dim,), True) if x.size else x


def cumulative_oracle(operation: str, x: np.ndarray, dim: int, out: Any) -> np.ndarray:
    x = x.astype(out)
    return getattr(np, operation).accumulate(x, axis=dim) if x.ndim else x


def _cumulative_extreme(as_good: Any, x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    if x.ndim == 0 or x.size == 0:
        return x, np.zeros(x.shape, np.int64)
    moved = np.moveaxis(x, dim, 0)
    best, at = moved.copy(), np.zeros(moved.shape, np.int64)
    for i in range(1, len(moved)):
        takes = np.isnan(moved[i]) | (~np.isnan(best[i - 1]) & as_good(moved[i], best[i - 1]))
        best[i], at[i] = np.where(takes, moved[i], best[i - 1]), np.where(takes, i, at[i - 1])
    return np.moveaxis(best, 0, dim), np.moveaxis(at, 0, dim)


def cummax_oracle(x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    return _cumulative_extreme(np.greater_equal, x, dim)


def cummin_oracle(x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    return _cumulative_extreme(np.less_equal, x, dim)


def logcumsumexp_oracle(x: np.ndarray, dim: int) -> np.ndarray:
    return np.logaddexp.accumulate(x, axis=dim) if x.ndim else x
