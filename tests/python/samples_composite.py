"""Samples and oracles of the operators that are made of a few others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samples import is_float, numpy_dtype, values


def norm_oracle(x: np.ndarray, p: float, dims: Any, keepdim: bool) -> np.ndarray:
    size = np.abs(x)
    if p == 0:
        return np.sum(size != 0, axis=dims, keepdims=keepdim).astype(x.dtype)
    if np.isinf(p):
        return (np.max if p > 0 else np.min)(size, axis=dims, keepdims=keepdim)
    return np.sum(size**p, axis=dims, keepdims=keepdim) ** (1 / np.longdouble(p))


def _axes(dim: Any) -> tuple[int, ...]:
    return (dim,) if isinstance(dim, int) else tuple(dim)


def normalize_oracle(x: np.ndarray, p: float, dim: Any, eps: float) -> np.ndarray:
    return x / np.maximum(norm_oracle(x, p, _axes(dim), True), eps)


def normalize(dtype: str) -> Iterator[dict[str, Any]]:
    if not is_float(dtype):
        return
    for i, (shape, dim) in enumerate([((3, 5), 1), ((4, 70), -1), ((70, 4), 0), ((2, 3, 4), (0, 2)), ((1,), 0), ((0, 3), 1), ((33, 129), 1)]):
        yield {"x": values(shape, dtype, i), "p": (2.0, 1.0, 3.0, float("inf"))[i % 4], "dim": dim, "eps": 1e-12}
    yield {"x": np.zeros((2, 3), numpy_dtype(dtype)), "p": 2.0, "dim": 1, "eps": 0.5}
    yield {"x": values((3, 4), dtype), "p": 2.0, "dim": 1, "eps": 100.0}


def cosine_similarity_oracle(x1: np.ndarray, x2: np.ndarray, dim: int, eps: float) -> np.ndarray:
    a, b = (normalize_oracle(x, 2, dim, eps) for x in np.broadcast_arrays(x1, x2))
    return np.sum(a * b, axis=dim)


def cosine_similarity(dtype: str) -> Iterator[dict[str, Any]]:
    if not is_float(dtype):
        return
    for a, b, dim in [((3, 5), (3, 5), 1), ((4, 70), (70,), -1), ((70, 4), (1, 4), 0), ((2, 3, 1), (1, 4), 2), ((0, 3), (0, 3), 1), ((7,), (7,), 0)]:
        yield {"x1": values(a, dtype), "x2": values(b, dtype, 1), "dim": dim, "eps": 1e-8}
    yield {"x1": np.zeros((2, 3), numpy_dtype(dtype)), "x2": values((2, 3), dtype), "dim": 1, "eps": 1e-8}


def pairwise_distance_oracle(x1: np.ndarray, x2: np.ndarray, p: float, eps: float, keepdim: bool) -> np.ndarray:
    return norm_oracle(x1 - x2 + eps, p, -1, keepdim)


def pairwise_distance(dtype: str) -> Iterator[dict[str, Any]]:
    if not is_float(dtype):
        return
    for i, (a, b) in enumerate([((3, 5), (3, 5)), ((4, 70), (70,)), ((2, 3, 1), (1, 4)), ((0, 3), (3,)), ((7,), (7,))]):  # nothing cancels
        x1, x2 = np.abs(values(a, dtype)), -np.abs(values(b, dtype, 1))
        yield {"x1": x1, "x2": x2, "p": (2.0, 1.0, 3.0)[i % 3], "eps": 1e-6, "keepdim": i % 2 == 1}


def nan_reduce(dtype: str) -> Iterator[dict[str, Any]]:
    if not is_float(dtype):
        return
    for shape in [(), (5,), (3, 70), (70, 3), (2, 3, 65), (3, 0)]:
        x = values(shape, dtype)
        x.reshape(-1)[::3] = np.nan
        for dims in [None, (0,), (-1,)]:
            yield {"x": x, "dims": dims, "keepdim": dims is not None and dims[0] == -1}


def logit_oracle(x: np.ndarray, eps: float | None) -> np.ndarray:
    z = x if eps is None else np.clip(x, eps, 1 - eps)
    return np.log(z / (1 - z))


def logit(dtype: str) -> Iterator[dict[str, Any]]:
    if not is_float(dtype):
        return
    for i, shape in enumerate([(), (7,), (5, 33), (3, 0, 2)]):
        x = np.random.default_rng(i).uniform(0.05, 0.95, shape)
        for eps in (None, 0.25):
            yield {"x": np.asarray(x).astype(numpy_dtype(dtype)), "eps": eps}


def binary_floats(dtype: str) -> Iterator[dict[str, Any]]:
    if not is_float(dtype):
        return
    for a, b in [((), ()), ((7,), (7,)), ((5, 33), (33,)), ((0, 3), (1, 3)), ((3, 1), (1, 70))]:
        x = values(a, dtype)
        x.reshape(-1)[::4] = 0
        yield {"a": x, "b": np.abs(values(b, dtype, 1))}


def diff_oracle(x: np.ndarray, n: int, dim: int, prepend: np.ndarray | None, append: np.ndarray | None) -> np.ndarray:
    return np.diff(np.concatenate([part for part in (prepend, x, append) if part is not None], dim), n, dim)


def diff(dtype: str) -> Iterator[dict[str, Any]]:
    for shape, n, dim in [((7,), 1, -1), ((5, 33), 1, 0), ((2, 3, 70), 1, 1), ((3, 0), 1, 0), ((4, 5), 0, 1), ((2, 1), 1, 1), ((0,), 1, 0)]:
        yield {"x": values(shape, dtype), "n": n, "dim": dim, "prepend": None, "append": None}
    yield {"x": values((3, 4), dtype), "n": 1, "dim": 1, "prepend": values((3, 2), dtype, 1), "append": None}
    yield {"x": values((3, 4), dtype), "n": 1, "dim": 0, "prepend": values((1, 4), dtype, 1), "append": values((2, 4), dtype, 2)}
    if not is_float(dtype):
        yield {"x": values((9, 4), dtype), "n": 3, "dim": 0, "prepend": None, "append": None}


def take_along_dim(dtype: str) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for shape, of_index, dim in [
        ((7,), (3,), 0),
        ((5, 33), (5, 2), 1),
        ((5, 33), (1, 4), 1),
        ((5, 1, 4), (1, 3, 2), 2),
        ((4, 3), (9,), None),
        ((3, 0), (2, 0), 0),
    ]:
        size = int(np.prod(shape)) if dim is None else shape[dim]
        yield {"x": values(shape, dtype), "index": rng.integers(-size, size, of_index), "dim": dim}


def mm(dtype: str) -> Iterator[dict[str, Any]]:
    for a, b in [((2, 3), (3, 4)), ((70, 67), (67, 129)), ((0, 3), (3, 2)), ((2, 0), (0, 3))] if dtype != "bool" else ():
        yield {"a": values(a, dtype), "b": values(b, dtype, 1)}


def hstack(dtype: str) -> Iterator[dict[str, Any]]:
    for shapes in [((), (3,), ()), ((2,), (0,)), ((2, 3), (2, 1)), ((2, 3, 4), (2, 1, 4)), ((5,),)]:
        yield {"tensors": [values(shape, dtype, i) for i, shape in enumerate(shapes)]}


def vstack(dtype: str) -> Iterator[dict[str, Any]]:
    for shapes in [((), (1,), ()), ((2,), (2,)), ((2, 3), (3,), (1, 3)), ((2, 3, 4), (1, 3, 4)), ((5,),)]:
        yield {"tensors": [values(shape, dtype, i) for i, shape in enumerate(shapes)]}


def channel_shuffle(dtype: str) -> Iterator[dict[str, Any]]:
    for shape, groups in [((6,), 2), ((2, 3, 12), 3), ((5, 4), 4), ((5, 4), 1), ((0, 4), 2)]:
        yield {"x": values(shape, dtype), "groups": groups}
