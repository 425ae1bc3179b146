"""Sorting, searching, and going by places: edges, late errors, in place, threads, and torch beside it."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clika_runtime as crt
import samples
from samples_index import index_oracle, index_put_oracle

FLOAT_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8).tolist()


# ---- torch


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_pain_a_sort_of_narrow_floats_with_nan(dtype, descending):
    """Sorts of float16 and bfloat16 lost NaN amid the numbers, or moved equal elements."""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, 4000).astype(np.float64)
    x[rng.integers(0, 4000, 400)] = np.nan
    x[rng.integers(0, 4000, 400)] = -0.0
    x[rng.integers(0, 4000, 40)] = np.inf
    x[rng.integers(0, 4000, 40)] = -np.inf
    mine = x.astype(samples.numpy_dtype(dtype))
    theirs = torch.from_numpy(x).to(FLOAT_TYPES[dtype])
    for shape in [(4000,), (40, 100), (400, 10)]:
        got = crt.sort(crt.tensor(mine.reshape(shape)), -1, descending)
        want = torch.sort(theirs.reshape(shape), stable=True, descending=descending)
        np.testing.assert_array_equal(got.indices.numpy(), want.indices.numpy())
        np.testing.assert_array_equal(got.values.numpy().astype(np.float64), want.values.double().numpy())
        # The element itself comes out, the sign of a zero and the bits of a NaN too.
        assert bits(got.values.numpy()) == bits(np.take_along_axis(mine.reshape(shape), got.indices.numpy(), -1))
        np.testing.assert_array_equal(crt.argsort(crt.tensor(mine.reshape(shape)), -1, descending).numpy(), want.indices.numpy())
    assert crt.unique(crt.tensor(mine)).shape == tuple(torch.unique(theirs).shape)


def test_long_lines():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 300_000)).astype(np.float32)
    x[0, ::7] = 0.5
    for part in (x, x[:, ::-1], x.T):
        dim = 0 if part.shape[0] > 2 else 1
        order = np.argsort(part, axis=dim, kind="stable")
        t = crt.tensor(np.ascontiguousarray(part)) if part is not x.T else crt.permute(crt.tensor(x), (1, 0))
        values, indices = crt.sort(t, dim)
        np.testing.assert_array_equal(indices.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(part, order, dim))
        for k in (1, 50, 5000, 200_000):
            np.testing.assert_array_equal(crt.topk(t, k, dim, largest=False).indices.numpy(), np.take(order, np.arange(k), dim))
            np.testing.assert_array_equal(crt.kthvalue(t, k, dim).indices.numpy(), np.take(order, k - 1, dim))
    np.testing.assert_array_equal(crt.unique(crt.tensor(x)).numpy(), np.unique(x))
    for dtype in ("int64", "uint8", "float64", "int16", "bool"):
        y = rng.integers(-(2**62), 2**62, 200_000).astype(dtype) if dtype == "int64" else (rng.standard_normal(200_000) * 50).astype(dtype)
        np.testing.assert_array_equal(crt.argsort(crt.tensor(y)).numpy(), np.argsort(y, kind="stable"))
        np.testing.assert_array_equal(crt.topk(crt.tensor(y), 77, largest=False).indices.numpy(), np.argsort(y, kind="stable")[:77])


def test_an_ascending_line_is_the_worst_for_a_selection():
    x = np.arange(400_000, dtype=np.float32)
    assert crt.topk(crt.tensor(x), 3).indices.tolist() == [399_999, 399_998, 399_997]
    assert crt.topk(crt.tensor(x[:9000]), 3).values.tolist() == [8999, 8998, 8997]
    assert crt.topk(crt.zeros(9000), 3).indices.tolist() == [0, 1, 2]
    nan = crt.full((9000,), float("nan"))
    assert crt.topk(nan, 3).indices.tolist() == [0, 1, 2] and crt.topk(nan, 2, largest=False).indices.tolist() == [0, 1]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32"])
def test_scatter_as_torch(dtype, reduce):
    rng = np.random.default_rng(2)
    x, src = samples.values((6, 5), dtype), samples.values((9, 5), dtype, 1)
    index = rng.integers(0, 6, (9, 5))
    for own in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = torch.from_numpy(x).scatter_reduce(0, torch.from_numpy(index), torch.from_numpy(src), reduce, include_self=own)
        got = crt.scatter(crt.tensor(x), 0, crt.tensor(index), crt.tensor(src), reduce, own)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


def test_gather_and_others_as_torch():
    rng = np.random.default_rng(3)
    x, i = rng.standard_normal((6, 5)).astype(np.float32), rng.integers(0, 5, (4, 7))
    t, ti = torch.from_numpy(x), torch.from_numpy(i)
    np.testing.assert_array_equal(crt.gather(crt.tensor(x), 1, crt.tensor(i)).numpy(), torch.gather(t, 1, ti).numpy())
    np.testing.assert_array_equal(crt.take(crt.tensor(x), crt.tensor(i)).numpy(), torch.take(t, ti).numpy())
    np.testing.assert_array_equal(crt.embedding(crt.tensor(i), crt.tensor(x)).numpy(), torch.nn.functional.embedding(ti, t).numpy())
    mask = x > 0
    np.testing.assert_array_equal(crt.masked_select(crt.tensor(x), crt.tensor(mask)).numpy(), torch.masked_select(t, torch.from_numpy(mask)).numpy())
    want = torch.masked_scatter(t, torch.from_numpy(mask), -t)
    np.testing.assert_array_equal(crt.masked_scatter(crt.tensor(x), crt.tensor(mask), crt.tensor(-x)).numpy(), want.numpy())
    np.testing.assert_array_equal(crt.masked_fill(crt.tensor(x), crt.tensor(mask), 2).numpy(), t.masked_fill(torch.from_numpy(mask), 2).numpy())
    for k in (1, 4):
        np.testing.assert_array_equal(crt.kthvalue(crt.tensor(x), k).values.numpy(), torch.kthvalue(t, k).values.numpy())


# ---- NumPy's advanced indexing


@st.composite
def indexings(draw):
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    dims = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    of_index = draw(st.lists(st.integers(0, 3), max_size=3))
    if any(shape[d] == 0 for d in dims):
        of_index = [0, *of_index[:2]]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indices = []
    for dim in dims:
        own = [1 if size != 0 and draw(st.booleans()) else size for size in of_index]
        own = own[draw(st.integers(0, len(own))) if 0 not in own else 0 :]
        indices.append(np.asarray(rng.integers(-shape[dim], max(shape[dim], 1), own)).astype(draw(st.sampled_from(["int64", "int32", "int8"]))))
    named = [d - len(shape) if draw(st.booleans()) else d for d in dims]
    return np.arange(int(np.prod(shape)), dtype=draw(st.sampled_from(["float32", "int16", "float64"]))).reshape(shape), indices, named


@settings(max_examples=300, deadline=None, derandomize=True)
@given(indexings())
def test_index_and_index_put_as_numpy(drawn):
    x, indices, dims = drawn
    tensors = [crt.tensor(i) for i in indices]
    want = index_oracle(x, indices, dims)
    got = crt.index(crt.tensor(x), tensors, dims).numpy()
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    values = np.asarray(-np.arange(1, want.size + 1).reshape(want.shape)).astype(x.dtype)
    for accumulate, put in itertools.product((False, True), (values, values[..., :1] if want.ndim and want.shape[-1] else values)):
        want_put = index_put_oracle(x, put, indices, dims, accumulate).astype(x.dtype)
        t = crt.tensor(x)
        np.testing.assert_array_equal(crt.index_put(t, crt.tensor(put), tensors, dims, accumulate).numpy(), want_put)
        np.testing.assert_array_equal(t.numpy(), x)
        crt.index_put_(t, crt.tensor(put), tensors, dims, accumulate)
        np.testing.assert_array_equal(t.numpy(), want_put)


# ---- in place


def test_writing_in_place():
    x = crt.zeros((4, 3))
    same = crt.index_put_(x, 1.5, [crt.tensor([0, -1])], [0])
    assert same is x and x.tolist() == [[1.5] * 3, [0] * 3, [0] * 3, [1.5] * 3]
    columns = crt.permute(x, (1, 0))
    crt.index_put_(columns, crt.tensor([[5.0], [6.0]]), [crt.tensor([0, 1])], [0])
    assert x.tolist() == [[5, 6, 1.5], [5, 6, 0], [5, 6, 0], [5, 6, 1.5]]
    crt.masked_fill_(crt.slice(x, 0, 0, None, 2), crt.tensor([True, False, True]), -1)
    assert x.tolist() == [[-1, 6, -1], [5, 6, 0], [-1, 6, -1], [5, 6, 1.5]]
    y = crt.tensor([1, 2, 3])
    crt.index_put_(y, y, [crt.tensor([2, 1, 0])], [0])  # written over while it is read
    assert y.tolist() == [3, 2, 1]
    places = crt.tensor([1, 2, 0])
    crt.index_put_(places, crt.tensor([7, 8, 9]), [places], [0])  # its own index
    assert places.tolist() == [9, 7, 8]
    half = crt.cast(crt.ones(3), crt.float16)
    crt.index_put_(half, crt.full((5000,), 2.0**-12, crt.float16), [crt.tensor(np.zeros(5000, np.int64))], [0], accumulate=True)
    assert half.tolist() == [float(np.float16(1 + 5000 / 2**12)), 1, 1]
    with pytest.raises(ValueError, match=r"^masked_fill: the result has shape \[2, 3\]"):
        crt.masked_fill_(crt.ones(3), crt.tensor(np.ones((2, 3), bool)), 0)


def test_nothing_is_written_when_a_place_is_out_of_range():
    kept = np.ones((3, 2), np.float32)
    with crt.synchronous():
        x = crt.from_numpy(kept)
        with pytest.raises(IndexError, match=r"index_put.*index 3 is out of range"):
            crt.index_put_(x, 5, [crt.tensor([0, 3])], [0])
    assert kept.tolist() == [[1, 1]] * 3


# ---- bad input


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x, i: crt.sort(x, 2), IndexError, "sort: dimension 2 is out of range"),
        (lambda x, i: crt.argsort(x, -3), IndexError, "argsort: dimension -3"),
        (lambda x, i: crt.topk(x, 4), ValueError, r"topk: k is 4, not from 0 to 3, shape \[2, 3\]"),
        (lambda x, i: crt.topk(x, -1), ValueError, "topk: k is -1"),
        (lambda x, i: crt.topk(crt.tensor(1.0), 0), ValueError, "topk: k is 0"),
        (lambda x, i: crt.kthvalue(x, 0), ValueError, "kthvalue: k is 0, not from 1 to 3"),
        (lambda x, i: crt.kthvalue(crt.zeros((2, 0)), 1), ValueError, "kthvalue: k is 1"),
        (lambda x, i: crt.searchsorted(x, crt.zeros((3, 3))), ValueError, r"searchsorted: .*\[2, 3\] and \[3, 3\]"),
        (lambda x, i: crt.searchsorted(crt.tensor(1.0), x), ValueError, "searchsorted: "),
        (lambda x, i: crt.bincount(x), TypeError, "bincount: needs integers"),
        (lambda x, i: crt.bincount(crt.tensor([[1]])), ValueError, r"bincount: needs one dimension, got shape \[1, 1\]"),
        (lambda x, i: crt.bincount(i, crt.zeros(3)), ValueError, "bincount: needs as many weights"),
        (lambda x, i: crt.bincount(i, minlength=-1), ValueError, "bincount: minlength is negative"),
        (lambda x, i: crt.gather(x, 0, i), ValueError, r"gather: an index of shape \[2\] does not fit into shape \[2, 3\]"),
        (lambda x, i: crt.gather(x, 2, x), TypeError, r"gather: needs integers as places, got float32 \[2, 3\]"),
        (lambda x, i: crt.gather(x, 2, crt.tensor([[0]])), IndexError, "gather: dimension 2"),
        (lambda x, i: crt.gather(x, 0, crt.tensor([[True]])), TypeError, "gather: needs integers as places, got bool"),
        (lambda x, i: crt.scatter(x, 0, crt.tensor([[0, 0], [0, 0]]), crt.ones((1, 2))), ValueError, "scatter: an index of shape"),
        (lambda x, i: crt.scatter(i, 0, i, 0.5), TypeError, "scatter: float64 .* cannot be put into a tensor of int64"),
        (lambda x, i: crt.scatter(crt.tensor([True]), 0, crt.tensor([0]), True, "mean"), TypeError, "scatter: there is no mean of bool"),
        (lambda x, i: crt.take(x, x), TypeError, "take: needs integers"),
        (lambda x, i: crt.index_select(x, 0, crt.tensor([[0]])), ValueError, "index_select: needs an index of one dimension"),
        (lambda x, i: crt.index_select(x, 3, i), IndexError, "index_select: dimension 3"),
        (lambda x, i: crt.index(x, [i], [0, 1]), ValueError, "index: needs one index for each of some dimensions, got 1 for 2"),
        (lambda x, i: crt.index(x, [], []), ValueError, "index: needs one index"),
        (lambda x, i: crt.index(x, [i, i], [1, 0]), ValueError, "index: dimensions must ascend"),
        (lambda x, i: crt.index(x, [i, i], [0, 0]), ValueError, "index: dimensions must ascend"),
        (lambda x, i: crt.index(x, [i, crt.tensor([0, 1, 0])], [0, 1]), IndexError, r"index: indices of shapes \[2\] and \[3\]"),
        (lambda x, i: crt.index(x, [x], [0]), TypeError, "index: needs integers"),
        (lambda x, i: crt.index_put(x, crt.ones(2), [i], [0]), ValueError, r"index_put: values of shape \[2\] do not broadcast"),
        (lambda x, i: crt.index_put(i, crt.tensor(0.5), [i], [0]), TypeError, r"index_put: float32 \[\] cannot be put into a tensor of int64; cast it first"),
        (lambda x, i: crt.index_put(x, crt.tensor(1), [i], [0]), TypeError, r"index_put: int64 \[\] cannot be put into a tensor of float32; cast it first"),
        (lambda x, i: crt.embedding(i, i), ValueError, "embedding: needs a table of two dimensions"),
        (lambda x, i: crt.embedding(x, x), TypeError, "embedding: needs integers"),
        (lambda x, i: crt.masked_select(x, i), TypeError, "masked_select: needs a mask of bools, got int64"),
        (lambda x, i: crt.masked_select(x, crt.tensor([True, False])), ValueError, r"masked_select: shapes \[2, 3\] and \[2\]"),
        (lambda x, i: crt.masked_fill(x, crt.tensor([True]), crt.ones(3)), ValueError, "masked_fill: needs a number or a 0-d tensor"),
        (lambda x, i: crt.masked_fill(i, crt.tensor([True]), 0.5), TypeError, "masked_fill: float64 .* cannot be put"),
        (lambda x, i: crt.masked_scatter(x, crt.tensor([True, False]), x), ValueError, "masked_scatter: shapes"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error, match=f"^{text}"):
        call(crt.ones((2, 3)), crt.tensor([0, 1]))


OUT = {"index_select": lambda x, i: crt.index_select(x, 0, i), "index": lambda x, i: crt.index(x, [i], [0]), "embedding": lambda x, i: crt.embedding(i, x)}
OUT |= {"gather": lambda x, i: crt.gather(x, 0, crt.reshape(i, (-1, 1))), "index_put": lambda x, i: crt.index_put(x, 1, [i], [0])}
OUT |= {"scatter": lambda x, i: crt.scatter(x, 0, crt.reshape(i, (-1, 1)), 1)}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16", "uint64"])
def test_places_out_of_range_are_found_late(name, dtype):
    x = crt.ones((5, 3))
    for bad in [7, 5] + ([-6] if dtype.startswith("i") else []):
        result = OUT[name](x, crt.tensor(np.array([0, 4, bad, 1], dtype)))
        with pytest.raises(IndexError, match=rf"{name}.*index {bad} is out of range for dimension 0 of size 5"):
            result.numpy()
    with pytest.raises(IndexError, match=r"index .*is out of range for dimension 0 of size 0"):
        OUT[name](crt.ones((0, 3)), crt.tensor([0])).wait()


@pytest.mark.parametrize("name", ["index_select", "index", "embedding", "index_put"])
def test_places_are_checked_where_the_result_is_empty(name):
    empty = crt.ones((5, 0))
    for good in ([0, 4, -1], []):
        assert 0 in OUT[name](empty, crt.tensor(np.array(good, np.int64))).numpy().shape
    for bad in (5, -6):
        with pytest.raises(IndexError, match=rf"{name}.*index {bad} is out of range for dimension 0 of size 5"):
            OUT[name](empty, crt.tensor([0, bad])).numpy()
    with pytest.raises(IndexError, match=r"index_put.*index 5 is out of range for dimension 0 of size 5"):
        crt.index_put_(empty, 1, [crt.tensor([5])], [0]).numpy()
    with pytest.raises(IndexError, match=r"index.*index 9 is out of range for dimension 2 of size 3"):
        crt.index(crt.ones((2, 0, 3)), [crt.tensor([[1]]), crt.tensor([0, 9])], [0, 2]).numpy()


def test_other_late_errors():
    with pytest.raises(IndexError, match=r"take.*index -7 is out of range for 6 elements"):
        crt.take(crt.ones((2, 3)), crt.tensor([-7])).numpy()
    with pytest.raises(IndexError, match=rf"take.*index {2**64 - 1} is out of range"):
        crt.take(crt.ones((2, 3)), crt.tensor(np.array([2**64 - 1], np.uint64))).numpy()
    with pytest.raises(IndexError, match="index 9 is out of range for dimension 1 of size 3"):
        crt.index(crt.ones((2, 3)), [crt.tensor([0]), crt.tensor([9])], [0, 1]).numpy()
    with pytest.raises(ValueError, match=r"bincount.*needs numbers from 0, got -3"):
        crt.bincount(crt.tensor([1, -3])).numpy()
    for huge in (2**62, 2**63 - 1):
        with pytest.raises(MemoryError, match="bincount"):
            crt.bincount(crt.tensor([huge])).numpy()
        with pytest.raises(MemoryError, match="bincount"):
            crt.bincount(crt.tensor([1]), minlength=huge).numpy()
    with pytest.raises(ValueError, match="bincount"):
        crt.bincount(crt.tensor(np.array([2**64 - 1], np.uint64))).numpy()
    with pytest.raises(ValueError, match=r"masked_scatter.*the mask is true in 3 places, the source has 2 elements"):
        crt.masked_scatter(crt.zeros(4), crt.tensor([True, True, False, True]), crt.ones(2)).numpy()


# ---- edges


def test_empty_and_0d():
    assert crt.sort(crt.tensor(3.0)).indices.tolist() == 0 and crt.sort(crt.zeros((2, 0))).values.shape == (2, 0)
    assert crt.topk(crt.ones((2, 3)), 0).values.shape == (2, 0)
    assert crt.kthvalue(crt.tensor(3.0), 1).values.item() == 3
    assert crt.unique(crt.zeros((0, 3))).shape == (0,) and crt.unique(crt.tensor(2.0)).tolist() == [2]
    assert crt.searchsorted(crt.tensor([1.0, 2.0]), 1.5).item() == 1
    assert crt.bincount(crt.tensor(np.zeros(0, np.int32))).shape == (0,)
    assert crt.bincount(crt.tensor(np.zeros(0, np.int32)), minlength=2).tolist() == [0, 0]
    assert crt.take(crt.tensor(4.0), crt.tensor([0, -1])).tolist() == [4, 4]
    assert crt.gather(crt.tensor(4.0), 0, crt.tensor(0)).item() == 4
    assert crt.scatter(crt.tensor(4.0), 0, crt.tensor(0), 1, "sum").item() == 5
    assert crt.index(crt.ones((3, 4)), [2], [0]).shape == (4,)
    assert crt.embedding(1, crt.tensor([[1.0], [2.0]])).tolist() == [2]
    assert crt.masked_select(crt.tensor(4.0), crt.tensor(True)).tolist() == [4]
    assert crt.index_put(crt.zeros((0, 3)), 1, [crt.tensor(np.zeros(0, np.int64))], [0]).shape == (0, 3)


def test_numbers_keep_the_dtype():
    assert crt.masked_fill(crt.cast(crt.ones(2), crt.float16), crt.tensor([True, False]), 0.5).dtype is crt.float16
    assert crt.scatter(crt.zeros(2), 0, crt.tensor([1]), crt.tensor([3])).tolist() == [0, 3]
    assert crt.index_put(crt.zeros(2), 3, [crt.tensor([1])], [0]).dtype is crt.float32
    assert crt.index_put(crt.tensor([0, 0]), 2.9, [crt.tensor([1])], [0]).tolist() == [0, 2]
    assert crt.sort(1.5).values.dtype is crt.float32


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_move(dtype):
    stored = crt.cast(crt.tensor(np.arange(12, dtype=np.float32).reshape(3, 4)), getattr(crt, dtype))
    as_float = lambda t: crt.cast(t, crt.float32).tolist()  # noqa: E731
    assert as_float(crt.index_select(stored, 0, crt.tensor([2]))) == [[8, 9, 10, 11]] if dtype == "float8_e4m3fn" else True
    assert as_float(crt.take(stored, crt.tensor([3, 1]))) == [3, 1]
    assert as_float(crt.gather(stored, 1, crt.tensor([[1]]))) == [[1]]
    assert as_float(crt.embedding(crt.tensor([0]), stored)) == [[0, 1, 2, 3]]
    assert as_float(crt.index_put(stored, 2, [crt.tensor([0]), crt.tensor([1])], [0, 1]))[0] == [0, 2, 2, 3]
    assert as_float(crt.scatter(stored, 1, crt.tensor([[0]]), 4))[0] == [4, 1, 2, 3]
    assert as_float(crt.masked_fill(stored, crt.tensor([True, False, False, True]), 1))[0] == [1, 1, 2, 1]
    assert as_float(crt.masked_select(crt.select(stored, 0, 0), crt.tensor([True, False, False, True]))) == [0, 3]
    for refused in (lambda: crt.sort(stored), lambda: crt.scatter(stored, 1, crt.tensor([[0]]), 4, "sum"), lambda: crt.topk(stored, 1)):
        with pytest.raises(NotImplementedError, match=dtype):
            refused()


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(5)
    n = 300_000
    x = crt.tensor(rng.standard_normal(n).astype(np.float32))
    i, half = crt.tensor(rng.integers(0, 999, n)), crt.cast(x, crt.bfloat16)
    table, rows = crt.reshape(x, (300, 1000)), crt.tensor(rng.integers(0, 300, 5000))
    more, columns = crt.tensor(rng.standard_normal((5000, 1000)).astype(np.float32)), crt.tensor(rng.integers(0, 300, (300, 1000)))

    def results():
        yield from crt.sort(x)
        yield from crt.topk(x, 100)
        yield crt.unique(half)
        yield crt.bincount(i, x)
        yield crt.scatter(crt.zeros(999), 0, i, x, "sum")
        yield crt.scatter(crt.cast(table, crt.float16), 0, columns, crt.cast(table, crt.float16), "mean")
        yield crt.scatter(table, 1, columns, table)
        yield crt.index_put(table, more, [rows], [0], accumulate=True)
        yield crt.index_put(table, more, [rows], [0])
        yield crt.index_put(crt.zeros(999), x, [i], [0], accumulate=True)
        yield crt.masked_select(x, crt.gt(x, 0))

    before = crt.num_threads()
    try:
        wants = [r.bytes() for r in results()]
        for threads in (1, 3):
            crt.set_num_threads(threads)
            assert [r.bytes() for r in results()] == wants
    finally:
        crt.set_num_threads(before)
