"""Memory shared with NumPy and torch through DLPack, in both directions."""

import ctypes
import gc
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
import torch

import clika_runtime as crt
from waiting import busy

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
LAYOUTS = {
    "0-d": lambda a: a[0, 0, ...],
    "dense": lambda a: a,
    "empty": lambda a: a[:0],
    "empty inside": lambda a: a[:, :0],
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1],
    "stepped": lambda a: a[::2, ::3],
    "part": lambda a: a[1:3, 2:],
    "broadcast": lambda a: np.broadcast_to(a[0], (3, 6)),
    "unit": lambda a: a[:1, None, 3:4],
}


def numbers(*shape, dtype=np.float32):
    return (np.arange(np.prod(shape)) % 100).astype(dtype).reshape(shape)


def name_of(capsule):
    get = ctypes.PyDLL(None).PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    return get(capsule).decode()


class Producer:
    """The two methods and nothing else."""

    def __init__(self, of, **fixed):
        self.of, self.fixed = of, fixed

    def __dlpack__(self, **options):
        return self.of.__dlpack__(**(options | self.fixed))

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


class Old(Producer):
    """As before version 1: no options."""

    def __dlpack__(self, stream=None):
        return self.of.__dlpack__(stream=stream)


# ---- in --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_numpy_arrays(layout):
    for dtype in DTYPES:
        base = numbers(4, 6, dtype=dtype)
        array = LAYOUTS[layout](base)
        t = crt.from_dlpack(array)
        assert t.dtype.name == dtype and t.shape == array.shape and np.array_equal(t.numpy(), array)
        assert array.size == 0 or t.data_ptr() == array.ctypes.data
        if array.size and layout != "broadcast":
            t.copy_(1)
            crt.synchronize()
            assert (array == 1).all()
            array[...] = 0
            assert not t.numpy().any()


