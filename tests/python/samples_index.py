"""Samples and oracles of operators that sort, search, and go by places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from samples import DTYPES, is_float, numpy_dtype, values, with_specials

FLOATS = [d for d in DTYPES if is_float(d)]
INDEX_DTYPES = ["int64", "int32", "uint8", "int16", "uint64", "int8", "uint32", "uint16"]

RESULTS = {
    "with_places": lambda dtype, call: (dtype, "int64"),
    "searchsorted": lambda dtype, call: "int64",
    "bincount": lambda dtype, call: "int64" if call["weights"] is None else "float32" if call["weights"].dtype == np.float32 else "float64",
}
REFUSED = {"bincount": ["bool", *FLOATS]}


def places(shape: tuple[int, ...], size: int, number: int = 0) -> np.ndarray:
    """Places in a dimension, in every integer dtype in turn; the signed ones count from the end too."""
    dtype = INDEX_DTYPES[number % len(INDEX_DTYPES)]
    least = 0 if dtype.startswith("u") else -size
    return np.asarray(np.random.default_rng(number).integers(least, size, shape)).astype(dtype)


# ---- sorting


def lines(dtype: str) -> Iterator[tuple[np.ndarray, int]]:
    for shape in [(), (1,), (7,), (0,), (300,), (5, 41), (41, 5), (2, 3, 70), (3, 0, 2), (2, 300)]:
        for dim in range(-1, max(1, len(shape))):
            yield with_specials(shape, dtype, len(shape)), dim
    if is_float(dtype):
        nan, inf = np.nan, np.inf
        yield np.array([nan, 0.0, -0.0, 1.0, -nan, -0.0, 0.0, -inf, inf, nan, -1.0, 0.0]).astype(numpy_dtype(dtype)), 0
    if "int" in dtype:
        info = np.iinfo(dtype)
        yield np.array([info.max, info.min, 0, 1, info.max, info.min], dtype), 0


def sort(dtype: str) -> Iterator[dict[str, Any]]:
    for (x, dim), descending in itertools.product(lines(dtype), (False, True)):
        yield {"x": x, "dim": dim, "descending": descending}


def topk(dtype: str) -> Iterator[dict[str, Any]]:
    for x, dim in lines(dtype):
        n = x.shape[dim] if x.ndim else 1
        for k in sorted({0 if x.ndim else 1, min(1, n), min(3, n), n // 9, n} - {0 if not x.ndim else -1}):
            for largest in (True, False):
                yield {"x": x, "k": k, "dim": dim, "largest": largest}


def kthvalue(dtype: str) -> Iterator[dict[str, Any]]:
    for x, dim in lines(dtype):
        n = x.shape[dim] if x.ndim else 1
        for k in sorted({1, min(3, n), n}):
            if 1 <= k <= n:
                yield {"x": x, "k": k, "dim": dim, "keepdim": k == 1}


def sort_oracle(x: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    wide = x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x
    if descending:  # the ranks of the values, the other way round
        wide = -np.unique(wide, return_inverse=True)[1].reshape(x.shape).astype(np.int64)
    order = np.argsort(wide, axis=dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


def topk_oracle(x: np.ndarray, k: int, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    values, order = sort_oracle(x, dim, largest)
    return (values, order) if x.ndim == 0 else (np.take(values, np.arange(k), dim), np.take(order, np.arange(k), dim))


def kthvalue_oracle(x: np.ndarray, k: int, dim: int, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    values, order = sort_oracle(x, dim, False)
    if x.ndim == 0:
        return values, order
    at = np.array([k - 1]) if keepdim else k - 1
    return np.take(values, at, dim), np.take(order, at, dim)


def unique_oracle(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x  # NumPy knows how to sort its own NaN only
    return np.unique(wide, equal_nan=False).astype(x.dtype)


def searchsorted(dtype: str) -> Iterator[dict[str, Any]]:
    for right in (False, True):
        for n, shape in [(9, (5,)), (1, (3, 4)), (0, (3,)), (40, ()), (200, (2, 3, 50))]:
            yield {"sorted": np.sort(values((n,), dtype)), "values": with_specials(shape, dtype, 1), "right": right}
        for n, shape in [(9, (5, 3)), (4, (2, 3, 8)), (3, (2, 0))]:
            yield {"sorted": np.sort(values((*shape[:-1], n), dtype), axis=-1), "values": values(shape, dtype, 1), "right": right}
        if is_float(dtype):
            row = np.array([-np.inf, -0.0, 0.0, 1.0, np.nan, np.nan]).astype(numpy_dtype(dtype))
            yield {"sorted": row, "values": row, "right": right}


def searchsorted_oracle(sorted: np.ndarray, values: np.ndarray, right: bool) -> np.ndarray:
    if sorted.dtype == ml_dtypes.bfloat16:
        sorted, values = sorted.astype(np.float32), values.astype(np.float32)
    side = "right" if right else "left"
    if sorted.ndim == 1:
        return np.searchsorted(sorted, values, side)
    result = np.empty(values.shape, np.int64)
    for at in np.ndindex(values.shape[:-1]):
        result[at] = np.searchsorted(sorted[at], values[at], side)
    return result


def bincount(dtype: str) -> Iterator[dict[str, Any]]:
    for n in (1, 9, 0, 500):
        x = np.abs(values((n,), dtype))
        for weights in (None, values((n,), "float32", 1), values((n,), "float64", 2), values((n,), "int32", 3)):
            for minlength in (0, 25):
                yield {"x": x, "weights": weights, "minlength": minlength}


def bincount_oracle(x: np.ndarray, weights: np.ndarray | None, minlength: int) -> np.ndarray:
    return np.bincount(x.astype(np.int64), None if weights is None else weights.astype(np.float64), minlength)


# ---- places


def gather(dtype: str) -> Iterator[dict[str, Any]]:
    shapes = [((5,), (7,), 0), ((3, 4), (3, 9), 1), ((3, 4), (2, 4), 0), ((3, 4), (2, 3), -1), ((2, 3, 4), (1, 5, 4), 1), ((), (), 0), ((3, 4), (0, 4), 0)]
    for number, (shape, of_index, dim) in enumerate([*shapes, ((4, 300), (4, 600), 1), ((300, 4), (600, 4), 0)]):
        yield {"x": with_specials(shape, dtype), "dim": dim, "index": places(of_index, shape[dim] if shape else 1, number)}


def gather_oracle(x: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    if x.ndim == 0:
        return x
    at = list(np.indices(index.shape))
    at[dim] = index.astype(np.int64)
    return x[tuple(at)]


def scatter(dtype: str) -> Iterator[dict[str, Any]]:
    shapes = [((5,), (7,), (7,), 0), ((3, 4), (3, 9), (4, 10), 1), ((3, 4), (2, 4), (2, 4), 0), ((2, 3, 4), (1, 5, 4), (), 1), ((), (), (), 0)]
    shapes += [((3, 4), (0, 4), (2, 4), 0), ((3, 40), (8, 40), (8, 40), 0)]
    for number, (reduce, (shape, of_index, of_src, dim)) in enumerate(itertools.product(["none", "sum", "prod", "mean", "amax", "amin"], shapes)):
        for own in (True, False):
            if dtype == "bool" and reduce == "mean":
                continue
            src = with_specials(of_src, dtype, 1) if reduce in ("none", "amax", "amin") else values(of_src, dtype, 1)
            index = places(of_index, shape[dim] if shape else 1, number)
            yield {"x": values(shape, dtype), "dim": dim, "index": index, "src": src, "reduce": reduce, "include_self": own}


def scatter_oracle(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray, reduce: str, include_self: bool) -> np.ndarray:
    wide = np.longdouble if is_float(x.dtype.name) else x.dtype
    out, src = np.atleast_1d(x.astype(wide)), np.broadcast_to(src, index.shape) if src.ndim == 0 else src
    count = np.full(out.shape, int(include_self))
    for at in np.ndindex(index.shape):
        to = list(at) or [0]
        to[dim] = int(index[at]) % out.shape[dim]
        place, value = tuple(to), src[at].astype(wide)
        first = count[place] == 0
        count[place] += 1
        with np.errstate(all="ignore"):
            if first or reduce == "none":
                out[place] = value
            else:
                f = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce]
                out[place] = f(out[place], value)
    if reduce == "mean":
        count = np.maximum(count, 1).astype(np.int64)
        out = (
            out / count
            if is_float(x.dtype.name)
            else (out // count.astype(out.dtype) if x.dtype.kind == "u" else (out.astype(np.int64) // count)).astype(x.dtype)
        )
    return out.reshape(x.shape)


def take(dtype: str) -> Iterator[dict[str, Any]]:
    for number, (shape, of_index) in enumerate([((5,), (7,)), ((3, 4), (2, 5)), ((2, 3, 4), ()), ((), (3,)), ((3, 4), (0,)), ((4, 30), (300,))]):
        yield {"x": with_specials(shape, dtype), "index": places(of_index, int(np.prod(shape)), number)}


def index_select(dtype: str) -> Iterator[dict[str, Any]]:
    for number, (shape, n, dim) in enumerate(
        [((5,), 7, 0), ((3, 4), 5, 1), ((3, 4), 5, 0), ((2, 3, 4), 4, -2), ((3, 4), 0, 1), ((6, 70), 9, 0), ((0, 3), 4, 1)]
    ):
        yield {"x": with_specials(shape, dtype), "dim": dim, "index": places((n,), shape[dim], number)}
    yield {"x": values((3, 4), dtype), "dim": 0, "index": np.array(2)}


def embedding(dtype: str) -> Iterator[dict[str, Any]]:
    for number, (shape, of_index) in enumerate([((5, 8), (7,)), ((9, 3), (2, 5)), ((4, 1), ()), ((3, 0), (2,)), ((3, 70), (0, 4)), ((30, 70), (300,))]):
        yield {"index": places(of_index, shape[0], number), "weight": with_specials(shape, dtype)}


INDEXED = [
    ((5,), [(7,)], [0]),
    ((3, 4), [(2, 5)], [1]),
    ((3, 4), [(6,), (6,)], [0, 1]),
    ((3, 4, 5), [(2, 1), (3,)], [0, 2]),
    ((3, 4, 5), [(2, 1), (3,)], [1, 2]),
    ((3, 4, 5), [(), (3,)], [0, 1]),
    ((3, 4, 5, 2), [(4,), (1,), (2, 4)], [0, 1, 3]),
    ((3, 4), [()], [-1]),
    ((3, 4), [(0,)], [0]),
    ((3, 0), [(2,)], [0]),
    ((9, 40), [(70,)], [0]),
    ((40, 9), [(70,)], [1]),
]


def index(dtype: str) -> Iterator[dict[str, Any]]:
    for number, (shape, of_indices, dims) in enumerate(INDEXED):
        indices = [places(of, shape[dim], number + i) for i, (of, dim) in enumerate(zip(of_indices, dims, strict=True))]
        yield {"x": with_specials(shape, dtype), "indices": indices, "dims": dims}


def key_of(x: np.ndarray, indices: list[np.ndarray], dims: list[int]) -> tuple[Any, ...]:
    """What to index with in NumPy, whose integers and slices between arrays follow the same rule."""
    key: list[Any] = [slice(None)] * x.ndim
    for dim, index in zip(dims, indices, strict=True):
        key[dim] = index.astype(np.int64)
    return tuple(key)


def index_oracle(x: np.ndarray, indices: list[np.ndarray], dims: list[int]) -> np.ndarray:
    return x[key_of(x, indices, dims)]


def index_put(dtype: str) -> Iterator[dict[str, Any]]:
    for call in index(dtype):
        of_values = index_oracle(**call).shape
        for accumulate, shape in [(False, of_values), (True, of_values), (True, of_values[-1:]), (False, ())]:
            yield {
                "x": values(call["x"].shape, dtype),
                "values": values(shape, dtype, 1),
                **{k: call[k] for k in ("indices", "dims")},
                "accumulate": accumulate,
            }


def index_put_oracle(x: np.ndarray, values: np.ndarray, indices: list[np.ndarray], dims: list[int], accumulate: bool) -> np.ndarray:
    out = x.astype(np.longdouble) if is_float(x.dtype.name) else x.copy()
    if accumulate:
        np.add.at(out, key_of(x, indices, dims), values.astype(out.dtype))
    else:
        out[key_of(x, indices, dims)] = values
    return out


# ---- masks


def masks(dtype: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for shape, of_mask in [((), ()), ((7,), (7,)), ((5, 33), (5, 33)), ((5, 33), (33,)), ((3, 1), (3, 4)), ((3, 0, 2), (2,)), ((2, 3, 70), (3, 1)), ((9,), ())]:
        yield with_specials(shape, dtype), values(of_mask, "bool", 3)


def masked_select(dtype: str) -> Iterator[dict[str, Any]]:
    for x, mask in masks(dtype):
        yield {"x": x, "mask": mask}


def masked_fill(dtype: str) -> Iterator[dict[str, Any]]:
    for x, mask in masks(dtype):
        yield {"x": x, "mask": mask, "value": values((), dtype, 5)}


def masked_scatter(dtype: str) -> Iterator[dict[str, Any]]:
    for x, mask in masks(dtype):
        n = np.broadcast(x, mask).size
        yield {"x": x, "mask": mask, "source": values((n + 1,), dtype, 5) if n % 2 else values((2, n), dtype, 5)}


def masked_scatter_oracle(x: np.ndarray, mask: np.ndarray, source: np.ndarray) -> np.ndarray:
    out, chosen = (np.array(a) for a in np.broadcast_arrays(x, mask))
    out[chosen] = source.reshape(-1)[: int(chosen.sum())]
    return out
