"""Memory that is shared with NumPy, and operators that write in place: what is seen, when, and in which order."""

import gc
import mmap
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import clika_runtime as crt
from waiting import busy, in_thread, until

strided = np.lib.stride_tricks.as_strided


def numbers(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


# ---- borrowed arrays -------------------------------------------------------------------------------------------------


def test_both_sides_see_what_is_written():
    x = np.ones((64, 64), np.float32)
    t = crt.from_numpy(x)
    assert t.status == "Available" and t.is_ready()
    t.add_(1)
    crt.synchronize()
    assert x[0, 0] == 2
    x[0, 0] = 5
    assert (t * 2).tolist()[0][:2] == [10, 4]
    assert np.shares_memory(t.numpy(), x)
    t.numpy()[1, 1] = 7
    assert x[1, 1] == 7


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
)
def test_every_dtype(dtype):
    array = np.array([0, 1, 2, 3]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    t = crt.from_numpy(array)
    assert (t.dtype.name, t.numpy().dtype) == (dtype, array.dtype) and np.array_equal(t.numpy(), array)


def test_strides():
    x = numbers(4, 6)
    for view in (x.T, x[::-1], x[:, ::-2], x[1:3, 2:], x[::2, ::3].T, x[2], x[:, :0], x[1:1], x[3, 3, ...], x[:, None], np.broadcast_to(x[0], (3, 6))):
        t = crt.from_numpy(view)
        assert t.shape == view.shape and (view.size == 0 or np.shares_memory(t.numpy(), x))
        assert np.array_equal((t + 1).numpy(), view + 1) and np.array_equal(crt.sum(t).numpy(), view.sum())
    crt.from_numpy(x[::-1, ::2]).mul_(2)
    crt.from_numpy(x[0, 0, ...]).add_(100)
    crt.synchronize()
    want = numbers(4, 6)
    want[:, ::2] *= 2
    want[0, 0] += 100
    assert np.array_equal(x, want)


def test_what_cannot_be_borrowed_is_refused():
    buffer = bytearray(64)
    with pytest.raises(ValueError, match="aligned"):
        crt.from_numpy(np.frombuffer(buffer, np.float32, 4, offset=1))
    crt.from_numpy(np.frombuffer(buffer, np.float32, 4, offset=4))
    fields = np.zeros(3, [("a", "<f4"), ("b", "<i2")])
    with pytest.raises(ValueError, match="stride"):
        crt.from_numpy(fields["a"])
    for foreign in (">f4", ">i8", ">c8", "U3", "O", "M8[s]", "V4"):
        with pytest.raises(TypeError, match="dtype"):
            crt.from_numpy(np.zeros(2, foreign))
    for no_array in ([1.0], 3, None, crt.ones(2), np.float32(2)):
        with pytest.raises(TypeError, match="NumPy array"):
            crt.from_numpy(no_array)
    with pytest.raises(ValueError, match="dimensions"):
        crt.from_numpy(np.zeros((1,) * 17, np.float32))
    gc.collect()
    array = np.zeros(2, ">f4")
    gone = weakref.ref(array)
    with pytest.raises(TypeError):
        crt.from_numpy(array)
    del array
    assert gone() is None, "what was refused is not kept"


def test_read_only_arrays():
    x = numbers(5)
    x.flags.writeable = False
    t = crt.from_numpy(x)
    assert (t + 1).tolist() == [1, 2, 3, 4, 5] and not t.numpy().flags.writeable
    view = t.reshape(5, 1)
    for write in (lambda: t.add_(1), lambda: t.copy_(t), t.zero_, t.relu_, lambda: view.mul_(2)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    with pytest.raises(ValueError, match="read-only"):
        t += 1
    with crt.tracing(), pytest.raises(ValueError, match="read-only"):
        t.exp_()
    crt.synchronize()
    assert np.array_equal(x, numbers(5))
    assert crt.from_numpy(np.broadcast_to(np.float32(2), (3,))).tolist() == [2, 2, 2]


def test_read_only_pages_are_only_read():
    """Writing there would kill the process, whatever NumPy says about the array."""
    pages = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)
    t = crt.from_numpy(np.frombuffer(pages, np.float32))
    with pytest.raises(ValueError):
        t.fill_(1)
    assert (t + 1).numpy().sum() == 1024


class Array(np.ndarray):
    """One that tells when it goes."""


def watched(*shape):
    array = np.ones(shape, np.float32).view(Array)
    gone = threading.Event()
    weakref.finalize(array, gone.set)
    return array, gone


def test_an_array_lives_as_long_as_its_tensors():
    array, gone = watched(16)
    t = crt.from_numpy(array)
    del array
    view = crt.slice(t, 0, 2, 8)
    del t
    assert not gone.is_set() and view.tolist() == [1] * 6
    del view
    assert gone.wait(0), "nobody needs it any more"


def test_an_array_lives_as_long_as_what_numpy_returned():
    array, gone = watched(16)
    shared = crt.from_numpy(array).numpy()
    del array
    assert not gone.is_set() and shared[0] == 1
    del shared
    assert gone.wait(0), "nobody needs it any more"


def test_an_array_lives_as_long_as_its_parameter():
    array, gone = watched(2, 2)
    module = crt.nn.Linear(2, 2)
    module.weight = crt.nn.Parameter(crt.from_numpy(array))
    del array
    assert not gone.is_set() and crt.sum(module.weight).item() == 4
    del module
    assert gone.wait(0), "nobody needs it any more"


@pytest.mark.parametrize("use", ["read", "write", "deferred"])
def test_an_array_lives_until_pending_work_is_over(use):
    array, gone = watched(1000, 1000)
    t = crt.from_numpy(array)
    gc.collect()
    gc.freeze()  # what other tests left would take the collector longer than the work below
    pending = busy()
    if use == "write":
        t.add_(1)
    elif use == "deferred":
        with crt.tracing():
            result = crt.sum(t)
    else:
        result = crt.sum(t)
    del array, t
    gc.collect()
    gc.unfreeze()
    assert not gone.is_set() and not pending.is_ready()
    if use != "write":
        assert result.item() == 10**6
        del result
    crt.synchronize()
    del pending  # whatever is released after the end of the work notices
    assert gone.wait(0)


def test_an_array_is_let_go_in_a_loop():
    left = []
    for _ in range(200):
        array, gone = watched(64, 64)
        left.append(gone)
        crt.sum(crt.from_numpy(array)).item()
        del array
        assert sum(not gone.is_set() for gone in left) <= 1
    assert all(gone.is_set() for gone in left)


def test_an_array_is_let_go_whichever_thread_is_last():
    array, gone = watched(512, 512)
    with crt.stream(crt.Stream()):
        busy(0.05)
        result = [crt.matmul(crt.from_numpy(array), crt.ones((512, 1)))]
    del array
    in_thread(lambda: result.pop().wait())
    crt.memory.current()  # as any later use of the package
    assert gone.wait(0)


def test_arrays_that_overlap_are_kept_in_order():
    x, want = numbers(1000), numbers(1000)
    streams = [crt.Stream() for _ in range(3)]
    parts = [slice(None, -1), slice(1, None), slice(None, None, -1), slice(100, 200)]
    tensors = [crt.from_numpy(x[p]) for p in parts]
    with crt.stream(streams[0]):
        gate = crt.sum(busy(0.05)) - 1023  # all follow this one, if they follow each other
        tensors[0].mul_(gate)
    for i in range(1, 40):
        with crt.stream(streams[i % 3]):
            t = tensors[i % 4]
            t.add_(1) if i % 2 else t.copy_(t * 0.5 + 3)
        view = want[parts[i % 4]]
        view[:] = view + 1 if i % 2 else view * np.float32(0.5) + 3
    assert np.array_equal(tensors[0].numpy(), want[:-1]) and np.array_equal(tensors[2].numpy(), want[::-1])
    assert np.array_equal(x, want)


def test_operators_between_overlapping_arrays():
    x = numbers(100)
    low, high = crt.from_numpy(x[:-1]), crt.from_numpy(x[1:])
    high.add_(low)  # each from the old values
    crt.synchronize()
    want = numbers(100)
    want[1:] = want[1:] + want[:-1].copy()
    assert np.array_equal(x, want)
    low.copy_(high)
    crt.synchronize()
    assert np.array_equal(x[:-1], want[1:])


def test_the_source_of_tensor_may_change_at_once():
    x = np.ones(1 << 20, np.float32)
    pending = busy(0.05)
    t = crt.tensor(x)
    y = t + crt.sum(pending) * 0
    x[:] = 9
    assert y.numpy().max() == 1 == t.numpy().max()


# ---- in place: what is written ---------------------------------------------------------------------------------------


def test_in_place_is_the_operator_over_its_operand():
    a, b = np.float32([[-2, 3], [0.5, -1]]), np.float32([4, 2])
    for name, want in {"add_": a + b, "sub_": a - b, "mul_": a * b, "div_": a / b, "copy_": b + a * 0}.items():
        t = crt.tensor(a)
        view = t.reshape(-1)
        assert getattr(t, name)(crt.tensor(b)) is t and np.array_equal(t.numpy(), want) and np.array_equal(view.numpy(), want.ravel())
    for name, want in {"relu_": np.maximum(a, 0), "abs_": abs(a), "zero_": a * 0}.items():
        assert np.array_equal(getattr(crt.tensor(a), name)().numpy(), want)
    assert np.array_equal(crt.exp_(crt.tensor(a)).numpy(), crt.exp(crt.tensor(a)).numpy())
    assert np.array_equal(crt.tensor(a).tanh_().numpy(), crt.tanh(crt.tensor(a)).numpy())
    assert np.array_equal(crt.maximum_(crt.tensor(a), 1).numpy(), np.maximum(a, 1))
    assert crt.tensor(a).fill_(7).tolist() == [[7, 7], [7, 7]]


def test_augmented_assignment_keeps_the_tensor():
    t = crt.ones((2, 2))
    same, array = t, t.numpy()
    t += 1
    t *= crt.tensor([2.0, 3.0])
    t -= 1
    t /= 2
    assert t is same
    crt.synchronize()
    assert array.tolist() == [[1.5, 2.5], [1.5, 2.5]]
    module = crt.nn.Linear(2, 2)
    weight = module.weight
    module.weight *= 0
    assert module.weight is weight and weight.tolist() == [[0, 0], [0, 0]]


def test_dtypes_in_place():
    ints = crt.tensor(np.array([1, 2], np.int32))
    assert ints.add_(True).tolist() == [2, 3] and ints.mul_(crt.tensor(np.array([3, 4], np.int64))).tolist() == [6, 12]
    assert ints.dtype == crt.int32
    single = crt.tensor(np.float32([1, 2]))
    assert single.add_(crt.tensor(np.float64([0.5, 0.5]))).tolist() == [1.5, 2.5] and single.dtype == crt.float32
    for write in (lambda: ints.add_(1.5), lambda: ints.div_(2), ints.exp_, lambda: crt.tensor([True]).add_(1), lambda: crt.tensor([True]).relu_()):
        with pytest.raises(TypeError):
            write()
    assert ints.copy_(crt.tensor([1.9, -1.9])).tolist() == [1, -1]  # copy_ converts
    for what in ("text", None, [1, 2], np.ones(2)):
        with pytest.raises(TypeError):
            ints.add_(what)
    for what in (3, 2.5, np.ones(2)):
        with pytest.raises(TypeError):
            crt.add_(what, 1)
    assert ints.tolist() == [1, -1], "what is refused writes nothing"


def test_shapes_in_place():
    t = crt.zeros((2, 3))
    assert t.add_(crt.tensor([1.0, 2.0, 3.0])).tolist() == [[1, 2, 3]] * 2
    for other in (crt.ones((4, 2, 3)), crt.ones(2), crt.ones((1, 1, 2, 3))):
        with pytest.raises(ValueError):
            t.add_(other)
        with pytest.raises(ValueError):
            t.copy_(other)
    with pytest.raises(ValueError):
        crt.ones(1).add_(crt.ones(3))
    assert crt.zeros((0, 3)).add_(crt.ones(3)).shape == (0, 3)
    assert t.tolist() == [[1, 2, 3]] * 2


def test_operands_that_overlap_the_destination():
    for to, source in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None)), (slice(None, None, -1), slice(None))):
        for big in (10, 300_000):
            want = numbers(big)
            t = crt.tensor(want)
            a, b = (crt.slice(t, 0, s.start, s.stop, s.step or 1) for s in (to, source))
            if (to.step or 1) < 0:
                a = crt.slice(t, 0, None, None, -1)
            a.add_(b)
            a.copy_(b)
            want[to] = want[to] + want[source].copy()
            want[to] = want[source].copy()
            assert np.array_equal(t.numpy(), want)
    square = numbers(300, 300)
    t = crt.tensor(square)
    t.add_(t.permute(1, 0))
    t.mul_(crt.select(t, 0, 1))
    want = square + square.T
    assert np.array_equal(t.numpy(), want * want[1].copy())
    t = crt.tensor(square)
    assert np.array_equal(t.add_(t).mul_(t).sub_(t).numpy(), (square * 2) ** 2 - (square * 2) ** 2)


