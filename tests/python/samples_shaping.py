"""Samples of views, of what moves elements, of tensors from a few numbers, and of elementwise operators of three operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samples import is_float, numpy_dtype, values, with_specials

REFUSED = {
    "clamp": ["bool"],
    "prelu": ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"],
    "one_hot": ["bool", "float16", "bfloat16", "float32", "float64"],
}
RESULTS = {
    "given_or_float32": lambda dtype, call: str(call["dtype"]),
    "one_hot": lambda dtype, call: "int64",
}

Calls = Iterator[dict[str, Any]]


def each(*cases: tuple[tuple[int, ...], dict[str, Any]]) -> Any:
    """Samples of one operand: a shape and the other arguments."""

    def make(dtype: str) -> Calls:
        for i, (shape, arguments) in enumerate(cases):
            yield {"x": with_specials(shape, dtype, i), **arguments}

    return make


# ---- views

expand = each(
    ((3,), {"shape": [2, -1]}), ((2, 1, 3), {"shape": [2, 5, 3]}), ((1,), {"shape": [4]}), ((), {"shape": [2, 3]}), ((), {"shape": []}),
    ((2, 1), {"shape": [3, -1, 0]}), ((1, 4), {"shape": [70, 4]}), ((0, 1), {"shape": [0, 3]}),
)  # fmt: skip
broadcast_to = each(
    ((3,), {"shape": [2, 3]}), ((2, 1, 3), {"shape": [4, 2, 5, 3]}), ((), {"shape": [2, 2]}), ((1,), {"shape": [0]}), ((5, 33), {"shape": [5, 33]})
)
transpose = each(((2, 3), {"dim0": 0, "dim1": 1}), ((2, 3, 4), {"dim0": -1, "dim1": 0}), ((2, 3, 4), {"dim0": 1, "dim1": 1}), ((), {"dim0": 0, "dim1": -1}))
squeeze = each(
    ((1, 3, 1), {"dims": None}), ((1, 3, 1), {"dims": [0]}), ((1, 3, 1), {"dims": [-1, 1]}),
    ((2, 3), {"dims": [0]}), ((), {"dims": None}), ((1, 1), {"dims": []}),
)  # fmt: skip
unsqueeze = each(*[((2, 3), {"dim": dim}) for dim in range(-3, 3)], ((), {"dim": 0}), ((0,), {"dim": -1}))
flatten = each(
    ((2, 3, 4), {"start_dim": 0, "end_dim": -1}), ((2, 3, 4), {"start_dim": 1, "end_dim": 2}), ((2, 3, 4), {"start_dim": 0, "end_dim": 1}),
    ((2, 3), {"start_dim": 1, "end_dim": 1}), ((), {"start_dim": 0, "end_dim": -1}), ((2, 0, 3), {"start_dim": 1, "end_dim": -1}),
)  # fmt: skip
unflatten = each(
    ((6,), {"dim": 0, "sizes": [2, 3]}), ((2, 12), {"dim": -1, "sizes": [3, -1, 2]}), ((4, 5), {"dim": 0, "sizes": [4]}), ((0, 2), {"dim": 0, "sizes": [0, 7]})
)
movedim = each(
    ((2, 3, 4), {"source": [0], "destination": [-1]}), ((2, 3, 4), {"source": [0, 1], "destination": [1, 2]}), ((2, 3, 4), {"source": [], "destination": []}),
    ((2, 3, 4, 5), {"source": [3, 0], "destination": [0, 2]}),
)  # fmt: skip
diagonal = each(
    ((3, 4), {"offset": 0, "dim1": 0, "dim2": 1}), ((3, 4), {"offset": 2, "dim1": 0, "dim2": 1}), ((3, 4), {"offset": -2, "dim1": 0, "dim2": 1}),
    ((3, 4), {"offset": -1, "dim1": 1, "dim2": 0}), ((2, 3, 4, 5), {"offset": 1, "dim1": 1, "dim2": -1}), ((3, 4), {"offset": 9, "dim1": 0, "dim2": 1}),
)  # fmt: skip
unfold = each(
    ((7,), {"dim": 0, "size": 3, "step": 2}), ((2, 9, 3), {"dim": 1, "size": 4, "step": 1}),
    ((5,), {"dim": 0, "size": 5, "step": 9}), ((4,), {"dim": -1, "size": 0, "step": 1}),
)  # fmt: skip
narrow = each(
    ((6, 2), {"dim": 0, "start": 1, "length": 3}), ((2, 6), {"dim": -1, "start": -2, "length": 2}),
    ((3,), {"dim": 0, "start": 3, "length": 0}), ((3,), {"dim": 0, "start": 0, "length": 3}),
)  # fmt: skip


def expand_oracle(x: np.ndarray, shape: list[int]) -> np.ndarray:
    own = [1] * (len(shape) - x.ndim) + list(x.shape)
    return np.broadcast_to(x, [have if want == -1 else want for want, have in zip(shape, own, strict=True)])


def squeeze_oracle(x: np.ndarray, dims: list[int] | None) -> np.ndarray:
    if dims is None:
        return np.squeeze(x)
    return np.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def flatten_oracle(x: np.ndarray, start_dim: int, end_dim: int) -> np.ndarray:
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape([*x.shape[:start], int(np.prod(x.shape[start : end + 1])), *x.shape[end + 1 :]])


def unflatten_oracle(x: np.ndarray, dim: int, sizes: list[int]) -> np.ndarray:
    dim %= x.ndim
    part = np.empty(x.shape[dim], bool).reshape(sizes).shape
    return x.reshape([*x.shape[:dim], *part, *x.shape[dim + 1 :]])


def unfold_oracle(x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
    if size:
        windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
    else:  # one before each element, and one behind the last
        windows = np.empty([n + (d == dim % x.ndim) for d, n in enumerate(x.shape)] + [0], x.dtype)
    return windows[(slice(None),) * (dim % x.ndim) + (slice(None, None, step),)]


def narrow_oracle(x: np.ndarray, dim: int, start: int, length: int) -> np.ndarray:
    start += x.shape[dim] if start < 0 else 0
    return np.take(x, range(start, start + length), axis=dim)


# ---- moved elements


def stack(dtype: str) -> Calls:
    for shape, n, dim in [((2, 3), 2, 0), ((2, 3), 3, 1), ((2, 3), 1, -1), ((), 4, 0), ((0, 2), 2, 1), ((5, 33), 2, 2)]:
        yield {"tensors": [values(shape, dtype, i) for i in range(n)], "dim": dim}


repeat = each(
    ((3,), {"repeats": [2]}), ((2, 3), {"repeats": [2, 3]}), ((2, 3), {"repeats": [2, 1, 2]}), ((), {"repeats": [3]}), ((), {"repeats": []}),
    ((2, 3), {"repeats": [1, 1]}), ((2, 3), {"repeats": [0, 2]}), ((1, 33), {"repeats": [5, 2]}), ((2, 1, 1, 2, 1, 1, 1, 1, 1, 1), {"repeats": [2] * 10}),
    ((2,) * 9, {"repeats": [2, 1, 1, 1, 2, 2, 2, 1, 2]}), ((2,) * 4 + (1,) * 12, {"repeats": [2, 2, 1, 2] + [1] * 12}),
)  # fmt: skip
tile = each(((2, 3), {"dims": [2]}), ((2, 3), {"dims": [2, 1, 2]}), ((2, 3), {"dims": []}))
repeat_interleave = each(
    ((3,), {"repeats": 2, "dim": None}), ((2, 3), {"repeats": 3, "dim": 0}), ((2, 3), {"repeats": 2, "dim": -1}), ((2, 3), {"repeats": 2, "dim": None}),
    ((2, 3), {"repeats": 0, "dim": 1}), ((2, 3), {"repeats": 1, "dim": 1}), ((), {"repeats": 3, "dim": None}),
)  # fmt: skip
roll = each(
    ((5,), {"shifts": [2], "dims": None}), ((5, 7), {"shifts": [3], "dims": None}), ((5, 7), {"shifts": [-1, 2], "dims": [0, 1]}),
    ((5, 7), {"shifts": [12], "dims": [-2]}), ((5, 7), {"shifts": [2, 2], "dims": [1, 1]}),
    ((0, 3), {"shifts": [1], "dims": [0]}), ((4, 3), {"shifts": [0], "dims": [0]}),
)  # fmt: skip
flip = each(
    ((5,), {"dims": [0]}), ((2, 3, 4), {"dims": [0, -1]}), ((2, 3, 4), {"dims": []}), ((0, 3), {"dims": [0]}), ((), {"dims": [0]}), ((5, 33), {"dims": [1]})
)
diag_embed = each(
    ((3,), {"offset": 0, "dim1": -2, "dim2": -1}), ((3,), {"offset": 2, "dim1": 0, "dim2": 1}), ((2, 3), {"offset": -1, "dim1": 0, "dim2": 2}),
    ((2, 3), {"offset": 1, "dim1": -1, "dim2": 0}), ((0,), {"offset": 1, "dim1": 0, "dim2": 1}),
)  # fmt: skip
diag = each(((3,), {"diagonal": 0}), ((3,), {"diagonal": -2}), ((3, 4), {"diagonal": 1}), ((3, 4), {"diagonal": 0}))
pixel_shuffle = each(
    ((2, 3, 8), {"upscale_factor": 2}), ((2, 1, 3, 9), {"upscale_factor": 3}), ((2, 2, 3), {"upscale_factor": 1}), ((0, 2, 2, 4), {"upscale_factor": 2})
)
pixel_unshuffle = each(((4, 6, 2), {"downscale_factor": 2}), ((2, 3, 9, 1), {"downscale_factor": 3}), ((2, 2, 3), {"downscale_factor": 1}))


def pad(dtype: str) -> Calls:
    def call(shape: tuple[int, ...], padding: list[int], mode: str = "constant", value: float = 0.0) -> dict[str, Any]:
        return {"x": with_specials(shape, dtype, len(padding)), "padding": padding, "mode": mode, "value": value}

    yield call((5,), [2, 3], value=1.0)
    yield call((2, 3), [1, 0, 0, 2])
    yield call((2, 3, 4), [1, 1], value=2.0)
    yield call((2, 3, 4), [0, 0, 1, 2], value=2.0)
    yield call((2, 3, 4), [0, 0, 0, 0, 1, 1])
    yield call((2, 3, 4), [-1, 2, 1, -1, 0, 3], value=1.0)
    yield call((4, 5), [-2, -2, 3, -4])
    yield call((4,), [-9, 7], value=1.0)
    yield call((0, 3), [1, 1, 2, 0], value=1.0)
    yield call((2, 3), [])
    yield call((), [])
    yield call((2, 70, 3), [0, 0, 2, 1], value=1.0)
    for mode in ("reflect", "replicate", "circular"):
        yield call((5,), [3, 4], mode)
        yield call((4, 5), [2, 1, 3, 2], mode)
        yield call((2, 3, 4), [0, 0, 2, 2], mode)
        yield call((3, 2, 4), [1, 3, 1, 0, 2, 2], mode)
        yield call((2, 5, 70), [0, 0, 0, 4], mode)


def pad_oracle(x: np.ndarray, padding: list[int], mode: str, value: float) -> np.ndarray:
    pairs = [padding[i : i + 2] for i in range(0, len(padding), 2)][::-1]
    pairs = [[0, 0]] * (x.ndim - len(pairs)) + pairs
    if mode != "constant":
        name = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
        return np.pad(x, pairs, mode=name)
    for d, (before, after) in enumerate(pairs):
        size = x.shape[d] + before + after
        out = np.full([*x.shape[:d], size, *x.shape[d + 1 :]], value, x.dtype)
        for i in range(x.shape[d]):
            if 0 <= i + before < size:
                out[(slice(None),) * d + (i + before,)] = x[(slice(None),) * d + (i,)]
        x = out
    return x


def diag_embed_oracle(x: np.ndarray, offset: int, dim1: int, dim2: int) -> np.ndarray:
    size = x.shape[-1] + abs(offset)
    out = np.zeros([*x.shape[:-1], size, size], x.dtype)
    i = np.arange(x.shape[-1])
    out[..., i + max(0, -offset), i + max(0, offset)] = x
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def one_hot(dtype: str) -> Calls:
    for shape in [(), (0,), (7,), (5, 33), (2, 3, 4)]:
        classes = values(shape, "uint8")
        yield {"x": classes.astype(numpy_dtype(dtype)), "num_classes": 19}


def pixel_shuffle_oracle(x: np.ndarray, upscale_factor: int) -> np.ndarray:
    *front, h, w, c = x.shape
    r = upscale_factor
    y = np.moveaxis(x.reshape([*front, h, w, c // r**2, r, r]), (-2, -1), (len(front) + 1, len(front) + 3))
    return y.reshape([*front, h * r, w * r, c // r**2])


def pixel_unshuffle_oracle(x: np.ndarray, downscale_factor: int) -> np.ndarray:
    *front, h, w, c = x.shape
    r = downscale_factor
    y = x.reshape([*front, h // r, r, w // r, r, c])
    n = len(front)
    return y.transpose([*range(n), n, n + 2, n + 4, n + 1, n + 3]).reshape([*front, h // r, w // r, c * r**2])


# ---- from a few numbers


def eye(dtype: str) -> Calls:
    for n, m in [(3, None), (2, 5), (5, 2), (0, None), (0, 3), (70, 70)]:
        yield {"n": n, "m": m, "dtype": dtype}


def linspace(dtype: str) -> Calls:
    for start, end, steps in [(0.0, 1.0, 5), (-1.0, 1.0, 2), (0.5, 7.0, 1), (1.0, 0.0, 0), (-1.0, 1.0, 4097)]:
        if is_float(dtype):
            yield {"start": start, "end": end, "steps": steps, "dtype": dtype}
    if dtype != "bool":
        yield {"start": 0.0, "end": 12.0, "steps": 4, "dtype": dtype}


def logspace(dtype: str) -> Calls:
    if not is_float(dtype):
        return
    for start, end, steps, base in [(0.0, 2.0, 3, 10.0), (-2.0, 4.0, 100, 2.0), (1.0, 1.0, 1, 3.0), (0.0, 1.0, 0, 10.0)]:
        yield {"start": start, "end": end, "steps": steps, "base": base, "dtype": dtype}


# ---- elementwise


def clamp(dtype: str) -> Calls:
    for shape in [(), (0,), (7,), (5, 33), (2, 3, 70)]:
        x = with_specials(shape, dtype)
        low, high = with_specials(shape, dtype, 1), values(shape, dtype, 2)
        yield {"x": x, "min": low, "max": high}
        yield {"x": x, "min": low, "max": None}
        yield {"x": x, "min": None, "max": high}
        yield {"x": x, "min": 2, "max": 5}
        yield {"x": x, "min": None, "max": 3}
        yield {"x": x, "min": 7, "max": 3}
    yield {"x": values((3, 1), dtype), "min": values((70,), dtype, 1), "max": values((), dtype, 2)}


def clamp_oracle(x: np.ndarray, min: Any, max: Any) -> np.ndarray:
    if min is not None:
        x = np.maximum(x, np.asarray(min).astype(x.dtype))
    return x if max is None else np.minimum(x, np.asarray(max).astype(x.dtype))


def addcmul(dtype: str) -> Calls:
    for shape in [(), (0,), (7,), (5, 33)]:
        b = values(shape, dtype, 2)
        b = np.where(b == 0, b.dtype.type(1), b) if is_float(dtype) else b
        yield {"x": values(shape, dtype), "a": values(shape, dtype, 1), "b": b, "value": 0.5}
    b = np.abs(values((), dtype, 3)) if dtype != "bool" else values((), dtype)
    yield {"x": values((3, 1), dtype), "a": values((70,), dtype, 1), "b": b, "value": 2.0}


def prelu(dtype: str) -> Calls:
    for shape in [(), (7,), (5, 33), (2, 3, 70), (0, 3)]:
        yield {"x": with_specials(shape, dtype), "weight": values((1,), dtype, 1)}
        yield {"x": with_specials(shape, dtype), "weight": values((), dtype, 2)}
        if shape:
            yield {"x": with_specials(shape, dtype), "weight": values(shape[-1:], dtype, 3)}


def glu(dtype: str) -> Calls:
    for shape, dim in [((8,), 0), ((5, 66), -1), ((4, 5, 3), 0), ((0, 2), 1), ((2, 0), 1)]:
        yield {"x": values(shape, dtype), "dim": dim}


def glu_oracle(x: np.ndarray, dim: int) -> np.ndarray:
    a, gate = np.split(x, 2, axis=dim)
    return a / (1 + np.exp(-gate))
