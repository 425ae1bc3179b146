"""Edges of operators where something once went wrong: memory that was not theirs, divisions by zero, bits that depended on strides."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clika_runtime as crt


def T(*shape):
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32)


@st.composite
def stacks(draw):
    """The shape of a stack of matrices, and which of its dimensions are broadcast from 1."""
    batch = draw(st.lists(st.integers(1, 4), max_size=3))
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    spread = draw(st.lists(st.booleans(), min_size=len(batch) + 2, max_size=len(batch) + 2))
    return [*batch, rows, columns], spread


def expanded(shape, spread):
    source = T(*[1 if s else n for n, s in zip(shape, spread, strict=True)])
    return crt.expand(crt.tensor(source), shape), np.broadcast_to(source, shape)


@given(stacks(), st.integers(1, 4), st.booleans(), st.data())
def test_products_of_expanded_stacks(left, width, shared, data):
    shape, spread = left
    a, na = expanded(shape, spread)
    right = [shape[-1], width] if shared else [*shape[:-2], shape[-1], width]
    b, nb = expanded(right, data.draw(st.lists(st.booleans(), min_size=len(right), max_size=len(right))))
    np.testing.assert_allclose(crt.matmul(a, b).numpy(), na @ nb, rtol=1e-5, atol=1e-5)
    if shared:
        np.testing.assert_allclose(crt.linear(a, crt.permute(b, (1, 0))).numpy(), na @ nb, rtol=1e-5, atol=1e-5)
    if len(shape) == 3 and not shared:
        result = [*shape[:-1], width]
        c, nc = expanded(result, data.draw(st.lists(st.booleans(), min_size=3, max_size=3)))
        np.testing.assert_allclose(crt.baddbmm(c, a, b).numpy(), nc + na @ nb, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_views_of_packed_elements(name):
    x = crt.cast(crt.tensor([1, 2]), getattr(crt, name))
    for refused in (
        lambda: crt.as_strided(x, [1], [1]),
        lambda: crt.view_dtype(x, crt.int8),
        lambda: crt.view_dtype(crt.tensor([1, 2, 3]), getattr(crt, name)),
    ):
        with pytest.raises(NotImplementedError, match=r"^\w+: u?int4 has two elements in a byte"):
            refused()
    assert crt.cast(crt.view_dtype(x, getattr(crt, name)), crt.int8).tolist() == [1, 2]
    with pytest.raises((BufferError, NotImplementedError)):
        x.__dlpack__()


def test_packed_sources_are_broadcast():
    one = crt.cast(crt.tensor([1]), crt.int4)
    x = crt.zeros([1 << 20], dtype=crt.uint8)
    x.copy_(one)
    assert crt.sum(x).item() == 1 << 20
    assert crt.sum(crt.full([1 << 20], crt.reshape(one, []), dtype=crt.uint8)).item() == 1 << 20


def test_borrowed_bytes_that_are_no_bools():
    mask = crt.from_numpy(np.array([2, 0, 3, 1], np.uint8).view(bool))
    x = crt.tensor([10, 20, 30, 40])
    assert crt.nonzero(mask).tolist() == [[0], [2], [3]]
    assert crt.masked_select(x, mask).tolist() == [10, 30, 40]
    assert crt.where(mask, x, 0).tolist() == [10, 0, 30, 40]
    assert crt.masked_fill(x, mask, 0).tolist() == [0, 20, 0, 0]
    assert crt.sum(mask).item() == crt.count_nonzero(mask).item() == 3
    assert crt.logical_and(mask, mask).tolist() == crt.bitwise_and(mask, crt.tensor(True)).tolist() == [True, False, True, True]
    assert crt.mul(mask, crt.tensor(True)).bytes() == crt.add(mask, mask).bytes() == b"\1\0\1\1"


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_zeros_of_both_signs_in_any_layout(name):
    for seed in range(20):
        x = np.random.default_rng(seed).choice(np.array([0.0, -0.0], np.float32), (3, 40))
        turned = crt.permute(crt.tensor(np.ascontiguousarray(x.T)), (1, 0))
        for dims in (None, [0], [1]):
            assert getattr(crt, name)(turned, dims).bytes() == getattr(crt, name)(crt.tensor(x), dims).bytes()


def test_integers_that_float64_does_not_tell_apart():
    a, b = crt.tensor([2**60, 5]), crt.tensor([2**60 + 1, 5])
    assert crt.isclose(a, b, 0.0, 0.0).tolist() == [False, True]


def test_attention_over_no_features():
    got = crt.scaled_dot_product_attention(crt.zeros([1, 2, 0]), crt.zeros([1, 3, 0]), crt.tensor(T(1, 3, 2)))
    np.testing.assert_allclose(got.numpy(), np.broadcast_to(T(1, 3, 2).mean(1, keepdims=True), (1, 2, 2)), rtol=1e-6)


def test_strides_of_single_elements_do_not_matter():
    x = crt.as_strided(crt.ones([4]), [1, 1], [2**63 - 1, -(2**63)])
    assert x.stride() == (1, 1) and crt.sum(x).item() == 1


def test_ranks_beyond_the_largest():
    with pytest.raises(ValueError, match=r"^embedding: "):
        crt.embedding(crt.zeros([1] * 16, dtype=crt.int64), crt.zeros([3, 2]))
    with pytest.raises(ValueError, match=r"^einsum: .* is no label"):
        crt.einsum("é", crt.ones([2]))


def test_a_number_takes_part_with_its_full_value():
    x = np.linspace(-3, 3, 999).astype(np.float16)
    got = crt.add(crt.tensor(x), 0.1)
    assert got.dtype is crt.float16
    np.testing.assert_array_equal(got.numpy(), (x.astype(np.float32) + np.float32(0.1)).astype(np.float16))


REFUSING = {
    "clamp": [lambda x, v: crt.clamp(x, v), lambda x, v: crt.clamp(x, None, v)],
    "where": [lambda x, v: crt.where(x > 0, x, v)],
    "masked_fill": [lambda x, v: crt.masked_fill(x, x > 0, v)],
    "full": [lambda x, v: crt.full([1], v, dtype=x.dtype)],
    "pad": [lambda x, v: crt.pad(x, [1, 1], value=v)],
    "maximum": [crt.maximum],
    "minimum": [crt.minimum],
    "fmax": [crt.fmax],
    "fmin": [crt.fmin],
    "copy_": [lambda x, v: x.copy_(v)],
    "tensor": [
        lambda x, v: crt.tensor(v, dtype=x.dtype),
        lambda x, v: crt.tensor([[1, v]], dtype=x.dtype),
        lambda x, v: crt.tensor((float(v),), dtype=x.dtype),
    ],
    "fill_": [lambda x, v: x.fill_(v)],
    "index_put": [lambda x, v: crt.index_put(x, v, [crt.tensor([0])], [0])],
}


@pytest.mark.parametrize("op", REFUSING)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_numbers_that_an_integer_dtype_has_not_are_refused(op, dtype):
    limits = np.iinfo(dtype)
    for call in REFUSING[op]:
        x = crt.tensor(np.array([1, 2, 3], dtype))
        for value in (limits.min, limits.max):
            result = call(x, int(value))
            if isinstance(result, crt.Tensor):
                result.wait()
        for value in (int(limits.min) - 1, int(limits.max) + 1):
            with pytest.raises(OverflowError, match=rf"^{op}: .* does not fit {dtype}"):
                call(x, value)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_the_first_float_beyond_an_integer_dtype(dtype):
    first = 2.0**63 if dtype == "int64" else 2.0**64
    below = math.nextafter(first, 0)
    kind = getattr(crt, dtype)
    assert crt.tensor([below], dtype=kind).tolist() == crt.full([1], below, dtype=kind).tolist() == [int(below)]
    for make in (lambda: crt.tensor([first], dtype=kind), lambda: crt.full([1], first, dtype=kind), lambda: crt.zeros([1], dtype=kind).fill_(first)):
        with pytest.raises(OverflowError, match=r"^(tensor|full|fill_): .* does not fit u?int64$"):
            make()


def test_lists_of_integers_do_not_go_by_way_of_floats():
    assert crt.tensor([1, 2**63 + 1], dtype=crt.uint64).tolist() == [1, 2**63 + 1]
    assert crt.tensor([2**53 + 1, 1.0], dtype=crt.int64).tolist() == [2**53 + 1, 1]
    assert crt.tensor([[1.9, -1.9], [True, 0]], dtype=crt.int8).tolist() == [[1, -1], [1, 0]]
    y = crt.zeros(3, dtype=crt.int64)
    for key in (slice(0, 2), [0, 1]):
        with pytest.raises(OverflowError, match=r"^setitem: 9223372036854775808 does not fit int64$"):
            y[key] = [1, 2**63]
    y[:2] = [2**53 + 1, 1.0]
    assert y.tolist() == [2**53 + 1, 1, 0]


def test_numbers_that_are_no_integers_at_all():
    x = crt.tensor(np.array([1, 2], np.int32))
    for value in (math.nan, math.inf, -math.inf, 1e30):
        with pytest.raises(ValueError, match=r"^fill_: .* does not fit int32"):
            x.fill_(value)
    assert x.fill_(2.7).tolist() == [2, 2]
    assert crt.full([1], -(2**63), dtype=crt.int64).tolist() == [-(2**63)]


@pytest.mark.parametrize(("dtype", "most"), [("float16", 65504.0), ("bfloat16", 3.3895313892515355e38), ("float32", float(np.finfo(np.float32).max))])
def test_nan_to_num_gives_numbers_of_the_dtype(dtype, most):
    x = crt.tensor([math.inf, -math.inf, math.nan], dtype=getattr(crt, dtype))
    assert crt.cast(crt.nan_to_num(x), crt.float64).tolist() == [most, -most, 0]


UNARY = """sin cos tan exp exp2 expm1 log log1p sinh cosh tanh asinh acosh asin atan erf erfc erfinv lgamma sigmoid gelu silu mish
softplus rsqrt""".split()


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_elements_bits_do_not_depend_on_its_neighbours(op, dtype):
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.uniform(-1, 1, 3000), rng.uniform(0, 200, 3000), rng.standard_normal(2000) * 1e5, 10 ** rng.uniform(-30, 30, 2000)])
    x = np.concatenate([x, [math.inf, -math.inf, math.nan, 0.0]]).astype(dtype)
    order = rng.permutation(len(x))
    together = getattr(crt, op)(crt.tensor(np.sort(x))).numpy()
    mixed = getattr(crt, op)(crt.tensor(np.sort(x)[order])).numpy()
    np.testing.assert_array_equal(mixed, together[order])
    np.testing.assert_array_equal(np.signbit(mixed) & ~np.isnan(mixed), np.signbit(together[order]) & ~np.isnan(mixed))