def test_destinations_whose_elements_share_memory():
    x = numbers(12)
    for shape, strides in (((3, 12), (0, 4)), ((5, 4), (4, 4)), ((3, 4), (8, 4)), ((12, 2), (4, 0)), ((4, 4), (-4, 4))):
        t = crt.from_numpy(strided(x[6:] if strides[0] < 0 else x, shape, strides))
        for write in (lambda t=t: t.add_(1), t.zero_, lambda t=t: t.copy_(t), t.relu_):
            with pytest.raises(ValueError, match="share memory"):
                write()
        with crt.tracing(), pytest.raises(ValueError, match="share memory"):
            t.mul_(2)
    assert np.array_equal(x, numbers(12))
    for shape, strides in (((3, 4), (16, 4)), ((4, 3), (4, 16)), ((1, 12), (0, 4)), ((0, 12), (0, 4)), ((2, 2), (24, 8))):  # distinct ones
        crt.from_numpy(strided(x, shape, strides)).add_(0)
    crt.synchronize()
    assert np.array_equal(x, numbers(12))


# ---- in place: in which order ----------------------------------------------------------------------------------------


def test_earlier_readers_on_the_lane_see_the_old_values():
    x = crt.ones((1024, 1024))
    before = [crt.matmul(busy(0.05), x), x * 3, crt.sum(x)]
    x.add_(1)
    after = x * 3
    x += 1
    assert before[1].numpy()[0, 0] == 3 and before[2].item() == 1024**2 and before[0].numpy()[5, 5] == 1
    assert after.numpy()[0, 0] == 6 and x.numpy()[0, 0] == 3


