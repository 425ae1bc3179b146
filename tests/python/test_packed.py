"""Dtypes that are stored and not computed in: int4 and uint4, two elements in a byte, and complex numbers."""

import pickle

import ml_dtypes
import numpy as np
import pytest
import torch

import clika_runtime as crt


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2,), (7,), (3, 5), (128,), (4, 33), (100_001,), (1 << 22,)])
@pytest.mark.parametrize(("dtype", "wide", "low", "high"), [("int4", "int8", -8, 8), ("uint4", "uint8", 0, 16)])
def test_there_and_back(dtype, wide, low, high, shape):
    values = np.random.default_rng(1).integers(low, high, shape).astype(wide)
    packed = crt.cast(crt.tensor(values), getattr(crt, dtype))
    assert packed.dtype is getattr(crt, dtype) and packed.shape == shape
    assert packed.nbytes == (values.size + 1) // 2
    for to in ("int8", "uint8", "int32", "float32", "bfloat16"):
        got = crt.cast(packed, getattr(crt, to)).numpy()
        np.testing.assert_array_equal(got.astype(np.float64), values.astype(got.dtype).astype(np.float64))


def test_what_does_not_fit_loses_bits():
    x = crt.tensor(np.array([7, 8, -8, -9, 16, 255], np.int32))
    assert crt.cast(crt.cast(x, crt.int4), crt.int32).tolist() == [7, -8, -8, 7, 0, -1]
    assert crt.cast(crt.cast(x, crt.uint4), crt.int32).tolist() == [7, 8, 8, 7, 0, 15]


def test_strided_and_broadcast_sources():
    x = crt.tensor(np.arange(24, dtype=np.float32).reshape(4, 6) % 8)
    turned = crt.cast(crt.permute(x, (1, 0)), crt.int4)
    np.testing.assert_array_equal(crt.cast(turned, crt.float32).numpy(), x.numpy().T)
    assert crt.cast(crt.full([3, 3], 5, crt.uint4), crt.int64).tolist() == [[5] * 3] * 3


def test_views_and_copies():
    x = crt.cast(crt.tensor(np.arange(12, dtype=np.int8) - 6), crt.int4)
    assert crt.cast(crt.reshape(x, [3, 4]), crt.int8).tolist() == (np.arange(12) - 6).reshape(3, 4).tolist()
    assert crt.cast(crt.copy(x), crt.int8).tolist() == (np.arange(12) - 6).tolist()
    y = crt.full([12], 0, crt.int4)
    y.copy_(x)
    assert crt.cast(y, crt.int8).tolist() == (np.arange(12) - 6).tolist()
    y.copy_(3)
    assert crt.cast(y, crt.int8).tolist() == [3] * 12
    for refused in (lambda: crt.slice(x, 0, 1), lambda: crt.select(x, 0, 3), lambda: crt.permute(crt.reshape(x, [3, 4]), [1, 0])):
        with pytest.raises(NotImplementedError, match="two elements in a byte"):
            refused()


@pytest.mark.parametrize(
    "call", [lambda x: crt.neg(x), lambda x: crt.add(x, x), lambda x: crt.isnan(x), lambda x: crt.where(crt.tensor(True), x, x), lambda x: crt.concat([x, x])]
)
def test_nothing_computes_in_them(call):
    x = crt.full([4], 1, crt.int4)
    with pytest.raises(NotImplementedError, match=r"^op '\w+' has no int4 kernel on cpu$"):
        call(x)


def test_no_dtype_is_common_with_others():
    with pytest.raises(TypeError, match="no common dtype for int4 and float32"):
        crt.add(crt.full([4], 1, crt.int4), crt.ones([4]))


