"""The Tensor class: making one, reading one, numbers as operands."""

import copy
import gc
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import clika_runtime as crt
from clika_runtime._library import lib


def test_tensor_copies_and_keeps_the_dtype():
    for dtype in ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"):
        source = np.arange(6).reshape(2, 3).astype(dtype)
        t = crt.tensor(source)
        source[...] = 0
        assert str(t.dtype) == f"clika_runtime.{dtype}"
        np.testing.assert_array_equal(t.numpy(), np.arange(6).reshape(2, 3).astype(dtype))
    b = np.arange(6).astype(ml_dtypes.bfloat16)
    assert crt.tensor(b).dtype is crt.bfloat16
    np.testing.assert_array_equal(crt.tensor(b).numpy(), b)


def test_tensor_from_lists_numbers_and_odd_arrays():
    assert crt.tensor([1.5, 2]).dtype is crt.float32
    assert crt.tensor([[1, 2], [3, 4]]).dtype is crt.int64
    assert crt.tensor(True).item() is True
    assert crt.tensor([1, 2], dtype=crt.float64).dtype is crt.float64
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (x.T, x[::-1], x[:, ::2], x[..., None], x.astype(">f4"), np.broadcast_to(x[0, 0, 0], (3, 3))):
        np.testing.assert_array_equal(crt.tensor(view).numpy(), view)
    for bad in ("text", [object()], np.zeros(2, "V4"), [[1], [1, 2]]):
        with pytest.raises((TypeError, ValueError)):
            crt.tensor(bad)
    with pytest.raises(ValueError, match="at most 16 dimensions"):
        crt.tensor(np.ones((1,) * 17))


def test_metadata():
    t = crt.permute(crt.tensor(np.zeros((2, 3), np.float32)), (1, 0))
    assert t.shape == (3, 2) and repr(t.shape) == "clika_runtime.Size([3, 2])" and t.shape.numel() == 6
    assert (t.ndim, t.numel(), t.nbytes, t.stride(), t.is_contiguous(), t.device, len(t)) == (2, 6, 24, (1, 3), False, "cpu", 3)
    with pytest.raises(TypeError):
        len(crt.tensor(1))


def test_numpy_shares_memory_and_keeps_it_alive():
    t = crt.exp(crt.zeros((300, 300)))
    a, b = t.numpy(), t.numpy()
    assert a.ctypes.data == b.ctypes.data and a.flags.writeable
    gc.collect()
    held = crt.memory.current()
    del t, b
    gc.collect()
    assert crt.memory.current() == held and a.sum() == 90000
    del a
    gc.collect()
    assert crt.memory.current() < held
    assert crt.zeros((0, 3)).numpy().shape == (0, 3)
    view = crt.slice(crt.arange(0, 6), 0, None, None, -2).numpy()
    np.testing.assert_array_equal(view, [5, 3, 1])


def test_reads():
    t = crt.tensor([[1.0, 2.0]])
    assert t.tolist() == [[1.0, 2.0]] and np.asarray(t).tolist() == [[1.0, 2.0]] and np.from_dlpack(t).tolist() == [[1.0, 2.0]]
    assert np.array(t, dtype=np.int64).tolist() == [[1, 2]]
    assert crt.sum(t).item() == 3.0 and float(crt.sum(t)) == 3.0 and int(crt.sum(t)) == 3 and bool(crt.sum(t))
    assert repr(t) == "Tensor([[1., 2.]], dtype=float32)"
    for many in (bool, float, crt.Tensor.item):
        with pytest.raises(RuntimeError, match=r"\[1, 2\]"):
            many(t)


def test_numbers_as_operands():
    t = crt.tensor([1, 2])
    assert (t + 1).dtype is crt.int64 and (t + 1.0).dtype is crt.float32 and (t + True).tolist() == [2, 3]
    assert (t + np.float64(1.5)).dtype is crt.float32 and (t + np.int8(1)).tolist() == [2, 3]
    assert (1 - t).tolist() == [0, -1] and (-t).tolist() == [-1, -2] and (1 / t).tolist() == [1.0, 0.5] and (t @ t).item() == 5
    assert np.signbit(crt.mul(crt.tensor([0.0]), -0.0).numpy()[0]) and not np.signbit((crt.tensor([0.0]) * 0.0).numpy()[0])
    assert np.isnan((t + float("nan")).numpy()).all()
    for value in range(3000):  # more numbers than are kept
        assert (t * value).tolist() == [value, 2 * value]
    for bad in ("1", None, np.array(["1"]), 1j, [1]):
        with pytest.raises(TypeError):
            crt.add(t, bad)
    with pytest.raises(OverflowError):
        crt.add(t, 2**63)
    with pytest.raises(TypeError):
        crt.Tensor(3)