def test_earlier_readers_on_other_streams_see_the_old_values():
    x = crt.ones((1024, 1024))
    readers, streams = [], [crt.Stream() for _ in range(3)]
    for s in streams:
        with crt.stream(s):
            gate = busy(0.05)
            readers += [x * 2, crt.matmul(gate, x)]
    x.fill_(5)  # on the lane, which is idle
    assert not readers[-1].is_ready()
    later = []
    for s in streams:
        with crt.stream(s):
            later.append(x * 2)
    x.fill_(0)
    assert [r.numpy()[3, 3] for r in readers] == [2, 1] * 3
    assert [r.numpy()[3, 3] for r in later] == [10] * 3
    assert x.numpy().max() == 0


def test_readers_of_another_thread_see_the_old_values():
    x = crt.ones((1024, 1024))
    y, gate = in_thread(lambda: (g := busy(), x + crt.sum(g))[::-1])
    x.zero_()
    assert not gate.is_ready()
    assert y.numpy()[0, 0] == 1025 and x.numpy()[0, 0] == 0


def test_traced_readers_and_writers():
    x = crt.ones(4)
    with crt.tracing():
        old = x * 2
    x.add_(1)  # not deferred: what was called before comes before
    assert old.status == "Evaluated" and old.tolist() == [2] * 4 and x.tolist() == [2] * 4
    with crt.tracing():
        a = x * 2
        x.add_(1)
        assert x.status == "Unscheduled"
        b = x * 2
        x += b
        c = x * 2
    dropped = x * 0  # asks for the value: submits
    assert x.status == "Evaluated" and dropped.tolist() == [0] * 4
    assert [t.tolist()[0] for t in (c, b, a, x)] == [18, 6, 4, 9]