def test_files_cannot_hold_them(tmp_path):
    with pytest.raises(TypeError, match="int4, which safetensors files cannot hold"):
        crt.save({"x": crt.full([4], 1, crt.int4)}, tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_numpy_has_a_byte_for_each(name):
    values = np.array([[1, 2, 3], [4, 5, 7]]).astype(getattr(ml_dtypes, name))
    x = crt.tensor(values)
    assert x.dtype is getattr(crt, name) and x.nbytes == 3 and len(x.bytes()) == 3
    np.testing.assert_array_equal(x.numpy(), values)
    assert x.numpy().dtype == values.dtype and x.tolist() == [[1, 2, 3], [4, 5, 7]]
    assert crt.tensor([7], dtype=getattr(crt, name)).item() == 7
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    assert "[4, 5, 7]" in repr(x).replace(".", "") and repr(crt.full([100_000], 3, getattr(crt, name)))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_are_stored(dtype):
    values = (np.arange(12) + 1j * np.arange(12)[::-1]).reshape(3, 4).astype(dtype)
    x = crt.tensor(values)
    assert x.dtype is getattr(crt, values.dtype.name)
    for got, want in (
        (x, values),
        (crt.permute(x, [1, 0]), values.T),
        (crt.copy(crt.permute(x, [1, 0])), values.T),
        (crt.slice(x, 1, None, None, -2), values[:, ::-2]),
    ):
        np.testing.assert_array_equal(got.numpy(), want)
    y = crt.tensor(np.zeros((3, 4), dtype))
    y.copy_(x)
    np.testing.assert_array_equal(y.numpy(), values)
    assert crt.select(crt.select(x, 0, 1), 0, 2).item() == values[1, 2]
    np.testing.assert_array_equal(torch.from_dlpack(x).numpy(), values)
    np.testing.assert_array_equal(crt.from_dlpack(torch.from_numpy(values.T)).numpy(), values.T)
    for refused in (
        lambda: crt.add(x, x),
        lambda: crt.concat([x, x]),
        lambda: crt.eq(x, x),
        lambda: crt.isnan(x),
        lambda: crt.cast(x, crt.float32),
        lambda: y.copy_(1),
    ):
        with pytest.raises(NotImplementedError, match=f"^op '\\w+' has no {values.dtype.name} kernel on cpu$"):
            refused()
    with pytest.raises(TypeError, match="no common dtype"):
        crt.add(x, crt.ones([4]))


@pytest.mark.parametrize(("dtype", "wide", "low", "high"), [("int4", "int8", -8, 8), ("uint4", "uint8", 0, 16)])
def test_writing_up_to_the_middle_of_a_byte_leaves_its_other_half(dtype, wide, low, high):
    kind = getattr(crt, dtype)
    values = np.random.default_rng(2).integers(low, high, (4, 3)).astype(wide)
    writers = {
        "number": lambda row: row.fill_(2),
        "tensor": lambda row: row.copy_(crt.tensor(np.full(row.shape, 2, np.float32))),
        "packed": lambda row: row.copy_(crt.cast(crt.tensor(np.full(row.shape, 2, wide)), kind)),
        "zero": lambda row: row.zero_(),
    }
    for name, write in writers.items():
        for rows in (1, 3):
            x = crt.cast(crt.tensor(values), kind)
            write(x[:rows])
            want = values.copy()
            want[:rows] = 0 if name == "zero" else 2
            np.testing.assert_array_equal(crt.cast(x, crt.int32).numpy(), want, err_msg=f"{name} {rows}")
    # What lies behind the last of an odd number of elements is 0, whatever the memory held before.
    for _ in range(3):
        garbage = crt.full([2], 255, dtype=crt.uint8).wait()
        del garbage
        assert crt.cast(crt.tensor(values[0]), kind).numpy().dtype.itemsize == 1
        assert pickle.dumps(crt.cast(crt.tensor(values[0]), kind)) == pickle.dumps(crt.cast(crt.tensor(values[0]), kind))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_casts_to_8_bit_floats_are_torchs(dtype):
    values = np.concatenate([np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32), [448, 464, 465, 57344, 61440, 1e30, -1e30]]).astype(
        np.float32
    )
    want = torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(crt.cast(crt.cast(crt.tensor(values), getattr(crt, dtype)), crt.float32).numpy(), want)
