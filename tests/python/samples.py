"""Arguments for the rows of the operator table: for each `samples` name, calls with their operands as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
#: Those that are tried with every sample; the others with a share of them.
MAIN_DTYPES = ("bool", "uint8", "int32", "int64", "bfloat16", "float32", "float64")


def is_float(dtype: str) -> bool:
    return "float" in dtype


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Reproducible values, negative ones and zero among them where the dtype has them."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.startswith("uint"):
        return np.asarray(rng.integers(0, 19, shape)).astype(dtype)
    if dtype.startswith("int"):
        return np.asarray(rng.integers(-9, 10, shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape) * 3).astype(numpy_dtype(dtype))


def with_specials(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """The same with NaN, infinities and signed zeros where the dtype has them."""
    x = values(shape, dtype, seed)
    if is_float(dtype) and x.size >= 8:
        x.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30]
    return x


SHAPES = [(), (0,), (1,), (7,), (5, 33), (3, 0, 2), (2, 3, 70), (2, 1, 3, 4)]


def unary(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        yield {"x": with_specials(shape, dtype)}


def binary(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        yield {"a": with_specials(shape, dtype), "b": with_specials(shape, dtype, 1)}
    for a, b in [((2, 3), (3,)), ((3, 1), (1, 70)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3)), ((2, 3), (1,)), ((1,), (2, 2)), ((2, 3), ())]:
        yield {"a": values(a, dtype), "b": values(b, dtype, 1)}


def positive(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        x = np.abs(values(shape, dtype))
        yield {"x": np.asarray(x + x.dtype.type(1) if dtype != "bool" else x | True)}


def moderate(dtype: str) -> Iterator[dict[str, Any]]:
    """Without infinities, which NumPy's formulas of bounded functions do not survive."""
    for shape in SHAPES:
        yield {"x": values(shape, dtype)}
    yield {"x": np.array([np.nan, 0.0, -0.0, 5.0, -5.0, 100.0, -100.0]).astype(numpy_dtype(dtype)) if is_float(dtype) else values((7,), dtype)}


def with_attributes(*choices: dict[str, Any]) -> Any:
    """Samples of one operand, with each of the given attributes in turn."""

    def make(dtype: str) -> Iterator[dict[str, Any]]:
        for i, attributes in enumerate(choices):
            for shape in SHAPES[i % 2 :]:
                yield {"x": with_specials(shape, dtype, i), **attributes}

    return make


