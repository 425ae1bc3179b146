"""Random operators: which numbers they draw, how those are distributed, and that nothing but the call decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.stats

import clika_runtime as crt
from clika_runtime.graph import NodeKind

Make = Callable[[crt.Generator], crt.Tensor]


def philox(seed: int, blocks: np.ndarray) -> np.ndarray:
    """Philox 4x32-10: four words for each block."""
    mask = np.uint64(0xFFFFFFFF)
    c = [blocks & mask, blocks >> np.uint64(32), np.zeros_like(blocks), np.zeros_like(blocks)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c)


def words(seed: int, offset: int, n: int) -> np.ndarray:
    """The words that n elements take where one is enough: word 0 of sixteen blocks, then word 1, 2 and 3."""
    groups = (n + 63) // 64
    with np.errstate(over="ignore"):
        blocks = np.uint64(offset) + np.arange(16 * groups, dtype=np.uint64)
    return philox(seed, blocks).reshape(4, groups, 16).transpose(1, 0, 2).reshape(-1)[:n]


def pairs(seed: int, offset: int, n: int) -> np.ndarray:
    """The 64 bits of n elements."""
    w = words(seed, offset, (n + 31) // 32 * 64).reshape(-1, 2, 2, 16)
    return (w[:, :, 1] << np.uint64(32) | w[:, :, 0]).reshape(-1)[:n]


DRAWS: dict[str, Make] = {
    "uniform": lambda g: crt.uniform([3, 1001], -1.0, 2.0, generator=g),
    "uniform float64": lambda g: crt.uniform([40_001], dtype=crt.float64, generator=g),
    "uniform bfloat16": lambda g: crt.uniform([777], dtype=crt.bfloat16, generator=g),
    "normal": lambda g: crt.normal([70_003], 1.0, 2.0, generator=g),
    "normal float64": lambda g: crt.normal([3333], dtype=crt.float64, generator=g),
    "normal float16": lambda g: crt.normal([50], dtype=crt.float16, generator=g),
    "randint": lambda g: crt.randint(-5, 1000, [40_001], generator=g),
    "bernoulli": lambda g: crt.bernoulli(crt.full([40_001], 0.3), g),
    "dropout": lambda g: crt.dropout(crt.ones([7, 9001]), 0.25, generator=g),
    "multinomial": lambda g: crt.multinomial(crt.ones([300, 50]), 9, generator=g),
    "multinomial again": lambda g: crt.multinomial(crt.ones([300, 50]), 60, True, generator=g),
    "randperm": lambda g: crt.randperm(5000, generator=g),
}


# ---- the sequence


def test_philox_gives_the_published_numbers() -> None:
    want = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], np.uint64)
    np.testing.assert_array_equal(philox(0, np.zeros(1, np.uint64))[:, 0], want)
    u = crt.uniform([64], generator=crt.Generator(0)).numpy()
    np.testing.assert_array_equal((u[::16] * 2**24).astype(np.uint64), want >> np.uint64(8))


@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (1, 5), (2**64 - 1, 2**32 - 7), (0x0123456789ABCDEF, 2**64 - 9)])
def test_each_number_is_a_function_of_its_place(seed: int, offset: int) -> None:
    n = 70_001
    generator = crt.Generator(seed)
    generator.set_state((seed, offset))
    np.testing.assert_array_equal(
        crt.uniform([n], generator=generator).numpy(), (words(seed, offset, n) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
    )
    generator.set_state((seed, offset))
    u = crt.uniform([n], dtype=crt.float64, generator=generator).numpy()
    np.testing.assert_array_equal(u, (pairs(seed, offset, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    for low, high in ((-7, 100), (0, 2**32), (-(2**63), 2**63 - 1), (5, 6)):
        generator.set_state((seed, offset))
        got = crt.randint(low, high, [999], generator=generator).tolist()
        assert got == [low + (int(bits) * (high - low) >> 64) for bits in pairs(seed, offset, 999)]


def test_a_call_reserves_a_block_for_each_element() -> None:
    generator = crt.Generator(3)
    crt.uniform([2, 5], generator=generator)
    assert generator.get_state() == (3, 10)
    crt.multinomial(crt.ones([100]), 4, generator=generator)
    assert generator.get_state() == (3, 110)
    first = crt.uniform([10], generator=crt.Generator(3)).tolist()
    both = crt.Generator(3)
    assert crt.uniform([10], generator=both).tolist() == first != crt.uniform([10], generator=both).tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_only_the_call_decides(name: str) -> None:
    draw = DRAWS[name]
    want = draw(crt.Generator(11)).bytes()
    assert draw(crt.Generator(12)).bytes() != want
    with crt.synchronous():
        assert draw(crt.Generator(11)).bytes() == want
    generator = crt.Generator(11)
    with crt.tracing():
        deferred = draw(generator)
        after = generator.get_state()
    generator.manual_seed(99)  # its numbers were reserved by the call
    assert deferred.bytes() == want
    fresh = crt.Generator(11)
    draw(fresh)
    assert fresh.get_state() == after
    threads = crt.num_threads()
    try:
        crt.set_num_threads(1)
        assert draw(crt.Generator(11)).bytes() == want
    finally:
        crt.set_num_threads(threads)


@pytest.mark.parametrize("name", DRAWS)
def test_a_graph_draws_new_numbers_in_each_run(name: str) -> None:
    draw, generator = DRAWS[name], crt.Generator(11)
    graph = crt.trace(lambda inputs: [draw(generator)], example_inputs=[crt.ones([1])])
    assert generator.get_state() == (11, 0)
    assert any(node.kind is NodeKind.Random for node in graph.nodes())
    eager = crt.Generator(11)
    for _ in range(2):
        (got,) = graph.run([crt.ones([1])])
        assert got.bytes() == draw(eager).bytes()


def test_the_process_has_a_generator() -> None:
    state = crt.get_rng_state()
    try:
        crt.manual_seed(5)
        a, b = crt.rand(3, 4), crt.randn([2])
        assert a.tolist() == crt.uniform([3, 4], generator=crt.Generator(5)).tolist()
        crt.manual_seed(5)
        assert (crt.rand([3, 4]).tolist(), crt.randn(2).tolist()) == (a.tolist(), b.tolist())
    finally:
        crt.set_rng_state(state)


def test_where_random_tensors_live() -> None:
    on = crt.Stream("cpu")
    assert crt.uniform([2], stream=on).stream == on
    assert crt.rand(2, device="meta").device == crt.Device("meta")
    with pytest.raises(TypeError, match=r"^uniform: generator must be a Generator, got 5"):
        crt.uniform([2], generator=5)  # type: ignore[arg-type]


def test_sugar() -> None:
    x = crt.zeros([3, 4], crt.float64)
    assert crt.rand_like(x).dtype is crt.float64 and crt.randn_like(x, crt.float16).dtype is crt.float16
    assert crt.rand().shape == () and crt.randn([2, 3]).shape == (2, 3)
    assert x.uniform_(2.0, 3.0, crt.Generator(1)) is x
    np.testing.assert_array_equal(x.numpy(), crt.uniform([3, 4], 2.0, 3.0, crt.float64, crt.Generator(1)).numpy())
    assert x.normal_(generator=crt.Generator(1)) is x
    np.testing.assert_array_equal(x.numpy(), crt.normal([3, 4], dtype=crt.float64, generator=crt.Generator(1)).numpy())
    with pytest.raises(TypeError, match=r"^uniform_: needs a floating-point dtype, got int64"):
        crt.zeros([2], crt.int64).uniform_()


# ---- how they are distributed


@pytest.mark.parametrize("dtype", [crt.float16, crt.bfloat16, crt.float32, crt.float64])
def test_uniform_numbers(dtype: crt.DType) -> None:
    u = crt.uniform([200_000], dtype=dtype, generator=crt.Generator(1)).numpy().astype(np.float64)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 4e-3 and abs(u.var() - 1 / 12) < 1e-3
    if dtype in (crt.float32, crt.float64):
        assert scipy.stats.kstest(u, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("dtype", [crt.float16, crt.bfloat16, crt.float32, crt.float64])
@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (-3.0, -2.9), (0.0, 1e-7), (0.1, 0.1000001), (-1.0, 0.0), (1000.0, 1001.0), (-60000.0, 5000.0)])
def test_uniform_numbers_stay_below_high(dtype: crt.DType, low: float, high: float) -> None:
    u = crt.uniform([50_000], low, high, dtype, crt.Generator(2)).numpy()
    narrow = np.array([low, high]).astype(u.dtype).astype(np.float64)
    wide = u.astype(np.float64)
    assert wide.min() >= narrow[0]
    assert wide.max() < high or wide.max() == narrow[0]


@pytest.mark.parametrize("dtype", [crt.float32, crt.float64])
def test_normal_numbers(dtype: crt.DType) -> None:
    z = crt.normal([400_000], 2.0, 3.0, dtype, crt.Generator(1)).numpy().astype(np.float64)
    assert abs(z.mean() - 2) < 0.015 and abs(z.std() - 3) < 0.01
    assert scipy.stats.kstest((z - 2) / 3, "norm").pvalue > 0.01
    assert abs(scipy.stats.skew(z)) < 0.01 and abs(scipy.stats.kurtosis(z)) < 0.02
    half = 32 if dtype is crt.float32 else 16
    first, second = z.reshape(-1, 2, half).transpose(1, 0, 2).reshape(2, -1)  # the two of one radius
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01 and abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.01
    assert crt.normal([5], 7.0, 0.0, dtype).tolist() == [7.0] * 5


def test_normal_numbers_are_as_box_and_muller_say() -> None:
    n = 6400
    w = words(4, 0, n).reshape(-1, 2, 32)
    radius = np.sqrt(-2 * np.log(((w[:, 0] >> np.uint64(1)).astype(np.float64) + 1) * 2.0**-31))
    angle = 2 * np.pi * (w[:, 1] >> np.uint64(1)).astype(np.float64) * 2.0**-31
    want = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(crt.normal([n], generator=crt.Generator(4)).numpy(), want, rtol=0, atol=4e-6)
    bits = pairs(4, 0, n).reshape(-1, 2, 16) >> np.uint64(11)
    radius, angle = np.sqrt(-2 * np.log((bits[:, 0].astype(np.float64) + 1) * 2.0**-53)), 2 * np.pi * bits[:, 1].astype(np.float64) * 2.0**-53
    want = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(crt.normal([n], dtype=crt.float64, generator=crt.Generator(4)).numpy(), want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint64", "int64", "float16", "bfloat16", "float32"])
def test_random_integers(dtype: str) -> None:
    x = crt.randint(3, 13, [100_000], getattr(crt, dtype), crt.Generator(1))
    assert x.dtype is getattr(crt, dtype)
    counts = np.bincount(x.numpy().astype(np.int64), minlength=13)
    assert counts[:3].sum() == 0 and scipy.stats.chisquare(counts[3:]).pvalue > 0.01


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_bernoulli(dtype: Any) -> None:
    p = np.repeat([0.0, 0.25, 0.5, 1.0], 50_000).astype(dtype)
    x = crt.bernoulli(crt.tensor(p), crt.Generator(1)).numpy().astype(np.float64).reshape(4, -1)
    assert set(np.unique(x)) == {0.0, 1.0}
    assert x[0].sum() == 0 and x[3].all()
    np.testing.assert_allclose(x.mean(1), [0, 0.25, 0.5, 1], atol=0.01)
    strided = crt.bernoulli(crt.permute(crt.tensor(p.reshape(4, -1)), (1, 0)), crt.Generator(1)).numpy()
    assert strided[:, 0].sum() == 0 and strided[:, 3].all()


@pytest.mark.parametrize("bad", [-0.1, 1.5, np.nan])
def test_a_probability_that_is_none_is_found_late(bad: float) -> None:
    p = np.full(70_000, 0.5, np.float32)
    p[69_999] = bad
    with pytest.raises(ValueError, match=r"^bernoulli.*a probability is outside \[0, 1\]"):
        crt.bernoulli(crt.tensor(p)).numpy()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_dropout(dtype: Any) -> None:
    x = np.arange(1, 100_001).reshape(2, -1) % 97 + 1
    t = crt.tensor(x.astype(dtype))
    got = crt.dropout(t, 0.2, generator=crt.Generator(1)).numpy()
    kept = got != 0
    assert abs(kept.mean() - 0.8) < 0.005
    np.testing.assert_allclose(got[kept].astype(np.float64), x[kept] * 1.25, rtol=2**-8)
    assert crt.dropout(t, 0.2, training=False).bytes() == t.bytes() == crt.dropout(t, 0.0).bytes()
    assert not crt.dropout(t, 1.0).numpy().any()
    special = crt.dropout(crt.tensor(np.array([np.nan, np.inf], dtype)), 1.0).numpy()
    assert np.isnan(special.astype(np.float32)).all()  # as torch


def test_multinomial_with_replacement() -> None:
    weights = np.array([[0.0, 1, 2, 0, 5, 0], [3, 0, 0, 0, 0, 1]], np.float32)
    got = crt.multinomial(crt.tensor(weights), 80_000, True, crt.Generator(1))
    assert got.shape == (2, 80_000) and got.dtype is crt.int64
    for row, w in zip(got.numpy(), weights, strict=True):
        counts = np.bincount(row, minlength=6)
        assert counts[w == 0].sum() == 0
        assert scipy.stats.chisquare(counts[w > 0], w[w > 0] / w.sum() * 80_000).pvalue > 0.01


def test_multinomial_without_replacement() -> None:
    weights = np.array([1.0, 2, 0, 5], np.float64)
    got = crt.multinomial(crt.tensor(np.tile(weights, (40_000, 1))), 3, generator=crt.Generator(1)).numpy()
    assert all(sorted(row) == [0, 1, 3] for row in got.tolist())
    first = np.bincount(got[:, 0], minlength=4)[[0, 1, 3]]
    assert scipy.stats.chisquare(first, np.array([1, 2, 5]) / 8 * 40_000).pvalue > 0.01
    second = np.bincount(got[got[:, 0] == 3, 1], minlength=4)[:2]  # once the heaviest is gone
    assert scipy.stats.chisquare(second, np.array([1, 2]) / 3 * second.sum()).pvalue > 0.01
    huge = crt.multinomial(crt.tensor(np.array([1e308, 1e308, 1e-320])), 2, generator=crt.Generator(1)).tolist()
    assert sorted(huge) == [0, 1]


def test_randperm() -> None:
    assert sorted(crt.randperm(1000, generator=crt.Generator(1)).tolist()) == list(range(1000))
    assert crt.randperm(0).shape == (0,) and crt.randperm(1).tolist() == [0]
    small = crt.randperm(256, crt.uint8, crt.Generator(1))
    assert small.dtype is crt.uint8 and sorted(small.tolist()) == list(range(256))
    generator = crt.Generator(2)
    orders: dict[tuple[int, ...], int] = {}
    for _ in range(2400):
        order = tuple(crt.randperm(4, generator=generator).tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24 and scipy.stats.chisquare(list(orders.values())).pvalue > 0.01


# ---- what they refuse


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: crt.uniform([2], 1.0, 0.0), ValueError, "uniform: low 1 is not below high 0"),
        (lambda: crt.uniform([2], float("nan"), 0.0), ValueError, "uniform: "),
        (lambda: crt.uniform([2], 0.0, float("inf")), ValueError, "uniform: "),
        (lambda: crt.uniform([2], 0.0, 1e6, crt.float16), ValueError, "uniform: from 0 to 1000000"),
        (lambda: crt.uniform([2], -3e38, 3e38), ValueError, "uniform: "),
        (lambda: crt.uniform([-2]), ValueError, "uniform: "),
        (lambda: crt.uniform([2**62, 4]), ValueError, "uniform: "),
        (lambda: crt.uniform([2], dtype=crt.int64), TypeError, "uniform: needs a floating-point dtype, got int64"),
        (lambda: crt.uniform([2], dtype=crt.float8_e5m2), TypeError, "uniform: "),
        (lambda: crt.normal([2], 0.0, -1.0), ValueError, "normal: the standard deviation -1 is negative"),
        (lambda: crt.normal([2], 0.0, float("nan")), ValueError, "normal: "),
        (lambda: crt.normal([2], dtype=crt.bool_), TypeError, "normal: "),
        (lambda: crt.randint(3, 3, [2]), ValueError, "randint: low 3 is not below high 3"),
        (lambda: crt.randint(0, 257, [2], crt.uint8), ValueError, "randint: uint8 cannot hold all integers from 0 to 256"),
        (lambda: crt.randint(-1, 3, [2], crt.uint64), ValueError, "randint: "),
        (lambda: crt.randint(0, 5000, [2], crt.float16), ValueError, "randint: float16 cannot hold"),
        (lambda: crt.randint(0, 2, [2], crt.bool_), TypeError, "randint: needs a dtype of numbers, got bool"),
        (lambda: crt.bernoulli(crt.ones([2], crt.int64)), TypeError, "bernoulli: "),
        (lambda: crt.dropout(crt.ones([2]), -0.1), ValueError, r"dropout: the probability -0.1 is outside \[0, 1\]"),
        (lambda: crt.dropout(crt.ones([2]), float("nan")), ValueError, "dropout: "),
        (lambda: crt.dropout(crt.arange(0, 3)), TypeError, "dropout: "),
        (lambda: crt.multinomial(crt.ones([2, 2, 2]), 1), ValueError, "multinomial: needs one or two dimensions"),
        (lambda: crt.multinomial(crt.ones([3]), 0), ValueError, "multinomial: num_samples is 0"),
        (lambda: crt.multinomial(crt.ones([3]), 4), ValueError, "multinomial: 4 different samples of 3 weights"),
        (lambda: crt.multinomial(crt.ones([2, 0]), 1, True), ValueError, "multinomial: no weights"),
        (lambda: crt.multinomial(crt.arange(0, 3), 1), TypeError, "multinomial: "),
        (lambda: crt.randperm(-1), ValueError, "randperm: n is -1"),
        (lambda: crt.randperm(257, crt.uint8), ValueError, "randperm: uint8 cannot hold"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        call()


@pytest.mark.parametrize(
    ("weights", "samples", "message"),
    [
        ([1.0, -1.0], 1, "the weight -1 is negative"),
        ([1.0, np.nan], 1, "the weight"),
        ([1.0, np.inf], 1, "the weight"),
        ([0.0, 0.0], 1, "0 weights"),
        ([0, 1.0], 2, "1 weights"),
    ],
)
def test_weights_that_are_found_late(weights: list[float], samples: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^multinomial.*{message}"):
        crt.multinomial(crt.tensor(np.array(weights, np.float32)), samples).numpy()


def test_nothing_is_drawn_for_empty_tensors() -> None:
    generator = crt.Generator(1)
    for x in (crt.uniform([0, 3], generator=generator), crt.bernoulli(crt.ones([0]), generator), crt.randint(0, 3, [2, 0], generator=generator)):
        assert x.numel() == 0 and x.numpy().size == 0
    assert generator.get_state() == (1, 0)
    assert crt.normal([], generator=generator).shape == ()