def test_writes_to_a_borrowed_array_are_not_deferred():
    """The host would see that they did not happen."""
    x = np.zeros(4, np.float32)
    t = crt.from_numpy(x)
    with crt.tracing():
        t.add_(1)
        view = crt.slice(t, 0, 1)
        view.mul_(5)
    crt.synchronize()
    assert x.tolist() == [1, 5, 5, 5]


def test_memory_that_numpy_gave_back_keeps_the_order():
    """numpy() shows the tensor's memory, and from_numpy() finds what it knows already."""
    t = crt.zeros(4)
    again = crt.from_numpy(t.numpy())
    heavy = busy()
    again.add_(1)
    assert crt.add(t, 1).tolist() == [2] * 4
    del heavy


def test_a_deferred_write_of_overlapping_arrays():
    """The second array does not know of the first one's tensor, only of the memory."""
    x = np.zeros(4, np.float32)
    a, b = crt.from_numpy(x), crt.from_numpy(x[1:])
    with crt.tracing():
        a.add_(1)
    assert (b * 2).tolist() == [2, 2, 2]
    with crt.tracing():
        old = a * 2
    b.add_(1)
    assert old.tolist() == [2, 2, 2, 2] and a.tolist() == [1, 2, 2, 2]


def test_numpy_waits_for_readers_too():
    """The array may be written to, and must not reach operators that were called before."""
    x = crt.ones((1024, 1024))
    with crt.stream(crt.Stream()):
        y = crt.matmul(busy(0.05), x)
    x.numpy()[:] = 0
    assert y.is_ready() and y.numpy()[0, 0] == 1


