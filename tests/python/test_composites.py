"""Operators that are made of others: agreement with torch, randomness, bad input, and that they speak with one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import clika_runtime as crt

nan, inf = float("nan"), float("inf")


def same(ours: Any, theirs: torch.Tensor, atol: float = 0.0) -> None:
    assert str(ours.dtype).rsplit(".", 1)[-1] == str(theirs.dtype).rsplit(".", 1)[-1]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=atol)


# ---- agreement with torch


def test_what_torch_answers() -> None:
    f = torch.nn.functional
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    y = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    t, u = torch.tensor(x), torch.tensor(y)
    a, b = crt.tensor(x), crt.tensor(y)
    for p in (1.0, 2.0, 0.0, inf, -inf, 2.5):
        same(crt.normalize(a, p, -1), f.normalize(t, p, -1))
        same(crt.pairwise_distance(a, b, p), f.pairwise_distance(t, u, p))
    same(crt.normalize(a, dim=(0, 1)), f.normalize(t, dim=(0, 1)))  # type: ignore[arg-type]
    same(crt.normalize(crt.tensor(-3.0), dim=0), f.normalize(torch.tensor(-3.0), dim=0))
    same(a.normalize(), f.normalize(t))
    same(crt.cosine_similarity(a, b), f.cosine_similarity(t, u), atol=1e-7)
    same(crt.cosine_similarity(a, b[0], -1), f.cosine_similarity(t, u[0], -1), atol=1e-7)
    same(crt.cosine_similarity(a[:, :1], b, 1), f.cosine_similarity(t[:, :1], u, 1), atol=1e-7)
    same(crt.cosine_similarity(crt.tensor([1, 2]), crt.tensor([1.0, 2.0]), 0), f.cosine_similarity(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), 0))
    same(crt.cosine_similarity(crt.zeros((1, 2)), crt.ones((1, 2))), torch.zeros(1))
    same(crt.pairwise_distance(crt.tensor([1, 2]), crt.tensor([1, 4])), f.pairwise_distance(torch.tensor([1, 2]), torch.tensor([1, 4])))
    same(crt.pairwise_distance(a, b, keepdim=True), f.pairwise_distance(t, u, keepdim=True))
    same(crt.rrelu(a), f.rrelu(t))
    same(crt.rrelu(a, 0.5, 0.5, True), f.rrelu(t, 0.5, 0.5, True))


def test_what_nan_infinities_and_zeros_come_to() -> None:
    x = np.array([[1, nan, -inf], [nan, nan, nan], [0, 2, 3]], np.float32)
    t, a = torch.tensor(x), crt.tensor(x)
    same(crt.nansum(a), torch.nansum(t))
    same(crt.nansum(a, 1, keepdim=True), torch.nansum(t, 1, keepdim=True))
    same(crt.nanmean(a, 1), torch.nanmean(t, 1))
    same(crt.nanmean(a[2]), torch.nanmean(t[2]))
    same(crt.nansum(crt.tensor([1, 2])), torch.nansum(torch.tensor([1, 2])))
    same(crt.nansum(crt.tensor([True, True])), torch.nansum(torch.tensor([True, True])))
    same(crt.nanmean(crt.zeros((0,))), torch.nanmean(torch.zeros(0)))
    for values in ([-0.1, 0.0, 0.25, 0.5, 1.0, 2.0, nan], [0, 1]):
        same(crt.logit(crt.tensor(values)), torch.logit(torch.tensor(values)))
        same(crt.logit(crt.tensor(values), 0.125), torch.logit(torch.tensor(values), 0.125))
    left, right = [0.0, 0.0, 0.0, 0.0, 2.0, nan, inf, 1.0], [nan, 0.0, inf, -1.0, 0.0, 0.0, 0.0, -1.0]
    same(crt.xlogy(crt.tensor(left), crt.tensor(right)), torch.xlogy(torch.tensor(left), torch.tensor(right)))
    same(crt.xlogy(crt.tensor([0, 2]), crt.tensor([0, 3])), torch.xlogy(torch.tensor([0, 2]), torch.tensor([0, 3])))
    same(crt.xlogy(2, crt.tensor([1.0, 3.0])), torch.xlogy(2, torch.tensor([1.0, 3.0])))
    extremes = crt.aminmax(a, 1)
    want = torch.aminmax(t, dim=1)
    same(extremes.min, want.min)
    same(extremes.max, want.max)
    assert [e.item() for e in crt.aminmax(crt.tensor([3, 1, 2]))] == [1, 3]


def test_what_moves_and_searches() -> None:
    x = torch.arange(24).reshape(2, 3, 4)
    a = crt.tensor(x.numpy())
    order = (x % 5).argsort(1)
    same(crt.take_along_dim(a, crt.tensor(order.numpy()), 1), torch.take_along_dim(x, order, 1))
    same(crt.take_along_dim(a, crt.tensor([[[-1]]]), 2), torch.take_along_dim(x, torch.tensor([[[3]]]), 2))
    same(crt.take_along_dim(a, crt.tensor([5, 7])), torch.take_along_dim(x, torch.tensor([5, 7])))
    borders = torch.tensor([1.0, 2.0, 2.0, 5.0])
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 5.0, nan]])
    for right in (False, True):
        same(crt.bucketize(crt.tensor(values.numpy()), crt.tensor(borders.numpy()), right), torch.bucketize(values, borders, right=right))
    assert crt.bucketize(1.5, crt.tensor(borders.numpy())).item() == 1
    same(crt.channel_shuffle(crt.permute(a, (0, 2, 1)), 3), torch.channel_shuffle(x, 3).permute(0, 2, 1))
    for n in (0, 1, 2, 9):
        same(crt.diff(a, n, 1), torch.diff(x, n, 1))
    same(crt.diff(crt.tensor([True, False, False])), torch.diff(torch.tensor([True, False, False])))
    assert crt.diff(crt.ones((2, 1)), 2**62).shape == (2, 0)
    assert crt.cat([crt.tensor([1]), crt.tensor([2])]).tolist() == [1, 2]
    assert a.swapaxes(0, -1).shape == crt.swapaxes(a, 0, 2).shape == (4, 3, 2)
    half = crt.hstack([crt.tensor([1, 2]), crt.tensor([0.5])])
    assert half.dtype is crt.float32 and half.tolist() == [1, 2, 0.5]


# ---- random ones


def test_rrelu_while_training() -> None:
    x = crt.tensor(np.array([-2.0, -0.0, 0.0, 3.0, nan, -inf], np.float32))
    result = crt.rrelu(x, 0.25, 0.5, True, crt.Generator(1)).numpy()
    assert -1 <= result[0] < -0.5 and result[1:4].tolist() == [0, 0, 3] and np.isnan(result[4]) and result[5] == -inf
    many = crt.rrelu(crt.full((20_000,), -1.0), 0.0, 1.0, training=True, generator=crt.Generator(2)).numpy()
    assert abs(many.mean() + 0.5) < 0.01 and abs(many.var() - 1 / 12) < 0.005
    assert crt.rrelu(crt.full((3,), -1.0, crt.bfloat16), 0.25, 0.25, True).tolist() == [-0.25] * 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gumbel_softmax(dtype: str) -> None:
    likelihoods = np.array([0.1, 0.2, 0.3, 0.4])
    logits = crt.cast(crt.tensor(np.log(np.tile(likelihoods, (20_000, 1)))), getattr(crt, dtype))
    chosen = crt.gumbel_softmax(logits, hard=True, generator=crt.Generator(3))
    assert chosen.dtype is logits.dtype
    ones = crt.cast(chosen, crt.float64).numpy()
    assert np.array_equal(np.unique(ones), [0, 1]) and np.array_equal(ones.sum(1), np.ones(20_000))
    assert np.abs(ones.mean(0) - likelihoods).max() < 0.015
    soft = crt.gumbel_softmax(logits, 0.5, generator=crt.Generator(3))
    assert soft.dtype is logits.dtype
    wide = crt.cast(soft, crt.float64).numpy()
    assert np.isfinite(wide).all() and np.abs(wide.sum(1) - 1).max() < 0.02
    if dtype in ("float32", "float64"):
        assert np.array_equal(wide.argmax(1), ones.argmax(1))  # the same noise, whatever tau is
    along = crt.gumbel_softmax(crt.zeros((3, 5)), dim=0)
    np.testing.assert_allclose(along.numpy().sum(0), np.ones(5), rtol=1e-5)
    assert crt.gumbel_softmax(crt.zeros((2, 0)), hard=True).shape == (2, 0)
    assert crt.gumbel_softmax(crt.tensor(1.0), hard=True).item() == 1


def test_random_composites_are_reproducible() -> None:
    x = crt.tensor(np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32))
    calls: list[Callable[[], Any]] = [lambda: crt.rrelu(x, training=True), lambda: crt.gumbel_softmax(x)]
    for make in calls:
        crt.manual_seed(5)
        first, second = make(), make()
        assert first.bytes() != second.bytes()
        threads = crt.num_threads()
        crt.set_num_threads(1)
        try:
            crt.manual_seed(5)
            assert make().bytes() == first.bytes()
        finally:
            crt.set_num_threads(threads)
        crt.manual_seed(5)
        with crt.tracing():
            deferred = make()
        assert deferred.bytes() == first.bytes()
        with crt.device("meta"):
            assert crt.rrelu(crt.zeros((2, 3)), training=True).device == crt.gumbel_softmax(crt.zeros((2, 3)), hard=True).device == "meta"
    graph = crt.trace(lambda inputs: [crt.gumbel_softmax(inputs[0], hard=True)], [x])
    assert graph.run([x])[0].sum().item() == 300


# ---- bad input

X = crt.ones((2, 3))
BAD: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (TypeError, "rrelu", lambda: crt.rrelu(crt.tensor([1]))),
    (ValueError, "rrelu", lambda: crt.rrelu(X, 0.5, 0.25)),
    (ValueError, "rrelu", lambda: crt.rrelu(X, nan, 0.25)),
    (TypeError, "gumbel_softmax", lambda: crt.gumbel_softmax(crt.tensor([1]))),
    (ValueError, "gumbel_softmax", lambda: crt.gumbel_softmax(X, 0.0)),
    (IndexError, "gumbel_softmax", lambda: crt.gumbel_softmax(X, dim=2)),
    (TypeError, "normalize", lambda: crt.normalize(crt.tensor([[1]]))),
    (IndexError, "normalize", lambda: crt.normalize(crt.ones(3))),
    (ValueError, "normalize", lambda: crt.normalize(X, dim=(0, -2))),
    (TypeError, "cosine_similarity", lambda: crt.cosine_similarity(crt.tensor([[1]]), crt.tensor([[1]]))),
    (ValueError, "cosine_similarity", lambda: crt.cosine_similarity(X, crt.ones((2, 4)))),
    (IndexError, "cosine_similarity", lambda: crt.cosine_similarity(X, X, 2)),
    (ValueError, "pairwise_distance", lambda: crt.pairwise_distance(X, crt.ones((2, 4)))),
    (IndexError, "nansum", lambda: crt.nansum(X, 2)),
    (ValueError, "nansum", lambda: crt.nansum(X, (0, -2))),
    (TypeError, "nanmean", lambda: crt.nanmean(crt.tensor([1]))),
    (IndexError, "nanmean", lambda: crt.nanmean(X, -3)),
    (ValueError, "xlogy", lambda: crt.xlogy(X, crt.ones((2, 4)))),
    (ValueError, "diff", lambda: crt.diff(crt.tensor(1.0))),
    (ValueError, "diff", lambda: crt.diff(X, -1)),
    (IndexError, "diff", lambda: crt.diff(X, 1, 2)),
    (ValueError, "diff", lambda: crt.diff(X, prepend=crt.ones((3, 1)))),
    (TypeError, "take_along_dim", lambda: crt.take_along_dim(X, X, 1)),
    (ValueError, "take_along_dim", lambda: crt.take_along_dim(X, crt.tensor([0]), 1)),
    (ValueError, "take_along_dim", lambda: crt.take_along_dim(X, crt.tensor([[0], [0], [0]]), 1)),
    (IndexError, "take_along_dim", lambda: crt.take_along_dim(X, crt.tensor([[0]]), 2)),
    (ValueError, "bucketize", lambda: crt.bucketize(X, X)),
    (ValueError, "mm", lambda: crt.mm(X, X)),
    (ValueError, "mm", lambda: crt.mm(X, crt.ones(3))),
    (TypeError, "mm", lambda: crt.mm(X, crt.ones((3, 2), crt.float64))),
    (ValueError, "hstack", lambda: crt.hstack([])),
    (ValueError, "hstack", lambda: crt.hstack([X, crt.ones((3, 3))])),
    (ValueError, "vstack", lambda: crt.vstack([])),
    (ValueError, "vstack", lambda: crt.vstack([X, crt.ones(2)])),
    (ValueError, "channel_shuffle", lambda: crt.channel_shuffle(X, 2)),
    (ValueError, "channel_shuffle", lambda: crt.channel_shuffle(X, 0)),
    (ValueError, "channel_shuffle", lambda: crt.channel_shuffle(crt.tensor(1.0), 1)),
]


@pytest.mark.parametrize(("error", "name", "call"), BAD, ids=[f"{name}-{i}" for i, (_, name, _) in enumerate(BAD)])
def test_bad_calls(error: type[Exception], name: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=f"^{name}: "):
        call()


# ---- one name


def test_a_missing_kernel_is_the_operators_own() -> None:
    x = crt.cast(crt.ones((2, 2)), crt.float8_e4m3fn)
    bits = crt.cast(crt.ones((4,)), crt.uint4)
    calls: dict[str, Callable[[], Any]] = {
        "einsum": lambda: crt.einsum("ij,jk->ik", x, x),
        "mv": lambda: crt.mv(x, x[0]),
        "mm": lambda: crt.mm(x, x),
        "kron": lambda: crt.kron(x, x),
        "outer": lambda: crt.outer(x[0], x[0]),
        "normalize": lambda: crt.normalize(x),
        "nansum": lambda: crt.nansum(x),
        "diff": lambda: crt.diff(x),
        "gumbel_softmax": lambda: crt.gumbel_softmax(x),
        "rrelu": lambda: crt.rrelu(x, training=True),
        "roll": lambda: crt.roll(bits, 1),
        "hstack": lambda: crt.hstack([bits, bits]),
        "repeat": lambda: crt.repeat(bits, 2),
    }
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=f"^(op '{name}' has no (float8_e4m3fn|uint4) kernel on cpu$|{name}: )"):
            call()
    with pytest.raises(NotImplementedError, match=r"^op 'matmul' has no float8_e4m3fn kernel on cpu$"):  # the name is given back
        crt.matmul(x, x)


def test_what_a_part_refuses_begins_with_the_operators_name() -> None:
    with pytest.raises(ValueError, match=r"^diff: concat: "):
        crt.diff(crt.ones((2, 3)), prepend=crt.ones((3, 1)))
    with pytest.raises(ValueError, match=r"^concat: "):
        crt.concat([crt.ones((2, 3)), crt.ones((3, 1))], 1)
