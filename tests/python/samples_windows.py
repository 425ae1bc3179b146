"""Arguments and oracles for convolutions and pools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from samples import DTYPES, is_float, values, with_specials

REFUSED = {"convolution": [d for d in DTYPES if not is_float(d)], "max_indices": ["bool"]}
RESULTS = {"max_indices": lambda dtype, call: (dtype, "int64")}


def every(value: Any, n: int) -> tuple[int, ...]:
    """One for each spatial dimension."""
    entries = tuple(value) if isinstance(value, list | tuple) else (value,)
    return entries * n if len(entries) == 1 else entries


# ---- convolutions


def convolution_oracle(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> np.ndarray:
    n = weight.ndim - 2
    stride, dilation, kernel = every(stride, n), every(dilation, n), weight.shape[1:-1]
    batched = x if x.ndim == n + 2 else x[None]
    if padding == "same":
        around = [(total // 2, total - total // 2) for total in ((k - 1) * step for k, step in zip(kernel, dilation, strict=True))]
    else:
        around = [(p, p) for p in every(0 if padding == "valid" else padding, n)]
    padded = np.pad(batched, [(0, 0), *around, (0, 0)])
    sizes = [(padded.shape[1 + d] - (kernel[d] - 1) * dilation[d] - 1) // stride[d] + 1 for d in range(n)]
    inputs, outputs = weight.shape[-1], weight.shape[0] // groups
    out = np.zeros((batched.shape[0], *sizes, weight.shape[0]), x.dtype)
    for place in itertools.product(*map(range, kernel)):
        window = padded[(slice(None), *(slice(k * dilation[d], k * dilation[d] + (sizes[d] - 1) * stride[d] + 1, stride[d]) for d, k in enumerate(place)))]
        for g in range(groups):
            mine = slice(g * outputs, (g + 1) * outputs)
            out[..., mine] += window[..., g * inputs : (g + 1) * inputs] @ weight[(mine, *place)].T
    out = out if bias is None else out + bias
    return out if x.ndim == n + 2 else out[0]


def transposed_convolution_oracle(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any) -> np.ndarray:
    n = weight.ndim - 2
    stride, padding, more, dilation = every(stride, n), every(padding, n), every(output_padding, n), every(dilation, n)
    batched = x if x.ndim == n + 2 else x[None]
    kernel = weight.shape[1:-1]
    inputs, outputs = weight.shape[0] // groups, weight.shape[-1]
    sizes = [(batched.shape[1 + d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 + more[d] for d in range(n)]
    out = np.zeros((batched.shape[0], *sizes, outputs * groups), x.dtype)
    for place in itertools.product(*map(range, kernel)):
        at = tuple(slice(k * dilation[d], k * dilation[d] + (batched.shape[1 + d] - 1) * stride[d] + 1, stride[d]) for d, k in enumerate(place))
        for g in range(groups):
            theirs, mine = slice(g * inputs, (g + 1) * inputs), slice(g * outputs, (g + 1) * outputs)
            out[(slice(None), *at, mine)] += batched[..., theirs] @ weight[(theirs, *place)]
    out = out[(slice(None), *(slice(p, size - p) for p, size in zip(padding, sizes, strict=True)))]
    out = out if bias is None else out + bias
    return out if x.ndim == n + 2 else out[0]


#: [batch, in, out, groups, sizes, kernel, stride, padding, dilation, with bias]; sizes are cut to the number of dimensions.
CONVOLUTIONS: list[tuple[Any, ...]] = [
    (2, 3, 5, 1, (9, 8, 7), (3, 3, 3), 1, 1, 1, True),
    (1, 16, 32, 1, (10, 9, 6), (3, 2, 1), (2, 1, 2), (1, 0, 0), (1, 2, 1), False),
    (1, 8, 12, 4, (7, 6, 5), (3, 3, 2), 1, (0, 1, 1), 1, True),
    (2, 6, 6, 6, (8, 7, 5), (3, 3, 3), (2, 1, 1), 1, 2, True),
    (3, 20, 7, 1, (5, 4, 3), (1, 1, 1), 1, 0, 1, True),
    (0, 3, 4, 1, (5, 5, 5), (2, 2, 2), 1, 0, 1, True),
    (None, 4, 6, 2, (6, 5, 4), (2, 3, 2), 3, 2, 1, False),
    (1, 3, 4, 1, (4, 3, 2), (2, 2, 1), 1, 5, 1, True),
    (5, 0, 2, 1, (3, 3, 3), (2, 2, 2), 1, 0, 1, True),
]
#: Paddings that are words; transposed convolutions have none.
WORDS: list[tuple[Any, ...]] = [
    (2, 3, 5, 1, (9, 8, 7), (4, 3, 2), 1, "same", 1, True),
    (1, 16, 32, 1, (10, 9, 6), (2, 3, 4), 1, "same", (3, 1, 2), False),
    (None, 4, 6, 2, (6, 5, 4), (2, 3, 2), 1, "same", 1, False),
    (2, 6, 6, 6, (3, 2, 1), (6, 6, 6), 1, "same", 1, True),
    (1, 8, 12, 4, (7, 6, 5), (3, 3, 2), 2, "valid", 1, True),
]


def _convolution(n: int, transposed: bool) -> Any:
    def cut(value: Any) -> Any:
        return list(value[:n]) if isinstance(value, tuple) else value

    def make(dtype: str) -> Iterator[dict[str, Any]]:
        for batch, inputs, outputs, groups, sizes, kernel, stride, padding, dilation, with_bias in CONVOLUTIONS + ([] if transposed else WORDS):
            first, last = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
            call = {
                "x": values((*(() if batch is None else (batch,)), *sizes[:n], inputs), dtype),
                "weight": values((first, *kernel[:n], last), dtype, 1),
                "bias": values((outputs,), dtype, 2) if with_bias else None,
                "stride": cut(stride),
                "padding": cut(padding),
                "dilation": cut(dilation),
                "groups": groups,
            }
            if transposed:
                call["padding"] = cut(padding) if padding != 5 else 0  # more would leave nothing
                call["output_padding"] = 1 if isinstance(stride, int) and max(stride, dilation) > 1 else 0
            yield call

    return make


conv1d, conv2d, conv3d = (_convolution(n, False) for n in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_convolution(n, True) for n in (1, 2, 3))


# ---- pools


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> list[tuple[list[int], int]]:
    """For each window the places that are inside, and how many there are with the padding."""
    reach = (kernel - 1) * dilation + 1
    count = (size + 2 * padding - reach + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    starts = [i * stride - padding for i in range(count)]
    return [([p for p in range(s, s + reach, dilation) if 0 <= p < size], min(s + kernel, size + padding) - s) for s in starts]


def pooled(x: np.ndarray, n: int, axes: list[list[tuple[list[int], int]]], fold: Any) -> list[np.ndarray]:
    """fold(the window's elements [places, channels] of each image, numbers of the places, count) for each window."""
    batched = x if x.ndim == n + 2 else x[None]
    flat = batched.reshape(batched.shape[0], int(np.prod(batched.shape[1:-1])), batched.shape[-1])
    results: list[tuple[Any, ...]] = []
    for window in itertools.product(*axes):
        places = [np.ravel_multi_index(p, batched.shape[1:-1]) for p in itertools.product(*(inside for inside, _ in window))]
        results.append(fold(flat[:, places], np.array(places, np.int64), int(np.prod([count for _, count in window]))))
    shape = [batched.shape[0], *(len(axis) for axis in axes), batched.shape[-1]]
    stacked = [np.stack(r, 1).reshape(shape) for r in zip(*results, strict=True)] if results else [np.zeros(shape, x.dtype)]
    return stacked if x.ndim == n + 2 else [r[0] for r in stacked]


def _sliding(x: np.ndarray, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> list[Any]:
    kernel, padding, dilation = every(kernel_size, n), every(padding, n), every(dilation, n)
    steps = kernel if stride in ([], ()) else every(stride, n)
    sizes = x.shape[-n - 1 : -1]
    return [windows(sizes[d], kernel[d], steps[d], padding[d], dilation[d], ceil_mode) for d in range(n)]


def _largest(elements: np.ndarray, places: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    at = np.argmax(elements, axis=1)
    if elements.dtype.kind == "f":  # the last NaN, where there is one
        nan = np.isnan(elements)
        at = np.where(nan.any(1), elements.shape[1] - 1 - np.argmax(nan[:, ::-1], axis=1), at)
    return np.take_along_axis(elements, at[:, None], 1)[:, 0], places[at]


def max_pool_indices_oracle(x: Any, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[np.ndarray, np.ndarray]:
    values_, indices = pooled(x, n, _sliding(x, n, kernel_size, stride, padding, dilation, ceil_mode), _largest)
    return values_, indices


def max_pool_oracle(x: Any, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> np.ndarray:
    return max_pool_indices_oracle(x, n, kernel_size, stride, padding, dilation, ceil_mode)[0]


def avg_pool_oracle(
    x: Any, n: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None
) -> np.ndarray:
    def mean(elements: np.ndarray, places: np.ndarray, count: int) -> tuple[np.ndarray]:
        return (elements.sum(1) / (divisor_override or (count if count_include_pad else len(places))),)

    return pooled(x, n, _sliding(x, n, kernel_size, stride, padding, 1, ceil_mode), mean)[0]


def adaptive_pool_oracle(x: Any, n: int, output_size: Any, kind: str) -> np.ndarray:
    sizes = x.shape[-n - 1 : -1]
    counts = [size if count == -1 else count for size, count in zip(sizes, every(output_size, n), strict=True)]
    axes = [[(list(range(i * s // c, -((-(i + 1) * s) // c))), 0) for i in range(c)] for s, c in zip(sizes, counts, strict=True)]
    fold = _largest if kind == "max" else lambda elements, places, count: (elements.mean(1),)
    return pooled(x, n, axes, fold)[0]


POOL_SHAPES = [(2, 9, 8, 7, 5), (1, 5, 6, 5, 40), (7, 6, 5, 3), (0, 4, 4, 4, 3)]


def _pool_shape(shape: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Without some of the spatial dimensions."""
    return (*shape[: len(shape) - 4], *shape[-4 : -4 + n], shape[-1])


def _max_pool(n: int) -> Any:
    def make(dtype: str) -> Iterator[dict[str, Any]]:
        for shape, (kernel, stride, padding, dilation, ceil_mode) in itertools.product(
            POOL_SHAPES, [(2, [], 0, 1, False), (3, 2, 1, 1, True), ([3, 2, 2][:n], [1, 2, 3][:n], [1, 0, 1][:n], 1, False), (2, 1, 1, 2, True)]
        ):
            x = with_specials(_pool_shape(shape, n), dtype)
            yield {"x": x, "kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}

    return make


max_pool1d, max_pool2d, max_pool3d = (_max_pool(n) for n in (1, 2, 3))


def _avg_pool(n: int) -> Any:
    def make(dtype: str) -> Iterator[dict[str, Any]]:
        choices = [(2, [], 0, False, True, None), (3, 2, 1, True, True, None), (3, 2, 1, True, False, None), ([3, 2, 2][:n], 1, [1, 0, 1][:n], False, True, 5)]
        for shape, (kernel, stride, padding, ceil_mode, include, divisor) in itertools.product(POOL_SHAPES, choices):
            call = {"x": values(_pool_shape(shape, n), dtype), "kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
            yield {**call, "count_include_pad": include, "divisor_override": divisor}

    return make


avg_pool1d, avg_pool2d, avg_pool3d = (_avg_pool(n) for n in (1, 2, 3))


def _adaptive_pool(n: int) -> Any:
    def make(dtype: str) -> Iterator[dict[str, Any]]:
        for shape, size in itertools.product(POOL_SHAPES, [1, 3, [4, 11, 1][:n], -1, 0]):
            yield {"x": values(_pool_shape(shape, n), dtype), "output_size": size}

    return make


adaptive_pool1d, adaptive_pool2d, adaptive_pool3d = (_adaptive_pool(n) for n in (1, 2, 3))
