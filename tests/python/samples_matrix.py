"""Samples of the operators that are matrix products, and of what is built like them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samples import values


def added_product_oracle(input: np.ndarray, a: np.ndarray, b: np.ndarray, beta: float, alpha: float) -> np.ndarray:
    if a.dtype.kind in "iu":
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        beta, alpha = wide(int(beta)), wide(int(alpha))
        return (beta * input.astype(wide) + alpha * np.matmul(a, b).astype(wide)).astype(a.dtype)
    product = np.matmul(a, b)
    return product * abs(alpha) + input * abs(beta) if np.all(a >= 0) and np.all(b >= 0) and np.all(input >= 0) else alpha * product + beta * input


def linear(dtype: str) -> Iterator[dict[str, Any]]:
    for x, out in [((3,), 4), ((2, 3), 4), ((5, 2, 3), 1), ((0, 3), 4), ((2, 0), 3), ((1, 300), 500), ((70, 67), 129), ((3, 1, 40), 300), ((40, 130), 257)]:
        for bias in (False, True):
            call = {"x": values(x, dtype), "weight": values((out, x[-1]), dtype, 1)}
            yield call | {"bias": values((out,), dtype, 2) if bias else None}


#: Factors that every dtype has.
FACTORS = [(1.0, 1.0), (0.0, 2.0), (2.0, 1.0), (3.0, 2.0)]


def addmm(dtype: str) -> Iterator[dict[str, Any]]:
    shapes = [((2, 3), (3, 4)), ((70, 67), (67, 129)), ((1, 300), (300, 50)), ((65, 33), (33, 1)), ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((130, 67), (67, 260))]
    for i, (a, b) in enumerate(shapes):
        for j, added in enumerate([(), (b[1],), (a[0], 1), (1, b[1]), (a[0], b[1])]):
            beta, alpha = FACTORS[(i + j) % len(FACTORS)]
            yield {"input": values(added, dtype, 2), "a": values(a, dtype), "b": values(b, dtype, 1), "beta": beta, "alpha": alpha}


def baddbmm(dtype: str) -> Iterator[dict[str, Any]]:
    for i, (a, b) in enumerate([((5, 2, 3), (5, 3, 4)), ((3, 70, 20), (3, 20, 40)), ((2, 1, 9), (2, 9, 33)), ((2, 9, 5), (2, 5, 1)), ((0, 2, 3), (0, 3, 4))]):
        for j, added in enumerate([(), (b[2],), (a[1], 1), (a[0], 1, b[2]), (a[0], a[1], b[2])]):
            beta, alpha = FACTORS[(i + j) % len(FACTORS)]
            yield {"input": values(added, dtype, 2), "a": values(a, dtype), "b": values(b, dtype, 1), "beta": beta, "alpha": alpha}


def _pairs(dtype: str, pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Iterator[dict[str, Any]]:
    for a, b in pairs if dtype != "bool" else ():
        yield {"a": values(a, dtype), "b": values(b, dtype, 1)}


def bmm(dtype: str) -> Iterator[dict[str, Any]]:
    return _pairs(dtype, [((5, 2, 3), (5, 3, 4)), ((10, 40, 30), (10, 30, 20)), ((0, 2, 3), (0, 3, 4)), ((3, 2, 0), (3, 0, 2))])


def mv(dtype: str) -> Iterator[dict[str, Any]]:
    return _pairs(dtype, [((2, 3), (3,)), ((500, 300), (300,)), ((3, 0), (0,)), ((0, 3), (3,)), ((33, 1), (1,))])


def dot(dtype: str) -> Iterator[dict[str, Any]]:
    return _pairs(dtype, [((3,), (3,)), ((1000,), (1000,)), ((0,), (0,)), ((1,), (1,)), ((40_000,), (40_000,))])


def outer(dtype: str) -> Iterator[dict[str, Any]]:
    for a, b in [((3,), (4,)), ((0,), (3,)), ((70,), (1,))]:
        yield {"a": values(a, dtype), "b": values(b, dtype, 1)}


def kron(dtype: str) -> Iterator[dict[str, Any]]:
    for a, b in [((2, 3), (4, 5)), ((3,), (2, 2)), ((2, 1, 3), (2,)), ((), (3,)), ((2, 2), ()), ((0, 2), (3, 1))]:
        yield {"a": values(a, dtype), "b": values(b, dtype, 1)}


def triangle(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in [(3, 3), (4, 70), (70, 4), (2, 3, 5), (0, 3), (3, 0), (1, 1)]:
        for diagonal in (0, 1, -1, 3, -3, 100, -100):
            yield {"x": values(shape, dtype), "diagonal": diagonal}