nan_to_num = with_attributes(
    {"nan": 0.0, "posinf": None, "neginf": None}, {"nan": 1.5, "posinf": 2.0, "neginf": -3.0}, {"nan": -1.0, "posinf": None, "neginf": 7.0}
)
hardtanh = with_attributes({"min_val": -1.0, "max_val": 1.0}, {"min_val": -0.5, "max_val": 2.0})
leaky_relu = with_attributes({"negative_slope": 0.25}, {"negative_slope": 0.01}, {"negative_slope": -1.5})
elu = with_attributes({"alpha": 1.0}, {"alpha": 0.5}, {"alpha": 2.0})
gelu = with_attributes({"approximate": "none"}, {"approximate": "tanh"})
softplus = with_attributes({"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 5.0})
threshold = with_attributes({"threshold": 0.5, "value": -2.0}, {"threshold": -1.0, "value": 20.0})


def division(dtype: str) -> Iterator[dict[str, Any]]:
    for call in binary(dtype):
        b = call["b"]
        yield {"a": call["a"], "b": np.where(b == 0, b.dtype.type(3), b).astype(b.dtype) if not is_float(dtype) and dtype != "bool" else b}
    if dtype.startswith("int"):
        least = np.array([np.iinfo(dtype).min, 7, -7, 7, -7], dtype)
        yield {"a": least, "b": np.array([-1, 3, 3, -3, -3], dtype)}


def power(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        yield {"a": with_specials(shape, dtype), "b": values(shape, dtype, 1)}
    for exponent in (0, 1, 2, 3, 5):
        yield {"a": values((3, 9), dtype), "b": np.full((), exponent, numpy_dtype(dtype))}


def shift(dtype: str) -> Iterator[dict[str, Any]]:
    yield from binary(dtype)
    if "int" in dtype:
        yield {"a": values((70,), dtype), "b": np.arange(70).astype(dtype)}


def lerp(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        yield {"a": values(shape, dtype), "b": values(shape, dtype, 1), "weight": values(shape, dtype, 2)}
    yield {"a": values((3, 1), dtype), "b": values((70,), dtype, 1), "weight": values((), dtype, 2)}


def where(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        yield {"condition": values(shape, "bool", 2), "a": with_specials(shape, dtype), "b": values(shape, dtype, 1)}
    yield {"condition": values((3, 1), "bool"), "a": values((70,), dtype, 1), "b": values((), dtype, 2)}


def reduce(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in [(), (1,), (5,), (5000,), (3, 70), (70, 3), (9000, 5), (2, 3, 65), (3, 0), (0, 3)]:
        rank = max(1, len(shape))  # a 0-d tensor has one dimension to name, as in torch
        for dims in [None, *[(d,) for d in range(rank)], (-1,), (0, -1)]:
            if dims is not None and len({d % rank for d in dims}) < len(dims):
                continue
            for keepdim in (False, True):
                yield {"x": values(shape, dtype), "dims": dims, "keepdim": keepdim}


def reduce_float(dtype: str) -> Iterator[dict[str, Any]]:
    yield from reduce(dtype)


def reduce_nonempty(dtype: str) -> Iterator[dict[str, Any]]:
    for call in reduce(dtype):
        if call["x"].size:
            yield call
    yield {"x": with_specials((4, 9), dtype), "dims": (1,), "keepdim": False}
    yield {"x": with_specials((9, 4), dtype), "dims": (0,), "keepdim": False}
    yield {"x": np.ones((3, 5), numpy_dtype(dtype)), "dims": None, "keepdim": False}  # equal elements: the first wins


def row(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in [(), (1,), (5,), (3, 100), (2, 3, 17), (0, 4), (4, 0), (3, 1025)]:
        for dim in range(-1, max(1, len(shape))):
            yield {"x": values(shape, dtype), "dim": dim}
    extreme = values((3, 20), dtype)
    if is_float(dtype):
        extreme[0, 0], extreme[1, 3], extreme[2, :] = 1e30, -np.inf, -1e30
    yield {"x": extreme, "dim": -1}


def cast(dtype: str) -> Iterator[dict[str, Any]]:
    for to in DTYPES:
        for shape in [(), (0,), (70,), (3, 5)]:
            yield {"x": values(shape, dtype), "dtype": to}


def full(dtype: str) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        yield {"shape": list(shape), "value": values((), dtype).item(), "dtype": dtype}


def arange(dtype: str) -> Iterator[dict[str, Any]]:
    for start, end, step in [(0, 10, 1), (5, -5, -3), (3, 3, 1), (0, 10, -1), (-7, 20, 4), (0, 3000, 1)]:
        if dtype == "bool" and (start, end, step) != (3, 3, 1):
            continue
        yield {"start": start, "end": end, "step": step, "dtype": dtype}
    if is_float(dtype):
        yield {"start": 0.5, "end": 4.0, "step": 0.25, "dtype": dtype}


def reshape(dtype: str) -> Iterator[dict[str, Any]]:
    for shape, to in [((2, 3), (6,)), ((2, 3), (-1,)), ((6,), (3, 2)), ((2, 3, 4), (4, -1)), ((), (1, 1)), ((1,), ()), ((0, 3), (3, 0)), ((5, 7), (7, 5))]:
        yield {"x": values(shape, dtype), "shape": list(to)}


def permute(dtype: str) -> Iterator[dict[str, Any]]:
    for shape, dims in [((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 3, 4), (0, -1, 1)), ((), ()), ((0, 3), (1, 0))]:
        yield {"x": values(shape, dtype), "dims": list(dims)}


def slice(dtype: str) -> Iterator[dict[str, Any]]:
    for start in (None, 0, 2, -3, 99, -99):
        for end in (None, 0, 4, -1, 99, -99):
            for step in (1, 2, -1, -3, 2**62, -(2**62)):
                yield {"x": values((7, 2), dtype), "dim": 0, "start": start, "end": end, "step": step}
    yield {"x": values((2, 0), dtype), "dim": -1, "start": None, "end": None, "step": -1}


def select(dtype: str) -> Iterator[dict[str, Any]]:
    for dim, index in [(0, 0), (0, -1), (1, 2), (-1, 1), (-3, 1)]:
        yield {"x": values((2, 3, 4), dtype), "dim": dim, "index": index}


def concat(dtype: str) -> Iterator[dict[str, Any]]:
    for shapes, dim in [([(2, 3), (1, 3)], 0), ([(2, 3), (2, 0), (2, 2)], 1), ([(4,)], 0), ([(2, 3, 4)] * 3, -1), ([(0, 2), (0, 2)], 0)]:
        yield {"tensors": [values(shape, dtype, i) for i, shape in enumerate(shapes)], "dim": dim}


def matmul(dtype: str) -> Iterator[dict[str, Any]]:
    pairs = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2))]
    # Tails of one row and of one column, which oneDNN computes in kernels of their own.
    pairs += [((m, 67), (67, n)) for m in (129, 193, 513) for n in (256, 257)]
    pairs += [((0, 3), (3, 4)), ((2, 0), (0, 3)), ((1, 70), (70, 1)), ((130, 67), (67, 300)), ((1, 300), (300, 500)), ((10, 40, 30), (10, 30, 20))]
    for a, b in pairs:
        yield {"a": values(a, dtype), "b": values(b, dtype, 1)}
