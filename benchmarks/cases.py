"""What bench.py measures: inputs, and what to do with them in the words that engines.py gives each engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

#: name: (inputs, function of an engine and the inputs, operators in one call)
CASES: dict[str, tuple[list[np.ndarray], Callable[..., Any], int]] = {}


def f32(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(np.float32)


def bf16(*shape: int) -> np.ndarray:
    return f32(*shape).astype(ml_dtypes.bfloat16)


def ids(count: int, below: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, below, count)


def case(name: str, inputs: list[np.ndarray], function: Callable[..., Any], operators: int = 1) -> None:
    CASES[name] = (inputs, function, operators)


def chain(o, x, y):
    for _ in range(1000):
        x = x + y
    return x


def mlp(o, x, w1, b1, w2, b2):
    return o.softmax(o.relu(x @ w1 + b1) @ w2 + b2)


def small_mlp(o, x, w1, b1, w2, b2, g):
    """Ten operators on 32 numbers."""
    return o.sigmoid(o.tanh(o.relu(x @ w1 + b1) @ w2 + b2) * g + b2) * x


def wide_mlp(o, x, w1, w2, w3, b):
    return o.relu(o.relu(x @ w1 + b) @ w2 + b) @ w3 + b


def chain_of_ten(o, x, y):
    a = o.tanh(x * y + x)
    a = (a * 0.5 - y) * a
    return o.sigmoid(o.relu(a + 1.0) * y - x)


BIG = [f32(4096, 4096)]

case("dispatch/add16_x1000", [f32(16), f32(16, scale=0.01)], chain, 1000)
for n in (2048, 512, 64):
    case(f"matmul/f32_{n}", [f32(n, n), f32(n, n)], lambda o, a, b: a @ b)
case("matmul/f32_1x4096x4096", [f32(1, 4096), f32(4096, 4096)], lambda o, a, b: a @ b)
case("matmul/f32_b32x128x64x128", [f32(32, 128, 64), f32(32, 64, 128)], lambda o, a, b: a @ b)
case("matmul/bf16_2048", [bf16(2048, 2048), bf16(2048, 2048)], lambda o, a, b: a @ b)
case("matmul/bf16_1024", [bf16(1024, 1024), bf16(1024, 1024)], lambda o, a, b: a @ b)
case("matmul/f64_1024", [f32(1024, 1024).astype(np.float64), f32(1024, 1024).astype(np.float64)], lambda o, a, b: a @ b)
case("elementwise/exp", BIG, lambda o, x: o.exp(x))
case("elementwise/tanh", BIG, lambda o, x: o.tanh(x))
case("elementwise/gelu", BIG, lambda o, x: o.gelu(x))
for name in ("exp", "tanh", "gelu"):  # torch writes into memory that it is given
    case(f"elementwise/{name}_torch_out", [*BIG, f32(4096, 4096)], lambda o, x, out, n=name: o.into(out, n, x))
case("elementwise/add", [*BIG, f32(4096, 4096)], lambda o, x, y: x + y)
case("elementwise/add_row", [*BIG, f32(4096)], lambda o, x, y: x + y)
case("elementwise/add_transposed", [*BIG, f32(4096, 4096)], lambda o, x, y: x + o.transposed(y))
case("elementwise/add_bf16", [bf16(4096, 4096), bf16(4096, 4096)], lambda o, x, y: x + y)
case("elementwise/less", [*BIG, f32(4096, 4096)], lambda o, x, y: x < y)
case("rows/softmax", BIG, lambda o, x: o.softmax(x))
case("rows/layer_norm_4096x1024", [f32(4096, 1024), f32(1024), f32(1024)], lambda o, x, g, b: o.layer_norm(x, g, b))
case("rows/cumsum", BIG, lambda o, x: o.cumsum(x))
case("rows/sort_1M", [f32(1 << 20)], lambda o, x: o.sort(x))
case("rows/topk50_32x50000", [f32(32, 50000)], lambda o, x: o.topk(x, 50))
case("reduce/sum_axis0", BIG, lambda o, x: o.sum(x, 0))
case("reduce/sum_axis1", BIG, lambda o, x: o.sum(x, 1))
case("reduce/sum_all", BIG, lambda o, x: o.sum(x, None))
case("reduce/mean_axis1", BIG, lambda o, x: o.mean(x, 1))
case("reduce/var_axis1", BIG, lambda o, x: o.var(x, 1))
case("reduce/argmax_axis1", BIG, lambda o, x: o.argmax(x))
case("index/gather_50000x768", [f32(50000, 768), ids(8192, 50000)], lambda o, w, i: o.embedding(i, w))
case("move/transpose_copy", BIG, lambda o, x: o.transpose_copy(x))
case("move/cast_bf16", BIG, lambda o, x: o.to_bfloat16(x))
case("move/cat_4x4096x1024", [f32(4096, 1024)] * 4, lambda o, *x: o.cat(list(x)))
case("move/pad_4096x4096", BIG, lambda o, x: o.pad(x, [1, 1, 1, 1]))
for name, size, channels, kernel, filters, stride, padding, groups in (
    ("7x7s2_3-64_224", 224, 3, 7, 64, 2, 3, 1),
    ("3x3_64-64_56", 56, 64, 3, 64, 1, 1, 1),
    ("1x1_256-64_56", 56, 256, 1, 64, 1, 0, 1),
    ("3x3_512-512_7", 7, 512, 3, 512, 1, 1, 1),
    ("depthwise3x3_64_56", 56, 64, 3, 64, 1, 1, 64),
):
    case(
        f"conv/{name}",
        [f32(1, size, size, channels), f32(filters, kernel, kernel, channels // groups, scale=0.1)],
        lambda o, x, w, s=stride, p=padding, g=groups: o.conv2d(x, w, s, p, g),
    )
case("conv/maxpool3s2_64_112", [f32(1, 112, 112, 64)], lambda o, x: o.max_pool2d(x, 3, 2, 1))
case("attention/sdpa_1x12x512x64", [f32(1, 12, 512, 64)] * 3, lambda o, q, k, v: o.attention(q, k, v))
case("attention/sdpa_1x12x1x64_kv1024", [f32(1, 12, 1, 64), f32(1, 12, 1024, 64), f32(1, 12, 1024, 64)], lambda o, q, k, v: o.attention(q, k, v))
case("random/normal_16M", [f32(1)], lambda o, x: o.normal(1 << 24) * 0)
case("model/mlp_1797x64x64x10", [f32(1797, 64), f32(64, 64, scale=0.1), f32(64), f32(64, 10, scale=0.1), f32(10)], mlp)
# What a graph makes of several operators; torch, which would need a C++ compiler for that, calls them.
case(
    "graph/mlp10",
    [f32(1, 32), f32(32, 64, scale=0.2), f32(64), f32(64, 32, scale=0.2), f32(32), f32(32)],
    lambda o, x, *rest: o.replay("mlp10", small_mlp, [x], rest),
)
case("graph/mlp3x1024_b64", [f32(64, 1024), *[f32(1024, 1024, scale=0.04)] * 3, f32(1024)], lambda o, x, *rest: o.replay("mlp3x1024", wide_mlp, [x], rest))
case("graph/chain10_16M", [f32(1 << 24), f32(1, 1 << 24)[0]], lambda o, x, y: o.replay("chain10", chain_of_ten, [x, y]))
