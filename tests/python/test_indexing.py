"""Indexing, read and written: NumPy is the measure."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clika_runtime as crt
from waiting import busy

FEW = settings(max_examples=400, deadline=None, derandomize=True)


def numbers(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


@st.composite
def basic_keys(draw, shape):
    """An index of ints, slices, None and '...' that mostly fits."""
    items = []
    for size in draw(st.permutations([*shape]))[: draw(st.integers(0, len(shape)))]:
        low = -size - draw(st.sampled_from([0, 0, 0, 1]))
        bound = st.none() | st.integers(-size - 2, size + 2)
        part = st.builds(slice, bound, bound, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))
        items.append(draw(part | st.integers(low, max(size - 1, low)) if size else part))
    for extra in draw(st.lists(st.just(None), max_size=2)):
        items.insert(draw(st.integers(0, len(items))), extra)
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    return tuple(items)


@st.composite
def advanced_keys(draw, shape):
    """The same with arrays of ints and masks among them."""
    common = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 1), (1, 3), (2, 3)]))
    key, dim = [], 0
    kinds = ["slice", "int", "array", "array", "mask"]
    while dim < len(shape) and draw(st.integers(0, 5)):
        kind, size = draw(st.sampled_from(kinds)), shape[dim]
        if kind == "mask":
            rank = draw(st.integers(1, len(shape) - dim))
            bits = draw(st.lists(st.booleans(), min_size=int(np.prod(shape[dim : dim + rank])), max_size=int(np.prod(shape[dim : dim + rank]))))
            key.append(np.array(bits, bool).reshape(shape[dim : dim + rank]))
            dim += rank
            kinds = ["slice", "int"]  # what a second array would have to fit to depends on the mask
            continue
        if kind == "array" and size:
            sizes = [draw(st.sampled_from([n, 1])) for n in common]
            flat = draw(st.lists(st.integers(-size, size - 1), min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes))))
            key.append(np.array(flat, np.int64).reshape(sizes) if sizes else np.array(flat[0]))
            kinds = ["slice", "int", "array"]
        elif kind == "int" and size:
            key.append(draw(st.integers(-size, size - 1)))
        else:
            key.append(draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2)])))
        dim += 1
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))) if dim == len(shape) else len(key), Ellipsis)
    return tuple(key)


def ours(key, draw_tensor):
    """The index with tensors in place of arrays."""
    return tuple(crt.tensor(item) if draw_tensor and isinstance(item, np.ndarray) else item for item in key)


@FEW
@given(st.data())
def test_views_are_numpys(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_keys(shape))
    x = numbers(*shape)
    t = crt.tensor(x)
    try:
        want = x[key]
    except IndexError:
        with pytest.raises(IndexError, match=r"^(index|select): "):
            t[key]
        return
    got = t[key]
    assert got.shape == want.shape and np.array_equal(got.numpy(), want)
    got.add_(100)  # what is basic is a view
    want = x.copy()
    want[key] += 100
    assert np.array_equal(t.numpy(), want)


@FEW
@given(st.data())
def test_writing_to_views_is_numpys(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_keys(shape))
    x = numbers(*shape)
    try:
        part = x[key].shape
    except IndexError:
        return
    sizes = [data.draw(st.sampled_from([n, n, 1])) for n in part][data.draw(st.integers(0, len(part))) :]
    value = data.draw(st.sampled_from([7, 2.5, True, -numbers(*sizes) - 1, numbers(*sizes, dtype=np.int64) + 50, numbers(1, 1, *sizes) - 9]))
    t = crt.tensor(x)
    t[key] = crt.tensor(value) if isinstance(value, np.ndarray) and data.draw(st.booleans()) else value
    if np.ndim(value) > np.ndim(x[key]) == 0:
        value = value.ravel()[0]
    x[key] = value
    assert np.array_equal(t.numpy(), x)


@FEW
@given(st.data())
def test_looking_up_is_numpys(data):
    shape = data.draw(SHAPES)
    key = data.draw(advanced_keys(shape))
    x = numbers(*shape)
    t = crt.tensor(x)
    got, want = t[ours(key, data.draw(st.booleans()))], x[key]
    assert got.shape == want.shape and np.array_equal(got.numpy(), want), (shape, key)


@FEW
@given(st.data())
def test_scattering_is_numpys(data):
    shape = data.draw(SHAPES)
    key = data.draw(advanced_keys(shape))
    x = numbers(*shape)
    sizes = [data.draw(st.sampled_from([n, n, 1])) for n in x[key].shape]
    value = data.draw(st.sampled_from([7, -2.5, np.full(sizes, -5, np.int32), np.full(sizes, 0.5)]))
    t = crt.tensor(x)
    t[ours(key, data.draw(st.booleans()))] = value
    x[key] = value
    assert np.array_equal(t.numpy(), x), (shape, key)


def test_arrays_of_every_kind():
    x = numbers(4, 3)
    t = crt.tensor(x)
    for key in (
        [0, 2],
        [[0, 1], [3, -1]],
        range(2),
        np.array([1, 1, 0], np.int8),
        np.array([3], np.uint64),
        [],
        (np.array(1), [0, 2]),
        ([0, 1], [2, 2]),
        ([[0], [1]], [0, 2]),
        (slice(None), [True, False, True]),
        [True, False, False, True],
        x > 4,
        (x > 4).tolist(),
        (0, [1, 2]),
        ([1, 2], 0),
        (None, [0, 1]),
        ([0, 1], None, [0, 1]),
        (..., [0, 2]),
        np.zeros((0, 2), np.int64),
    ):
        assert np.array_equal(t[key].numpy(), x[key]), key
        if isinstance(key, (np.ndarray, list)):
            assert np.array_equal(t[crt.tensor(np.asarray(key, dtype=None if len(key) else np.int64))].numpy(), x[key]), key
    assert np.array_equal(t[crt.tensor(1)].numpy(), x[1]) and np.array_equal(t[:, crt.tensor(-1)].numpy(), x[:, -1])
    assert np.array_equal(t[t > 4].numpy(), x[x > 4]) and np.array_equal(t[crt.argmax(t, 0)].numpy(), x[x.argmax(0)])


def test_a_truth_value_is_a_mask_without_dimensions():
    x = numbers(2, 3)
    t = crt.tensor(x)
    for key in (True, False, np.True_, (True, 0), (0, True), (slice(None), False), (True, [0, 1]), (True, True)):
        assert np.array_equal(t[key].numpy(), x[key]), key
    assert np.array_equal(t[crt.tensor(True)].numpy(), x[True]) and t[crt.tensor(False)].shape == (0, 2, 3)
    t[True] = 5
    t[False] = 7
    assert (t == 5).numpy().all()


def test_masks_written_to():
    x = numbers(3, 4)
    for value in (0, crt.tensor(2.5), np.float64(3), [9.0], -numbers(6)):
        t, want = crt.tensor(x), x.copy()
        t[t > 5] = value
        want[want > 5] = value.item() if isinstance(value, crt.Tensor) else value
        assert np.array_equal(t.numpy(), want)
    t = crt.tensor(x)
    t[:, t[0] > 1] = -1
    t[crt.tensor([True, False, False])] = crt.tensor([1.0, 2.0, 3.0, 4.0])
    want = x.copy()
    want[:, x[0] > 1] = -1
    want[[True, False, False]] = [1, 2, 3, 4]
    assert np.array_equal(t.numpy(), want)
    t[t < 0] += 10
    want[want < 0] += 10
    assert np.array_equal(t.numpy(), want)


def test_dtypes_are_converted_when_written():
    t = crt.zeros(3, crt.int32)
    t[0], t[1:], t[[1]] = 2.9, crt.tensor([1.5, -1.5]), 7.9
    assert t.tolist() == [2, 7, -1]
    flags = crt.zeros(2, crt.bool_)
    flags[0], flags[[1]] = 3, [0.5]
    assert flags.tolist() == [True, True]
    half = crt.zeros(2, crt.bfloat16)
    half[...] = 0.5
    half[[0]] = 2
    assert half.tolist() == [2, 0.5]


def test_what_places_that_are_looked_up_take():
    """As torch: numbers, one element for a mask, else tensors of the same dtype; lists and arrays, which torch refuses, as numbers."""
    for dtype, other in itertools.product([torch.float32, torch.int64, torch.bool, torch.float16], repeat=2):
        x = torch.zeros(4, dtype=dtype)
        for key in (torch.tensor([True, False, True, False]), torch.tensor([0, 2])):
            for value in (torch.tensor([1, 2]).to(other), torch.tensor(1).to(other), torch.tensor([1]).to(other), 2.5, True):
                want, t = x.clone(), crt.tensor(x.numpy())
                mine = crt.tensor(value.numpy()) if isinstance(value, torch.Tensor) else value
                try:
                    want[key] = value
                except RuntimeError:
                    with pytest.raises(TypeError, match=r"^index_put: .* cannot be put into a tensor of"):
                        t[crt.tensor(key.numpy())] = mine
                else:
                    t[crt.tensor(key.numpy())] = mine
                assert np.array_equal(t.numpy(), want.numpy())
    t = crt.zeros(4, crt.int32)
    t[[0, 1]], t[t < 1] = np.array([1.9, 2.9]), [7.5, 8.5]
    assert t.tolist() == [1, 2, 7, 8]


def test_what_is_out_of_range():
    t = crt.tensor(numbers(2, 3))
    for key in (2, -3, (0, 3), 2**70, (0, 0, 0), (..., 0, 0, 0), (Ellipsis, Ellipsis)):
        with pytest.raises(IndexError, match=r"^(index|select): "):
            t[key]
        with pytest.raises(IndexError, match=r"^(index|select): "):
            t[key] = 1
    with pytest.raises(IndexError):
        crt.tensor(1)[0]
    for key in ([2], [[0], [-3]], ([0], [3])):
        with pytest.raises(IndexError, match="index"):
            t[key].numpy()
    for key in ([True], [[True, False]], (slice(None), [True, False])):
        with pytest.raises(IndexError, match="index: a mask of shape"):
            t[key]
    with pytest.raises((IndexError, ValueError), match="index"):
        t[[0, 1], [0, 1, 2]]
    assert t[2**80 :].shape == (0, 3) and t[: 2**80].shape == (2, 3) and t[:: -(2**80)].tolist() == [[3, 4, 5]]


def test_what_is_no_index():
    t = crt.tensor(numbers(2, 3))
    for key in ("0", 1.0, [0.0], np.array([0.5]), crt.tensor([0.5]), crt.tensor(1.0), {0}, {}, object(), 1j, [None], ["a"]):
        with pytest.raises((IndexError, TypeError)):
            t[key]
        with pytest.raises((IndexError, TypeError)):
            t[key] = 0
    for key in (slice("a"), slice(1.0), slice(0, 1, 0.5)):
        with pytest.raises(TypeError):
            t[key]
    with pytest.raises(ValueError, match="step"):
        t[::0]
    for value in (numbers(4), [[1, 2], [3, 4]], crt.ones((2, 2, 3))):
        with pytest.raises(ValueError):
            t[0:1] = value
    with pytest.raises(TypeError):
        t[0] = "one"
    assert np.array_equal(t.numpy(), numbers(2, 3))


def test_parts_that_overlap():
    x = numbers(50)
    t = crt.tensor(x)
    t[1:] = t[:-1]
    x[1:] = x[:-1].copy()
    t[::-1] = t
    assert np.array_equal(t.numpy(), x[::-1])


def test_augmented_assignment():
    x = numbers(4, 3)
    t = crt.tensor(x)
    t[1] += 10
    t[:, 0] *= 2
    t[..., -1] -= t[..., 0]
    t[2, 1] = t[2, 1] ** 2
    x[1] += 10
    x[:, 0] *= 2
    x[..., -1] -= x[..., 0]
    x[2, 1] **= 2
    assert np.array_equal(t.numpy(), x)


def test_indexing_does_not_wait_and_keeps_the_order():
    x = busy()
    y, z = x[0, :2], x[1:, None]
    assert not x.is_ready() and not y.is_ready() and y.shape == (2,) and z.shape == (1023, 1, 1024)
    a = crt.zeros(8)
    before = a + crt.sum(x) * 0
    a[2:4] = 5
    assert before.tolist() == [0] * 8 and a.tolist() == [0, 0, 5, 5, 0, 0, 0, 0]


def test_indices_in_graphs_and_deferred():
    x = numbers(4, 3)
    graph = crt.trace(lambda i: [i[0][1:, ::-1], i[0][..., None], i[0][-1] + i[0][0, 1]], example_inputs=[crt.tensor(x)])
    a, b, c = graph.run([crt.tensor(x)])
    assert np.array_equal(a.numpy(), x[1:, ::-1]) and b.shape == (4, 3, 1) and np.array_equal(c.numpy(), x[-1] + x[0, 1])
    t = crt.tensor(x)
    with crt.tracing():
        row = t[1] * 2
        looked_up = t[[0, 3]]
        t[0] = 9
    assert row.tolist() == [6, 8, 10] and looked_up.tolist() == [[0, 1, 2], [9, 10, 11]] and t[0].tolist() == [9, 9, 9]
    lookup = crt.trace(lambda i: [i[0][i[1]]], example_inputs=[crt.tensor(x), crt.tensor([0, 1])])
    assert np.array_equal(lookup.run([crt.tensor(x), crt.tensor([3, -2])])[0].numpy(), x[[3, -2]])


def test_iteration():
    x = numbers(3, 2)
    t = crt.tensor(x)
    rows = list(t)
    assert [row.tolist() for row in rows] == x.tolist() and [float(v) for row in t for v in row] == x.ravel().tolist()
    rows[1].zero_()
    _, b, _ = t
    assert b.tolist() == [0, 0] and [r.tolist() for r in reversed(t)] == [[4, 5], [0, 0], [0, 1]]
    assert list(crt.zeros((0, 2))) == [] and len(crt.zeros((0, 2))) == 0
    with pytest.raises(TypeError, match="0-d"):
        iter(crt.tensor(1))


def test_what_is_in_a_tensor():
    t = crt.tensor(numbers(3, 2))
    assert 5 in t and 5.5 not in t and crt.tensor(3.0) in t and np.float32(2) in t
    assert "5" not in t and None not in t and 1 not in crt.zeros((0, 2))
    assert crt.tensor(float("nan")) not in crt.full(2, float("nan"))
    assert t in [crt.ones(1), t][1:]
