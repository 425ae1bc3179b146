"""Faults in numbers that users of peer runtimes reported, each tried here; the docstrings say what went wrong there."""

import numpy as np
import pytest
import torch

import clika_runtime as crt

FLOATS = [crt.float16, crt.bfloat16, crt.float32, crt.float64]
TORCH = {crt.float16: torch.float16, crt.bfloat16: torch.bfloat16, crt.float32: torch.float32, crt.float64: torch.float64}


def same_as_torch(got, want):
    want = want.float() if want.dtype is torch.bfloat16 else want
    np.testing.assert_array_equal(np.asarray(got.numpy(), want.numpy().dtype), want.numpy())


def test_pain_44_bfloat16_computes():
    """A model in bfloat16 does not load, because nothing computes in it on the CPU."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((17, 33)).astype(np.float32) for _ in range(2))
    x, y = (crt.cast(crt.tensor(v), crt.bfloat16) for v in (a, b))
    tx, ty = (torch.from_numpy(v).bfloat16() for v in (a, b))
    same_as_torch(crt.add(x, y), tx + ty)
    product = crt.matmul(x, crt.permute(y, (1, 0)))
    assert product.dtype is crt.bfloat16
    np.testing.assert_allclose(np.asarray(product.numpy(), np.float32), (tx @ ty.T).float().numpy(), rtol=2**-7, atol=2**-6)
    np.testing.assert_allclose(np.asarray(crt.softmax(x).numpy(), np.float32), torch.softmax(tx, -1).float().numpy(), rtol=2**-7)


@pytest.mark.parametrize("dtype", FLOATS)
def test_pain_70_nan_goes_through(dtype):
    """relu makes 0 of NaN.  (So does sign, in torch too, and here.)"""
    values = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -1.5] * 5
    x, t = crt.cast(crt.tensor(np.array(values)), dtype), torch.tensor(values, dtype=TORCH[dtype])
    for name in ("relu", "abs", "neg", "floor", "ceil", "round", "trunc", "square", "sign", "relu6", "hardtanh"):
        want = getattr(torch.nn.functional, name)(t) if name in ("relu6", "hardtanh") else getattr(torch, name)(t)
        same_as_torch(getattr(crt, name)(x), want)
    for name in ("maximum", "minimum", "fmax", "fmin"):
        same_as_torch(getattr(crt, name)(x, 0.5), getattr(torch, name)(t, torch.tensor(0.5, dtype=t.dtype)))
        same_as_torch(getattr(crt, name)(0.5, x), getattr(torch, name)(torch.tensor(0.5, dtype=t.dtype), t))


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("to", ["uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "uint64", "bool_"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_pain_73_floats_become_integers_one_way(dtype, to, layout):
    """The value of a float that does not fit depends on the device, and on the place in the array."""
    values = [np.nan, np.inf, -np.inf, -1.5, 1.5, 300.0, -300.0, 65535.0, 0.0, -0.0]
    alone = [crt.cast(crt.cast(crt.tensor(np.array([v])), dtype), getattr(crt, to)).tolist()[0] for v in values]
    x = crt.cast(crt.tensor(np.array(values * 9)), dtype)
    if layout == "strided":
        x = crt.slice(crt.cast(crt.tensor(np.repeat(np.array(values * 9), 2)), dtype), 0, None, None, 2)
    assert crt.cast(x, getattr(crt, to)).tolist() == alone * 9
    assert crt.cast(crt.tensor(np.array([-1.5, 1.5])), getattr(crt, to)).tolist() in ([-1, 1], [True, True], [2 ** crt_bits(to) - 1, 1])


def crt_bits(name):
    return getattr(crt, name).bits


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_pain_74_the_smallest_integer_by_minus_one(dtype):
    """INT_MIN % -1 kills the process; the remainder has the wrong sign."""
    least = np.iinfo(dtype).min
    a, b = np.array([least, least, 7, -7, 7, -7, 0], dtype), np.array([-1, 1, 3, 3, -3, -3, -3], dtype)
    x, y = crt.tensor(a), crt.tensor(b)
    assert crt.remainder(x, y).tolist() == [0, 0, 1, 2, -2, -1, 0]
    assert crt.fmod(x, y).tolist() == [0, 0, 1, -1, 1, -1, 0]
    assert crt.floor_divide(x, y).tolist() == [least, least, 2, -3, -3, 2, 0]
    assert crt.trunc_divide(x, y).tolist() == [least, least, 2, -2, -2, 2, 0]
    for name in ("remainder", "fmod", "floor_divide", "trunc_divide"):
        late = getattr(crt, name)(x, crt.tensor(np.zeros(7, dtype)))
        with pytest.raises(RuntimeError, match=f"^{name}: integer division by zero"):
            late.numpy()


def test_floor_division_of_floats_is_torchs():
    rng = np.random.default_rng(1)
    a, b = (np.concatenate([rng.standard_normal(500) * 10, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]]) for _ in range(2))
    b[::7] = 0
    for name, theirs in (("floor_divide", torch.floor_divide), ("remainder", torch.remainder), ("fmod", torch.fmod)):
        for dtype in (np.float32, np.float64):
            x, y = a.astype(dtype), b.astype(dtype)
            same_as_torch(getattr(crt, name)(crt.tensor(x), crt.tensor(y)), theirs(torch.from_numpy(x), torch.from_numpy(y)))
