"""Edges of reductions, scans and rows: NaN, infinities, nothing to reduce, layouts, bad arguments, and torch beside them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import clika_runtime as crt
import samples

torch = pytest.importorskip("torch")

FLOATS = ["float16", "bfloat16", "float32", "float64"]
DTYPE = {name: getattr(crt, "bool_" if name == "bool" else name) for name in samples.DTYPES}


def of(x: Any, dtype: str = "float32") -> crt.Tensor:
    return crt.tensor(np.asarray(x).astype(samples.numpy_dtype(dtype)))


def of_torch(x: np.ndarray) -> Any:
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(x))


def wide(x: Any) -> np.ndarray:
    return np.asarray(x.to(torch.float64).numpy() if isinstance(x, torch.Tensor) else x.numpy().astype(np.float64))


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    before = crt.num_threads()
    crt.set_num_threads(n)
    try:
        yield
    finally:
        crt.set_num_threads(before)


# ---- NaN


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_nan_wins_wherever_it_is(dtype: str) -> None:
    for length in range(1, 71):
        x = np.tile(samples.values((length,), dtype, length), (length, 1))
        np.fill_diagonal(x, np.nan)  # row i has it at position i
        want = np.arange(length)
        for tensor, dim in ((crt.tensor(x), 1), (crt.permute(crt.tensor(x.T.copy()), (1, 0)), 1), (crt.tensor(x.T.copy()), 0)):
            for both in (crt.max_dim(tensor, dim), crt.min_dim(tensor, dim)):
                assert np.isnan(wide(both.values)).all() and np.array_equal(both.indices.numpy(), want)
            for values in (crt.amax(tensor, dim), crt.amin(tensor, dim), crt.select(crt.cummax(tensor, dim).values, dim, -1)):
                assert np.isnan(wide(values)).all()
            for places in (crt.argmax(tensor, dim), crt.argmin(tensor, dim), crt.select(crt.cummin(tensor, dim).indices, dim, -1)):
                assert np.array_equal(places.numpy(), want)


@pytest.mark.parametrize("dtype", samples.DTYPES)
def test_the_element_at_argmax_is_the_largest(dtype: str) -> None:
    for shape in [(1,), (17,), (1023,), (1024,), (1025,), (70001,)]:
        x = samples.values(shape, dtype, shape[0])
        t = crt.tensor(x)
        for arg, extreme in ((crt.argmax, crt.amax), (crt.argmin, crt.amin)):
            at = arg(t).item()
            assert crt.select(t, 0, at).bytes() == extreme(t).bytes()
            assert at == (np.argmax if arg is crt.argmax else np.argmin)(x)


def test_the_latest_of_equals_as_torch() -> None:
    x = np.array([1, 3, 3, np.nan, 2, np.nan, 5, -np.inf], np.float32)
    for name in ("cummax", "cummin"):
        got, want = getattr(crt, name)(of(x), 0), getattr(torch, name)(of_torch(x), 0)
        np.testing.assert_array_equal(got.values.numpy(), want.values.numpy())
        np.testing.assert_array_equal(got.indices.numpy(), want.indices.numpy())


# ---- infinities, nothing at all


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_as_torch(dtype: str) -> None:
    inf, nan = np.inf, np.nan
    rows = [[inf, 1, 2], [-inf, 1, 2], [-inf] * 3, [inf, -inf, 0], [inf, inf, 1], [nan, inf, 1], [nan, -inf, 1], [3e4, 3e4, -3e4], [0, 0, 0]]
    x = np.array(rows).astype(samples.numpy_dtype(dtype))
    for fn, reference in [
        (lambda t: crt.logsumexp(t, 1), lambda t: torch.logsumexp(t, 1)),
        (lambda t: crt.logcumsumexp(t, 1), lambda t: torch.logcumsumexp(t, 1)),
        (lambda t: crt.softmax(t, 1), lambda t: torch.softmax(t, 1)),
        (lambda t: crt.log_softmax(t, 1), lambda t: torch.log_softmax(t, 1)),
        (lambda t: crt.softmin(t, 1), lambda t: torch.nn.functional.softmin(t, 1)),
        (lambda t: crt.var(t, 1), lambda t: torch.var(t, 1)),
        (lambda t: crt.norm(t, 2.0, 1), lambda t: torch.linalg.vector_norm(t, 2, 1)),
        (lambda t: crt.norm(t, inf, 1), lambda t: torch.linalg.vector_norm(t, inf, 1)),
        (lambda t: crt.norm(t, -inf, 1), lambda t: torch.linalg.vector_norm(t, -inf, 1)),
        (lambda t: crt.norm(t, 0.0, 1), lambda t: torch.linalg.vector_norm(t, 0, 1)),
        (lambda t: crt.sum(t, 1), lambda t: torch.sum(t, 1)),
        (lambda t: crt.mean(t, 1), lambda t: torch.mean(t, 1)),
        (lambda t: crt.cumsum(t, 1), lambda t: torch.cumsum(t, 1)),
    ]:
        rtol = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(wide(fn(crt.tensor(x))), wide(reference(of_torch(x))), rtol=rtol, atol=rtol / 10, equal_nan=True)


def test_all_masked_rows_are_nan_as_in_torch() -> None:
    x = np.full((3, 40), -np.inf, np.float32)
    x[1, 7] = 0
    for name in ("softmax", "log_softmax"):
        np.testing.assert_array_equal(getattr(crt, name)(of(x), 1).numpy(), getattr(torch, name)(of_torch(x), 1).numpy())
        np.testing.assert_array_equal(getattr(crt, name)(of(x.T), 0).numpy(), getattr(torch, name)(of_torch(x.T), 0).numpy())


def test_nothing_to_reduce_as_torch() -> None:
    x, t = crt.zeros((2, 0, 3)), torch.zeros(2, 0, 3)
    for name in ("sum", "prod", "mean", "logsumexp", "any", "all", "count_nonzero", "norm"):
        call: Callable[..., Any] = getattr(crt, name)
        reference: Callable[..., Any] = torch.linalg.vector_norm if name == "norm" else getattr(torch, name)
        np.testing.assert_array_equal(wide(call(x, dims=1)), wide(reference(t, dim=1)), err_msg=name)
        assert call(x, dims=0).shape == (0, 3)
    for name in ("var", "std"):  # of which torch warns
        assert np.isnan(getattr(crt, name)(x, 1).numpy()).all() and getattr(crt, name)(x, 0).shape == (0, 3)
    for name in ("amax", "amin", "argmax", "argmin"):
        with pytest.raises(ValueError, match=f"^{name}: no elements to choose from, shape \\[2, 0, 3\\]"):
            getattr(crt, name)(x, 1)
        assert getattr(crt, name)(x, 0).shape == (0, 3)
    for name in ("max_dim", "min_dim"):
        with pytest.raises(ValueError, match=f"^{name}: no elements to choose from"):
            getattr(crt, name)(x, 1)
        assert getattr(crt, name)(x, 0, keepdim=True).indices.shape == (1, 0, 3)
    for p in (np.inf, -np.inf, -1.0):
        with pytest.raises(ValueError, match=r"^norm: no elements"):
            crt.norm(x, p, 1)
    for name in ("softmax", "log_softmax", "softmin", "logcumsumexp", "cumsum", "cumprod"):
        assert getattr(crt, name)(x, 1).shape == (2, 0, 3)


def test_one_number_has_one_dimension() -> None:
    x = crt.tensor(np.float32(3))
    for dim in (0, -1):
        assert crt.softmax(x, dim).item() == 1 and crt.log_softmax(x, dim).item() == 0 and crt.softmin(x, dim).item() == 1
        assert crt.cumsum(x, dim).item() == 3 and crt.logcumsumexp(x, dim).item() == 3
        for both in (crt.max_dim(x, dim), crt.min_dim(x, dim), crt.cummax(x, dim)):
            assert both[0].item() == 3 and both[1].item() == 0 and both[1].shape == ()
        assert crt.argmin(x, dim).item() == 0 and crt.norm(x, 2.0, dim).item() == 3
        assert np.isnan(crt.var(x, dim).item()) and crt.var(x, dim, 0).item() == 0
    assert crt.sum(2.5).item() == 2.5 and crt.sum(2.5).dtype is crt.float32 and crt.prod(3).dtype is crt.int64 and crt.any(True).item()


# ---- wrong arguments


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "norm", "amax", "amin", "argmax", "argmin", "logsumexp", "any", "all", "count_nonzero"])
def test_wrong_dims(name: str) -> None:
    call = getattr(crt, name)
    for dims in (2, -3, (0, 2)):
        with pytest.raises(IndexError, match=f"^{name}: dimension -?[0-9] is out of range for a tensor of 2 dimensions, shape \\[2, 3\\]"):
            call(crt.zeros((2, 3)), dims=dims)
    with pytest.raises(ValueError, match=f"^{name}: dimension 1 is named twice"):
        call(crt.zeros((2, 3)), dims=(1, -1))


@pytest.mark.parametrize("name", ["max_dim", "min_dim", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "softmin"])
def test_wrong_dim(name: str) -> None:
    for dim in (2, -3):
        with pytest.raises(IndexError, match=f"^{name}: dimension -?[0-9] is out of range"):
            getattr(crt, name)(crt.zeros((2, 3)), dim)


@pytest.mark.parametrize("name", ["mean", "var", "std", "norm", "softmax", "log_softmax", "softmin"])
def test_integers_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name}: needs a floating-point tensor, got int32"):
        getattr(crt, name)(of([1, 2], "int32"))


# ---- numerics


def test_a_large_offset_costs_the_variance_nothing() -> None:
    for dtype, offset, rtol in (("float32", 1e4, 1e-6), ("float64", 1e9, 1e-6)):
        x = (np.random.default_rng(0).standard_normal((5, 40_000)) + offset).astype(dtype)
        want = np.var(x.astype(np.longdouble), axis=1, ddof=1).astype(np.float64)
        np.testing.assert_allclose(wide(crt.var(of(x, dtype), 1)), want, rtol=rtol)
        np.testing.assert_allclose(wide(crt.var(of(x.T, dtype), 0)), want, rtol=rtol)
        np.testing.assert_allclose(wide(crt.std(of(x, dtype))), np.std(x.astype(np.longdouble), ddof=1).astype(np.float64), rtol=rtol)


def test_squares_that_float32_cannot_hold() -> None:
    for scale in (1e25, 1e-25):
        x = np.array([3, 4, -5], np.float32) * np.float32(scale)
        np.testing.assert_allclose(crt.norm(of(x)).item(), np.sqrt(50) * scale, rtol=1e-6)
        np.testing.assert_allclose(crt.std(of(x)).item(), np.std(x.astype(np.float64), ddof=1), rtol=1e-6)


def test_narrow_floats_add_up_in_float32() -> None:
    for dtype in ("float16", "bfloat16"):
        ones = crt.full([3000], 1.0, dtype=DTYPE[dtype])
        exact = float(np.asarray(3000.0).astype(samples.numpy_dtype(dtype)))
        assert crt.sum(ones).item() == exact and crt.select(crt.cumsum(ones, 0), 0, -1).item() == exact
        assert crt.mean(crt.full([70_000], 3.0, dtype=DTYPE[dtype])).item() == 3


def test_integers_wrap_as_torch() -> None:
    x = np.array([[2**62, 2**62, 2**62], [3, -(2**63), 5]], np.int64)
    for name in ("sum", "prod", "cumsum", "cumprod"):
        np.testing.assert_array_equal(getattr(crt, name)(of(x, "int64"), 1).numpy(), getattr(torch, name)(of_torch(x), 1).numpy())
    top = crt.tensor(np.array([2**64 - 1, 1, 2**63], np.uint64))
    assert crt.amax(top).item() == 2**64 - 1 and crt.argmin(top).item() == 1 and crt.max_dim(top, 0).indices.item() == 0


# ---- layouts


def test_every_order_and_every_dims() -> None:
    """All subsets of dimensions of a tensor in each order of its strides, some reversed, some broadcast, against NumPy; and the same bits
    for each layout."""
    base = np.random.default_rng(1).standard_normal((5, 18, 33)).astype(np.float32)
    for order in itertools.permutations(range(3)):
        inverse = tuple(np.argsort(order))
        stored = crt.permute(crt.tensor(np.ascontiguousarray(base.transpose(order))), inverse)
        backwards = crt.slice(crt.tensor(np.ascontiguousarray(base[:, ::-1])), 1, None, None, -1)
        for dims in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]:
            for fn, reference in ((crt.sum, np.sum), (crt.amax, np.max), (crt.var, lambda x, axis: np.var(x, axis=axis, ddof=1))):
                got = fn(stored, dims)
                np.testing.assert_allclose(got.numpy(), reference(base.astype(np.float64), axis=dims), rtol=2e-5, atol=1e-4)
                assert got.bytes() == fn(crt.tensor(base), dims).bytes() == fn(backwards, dims).bytes()
            assert crt.argmin(stored, dims).bytes() == crt.argmin(crt.tensor(base), dims).bytes()
        for dim in range(3):
            for fn in (crt.cumsum, crt.softmax, crt.logcumsumexp, lambda t, d: crt.cummin(t, d).indices):
                assert fn(stored, dim).bytes() == fn(crt.tensor(base), dim).bytes() == fn(backwards, dim).bytes()
    spread = crt.from_numpy(np.broadcast_to(base[0, 0], (7, 33)))  # strides of zero
    for dim in (0, 1):
        assert crt.sum(spread, dim).bytes() == crt.sum(crt.copy(spread), dim).bytes()
        assert crt.cumsum(spread, dim).bytes() == crt.cumsum(crt.copy(spread), dim).bytes()


SHAPES = [((70_000,), 0), ((3, 40_000), 1), ((40_000, 3), 0), ((40_000, 3), 1), ((300, 300), 0), ((300, 300), 1), ((20, 1500, 5), 1), ((2000, 9, 2), 1)]


@pytest.mark.parametrize("name", ["sum", "prod", "var", "logsumexp", "norm", "argmax", "count_nonzero", "cumsum", "cummax", "logcumsumexp", "softmax"])
def test_threads_layouts_and_slices_give_the_same_bits(name: str) -> None:
    call = getattr(crt, name)
    extra = (2.0,) if name == "norm" else ()

    def result(t: crt.Tensor, dim: int) -> bytes:
        r = call(t, *extra, dim)
        return b"".join(part.bytes() for part in (r if isinstance(r, tuple) else (r,)))

    for dtype in ("float32", "bfloat16"):
        for shape, dim in SHAPES:
            x = (1 + 0.001 * np.random.default_rng(len(shape)).standard_normal(shape)).astype(samples.numpy_dtype(dtype))
            t = crt.tensor(x)
            want = result(t, dim)
            with threads(1):
                assert result(t, dim) == want, (shape, dim)
            with threads(5):
                assert result(t, dim) == want, (shape, dim)
            order = list(range(x.ndim))[::-1]
            assert result(crt.permute(crt.tensor(x.transpose(order).copy()), order), dim) == want, (shape, dim)
            wider = np.zeros((*shape[:-1], 2 * shape[-1]), x.dtype)
            wider[..., ::2] = x
            assert result(crt.slice(crt.tensor(wider), -1, 0, None, 2), dim) == want, (shape, dim)


def test_the_sum_is_the_same_for_rows_and_columns() -> None:
    x = np.random.default_rng(3).standard_normal((64, 5000)).astype(np.float32)
    rows, columns = crt.sum(crt.tensor(x), 1), crt.sum(crt.tensor(x.T.copy()), 0)
    alone = [crt.sum(crt.tensor(row)).numpy() for row in x]
    assert rows.bytes() == columns.bytes() == np.array(alone).tobytes()


def test_strided_inputs_are_not_copied() -> None:
    big = crt.zeros((4096, 2048))
    t = crt.permute(crt.slice(big, 1, 0, None, 2), (1, 0))
    crt.sum(t, 0).wait()
    for fn in (crt.sum, crt.argmax, crt.var, crt.logsumexp):
        for dims in (0, 1, None):
            fn(t, dims).wait()
            before = crt.memory.current()
            crt.memory.reset_peak()
            fn(t, dims).wait()
            assert crt.memory.peak() - before < 4 << 20, (fn, dims)  # of 16


# ---- more elements than 32 bits count


def test_more_than_2_to_the_31_elements() -> None:
    n = 2_200_000_000
    memory = np.zeros(n, np.uint8)  # pages that are only read cost nothing
    memory[n - 5] = 7
    x = crt.from_numpy(memory)
    assert crt.argmax(x).item() == n - 5
    assert crt.amax(x).item() == crt.sum(x).item() == 7
    tail = crt.slice(x, 0, 2**31, None)
    assert crt.argmax(tail).item() == n - 5 - 2**31 and crt.count_nonzero(tail).item() == 1
    ones = crt.from_numpy(np.broadcast_to(np.uint8(1), (n,)))
    assert crt.sum(ones).item() == n