def test_a_random_program_of_two_threads_and_three_streams():
    """Against NumPy, one operation after the other: threads take turns, so that the order is known, and wait for nothing."""
    rng = np.random.default_rng(7)
    x = numbers(20_000) % 17
    want, t = x.copy(), crt.from_numpy(x)
    streams = [crt.Stream() for _ in range(3)]
    kept = []

    def step():
        begin, end = sorted(int(i) for i in rng.integers(0, 20_001, 2))
        part, view, kind = crt.slice(t, 0, begin, end), want[begin:end], rng.integers(5)
        with crt.stream(streams[rng.integers(3)]):
            if kind == 0:
                part.mul_(0.5)
                view *= np.float32(0.5)
            elif kind == 1:
                part.add_(crt.slice(part, 0, None, None, -1))
                view += view[::-1].copy()
            elif kind == 2:
                kept.append((part * 3, view * 3))
            elif kind == 3:
                part.copy_(int(kind))
                view[:] = kind
            else:
                with crt.tracing():
                    kept.append((part - 1, view - 1))

    for _ in range(60):
        in_thread(lambda: [step() for _ in range(3)])
        step()
    for got, expected in kept:
        assert np.array_equal(got.numpy(), expected)
    assert np.array_equal(t.numpy(), want) and np.array_equal(x, want)
    until(lambda: all(s.query_idle() for s in streams))
