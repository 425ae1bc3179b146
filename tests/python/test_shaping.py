"""Views, what moves elements, and creation: edges, aliasing, bad input, agreement with torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import clika_runtime as crt


def counted(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


# ---- bad input


X = counted(2, 3)
BAD: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "expand", lambda: crt.expand(crt.tensor(X), [3, 3])),
    (ValueError, "expand", lambda: crt.expand(crt.tensor(X), [3])),
    (ValueError, "expand", lambda: crt.expand(crt.tensor(X), [-1, 2, 3])),
    (ValueError, "expand", lambda: crt.expand(crt.tensor(X), [-2, 3])),
    (ValueError, "expand", lambda: crt.expand(crt.tensor(1.0), [2**62, 2**62])),
    (ValueError, "broadcast_to", lambda: crt.broadcast_to(crt.tensor(X), [-1, 3])),
    (IndexError, "transpose", lambda: crt.transpose(crt.tensor(X), 0, 2)),
    (IndexError, "squeeze", lambda: crt.squeeze(crt.tensor(X), 2)),
    (ValueError, "squeeze", lambda: crt.squeeze(crt.tensor(X), [1, -1])),
    (IndexError, "unsqueeze", lambda: crt.unsqueeze(crt.tensor(X), 3)),
    (IndexError, "unsqueeze", lambda: crt.unsqueeze(crt.tensor(X), -4)),
    (ValueError, "flatten", lambda: crt.flatten(crt.tensor(X), 1, 0)),
    (IndexError, "flatten", lambda: crt.flatten(crt.tensor(X), 0, 2)),
    (ValueError, "unflatten", lambda: crt.unflatten(crt.tensor(X), 1, [2, 2])),
    (ValueError, "unflatten", lambda: crt.unflatten(crt.tensor(X), 1, [-1, -1])),
    (ValueError, "unflatten", lambda: crt.unflatten(crt.tensor(X), 1, [])),
    (ValueError, "unflatten", lambda: crt.unflatten(crt.tensor(X), 1, [0, -1])),
    (IndexError, "unflatten", lambda: crt.unflatten(crt.tensor(1.0), 0, [1])),
    (ValueError, "movedim", lambda: crt.movedim(crt.tensor(X), [0], [0, 1])),
    (ValueError, "movedim", lambda: crt.movedim(crt.tensor(X), [0, 0], [0, 1])),
    (ValueError, "movedim", lambda: crt.movedim(crt.tensor(X), [0, 1], [1, 1])),
    (IndexError, "movedim", lambda: crt.movedim(crt.tensor(X), 0, 2)),
    (ValueError, "diagonal", lambda: crt.diagonal(crt.tensor(X), 0, 1, -1)),
    (IndexError, "diagonal", lambda: crt.diagonal(crt.arange(0, 3))),
    (ValueError, "unfold", lambda: crt.unfold(crt.tensor(X), 1, 4, 1)),
    (ValueError, "unfold", lambda: crt.unfold(crt.tensor(X), 1, -1, 1)),
    (ValueError, "unfold", lambda: crt.unfold(crt.tensor(X), 1, 2, 0)),
    (IndexError, "unfold", lambda: crt.unfold(crt.tensor(X), 2, 2, 1)),
    (IndexError, "narrow", lambda: crt.narrow(crt.tensor(X), 1, 4, 0)),
    (ValueError, "narrow", lambda: crt.narrow(crt.tensor(X), 1, 2, 2)),
    (ValueError, "narrow", lambda: crt.narrow(crt.tensor(X), 1, 0, -1)),
    (ValueError, "narrow", lambda: crt.narrow(crt.tensor(X), 1, 1, 2**63 - 1)),
    (TypeError, "view_dtype", lambda: crt.view_dtype(crt.tensor(X), crt.bool_)),
    (TypeError, "view_dtype", lambda: crt.view_dtype(crt.tensor(X > 1), crt.uint8)),
    (TypeError, "view_dtype", lambda: crt.view_dtype(1.5, crt.int32)),
    (ValueError, "view_dtype", lambda: crt.view_dtype(crt.tensor(X), crt.float64)),
    (TypeError, "view_dtype", lambda: crt.tensor(X).view(crt.bool_)),
    (ValueError, "view_dtype", lambda: crt.tensor(X).view(crt.float64)),
    (ValueError, "view_dtype", lambda: crt.view_dtype(crt.tensor(1.0), crt.int8)),
    (ValueError, "view_dtype", lambda: crt.view_dtype(crt.permute(crt.tensor(X), [1, 0]), crt.int16)),
    (ValueError, "view_dtype", lambda: crt.view_dtype(crt.slice(crt.tensor(counted(2, 4)), 1, 1, 3), crt.int64)),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [7], [1])),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [2], [-1])),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [2, 2], [1])),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [1], [1], 6)),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [1], [1], -1)),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [2**40, 2**20], [2**62, 2**62])),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [0], [1], 7)),
    (ValueError, "as_strided", lambda: crt.as_strided(crt.tensor(X), [-1], [1])),
    (ValueError, "stack", lambda: crt.stack([])),
    (ValueError, "stack", lambda: crt.stack([crt.arange(0, 2), crt.arange(0, 3)])),
    (IndexError, "stack", lambda: crt.stack([crt.arange(0, 2)], 2)),
    (ValueError, "repeat", lambda: crt.repeat(crt.tensor(X), [2])),
    (ValueError, "repeat", lambda: crt.repeat(crt.tensor(X), [2, -1])),
    (ValueError, "repeat", lambda: crt.repeat(crt.tensor(X), [2**62, 2**62])),
    (ValueError, "tile", lambda: crt.tile(crt.tensor(X), -1)),
    (ValueError, "repeat_interleave", lambda: crt.repeat_interleave(crt.tensor(X), -1)),
    (ValueError, "repeat_interleave", lambda: crt.repeat_interleave(crt.tensor(X), 2**62)),
    (IndexError, "repeat_interleave", lambda: crt.repeat_interleave(crt.tensor(X), 2, 2)),
    (ValueError, "roll", lambda: crt.roll(crt.tensor(X), [1, 2])),
    (ValueError, "roll", lambda: crt.roll(crt.tensor(X), [1, 2], [0])),
    (IndexError, "roll", lambda: crt.roll(crt.tensor(X), 1, 2)),
    (IndexError, "flip", lambda: crt.flip(crt.tensor(X), 2)),
    (ValueError, "flip", lambda: crt.flip(crt.tensor(X), [0, -2])),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [1])),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [1] * 6)),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [-2, -2])),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [2**63 - 1, 1])),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [2**61, 2**61])),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [3, 0], "reflect")),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [4, 0], "circular")),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [-1, 0], "replicate")),
    (ValueError, "pad", lambda: crt.pad(crt.ones([2, 0]), [1, 0], "replicate")),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [1, 0], "reflect", 2.0)),
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [1, 0], "mirror")),  # type: ignore[arg-type]
    (ValueError, "pad", lambda: crt.pad(crt.tensor(X), [1] * 34)),
    (IndexError, "diag_embed", lambda: crt.diag_embed(crt.tensor(1.0))),
    (ValueError, "diag_embed", lambda: crt.diag_embed(crt.arange(0, 3), 0, 1, -1)),
    (ValueError, "diag_embed", lambda: crt.diag_embed(crt.arange(0, 3), -(2**63))),
    (ValueError, "diag", lambda: crt.diag(crt.tensor(1.0))),
    (ValueError, "one_hot", lambda: crt.one_hot(crt.arange(0, 3), -1)),
    (ValueError, "pixel_shuffle", lambda: crt.pixel_shuffle(crt.ones([2, 2, 6]), 2)),
    (ValueError, "pixel_shuffle", lambda: crt.pixel_shuffle(crt.ones([2, 4]), 2)),
    (ValueError, "pixel_shuffle", lambda: crt.pixel_shuffle(crt.ones([2, 2, 4]), 2**32)),
    (ValueError, "pixel_unshuffle", lambda: crt.pixel_unshuffle(crt.ones([3, 4, 1]), 2)),
    (ValueError, "pixel_unshuffle", lambda: crt.pixel_unshuffle(crt.ones([4, 4, 1]), 0)),
    (ValueError, "eye", lambda: crt.eye(-1)),
    (ValueError, "linspace", lambda: crt.linspace(0, 1, -1)),
    (ValueError, "clamp", lambda: crt.clamp(crt.tensor(X))),
    (ValueError, "clamp", lambda: crt.clamp(crt.tensor(X), crt.arange(0, 2))),
    (ValueError, "prelu", lambda: crt.prelu(crt.tensor(X), crt.ones([2]))),
    (ValueError, "prelu", lambda: crt.prelu(crt.tensor(X), crt.ones([2, 3]))),
    (TypeError, "prelu", lambda: crt.prelu(crt.tensor(X), crt.ones([3], crt.float64))),
    (ValueError, "glu", lambda: crt.glu(crt.tensor(X))),
    (IndexError, "glu", lambda: crt.glu(crt.tensor(1.0))),
    (ValueError, "isclose", lambda: crt.isclose(crt.tensor(X), crt.arange(0, 2))),
    (ValueError, "isclose", lambda: crt.isclose(crt.tensor(X), 1.0, rtol=-1.0)),
    (ValueError, "split", lambda: crt.split(crt.tensor(X), 0)),
    (ValueError, "split", lambda: crt.split(crt.tensor(X), [1, 2], 0)),
    (ValueError, "split", lambda: crt.split(crt.tensor(X), [3, -1], 0)),
    (IndexError, "split", lambda: crt.split(crt.tensor(X), 1, 2)),
    (ValueError, "chunk", lambda: crt.chunk(crt.tensor(X), 0)),
    (ValueError, "tensor_split", lambda: crt.tensor_split(crt.tensor(X), 0)),
    (IndexError, "unbind", lambda: crt.unbind(crt.tensor(1.0))),
    (TypeError, "unbind", lambda: crt.unbind(X)),  # type: ignore[arg-type]
    (ValueError, "meshgrid", lambda: crt.meshgrid()),
    (ValueError, "meshgrid", lambda: crt.meshgrid(crt.tensor(X))),
    (ValueError, "meshgrid", lambda: crt.meshgrid(crt.arange(0, 2), indexing="yx")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "name", "bad"), BAD, ids=[f"{i} {name}" for i, (_, name, _) in enumerate(BAD)])
def test_bad_input(error: type[Exception], name: str, bad: Callable[[], Any]) -> None:
    with pytest.raises(error, match=f"^{name}: ") as caught:
        bad()
    assert isinstance(caught.value, crt.ClikaRTError)


def test_a_class_out_of_range_is_a_late_error() -> None:
    for x in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError, match=r"one_hot: .*class (3|-1) is not among 3"):
            crt.one_hot(crt.tensor(np.array(x)), 3).numpy()


def test_too_many_dimensions() -> None:
    x = crt.ones([1] * 16)
    classes = crt.cast(x, crt.int64)
    for name, grow in {
        "unsqueeze": lambda: crt.unsqueeze(x, 0),
        "unfold": lambda: crt.unfold(x, 0, 1, 1),
        "unflatten": lambda: crt.unflatten(x, 0, [1, 1]),
        "stack": lambda: crt.stack([x]),
        "diag_embed": lambda: crt.diag_embed(x),
        "one_hot": lambda: crt.one_hot(classes, 2),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}: the result has 17 dimensions"):
            grow()


# ---- aliasing


VIEWS: list[Callable[[Any, Any], Any]] = [
    lambda o, x: o.transpose(x, 0, 1),
    lambda o, x: o.squeeze(o.unsqueeze(x, 1)),
    lambda o, x: o.flatten(x, 0, 1),
    lambda o, x: o.unflatten(x, 2, [2, 2]),
    lambda o, x: o.movedim(x, 0, -1),
    lambda o, x: o.diagonal(x, 1, 1, 2),
    lambda o, x: x.unfold(2, 2, 2) if o is torch else o.unfold(x, 2, 2, 2),
    lambda o, x: o.narrow(x, 1, 1, 2),
    lambda o, x: o.as_strided(x, [2, 3], [12, 2], 1),
    lambda o, x: o.split(x, [1, 2], 1)[1],
    lambda o, x: o.chunk(x, 2, 2)[1],
    lambda o, x: o.tensor_split(x, 3, 2)[0],
    lambda o, x: o.unbind(x, -1)[2],
]


@pytest.mark.parametrize("view", VIEWS)
def test_what_is_written_to_a_view_is_seen_by_the_base(view: Callable[[Any, Any], Any]) -> None:
    x, base = torch.from_numpy(counted(2, 3, 4)), crt.tensor(counted(2, 3, 4))
    want, got = view(torch, x), view(crt, base)
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    want.mul_(-1)
    got.mul_(-1)
    np.testing.assert_array_equal(base.numpy(), x.numpy())
    base.add_(100)
    x.add_(100)
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    with crt.tracing():
        got.copy_(7)
    want.copy_(torch.tensor(7))
    np.testing.assert_array_equal(base.numpy(), x.numpy())


def test_elements_that_share_memory_are_not_written() -> None:
    x = crt.arange(0, 3)
    for view in (crt.expand(x, [2, 3]), crt.unfold(x, 0, 2, 1), crt.as_strided(x, [2, 2], [1, 1]), crt.meshgrid(x, x)[0]):
        with pytest.raises(ValueError, match=r"^copy_: elements of .* share memory"):
            view.copy_(1)


def test_view_dtype_reads_the_same_bytes() -> None:
    array = counted(3, 4) + 0.5
    x = crt.tensor(array)
    for dtype in ("int32", "uint8", "int16", "float64", "uint64", "float16"):
        view = crt.view_dtype(x, getattr(crt, dtype))
        np.testing.assert_array_equal(view.numpy(), array.view(dtype))
        back = crt.view_dtype(view, crt.float32)
        np.testing.assert_array_equal(back.numpy(), array)
    part = crt.slice(x, 0, None, None, -1)
    np.testing.assert_array_equal(crt.view_dtype(part, crt.int16).numpy(), np.ascontiguousarray(array[::-1]).view("int16"))
    column = crt.slice(x, 1, 2, 4)
    np.testing.assert_array_equal(crt.view_dtype(column, crt.float64).numpy(), array[:, 2:4].view("float64"))
    bits = crt.view_dtype(x, crt.int32)
    assert x.view(crt.int32).bytes() == bits.bytes() and x.view(crt.uint8).shape[-1] == 4 * x.shape[-1] and x.view(crt.float32).shape == x.shape
    bits.copy_(0)
    assert not x.numpy().any()
    assert crt.view_dtype(crt.ones([3, 0]), crt.float64).shape == (3, 0)
    assert crt.view_dtype(crt.tensor(True), crt.bool_).item() is True
    graph = crt.trace(lambda inputs: [crt.view_dtype(inputs[0], crt.int32)], example_inputs=[x])
    np.testing.assert_array_equal(graph.run([crt.tensor(array)])[0].numpy(), array.view("int32"))


def test_view_dtype_of_borrowed_memory_that_is_not_aligned() -> None:
    memory = np.zeros(64, np.uint8)
    start = (8 - memory.ctypes.data) % 8
    aligned, off = crt.from_numpy(memory[start : start + 16]), crt.from_numpy(memory[start + 1 : start + 17])
    assert crt.view_dtype(aligned, crt.float64).shape == (2,)
    with pytest.raises(ValueError, match=r"^view_dtype: the memory is not aligned"):
        crt.view_dtype(off, crt.float64)


def test_as_strided_reaches_what_its_tensor_does_not() -> None:
    x = crt.arange(0, 12)
    part = crt.slice(x, 0, 4, 6)
    assert crt.as_strided(part, [3], [1]).tolist() == [4, 5, 6]
    assert crt.as_strided(part, [3], [-2], 11).tolist() == [11, 9, 7]
    assert crt.as_strided(part, [2, 3], [0, 4], 0).tolist() == [[0, 4, 8], [0, 4, 8]]
    assert crt.as_strided(part, [], [], 11).item() == 11
    assert crt.as_strided(part, [0, 5], [2**62, 2**62], 12).shape == (0, 5)


def test_copies_are_no_views() -> None:
    x = crt.tensor(counted(2, 3))
    for copy in (
        crt.repeat(x, [1, 1]),
        crt.tile(x, 1),
        crt.roll(x, 0, 0),
        crt.flip(x, []),
        crt.clone(x),
        crt.diag(x),
        crt.repeat_interleave(x, 1, 0),
        crt.pad(x, []),
    ):
        copy.copy_(-1)
    np.testing.assert_array_equal(x.numpy(), counted(2, 3))
    assert crt.contiguous(x) is x
    y = crt.transpose(x, 0, 1)
    assert crt.contiguous(y) is not y and crt.contiguous(y).is_contiguous()


# ---- agreement with torch


def test_lists_of_views() -> None:
    x = counted(7, 5)
    ours, theirs = crt.tensor(x), torch.from_numpy(x)
    for name, argument, dim in [
        ("split", 3, 0), ("split", 10, 0), ("split", [1, 0, 6], 0), ("split", [2, 3], -1), ("chunk", 3, 0), ("chunk", 4, 1), ("chunk", 9, 0),
        ("tensor_split", 3, 0), ("tensor_split", 9, 0), ("tensor_split", [2, 4], 0), ("tensor_split", [5, 2, -1], 0),
    ]:  # fmt: skip
        got, want = getattr(crt, name)(ours, argument, dim), getattr(torch, name)(theirs, argument, dim)
        assert len(got) == len(want), (name, argument)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    empty = crt.ones([0, 2])
    assert [len(crt.split(empty, 2)), len(crt.chunk(empty, 3)), len(crt.unbind(empty))] == [1, 3, 0]
    for indexing in ("ij", "xy"):
        parts = [np.arange(n) for n in (2, 3, 4)]
        got = crt.meshgrid(*map(crt.tensor, parts), indexing=indexing)
        for a, b in zip(got, torch.meshgrid(*map(torch.from_numpy, parts), indexing=indexing), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_is_torchs(mode: Any) -> None:
    rng = np.random.default_rng(0)
    for case in range(60):
        shape = tuple(rng.integers(2, 6, 4))
        x = counted(*shape)
        padding = [int(rng.integers(-1 if mode == "constant" else 0, 2)) for _ in range(4)]
        source, theirs = crt.tensor(x), torch.from_numpy(x)
        if case % 3 == 1:
            source, theirs = crt.permute(source, [0, 1, 3, 2]), theirs.permute(0, 1, 3, 2)
        if case % 3 == 2:
            source, theirs = crt.slice(source, 2, None, None, -1), theirs.flip(2)
        want = torch.nn.functional.pad(theirs, padding, mode=mode, **({"value": 3} if mode == "constant" else {}))
        got = crt.pad(source, padding, mode, 3 if mode == "constant" else 0)
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_specials_go_through_clamp_and_prelu() -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 3.0, -3.0], np.float32)
    x, t = crt.tensor(values), torch.from_numpy(values)
    for low, high in itertools.product([None, -1.0, np.nan], [None, 1.0, np.nan, -2.0]):
        if low is None and high is None:
            continue
        want = torch.clamp(t, None if low is None else torch.tensor(low), None if high is None else torch.tensor(high))
        np.testing.assert_array_equal(crt.clamp(x, low, high).numpy(), want.numpy())
    np.testing.assert_array_equal(crt.prelu(x, crt.tensor([0.5])).numpy(), torch.prelu(t, torch.tensor([0.5])).numpy())
    y = crt.tensor(values)
    assert crt.clamp_(y, -1, 1) is y
    np.testing.assert_array_equal(y.numpy(), np.clip(values, -1, 1))
    assert crt.clamp(crt.arange(0, 3), 0.5).dtype is crt.float32
    with pytest.raises(TypeError, match=r"^clamp: "):
        crt.clamp(crt.tensor([True]), crt.tensor([True]))


def test_isclose_is_torchs() -> None:
    a = np.array([1.0, 1.0, np.nan, np.inf, np.inf, 0.0, 1e-9, -np.inf])
    b = np.array([1.0 + 1e-6, 1.1, np.nan, np.inf, -np.inf, 1e-9, 0.0, 1.0])
    for equal_nan in (False, True):
        want = torch.isclose(torch.from_numpy(a), torch.from_numpy(b), equal_nan=equal_nan)
        np.testing.assert_array_equal(crt.isclose(crt.tensor(a), crt.tensor(b), equal_nan=equal_nan).numpy(), want.numpy())
    large = np.array([2**62, 2**62 + 1])
    assert crt.isclose(crt.tensor(large), crt.tensor(large), rtol=0, atol=0).tolist() == [True, True]
    assert crt.allclose(crt.tensor(a[:1]), crt.tensor(b[:1])) and not crt.allclose(crt.tensor(a), crt.tensor(b))
    assert crt.allclose(crt.ones([0]), 1.0) and crt.allclose(crt.tensor([1, 2]), crt.tensor([1.0, 2.0]))


def test_creation() -> None:
    assert crt.eye(3).dtype is crt.float32 and crt.linspace(0, 1, 3).tolist() == [0, 0.5, 1]
    like = crt.tensor(counted(2, 3, dtype="int16"))
    for made, value in ((crt.zeros_like(like), 0), (crt.ones_like(like), 1), (crt.full_like(like, 7), 7)):
        assert made.dtype is crt.int16 and made.tolist() == [[value] * 3] * 2
    assert crt.zeros_like(like, crt.float64).dtype is crt.float64 and crt.empty_like(like).shape == (2, 3)
    assert crt.empty([2, 3]).shape == (2, 3)
    np.testing.assert_array_equal(crt.linspace(-3, 11, 5, crt.int32).numpy(), torch.linspace(-3, 11, 5, dtype=torch.int32).numpy())
    ends = crt.linspace(0.1, 0.7, 1000, crt.float64).numpy()
    assert ends[0] == 0.1 and ends[-1] == 0.7
    with crt.device("meta"):
        assert crt.eye(2**20).shape == (2**20, 2**20)


# ---- the copy underneath: every layout to every layout


DTYPES = ["uint8", "int16", "float32", "float64"]


def layouts(x: np.ndarray) -> list[tuple[crt.Tensor, np.ndarray]]:
    """Views of a tensor, and of an array with the same elements."""
    t = crt.tensor(x)
    pairs = [(crt.permute(t, list(order)), x.transpose(order)) for order in itertools.permutations(range(x.ndim))]
    pairs += [(crt.slice(a, 0, None, None, -1), b[::-1]) for a, b in pairs[:3]]
    pairs += [(crt.slice(a, -1, None, None, -2), b[..., ::-2]) for a, b in pairs[:3]]
    return pairs


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_of_every_layout(dtype: str) -> None:
    for shape in [(3, 5), (67, 130), (300, 3), (3, 300), (2, 67, 65), (5, 70, 3), (3, 2, 140), (1, 9, 17), (16, 16, 16), (129, 257)]:
        x = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
        for view, array in layouts(x):
            np.testing.assert_array_equal(crt.copy(view).numpy(), array)
            np.testing.assert_array_equal(crt.cast(view, crt.float32).numpy(), array.astype("float32"))
            for target in (crt.zeros(list(array.shape), view.dtype), crt.permute(crt.zeros(list(array.shape[::-1]), view.dtype), range(array.ndim)[::-1])):
                target.copy_(view)
                np.testing.assert_array_equal(target.numpy(), array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_copies_go_past_the_caches(dtype: str) -> None:
    """Large enough for streaming stores, with borders that are on no line of the cache; whatever the number of threads."""
    itemsize = np.dtype(dtype).itemsize
    rows, columns = 1031, (9 << 20) // 1031 // itemsize + 1
    x = (np.arange(rows * columns) % 251).reshape(rows, columns).astype(dtype)
    t = crt.tensor(x)
    before = crt.num_threads()
    try:
        for threads in (1, 2):
            crt.set_num_threads(threads)
            np.testing.assert_array_equal(crt.copy(crt.transpose(t, 0, 1)).numpy(), x.T)
            np.testing.assert_array_equal(crt.copy(t).numpy(), x)
            np.testing.assert_array_equal(crt.cast(crt.transpose(t, 0, 1), crt.float64).numpy(), x.T.astype("float64"))
            np.testing.assert_array_equal(crt.concat([t, t], 1).numpy(), np.concatenate([x, x], 1))
            np.testing.assert_array_equal(crt.expand(crt.full([], 7, t.dtype), list(x.shape)).numpy(), np.full_like(x, 7))
            assert (crt.full(list(x.shape), 3, t.dtype).numpy() == 3).all()
            np.testing.assert_array_equal(crt.pad(t, [3, 1, 0, 2]).numpy(), np.pad(x, [(0, 2), (3, 1)]))
    finally:
        crt.set_num_threads(before)


def test_many_parts_are_joined() -> None:
    parts = [counted(3, n) for n in range(200)]
    np.testing.assert_array_equal(crt.concat([crt.tensor(p) for p in parts], 1).numpy(), np.concatenate(parts, 1))
    rows = [counted(70, 33) + i for i in range(50)]
    for dim in (0, 1, 2):
        np.testing.assert_array_equal(crt.stack([crt.tensor(r) for r in rows], dim).numpy(), np.stack(rows, dim))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "uint8"])
def test_elementwise_operators_of_transposed_operands_have_the_same_bits(dtype: str) -> None:
    for shape in [(130, 70), (70, 130), (3, 65, 129), (16, 16), (1600, 1501)]:
        x, y = (
            crt.cast(crt.tensor(np.random.default_rng(i).standard_normal(s).astype("float32") * 9), getattr(crt, dtype))
            for i, s in enumerate([shape, shape[::-1]])
        )
        crossed = crt.permute(y, range(y.ndim)[::-1])
        dense = crt.copy(crossed)
        condition = crt.gt(crossed, 1)

        def results(t: crt.Tensor, x: crt.Tensor = x, condition: crt.Tensor = condition) -> list[crt.Tensor]:
            one = crt.neg(t) if dtype == "uint8" else crt.tanh(t)
            return [one, crt.add(x, t), crt.mul(t, x), crt.maximum(t, t), crt.where(condition, t, x), crt.lt(x, t)]

        for got, want in zip(results(crossed), results(dense), strict=True):
            assert got.bytes() == want.bytes()
        target, want = crt.copy(y), crt.add(dense, x)
        crt.permute(target, range(y.ndim)[::-1]).add_(x)
        assert crt.permute(target, range(y.ndim)[::-1]).bytes() == want.bytes()
        target = crt.copy(x)
        target.add_(crossed)
        assert target.bytes() == want.bytes()