def test_from_torch_tensors():
    for dtype in (torch.bool, torch.uint16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        base = (torch.arange(24) % 2).reshape(4, 6).to(dtype)
        for source in (base, base.T, base[::2, 1::2], base[0, 0], base[:0], base[0].expand(3, 6), base.reshape(2, 2, 3, 2).permute(3, 0, 2, 1)):
            t = crt.from_dlpack(source)
            assert t.dtype.name == str(dtype).split(".")[1] and t.shape == tuple(source.shape)
            assert t.tolist() == source.tolist() and (source.numel() == 0 or t.data_ptr() == source.data_ptr())
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        source = torch.tensor([0.5, -2.0]).to(dtype)
        t = crt.from_dlpack(source)
        assert t.dtype.name == str(dtype).split(".")[1] and t.tolist() == [0.5, -2.0]


def test_memory_that_is_not_aligned_to_64_bytes():
    buffer = bytearray(260)
    array = np.frombuffer(buffer, np.float32, 64, offset=4)
    t = crt.from_dlpack(array)
    t.copy_(3)
    crt.synchronize()
    assert (array == 3).all()
    with pytest.raises(ValueError, match="aligned"):
        crt.from_dlpack(np.frombuffer(buffer, np.float32, 64, offset=1))


def test_what_is_read_only_stays_so():
    array = numbers(3)
    array.flags.writeable = False
    t = crt.from_dlpack(array)
    assert (t + 1).tolist() == [1, 2, 3] and not t.numpy().flags.writeable
    for write in (lambda: t.add_(1), lambda: t.__setitem__(0, 5)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert not np.from_dlpack(t).flags.writeable and not np.from_dlpack(crt.from_dlpack(t)).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    with pytest.raises(BufferError):
        crt.from_dlpack(Old(array))
    copied = crt.from_dlpack(array, copy=True)
    copied.add_(1)
    assert copied.tolist() == [1, 2, 3] and array.tolist() == [0, 1, 2]


def test_old_producers():
    array = numbers(2, 3)
    t = crt.from_dlpack(Old(array))
    assert t.data_ptr() == array.ctypes.data and np.array_equal(t.numpy(), array)
    assert crt.from_dlpack(Old(torch.ones(2))).tolist() == [1, 1]


def test_copies():
    for source in (numbers(4), torch.arange(4.0), crt.tensor(numbers(4))):
        for copy in (None, False):
            crt.from_dlpack(source, copy=copy)[0] = 9
            crt.synchronize()
            assert float(source[0]) == 9
        t = crt.from_dlpack(source, copy=True)
        source[0] = 7
        assert t.tolist() == [9, 1, 2, 3]
    with crt.tracing():
        deferred = crt.from_dlpack(numbers(2), copy=True) + 1
    assert deferred.tolist() == [1, 2]


def test_devices():
    array = numbers(2)
    assert crt.from_dlpack(array, device="cpu").tolist() == [0, 1] and crt.from_dlpack(array, device=crt.Device.cpu()).tolist() == [0, 1]
    with pytest.raises(ValueError, match="meta"):
        crt.from_dlpack(array, device="meta")
    with pytest.raises(ValueError):
        crt.from_dlpack(array, device="toaster")

    class Elsewhere(Producer):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(NotImplementedError, match=r"\(2, 0\)"):
        crt.from_dlpack(Elsewhere(array))


def test_what_cannot_be_imported():
    for bad in (None, 1, "x", [1.0], object()):
        with pytest.raises(TypeError, match="__dlpack__"):
            crt.from_dlpack(bad)
    with pytest.raises(TypeError, match="dtype"):
        crt.from_dlpack(torch.zeros(2, dtype=torch.complex32))
    with pytest.raises(ValueError, match="dimensions"):
        crt.from_dlpack(np.zeros((1,) * 17, np.float32))
    with pytest.raises(BufferError):
        crt.from_dlpack(np.zeros(2, ">f4"))
    with pytest.raises((BufferError, RuntimeError)):
        crt.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(ValueError, match="capsule"):
        crt.from_dlpack(Producer(np.zeros(2), max_version=(1, 0)).of.__array_struct__)


def test_a_capsule_is_taken_once():
    for version in (None, (1, 0)):
        for producer in (numbers(2), torch.ones(2), crt.ones(2)):
            capsule = producer.__dlpack__(max_version=version)
            t = crt.from_dlpack(capsule)
            assert name_of(capsule).startswith("used_dltensor") and t.shape == (2,)
            with pytest.raises(ValueError, match="used_dltensor"):
                crt.from_dlpack(capsule)


# ---- out -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_numpy_and_torch(layout):
    for dtype in DTYPES:
        t = crt.from_numpy(LAYOUTS[layout](numbers(4, 6, dtype=dtype)))
        for take, values in ((np.from_dlpack, lambda a: a), (torch.from_dlpack, lambda a: a.numpy())):
            got = take(t)
            assert np.array_equal(values(got), t.numpy()) and values(got).dtype == dtype
    b = crt.tensor(np.array([1.5, -2], ml_dtypes.bfloat16))
    assert torch.from_dlpack(b).dtype == torch.bfloat16 and torch.from_dlpack(b).tolist() == [1.5, -2]


def test_the_memory_is_the_tensors():
    t = crt.tensor(numbers(2, 3))
    for take in (np.from_dlpack, torch.from_dlpack):
        got = take(t)
        got[0, 0] += 5
        assert t[0, 0].item() == float(got[0, 0])
        t.add_(1)
        crt.synchronize()
        assert float(got[1, 2]) == t[1, 2].item()
    assert np.from_dlpack(t).flags.writeable and np.from_dlpack(t.permute(1, 0)).strides == (4, 12)


def test_versions():
    t = crt.ones(2)
    for version, name in (
        (None, "dltensor"),
        ((0, 8), "dltensor"),
        ((1, 0), "dltensor_versioned"),
        ((1, 7), "dltensor_versioned"),
        ((2, 0), "dltensor_versioned"),
    ):
        assert name_of(t.__dlpack__(max_version=version)) == name
        assert crt.from_dlpack(Producer(t, max_version=version)).data_ptr() == t.data_ptr()
        assert torch.utils.dlpack.from_dlpack(t.__dlpack__(max_version=version)).data_ptr() == t.data_ptr()


def test_options():
    t = crt.tensor(numbers(4))
    assert t.__dlpack_device__() == (1, 0)
    t.__dlpack__(stream=None, dl_device=(1, 0), copy=None, max_version=None)
    for wrong in ({"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": (1, 1)}):
        with pytest.raises(BufferError):
            t.__dlpack__(**wrong)
    with pytest.raises(TypeError):
        t.__dlpack__(None)
    own = torch.utils.dlpack.from_dlpack(t.__dlpack__(copy=True))
    own[0] = 9
    assert t.tolist() == [0, 1, 2, 3] and own.data_ptr() != t.data_ptr()
    backwards = t[::-1]
    assert np.from_dlpack(backwards).tolist() == torch.from_dlpack(backwards).tolist() == [3, 2, 1, 0]
    with pytest.raises(BufferError, match="negative"):
        backwards.__dlpack__(copy=False)
    with crt.meta_init():
        nothing = crt.ones(2)
    for call in (nothing.__dlpack__, nothing.__dlpack_device__):
        with pytest.raises(crt.ClikaRTError):
            call()


def test_an_export_waits_for_the_value_and_for_readers():
    pending = busy()
    assert torch.from_dlpack(pending).shape == (1024, 1024)
    x = crt.ones((1024, 1024))
    y = crt.matmul(busy(0.05), x)
    torch.from_dlpack(x).zero_()
    assert y.is_ready() and y.numpy()[0, 0] == 1


def test_looking_at_a_tensor_changes_nothing():
    for look in (repr, np.asarray, lambda t: None):
        t = crt.ones(3)
        shared = torch.from_dlpack(t)
        look(t)
        shared[0] = 5
        assert t.tolist() == [5, 1, 1] and (t * 2).tolist() == [10, 2, 2]


# ---- lives -----------------------------------------------------------------------------------------------------------


class Array(np.ndarray):
    """One that tells when it goes."""


def watched():
    array = np.ones(4096, np.float32).view(Array)
    gone = threading.Event()
    weakref.finalize(array, gone.set)
    return array, gone


def test_memory_lives_as_long_as_it_is_used():
    array, gone = watched()
    t = crt.from_dlpack(array)
    del array
    view = t[2:]
    del t
    assert not gone.is_set() and view.sum().item() == 4094
    back = torch.from_dlpack(view)
    del view
    assert not gone.is_set() and float(back.sum()) == 4094
    del back
    crt.memory.current()
    crt.from_dlpack(np.zeros(1))  # any later use collects what torch gave back
    assert gone.wait(0)


def test_a_tensor_lives_as_long_as_its_export():
    gc.collect()
    before = crt.memory.current()
    t = crt.exp(crt.zeros((64, 64)))
    a, b = torch.from_dlpack(t), np.from_dlpack(t)
    held = crt.memory.current()
    assert held > before
    del t
    assert crt.memory.current() == held and float(a.sum()) == b.sum() == 4096
    del a, b
    gc.collect()
    assert crt.memory.current() == before


def test_work_under_way_keeps_the_memory():
    array, gone = watched()
    pending = busy()
    result = crt.from_dlpack(array) + crt.sum(pending)
    del array
    assert not gone.is_set() and result.numpy()[0] == 1025
    del pending, result
    crt.synchronize()
    crt.from_dlpack(np.zeros(1))
    assert gone.wait(0)


def test_capsules_that_nobody_took():
    gc.collect()
    before = crt.memory.current()
    for version in (None, (1, 0)):
        for _ in range(1000):
            crt.ones(100).__dlpack__(max_version=version)
            try:
                capsule = crt.ones(100).__dlpack__(max_version=version)
                raise ValueError(capsule)  # let go in the middle of an exception
            except ValueError:
                pass
    del capsule
    gc.collect()
    assert crt.memory.current() == before


def test_imports_that_fail_leak_nothing():
    import resource

    array, gone = watched()
    refused = torch.zeros(20_000, dtype=torch.complex32), np.zeros((1,) * 17, np.float32), array.reshape((1,) * 16 + (-1,))
    del array

    def step(refused):
        for source in refused:
            with pytest.raises((TypeError, ValueError)):
                crt.from_dlpack(source)

    for _ in range(100):
        step(refused)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3300):
        step(refused)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
    del refused
    gc.collect()
    assert gone.wait(0)


def test_released_on_other_threads():
    """NumPy's deleter needs the interpreter, which no thread of the library has."""
    gone = []
    for _ in range(20):
        tensors = []
        for _ in range(100):
            array, left = watched()
            tensors.append(crt.from_dlpack(array))
            gone.append(left)
        del array
        results = [t + 1 for t in tensors]  # work that is the last to use some
        thread = threading.Thread(target=lambda tensors=tensors: tensors.clear())
        thread.start()
        thread.join()
        assert results[7].numpy()[7] == 2
    del results
    crt.synchronize()
    crt.from_dlpack(np.zeros(1))
    assert all(left.is_set() for left in gone)


def test_round_trips_stay_flat():
    source = torch.zeros(1 << 16)
    base = crt.memory.current()
    for _ in range(2000):
        crt.from_dlpack(torch.from_dlpack(crt.from_dlpack(source)))
    assert crt.memory.current() == base and source.data_ptr() == crt.from_dlpack(torch.from_dlpack(crt.from_dlpack(source))).data_ptr()


def test_imports_that_overlap_are_kept_in_order():
    x, want = numbers(1000), numbers(1000)
    streams = [crt.Stream() for _ in range(3)]
    parts = [slice(None, -1), slice(1, None), slice(None, None, -1), slice(100, 200)]
    tensors = [crt.from_dlpack(x[p]) for p in parts]
    for i in range(40):
        with crt.stream(streams[i % 3]):
            tensors[i % 4].mul_(0.5) if i % 2 else tensors[i % 4].add_(1)
        view = want[parts[i % 4]]
        view[:] = view * np.float32(0.5) if i % 2 else view + 1
    assert np.array_equal(tensors[0].numpy(), want[:-1]) and np.array_equal(tensors[2].numpy(), want[::-1])