def test_errors_are_both_ours_and_the_built_in():
    with pytest.raises(ValueError, match=r"^add: shapes \[2\] and \[3\] do not broadcast$") as info:
        crt.add(crt.zeros(2), crt.zeros(3))
    assert isinstance(info.value, crt.ClikaRTError)
    for call, kind in [
        (lambda: crt.softmax(crt.zeros(2), dim=3), IndexError),
        (lambda: crt.softmax(crt.tensor([1])), TypeError),
        (lambda: crt.zeros(2, device="cuda:0"), NotImplementedError),
        (lambda: crt.zeros(2, device="toaster"), ValueError),
        (lambda: crt.zeros((1,) * 17), ValueError),
        (lambda: crt.zeros(-1), ValueError),
        (lambda: crt.zeros(2**50).numpy(), MemoryError),
        (lambda: crt.load("/no/such/file"), OSError),
        (lambda: crt.is_available("toaster"), ValueError),
    ]:
        with pytest.raises(kind) as info:
            call()
        assert isinstance(info.value, crt.ClikaRTError), call
    assert crt.is_available("cpu") and not crt.is_available("cuda:0")


def test_a_late_failure_names_the_operator_and_shows_shapes():
    late = crt.exp(crt.zeros(2**50))
    for _ in range(2):
        with pytest.raises(MemoryError, match=r"^full: out of memory: .*float32 \[1125899906842624\]"):
            late.numpy()


def test_nothing_is_leaked():
    crt.add(crt.zeros(1000), 1).numpy()
    gc.collect()
    before = crt.memory.current()
    for _ in range(100):
        x = crt.add(crt.zeros(1000), 1)
        crt.softmax(crt.matmul(crt.reshape(x, (10, 100)), crt.reshape(x, (100, 10)))).numpy()
        with pytest.raises(ValueError, match="broadcast"):
            crt.add(x, crt.zeros(3))
    del x
    gc.collect()
    assert crt.memory.current() == before


def test_copy_and_pickle():
    t = crt.permute(crt.tensor([[1.0, 2.0], [3.0, 4.0]]), (1, 0))
    for other in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert other.tolist() == t.tolist() and other.dtype is t.dtype and other.numpy().ctypes.data != t.numpy().ctypes.data
    assert pickle.loads(pickle.dumps(crt.float32)) is crt.float32 and copy.deepcopy(crt.bool_) is crt.bool_
    del t, other
    gc.collect()


def test_operands_may_be_made_on_the_fly():
    assert crt.concat(crt.mul(crt.ones(1), i) for i in range(50)).tolist() == list(range(50))
    x = crt.ones((2, 2))
    graph = crt.trace(lambda i: [i[0] + i[1]], example_inputs=[x, x])
    assert graph.run(x * i for i in (1, 2)).pop().tolist() == [[3.0, 3.0]] * 2


def test_a_writer_waits_for_readers():
    n = 1024
    a = crt.ones((n, n))
    slow = a
    for _ in range(4):
        slow = crt.matmul(slow, crt.full((n, n), 1 / n))
    b = crt.add(slow, a)  # still to read a
    a.numpy()[:] = 0
    np.testing.assert_allclose(b.numpy(), 2, rtol=1e-4)


def test_numbers_are_not_shared_with_views():
    crt.reshape(5, (1,)).numpy()[0] = 7
    assert (crt.tensor([1]) + 5).tolist() == [6]


def test_bytes_of_bools_are_0_or_1():
    odd = np.array([2, 0, 255], np.uint8).view(bool)
    assert (crt.tensor(odd) * crt.tensor([True] * 3)).tolist() == [True, False, True]


