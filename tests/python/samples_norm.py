"""Samples of normalisation, attention and rotary embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samples import DTYPES, is_float, numpy_dtype, values

_NOT_FLOATS = [dtype for dtype in DTYPES if not is_float(dtype)]
REFUSED = {"norm": _NOT_FLOATS, "attention": _NOT_FLOATS}


def _unit(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Values of at most 0.5; integers for dtypes that are refused anyway."""
    if not is_float(dtype):
        return values(shape, dtype, seed)
    return np.asarray(np.random.default_rng(seed).uniform(-0.5, 0.5, shape)).astype(numpy_dtype(dtype))


def layer_norm(dtype: str) -> Iterator[dict[str, Any]]:
    for i, (shape, last) in enumerate(
        [((5,), 1), ((3, 7), 1), ((2, 3, 70), 1), ((2, 3, 4), 2), ((4, 1), 1), ((0, 3), 1), ((3, 0), 1), ((2, 5000), 1), ((2, 33), 2)]
    ):
        normalized = list(shape[len(shape) - last :])
        weight, bias = values(tuple(normalized), dtype, 1), values(tuple(normalized), dtype, 2)
        yield {
            "x": values(shape, dtype),
            "normalized_shape": normalized,
            "weight": weight if i % 3 != 1 else None,
            "bias": bias if i % 3 != 2 else None,
            "eps": (1e-5, 0.5)[i % 2],
        }
    yield {"x": values((3, 9), dtype), "normalized_shape": [9], "weight": None, "bias": None, "eps": 1e-5}


def rms_norm(dtype: str) -> Iterator[dict[str, Any]]:
    for i, call in enumerate(layer_norm(dtype)):
        del call["bias"]
        yield call | {"eps": (None, 0.25)[i % 2]}


def _channels(dtype: str) -> Iterator[tuple[dict[str, Any], int]]:
    for i, shape in enumerate([(2, 3), (2, 5, 4), (3, 2, 3, 6), (2, 300, 8), (1, 70, 64), (2, 40, 130), (2, 9000, 2), (1, 1, 3), (0, 3, 4), (2, 0, 4)]):
        weight, bias = values(shape[-1:], dtype, 1), values(shape[-1:], dtype, 2)
        yield {"x": values(shape, dtype), "weight": weight if i % 3 != 1 else None, "bias": bias if i % 3 != 2 else None, "eps": (1e-5, 0.5)[i % 2]}, i


def group_norm(dtype: str) -> Iterator[dict[str, Any]]:
    for call, i in _channels(dtype):
        channels = call["x"].shape[-1]
        divisors = [g for g in range(1, channels + 1) if channels % g == 0]
        yield call | {"num_groups": divisors[i % len(divisors)]}


def instance_norm(dtype: str) -> Iterator[dict[str, Any]]:
    for call, _ in _channels(dtype):
        yield call


def batch_norm(dtype: str) -> Iterator[dict[str, Any]]:
    for call, _ in _channels(dtype):
        channels = call["x"].shape[-1:]
        variance = values(channels, dtype, 4)
        yield call | {"running_mean": values(channels, dtype, 3), "running_var": np.abs(variance) if dtype != "bool" else variance}


def attention(dtype: str) -> Iterator[dict[str, Any]]:
    shapes = [
        ((3, 4), (5, 4), (5, 4)),
        ((2, 7, 8), (2, 7, 8), (2, 7, 3)),
        ((1, 2, 1, 16), (1, 2, 33, 16), (1, 2, 33, 16)),
        ((2, 1, 3, 5), (3, 6, 5), (2, 1, 6, 5)),
        ((2, 70, 20), (2, 530, 20), (2, 530, 20)),
        ((2, 3, 4), (2, 0, 4), (2, 0, 4)),
        ((2, 0, 4), (2, 3, 4), (2, 3, 4)),
    ]
    for i, (q, k, v) in enumerate(shapes):
        call: dict[str, Any] = {"query": 4 * _unit(q, dtype, i), "key": 4 * _unit(k, dtype, i + 1), "value": _unit(v, dtype, i + 2)}
        call = {name: np.asarray(array).astype(numpy_dtype(dtype)) for name, array in call.items()}
        seen = np.random.default_rng(i).random((q[-2], k[-2])) < 0.7
        for mask in (None, seen, 3 * _unit((q[-2], k[-2]), dtype, 9), values((k[-2],), "bool", 5)):
            if mask is not None and not is_float(dtype):
                continue
            masked = mask if mask is None or mask.dtype == bool else mask.astype(numpy_dtype(dtype))
            yield call | {"attn_mask": masked, "is_causal": i % 2 == 0, "scale": (None, 0.3)[i // 2 % 2], "enable_gqa": False}
    for heads in ((4, 2, 2), (6, 3, 1), (2, 2, 2)):
        grouped = {name: _unit((2, h, 5, 8), dtype, h) for name, h in zip(("query", "key", "value"), heads, strict=True)}
        yield grouped | {"attn_mask": None, "is_causal": True, "scale": None, "enable_gqa": True}


def rotary(dtype: str) -> Iterator[dict[str, Any]]:
    shapes = [((3, 4), (3, 2)), ((2, 3, 10), (3, 5)), ((2, 3, 5, 70), (5, 33)), ((2, 3, 9), (2, 1, 4)), ((7,), (2,)), ((2, 4), (2, 0)), ((0, 4), (1, 2))]
    for x, angles in shapes:
        for interleaved in (False, True):
            yield {"x": _unit(x, dtype, 0), "cos": _unit(angles, dtype, 1), "sin": _unit(angles, dtype, 2), "interleaved": interleaved}


# ---- what they should give


def _affine(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def layer_norm_oracle(x: np.ndarray, normalized_shape: list[int], weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    if x.size == 0:
        return x
    return _affine((x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps), weight, bias)


def rms_norm_oracle(x: np.ndarray, normalized_shape: list[int], weight: np.ndarray | None, eps: float | None) -> np.ndarray:
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    if x.size == 0:
        return x
    return _affine(x / np.sqrt((x * x).mean(dims, keepdims=True) + (eps or 0)), weight, None)  # without eps it is too small to be seen


def group_norm_oracle(x: np.ndarray, num_groups: int, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
    if x.size == 0:
        return x
    grouped = x.reshape(x.shape[0], -1, num_groups, x.shape[-1] // num_groups)
    normal = (grouped - grouped.mean((1, 3), keepdims=True)) / np.sqrt(grouped.var((1, 3), keepdims=True) + eps)
    return _affine(normal.reshape(x.shape), weight, bias)


def batch_norm_oracle(
    x: np.ndarray, running_mean: np.ndarray, running_var: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> np.ndarray:
    return _affine((x - running_mean) / np.sqrt(running_var + eps), weight, bias)


def attention_oracle(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: np.ndarray | None, is_causal: bool, scale: float | None, enable_gqa: bool
) -> np.ndarray:
    if enable_gqa:
        key, value = (np.repeat(t, query.shape[-3] // t.shape[-3], axis=-3) for t in (key, value))
    scores = query @ np.swapaxes(key, -1, -2) * (1 / np.sqrt(query.shape[-1]) if scale is None else scale)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == bool else scores + attn_mask
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ value


def rotary_oracle(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    angles = cos.shape[-1]
    first, second = (slice(0, 2 * angles, 2), slice(1, 2 * angles, 2)) if interleaved else (slice(0, angles), slice(angles, 2 * angles))
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out
