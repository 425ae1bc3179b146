"""Edges of normalisation, attention and rotary embedding, and that they agree with torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import clika_runtime as crt

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def channels_first(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1)))


# ---- normalisation


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: crt.layer_norm(x, [5]), ValueError, r"layer_norm: shape \[2, 3, 4\] does not end with normalized_shape \[5\]"),
        (lambda x: crt.layer_norm(x, []), ValueError, "layer_norm: shape"),
        (lambda x: crt.layer_norm(x, [1, 2, 3, 4]), ValueError, "layer_norm: shape"),
        (lambda x: crt.layer_norm(x, [4], crt.ones([3])), ValueError, r"layer_norm: weight has shape \[3\] and not \[4\]"),
        (lambda x: crt.layer_norm(x, [4], None, crt.ones([4, 1])), ValueError, "layer_norm: bias has shape"),
        (lambda x: crt.layer_norm(x, [4], 1.0), (ValueError, TypeError), "layer_norm: "),
        (lambda x: crt.layer_norm(crt.arange(0, 4), [4]), TypeError, "layer_norm: needs floating-point tensors, got int64"),
        (lambda x: crt.layer_norm(x, [4], crt.arange(0, 4)), TypeError, "layer_norm: needs floating-point tensors, got int64"),
        (lambda x: crt.layer_norm(1.0, [1]), ValueError, "layer_norm: shape"),
        (lambda x: crt.rms_norm(x, [3]), ValueError, "rms_norm: shape"),
        (lambda x: crt.rms_norm(x, [4], crt.ones([5])), ValueError, "rms_norm: weight"),
        (lambda x: crt.group_norm(x, 3), ValueError, "group_norm: 4 channels do not make 3 groups"),
        (lambda x: crt.group_norm(x, 0), ValueError, "group_norm: 4 channels do not make 0 groups"),
        (lambda x: crt.group_norm(x, -2), ValueError, "group_norm: "),
        (lambda x: crt.group_norm(crt.ones([4]), 2), ValueError, r"group_norm: needs samples and channels, got shape \[4\]"),
        (lambda x: crt.group_norm(x, 2, crt.ones([2])), ValueError, "group_norm: weight"),
        (lambda x: crt.instance_norm(crt.ones([4])), ValueError, "instance_norm: needs"),
        (lambda x: crt.instance_norm(x, None, crt.ones([3])), ValueError, "instance_norm: bias"),
        (lambda x: crt.batch_norm(x, crt.ones([3]), crt.ones([4])), ValueError, "batch_norm: running_mean"),
        (lambda x: crt.batch_norm(x, crt.ones([4]), crt.ones([])), ValueError, "batch_norm: running_var"),
        (lambda x: crt.batch_norm(x, crt.ones([4]), crt.ones([4]), crt.ones([2])), ValueError, "batch_norm: weight"),
    ],
)
def test_what_norms_refuse(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        call(crt.ones([2, 3, 4]))


def test_norms_agree_with_torch() -> None:
    x, weight, bias = values(3, 5, 6, 12), values(12, seed=1), values(12, seed=2)
    t, w, b = torch.from_numpy(x), torch.from_numpy(weight), torch.from_numpy(bias)
    c = [crt.tensor(a) for a in (x, weight, bias)]
    np.testing.assert_allclose(crt.layer_norm(c[0], [12], c[1], c[2]).numpy(), F.layer_norm(t, [12], w, b).numpy(), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(crt.rms_norm(c[0], [12], c[1]).numpy(), F.rms_norm(t, [12], w).numpy(), rtol=1e-5, atol=2e-6)
    first = channels_first(x)
    for got, want in (
        (crt.group_norm(c[0], 3, c[1], c[2]), F.group_norm(first, 3, w, b)),
        (crt.instance_norm(c[0], c[1], c[2]), F.instance_norm(first, weight=w, bias=b)),
        (crt.batch_norm(c[0], c[2], crt.tensor(weight**2), c[1], c[2]), F.batch_norm(first, b, w**2, w, b)),
    ):
        np.testing.assert_allclose(got.numpy(), np.moveaxis(want.numpy(), 1, -1), rtol=1e-5, atol=4e-6)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_narrow_floats_take_wide_parameters(dtype: Any) -> None:
    x, weight = values(4, 16).astype(dtype), values(16, seed=1)
    got = crt.layer_norm(crt.tensor(x), [16], crt.tensor(weight)).numpy()
    want = F.layer_norm(torch.from_numpy(x.astype(np.float32)), [16], torch.from_numpy(weight)).numpy()
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=2**-8 if dtype == BFLOAT16 else 2**-11, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64])
def test_rms_norm_adds_the_epsilon_of_what_it_computes_in(dtype: Any) -> None:
    x = (values(2, 8) * 1e-4).astype(dtype)
    wide = x.astype(np.float64)
    eps = np.finfo(np.float64 if dtype == np.float64 else np.float32).eps
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps)
    np.testing.assert_allclose(crt.rms_norm(crt.tensor(x), [8]).numpy().astype(np.float64), want, rtol=2**-8 if dtype == BFLOAT16 else 2**-10)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    x = (1e4 + np.arange(64) % 7 * 2.0**-9).astype(np.float32).reshape(2, 4, 8)
    wide = x.astype(np.float64)
    row = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(crt.layer_norm(crt.tensor(x), [8]).numpy(), row, rtol=1e-4, atol=1e-5)
    group = (wide - wide.mean((1, 2), keepdims=True)) / np.sqrt(wide.var((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(crt.group_norm(crt.tensor(x), 1).numpy(), group, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_row_only(bad: float) -> None:
    x = values(3, 8)
    x[1, 2] = bad
    got = crt.layer_norm(crt.tensor(x), [8]).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(F.layer_norm(torch.from_numpy(x), [8]).numpy()))
    got = crt.rms_norm(crt.tensor(x), [8]).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(F.rms_norm(torch.from_numpy(x), [8]).numpy()))


def test_a_negative_variance_is_nan() -> None:
    assert np.isnan(crt.batch_norm(crt.ones([1, 1]), crt.zeros([1]), crt.full([1], -1.0)).item())


# ---- attention


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    got = crt.scaled_dot_product_attention(*(crt.tensor(a) for a in (q, k, v)), None if mask is None else crt.tensor(mask), **options)
    t = [torch.from_numpy(a) for a in (q, k, v)]
    return got.numpy(), F.scaled_dot_product_attention(*t, None if mask is None else torch.from_numpy(mask), **options).numpy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("queries", "keys"), [(1, 700), (4, 33), (5, 33), (70, 70), (130, 1030), (257, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_agrees_with_torch(dtype: Any, queries: int, keys: int, causal: bool) -> None:
    q, k, v = (values(2, 3, n, 40, seed=i).astype(dtype) for i, n in enumerate((queries, keys, keys)))
    seen = np.random.default_rng(3).random((2, 1, queries, keys)) < 0.8
    seen[:, :, 0] = False  # a query that sees nothing gives zeros
    added = np.where(seen, values(2, 1, queries, keys, seed=4), -np.inf).astype(dtype)
    for mask in (None, seen, added):
        got, want = attend(q, k, v, mask, is_causal=causal)
        np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == np.float32 else 1e-12, atol=3e-6 if dtype == np.float32 else 1e-13)
        if mask is not None:
            assert not got[:, :, 0].any()


def test_grouped_heads_agree_with_torch() -> None:
    for heads in (1, 2, 4):
        got, want = attend(values(2, 4, 6, 8), values(2, heads, 9, 8, seed=1), values(2, heads, 9, 8, seed=2), enable_gqa=True)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = values(2, 9, 16) * 50, values(2, 600, 16, seed=1) * 50, values(2, 600, 16, seed=2)
    got, want = attend(q, k, v)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    assert np.isfinite(got).all()


def test_nan_stays_in_its_row() -> None:
    for queries in (3, 9):
        q, k, v = values(1, queries, 8), values(1, 520, 8, seed=1), values(1, 520, 8, seed=2)
        q[0, 1, 2] = np.nan
        got, want = attend(q, k, v)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_permuted_heads_need_no_copy() -> None:
    q, k, v = (values(2, 40, 3, 16, seed=i) for i in range(3))
    got = crt.scaled_dot_product_attention(*(crt.permute(crt.tensor(a), (0, 2, 1, 3)) for a in (q, k, v)))
    want = F.scaled_dot_product_attention(*(torch.from_numpy(a).permute(0, 2, 1, 3) for a in (q, k, v)))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_attention_makes_no_matrix_of_scores() -> None:
    n = 4096
    q, k, v = (crt.tensor(values(1, n, 16, seed=i)) for i in range(3))
    crt.memory.reset_peak()
    before = crt.memory.peak()
    crt.scaled_dot_product_attention(q, k, v).wait()
    assert crt.memory.peak() - before < n * n * 4 / 16


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        (([4], [5, 4], [5, 4]), {}, ValueError, "needs at least two dimensions"),
        (([3, 4], [5, 6], [5, 4]), {}, ValueError, "query and key differ in their last size"),
        (([3, 4], [5, 4], [6, 4]), {}, ValueError, "there are not as many keys as values"),
        (([2, 3, 4], [3, 5, 4], [3, 5, 4]), {}, ValueError, "the dimensions before the last two do not broadcast"),
        (([4, 3, 4], [2, 5, 4], [2, 5, 4]), {}, ValueError, "the dimensions before the last two do not broadcast"),
        (([3, 3, 4], [2, 5, 4], [2, 5, 4]), {"enable_gqa": True}, ValueError, "the heads of query are no multiple"),
        (([3, 4], [5, 4], [5, 4]), {"attn_mask": [4, 5]}, ValueError, "the mask does not broadcast"),
        (([3, 4], [5, 4], [5, 4]), {"attn_mask": [2, 3, 5]}, ValueError, "the mask does not broadcast"),
    ],
)
def test_what_attention_refuses(shapes: Any, options: dict[str, Any], error: Any, message: str) -> None:
    if "attn_mask" in options:
        options = options | {"attn_mask": crt.ones(options["attn_mask"])}
    with pytest.raises(error, match=f"^scaled_dot_product_attention: {message}"):
        crt.scaled_dot_product_attention(*(crt.ones(shape) for shape in shapes), **options)


def test_dtypes_that_attention_refuses() -> None:
    x = crt.ones([3, 4])
    with pytest.raises(TypeError, match=r"^scaled_dot_product_attention: query, key and value need one dtype"):
        crt.scaled_dot_product_attention(x, crt.cast(x, crt.float64), x)
    with pytest.raises(TypeError, match=r"^scaled_dot_product_attention: needs a mask of bools or floats"):
        crt.scaled_dot_product_attention(x, x, x, crt.ones([3, 3], crt.int64))


# ---- rotary embedding


@pytest.mark.parametrize(
    ("x", "cos", "sin", "message"),
    [
        ([3, 4], [3, 3], [3, 3], "more angles than pairs"),
        ([3, 4], [3, 2], [3, 1], "cos and sin differ in their last size"),
        ([3, 4], [4, 2], [3, 2], "angles do not broadcast"),
        ([3, 4], [2, 3, 2], [3, 2], "angles do not broadcast"),
        ([], [2], [2], "needs at least one dimension"),
    ],
)
def test_what_rotary_embedding_refuses(x: list[int], cos: list[int], sin: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^rotary_embedding: {message}"):
        crt.rotary_embedding(crt.ones(x), crt.ones(cos), crt.ones(sin))


def test_what_is_not_turned_keeps_its_bits() -> None:
    x = values(3, 9)
    x[:, 6:] = [np.nan, -0.0, 1e-42]
    got = crt.rotary_embedding(crt.tensor(x), crt.ones([3, 3]), crt.zeros([3, 3])).numpy()
    np.testing.assert_array_equal(got.view(np.int32)[:, 6:], x.view(np.int32)[:, 6:])


# ---- threads


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    x, channels = crt.tensor(values(2, 300, 96)), crt.tensor(values(96, seed=1))
    q, k, v = (crt.tensor(values(2, 2, n, 32, seed=i)) for i, n in enumerate((300, 700, 700)))
    narrow = [crt.cast(t, crt.bfloat16) for t in (q, k, v)]
    angles = crt.tensor(values(300, 16, seed=2))

    def everything() -> list[bytes]:
        results = [crt.layer_norm(x, [96], channels), crt.rms_norm(x, [96]), crt.group_norm(x, 4, channels), crt.instance_norm(x)]
        results += [crt.batch_norm(x, channels, channels * channels), crt.rotary_embedding(q, angles, angles)]
        results += [crt.scaled_dot_product_attention(q, k, v), crt.scaled_dot_product_attention(*narrow, is_causal=True)]
        return [result.bytes() for result in results]

    threads = crt.num_threads()
    try:
        several = everything()
        crt.set_num_threads(1)
        assert everything() == several
    finally:
        crt.set_num_threads(threads)