def test_nothing_is_cut_to_an_integer():
    for bad in (2.9, np.float32(2.9), "2", crt.tensor(2.9)):
        with pytest.raises(TypeError):
            crt.full([bad], 1)
        with pytest.raises(TypeError):
            crt.softmax(crt.ones((2, 2)), dim=bad)
    assert crt.full([np.int64(2)], 1).shape == (2,)
    with pytest.raises(TypeError, match=r"^cast: dtype must be a dtype"):
        crt.cast(crt.ones(2), "float32")
    with pytest.raises(TypeError, match="needs tensors, got a number"):
        crt.ones((2, 2)) @ 2.0


def test_failures_reach_empty_results():
    bad = crt.zeros(2**50)
    with pytest.raises(MemoryError):
        crt.exp(crt.slice(bad, 0, 0, 0)).numpy()


def test_sizes_that_cannot_be_addressed():
    for shape in ([2**61, 0], [2**62, 4, 0]):
        x = crt.full(shape, 1.0, crt.float64)
        for reduce in (crt.sum, crt.mean, crt.amax, crt.argmax):
            with pytest.raises(ValueError):
                reduce(x, -1)
    assert crt.slice(crt.full([0, 2**60, 3], 1.0), 1, 0, 2).numpy().shape == (0, 2, 3)


def test_a_tensor_in_a_cycle_of_garbage():
    seen = []

    class Last:
        def __del__(self):
            crt.full([2], 9.0)
            try:
                seen.append(self.t.tolist())
            except (crt.ClikaRTError, RuntimeError) as error:
                seen.append(error)

    k = Last()
    k.t, k.me = crt.tensor([0.0, 1.0, 2.0, 3.0]), k
    del k
    gc.collect()
    assert len(seen) == 1 and (isinstance(seen[0], Exception) or seen[0] == [0.0, 1.0, 2.0, 3.0])


def test_reading_does_not_wait_for_other_readers():
    a = crt.full((1200, 1200), 1 / 1200)
    a.numpy()
    x = a
    for _ in range(20):
        x = crt.matmul(a, x)
    assert a.tolist()[0][0] == pytest.approx(1 / 1200)
    assert crt.select(crt.select(a, 0, 0), 0, 0).item() == pytest.approx(1 / 1200)
    assert lib.clikart_tensor_wait(x._handle, 0) == 0  # the readers are still at it
    a.numpy()
    assert lib.clikart_tensor_wait(x._handle, 0) == 1


def test_a_writer_is_not_starved_by_readers():
    a = crt.full((400, 400), 1 / 400)
    stop = threading.Event()

    def read():
        x = a
        while not stop.is_set():
            x = crt.matmul(a, x)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(3):
            a.numpy()
    finally:
        stop.set()
        thread.join()


def test_arange_of_bools_is_of_ints():
    assert crt.arange(2**62, 2**62 + 4, True).tolist() == [2**62 + i for i in range(4)]
    assert crt.arange(False, True, True).dtype is crt.int64


def test_what_is_no_number_is_refused():
    for bad in (None, [None, 1], "5", ["1"], b"12", np.datetime64("2020-01-01")):
        for dtype in (None, crt.float32, crt.bool_):
            with pytest.raises(TypeError):
                crt.tensor(bad, dtype)
    for dtype in (crt.float32, crt.bool_, crt.int64):
        with pytest.raises(TypeError, match="complex numbers do not become"):
            crt.tensor([1 + 2j], dtype)
    assert crt.tensor([1 + 2j]).dtype is crt.complex64
    with pytest.raises(TypeError, match="expected a dtype"):
        crt.tensor(5, "float32")
    with pytest.raises(TypeError):
        crt.DType("float32", 12, 32)
    for shape in (b"ab", "ab", {}, {2}):
        with pytest.raises(TypeError):
            crt.full(shape, 1.0)
    for call in (lambda: crt.zeros(2, device=5), lambda: crt.is_available(5), lambda: crt.trace(lambda i: i, [crt.ones(1)], input_names=[1])):
        with pytest.raises(TypeError, match=r"expected a |^zeros: device must be a "):
            call()


def test_sizes_of_numpy_and_as_sequences():
    x = crt.ones(np.int64(6))
    assert crt.sum(x, np.int64(0)).item() == 6
    assert x.reshape((3, 2)).shape == x.reshape(3, 2).shape == x.reshape([3, 2]).permute((1, 0)).permute(1, 0).shape == (3, 2)


def test_dlpack_of_reversed_tensors():
    reversed_ = crt.slice(crt.arange(0, 3), 0, None, None, -1)
    assert np.from_dlpack(reversed_).tolist() == [2, 1, 0]
