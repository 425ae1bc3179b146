"""Convolutions and pools beyond the samples: against torch, at their borders, and with wrong arguments."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import clika_runtime as crt
from clika_runtime._library import lib
from samples_windows import convolution_oracle

SAME = lib.CLIKART_PADDING_SAME


@pytest.fixture(autouse=True)
def one_torch_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def channels_last(t: torch.Tensor, spatial: int) -> np.ndarray:
    return t.movedim(-spatial - 1, -1).contiguous().numpy()


def random_convolution(rng: random.Random) -> dict[str, Any]:
    n = rng.choice([1, 2, 2, 2, 3])
    groups, inputs, outputs = rng.choice([1, 1, 1, 2, 4]), rng.choice([1, 3, 8, 16, 17]), rng.choice([1, 2, 8, 16, 20])
    if rng.random() < 0.2:
        groups, inputs, outputs = rng.choice([8, 16, 24]), 1, 1
    sizes = [min(rng.choice([1, 2, 5, 9, 14, 30]), 9 if n == 3 else 30) for _ in range(n)]
    each = {
        name: [rng.choice(choices) for _ in range(n)]
        for name, choices in {"kernel": [1, 2, 3, 3, 5], "stride": [1, 1, 2, 3], "padding": [0, 0, 1, 2, 4], "dilation": [1, 1, 2, 3]}.items()
    }
    more = [rng.randrange(max(s, d)) for s, d in zip(each["stride"], each["dilation"], strict=True)]
    return {"n": n, "batch": rng.choice([1, 1, 2, 5, 20]), "groups": groups, "inputs": inputs, "outputs": outputs, "sizes": sizes, "more": more, **each}


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_are_torchs(transposed: bool) -> None:
    rng = random.Random(7)
    torch.manual_seed(0)
    compared = 0
    for number in range(120):
        c = random_convolution(rng)
        n, groups, total_in, total_out = c["n"], c["groups"], c["groups"] * c["inputs"], c["groups"] * c["outputs"]
        x = torch.randn(c["batch"], total_in, *c["sizes"])
        weight = torch.randn(*((total_in, c["outputs"]) if transposed else (total_out, c["inputs"])), *c["kernel"])
        bias = torch.randn(total_out) if number % 2 else None
        name = f"conv_transpose{n}d" if transposed else f"conv{n}d"
        rest = (c["stride"], c["padding"], *((c["more"], groups, c["dilation"]) if transposed else (c["dilation"], groups)))
        try:
            want = getattr(F, name)(x.double(), weight.double(), None if bias is None else bias.double(), *rest)
        except RuntimeError:
            want = None
        arguments = (channels_last(x, n), channels_last(weight, n), None if bias is None else bias.numpy(), *rest)
        arguments = tuple(crt.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments)
        if want is None:
            with pytest.raises(ValueError, match=f"^{name}: "):
                getattr(crt, name)(*arguments)
            continue
        got = getattr(crt, name)(*arguments).numpy()
        expected = channels_last(want, n)
        assert got.shape == expected.shape, c
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * max(1.0, float(np.abs(expected).max())), err_msg=str(c))
        compared += 1
    assert compared > 60


# [batch, in, out, size, kernel, stride, padding, groups]: cut in strips and in bunches, and as products of matrices.
LARGE = [
    (1, 64, 64, 56, 3, 1, 1, 1),
    (1, 3, 64, 160, 7, 2, 3, 1),
    (2, 256, 64, 40, 1, 1, 0, 1),
    (1, 256, 256, 7, 3, 1, 1, 1),
    (1, 512, 600, 7, 1, 1, 0, 1),
    (1, 128, 128, 56, 3, 1, 1, 128),
    (40, 16, 24, 9, 3, 2, 1, 2),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
def test_large_ones_and_any_number_of_threads(transposed: bool, dtype: str) -> None:
    before = crt.num_threads()
    rng = np.random.default_rng(0)
    for batch, inputs, outputs, size, kernel, stride, padding, groups in LARGE if dtype == "float32" else LARGE[-3:]:
        shape = (inputs, kernel, kernel, outputs // groups) if transposed else (outputs, kernel, kernel, inputs // groups)
        arrays = [rng.standard_normal(s).astype(np.float32) for s in ((batch, size, size, inputs), shape, (outputs,))]
        tensors = [crt.cast(crt.tensor(a), getattr(crt, dtype)) for a in arrays]
        name, rest = ("conv_transpose2d", (stride, padding, 0, groups)) if transposed else ("conv2d", (stride, padding, 1, groups))
        x, weight, bias = (torch.from_numpy(np.array(crt.cast(t, crt.float64).numpy())) for t in tensors)
        want = getattr(F, name)(x.movedim(-1, 1), weight.movedim(-1, 1), bias, *rest).movedim(1, -1).numpy()
        results = []
        try:
            for threads in (1, 2, 4):
                crt.set_num_threads(threads)
                results.append(getattr(crt, name)(*tensors, *rest))
                crt.synchronize()
        finally:
            crt.set_num_threads(before)
        tolerance = {"float32": 2e-6, "bfloat16": 4e-3, "float64": 1e-14}[dtype]
        np.testing.assert_allclose(crt.cast(results[0], crt.float64).numpy(), want, rtol=0, atol=tolerance * float(np.abs(want).max()), err_msg=str(shape))
        assert results[0].bytes() == results[1].bytes() == results[2].bytes(), shape


def test_convolutions_with_strides_are_those_of_copies() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.standard_normal((2, 12, 10, 8)).astype(np.float32), rng.standard_normal((6, 3, 3, 8)).astype(np.float32)
    first = crt.tensor(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))  # channels first in memory
    for dtype in (crt.float32, crt.float64):
        want = crt.conv2d(crt.cast(crt.tensor(x), dtype), crt.cast(crt.tensor(weight), dtype), padding=1)
        got = crt.conv2d(crt.permute(crt.cast(first, dtype), (0, 2, 3, 1)), crt.cast(crt.tensor(weight), dtype), padding=1)
        assert got.bytes() == want.bytes()
        turned = crt.slice(crt.cast(crt.tensor(np.ascontiguousarray(weight[::-1])), dtype), 0, None, None, -1)
        assert crt.conv2d(crt.cast(crt.tensor(x), dtype), turned, padding=1).bytes() == want.bytes()
        part = crt.slice(crt.cast(crt.tensor(np.concatenate([x, x], -1)), dtype), -1, 0, 8)
        assert crt.conv2d(part, crt.cast(crt.tensor(weight), dtype), padding=1).bytes() == want.bytes()


def test_nan_and_infinity_reach_what_they_touch() -> None:
    x = np.zeros((1, 6, 6, 2), np.float32)
    x[0, 2, 2, 0], x[0, 5, 5, 1] = np.nan, np.inf
    for dtype in (crt.float32, crt.float64):
        got = crt.conv2d(crt.cast(crt.tensor(x), dtype), crt.ones([3, 3, 3, 2], dtype), padding=1).numpy()
        nan = np.zeros((6, 6), bool)
        nan[1:4, 1:4] = True
        np.testing.assert_array_equal(np.isnan(got[0, ..., 0]), nan)
        np.testing.assert_array_equal(np.isinf(got[0, 4:, 4:]), True)


@pytest.mark.parametrize(
    ("x", "weight", "arguments"),
    [
        ((1, 5, 5, 2), (1, 2, 2, 2), {"padding": 2**31 - 1, "stride": 2**31 - 1}),
        ((1, 5, 5, 2), (1, 2, 2, 2), {"padding": 1000, "stride": 900, "dilation": 1999}),
        ((1, 1, 1, 2), (3, 1, 1, 2), {"padding": 7, "stride": 3}),
        ((1, 0, 3, 2), (3, 2, 2, 2), {"padding": 1}),
        ((0, 7, 7, 2), (3, 2, 2, 2), {}),
        ((2, 7, 7, 0), (3, 2, 2, 0), {}),
        ((2, 7, 7, 2), (0, 2, 2, 2), {}),
    ],
)
def test_odd_convolutions_do_not_crash(x: tuple[int, ...], weight: tuple[int, ...], arguments: dict[str, Any]) -> None:
    for dtype in (crt.float32, crt.float64):
        got = crt.conv2d(crt.ones(x, dtype), crt.ones(weight, dtype), crt.full([weight[0]], 2.0, dtype), **arguments).numpy()
        assert np.all(got >= 2)
        assert np.all(got <= 2 + np.prod(weight[1:]))


CONV = ([1, 5, 5, 4], [6, 3, 3, 4])


@pytest.mark.parametrize(
    ("name", "shapes", "arguments", "message"),
    [
        ("conv2d", ([5, 5], [6, 3, 3, 4]), {}, "needs 2 spatial dimensions and channels"),
        ("conv2d", ([1, 5, 5, 4], [6, 3, 4]), {}, "needs a weight of 4 dimensions"),
        ("conv2d", ([1, 5, 5, 4], [6, 3, 3, 5]), {}, r"\[1, 5, 5, 4\] and weight of shape \[6, 3, 3, 5\] do not fit"),
        ("conv2d", CONV, {"groups": 2}, "do not fit with groups = 2"),
        ("conv2d", ([1, 5, 5, 4], [6, 3, 3, 1]), {"groups": 4}, "do not fit with groups = 4"),
        ("conv2d", CONV, {"groups": 0}, "groups must be positive"),
        ("conv2d", CONV, {"groups": 2**62}, "do not fit"),
        ("conv2d", CONV, {"stride": 0}, r"stride must be from 1 .* got \[0\]"),
        ("conv2d", CONV, {"stride": [1, 1, 1]}, "stride needs one entry or 2"),
        ("conv2d", CONV, {"stride": []}, "stride needs one entry or 2"),
        ("conv2d", CONV, {"padding": -1}, "padding must be"),
        ("conv2d", CONV, {"dilation": 2**40}, "dilation must be"),
        ("conv2d", CONV, {"dilation": 3}, r"a window that reaches over 7 is larger than size 5 with padding 0, x has shape \[1, 5, 5, 4\]"),
        ("conv2d", ([1, 5, 5, 4], [6, 0, 3, 4]), {}, "a kernel's sizes must be"),
        ("conv2d", (*CONV, [5]), {}, r"needs a bias of shape \[6\], got \[5\]"),
        ("conv_transpose2d", CONV, {}, "do not fit"),
        ("conv_transpose2d", ([1, 5, 5, 6], [6, 3, 3, 4]), {"output_padding": 1}, "output_padding 1 must be less"),
        ("conv_transpose2d", ([1, 1, 5, 6], [6, 3, 3, 4]), {"padding": 2}, "the result would have size -1"),
        ("max_pool2d", ([1, 5, 5, 4],), {"kernel_size": 6}, "a window that reaches over 6 is larger"),
        ("max_pool2d", ([1, 5, 5, 4],), {"kernel_size": 0}, "kernel_size must be"),
        ("max_pool2d", ([1, 5, 5, 4],), {"kernel_size": 2, "padding": 2}, "padding 2 is more than half of a window"),
        ("max_pool2d", ([1, 0, 5, 4],), {"kernel_size": 1}, r"no elements to choose from, shape \[1, 0, 5, 4\]"),
        ("max_pool2d", ([4],), {"kernel_size": 1}, "needs 2 spatial dimensions"),
        ("avg_pool2d", ([1, 5, 5, 4],), {"kernel_size": 2, "divisor_override": 0}, "divisor_override is zero"),
        ("avg_pool2d", ([1, 5, 5, 4],), {"kernel_size": [2, 2, 2]}, "kernel_size needs one entry or 2"),
        ("adaptive_avg_pool2d", ([1, 5, 5, 4],), {"output_size": -2}, "output_size must be"),
        ("adaptive_max_pool3d", ([1, 5, 0, 5, 4],), {"output_size": 1}, "no elements"),
    ],
)
def test_wrong_values(name: str, shapes: tuple[list[int], ...], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: .*({message})"):
        getattr(crt, name)(*(crt.ones(shape) for shape in shapes), **arguments)


def test_results_too_large_for_any_memory() -> None:
    x, weight = crt.ones([1, 4, 1]), crt.ones([1, 3, 1])
    with pytest.raises(MemoryError):
        crt.conv_transpose1d(x, weight, stride=2**31 - 1, dilation=2**31 - 1, output_padding=2**31 - 2).numpy()
    x, weight = crt.ones([1, 4, 4, 1, 2]), crt.ones([2, 3, 3, 1, 1])
    with pytest.raises(ValueError, match=r"^conv_transpose3d: "):
        crt.conv_transpose3d(x, weight, stride=2**31 - 1)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_paddings_that_are_words(n: int) -> None:
    ours, torchs = [getattr(m, f"conv{n}d") for m in (crt, torch.nn.functional)]
    rng = random.Random(n)
    torch.manual_seed(n)
    for number in range(30):
        sizes, kernel = [[rng.choice(choices) for _ in range(n)] for choices in ([1, 2, 5, 9, 14], [1, 2, 3, 4])]
        dilation, c, out = rng.choice([1, 2, 3]), rng.choice([1, 3, 16]), rng.choice([1, 8, 300])
        x, weight = torch.randn(2, c, *sizes), torch.randn(out, c, *kernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it pads
            want = torchs(x, weight, padding="same", dilation=dilation)
        a, w = crt.tensor(channels_last(x, n)), crt.tensor(channels_last(weight, n))
        got = ours(a, w, padding="same", dilation=dilation)
        np.testing.assert_allclose(got.numpy(), channels_last(want, n), rtol=1e-4, atol=1e-4)
        if number % 5 == 0:
            assert ours(a, w, padding=SAME, dilation=dilation).bytes() == got.bytes()
            assert ours(a, w, padding=[SAME] * n, dilation=dilation).bytes() == got.bytes()
            wide = ours(a.double(), w.double(), padding="same", dilation=dilation)
            np.testing.assert_allclose(wide.numpy(), channels_last(want, n), rtol=1e-4, atol=1e-4)


def test_words_that_are_no_paddings() -> None:
    x, weight = crt.ones([1, 5, 4]), crt.ones([6, 3, 4])
    assert crt.conv1d(x, weight, padding="valid", stride=2).shape == (1, 2, 6)
    with pytest.raises(ValueError, match=r"^conv1d: padding 'same' needs a stride of 1, got \[2\]"):
        crt.conv1d(x, weight, padding="same", stride=2)
    with pytest.raises(ValueError, match=r"^conv1d: x has shape \[1, 0, 4\], there is nothing to pad"):
        crt.conv1d(crt.ones([1, 0, 4]), weight, padding="same")
    with pytest.raises(ValueError, match=r"^conv1d: padding is 'Same', expected numbers, 'same' or 'valid'"):
        crt.conv1d(x, weight, padding="Same")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^conv1d: padding must be from 0"):
        crt.conv1d(x, weight, padding=-2)
    with pytest.raises(ValueError, match=r"^conv_transpose1d: padding must be from 0"):
        crt.conv_transpose1d(x, crt.ones([4, 3, 6]), padding=SAME)
    with pytest.raises(TypeError):
        crt.conv_transpose1d(x, crt.ones([4, 3, 6]), padding="same")  # type: ignore[arg-type]


def test_wrong_dtypes() -> None:
    x, weight = crt.ones([1, 5, 4]), crt.ones([6, 3, 4])
    with pytest.raises(TypeError, match=r"^conv1d: needs one dtype for all"):
        crt.conv1d(x, crt.cast(weight, crt.float64))
    with pytest.raises(TypeError, match=r"^conv1d: needs one dtype for all"):
        crt.conv1d(x, weight, crt.ones([6], crt.float64))
    with pytest.raises(TypeError, match=r"^conv1d: needs tensors, got a number"):
        crt.conv1d(x, 2.0)
    with pytest.raises(NotImplementedError, match=r"^op 'conv1d' has no float8_e4m3fn kernel on cpu$"):
        crt.conv1d(crt.cast(x, crt.float8_e4m3fn), crt.cast(weight, crt.float8_e4m3fn))


# ---- pools


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_are_torchs(n: int) -> None:
    rng = random.Random(n)
    torch.manual_seed(n)
    compared = 0
    for _ in range(150):
        sizes = [rng.choice([1, 2, 5, 9, 14]) for _ in range(n)]
        x = torch.randn(rng.choice([1, 2, 3]), rng.choice([1, 3, 16, 70]), *sizes)
        if rng.random() < 0.3:
            x.view(-1)[rng.randrange(x.numel())] = torch.nan
        each = {
            name: [rng.choice(choices) for _ in range(n)] for name, choices in {"k": [1, 2, 3, 5], "s": [1, 1, 2, 3], "p": [0, 0, 1, 2], "d": [1, 1, 2]}.items()
        }
        k, s, p, d = each.values()
        ceil_mode, include, divisor = rng.random() < 0.5, rng.random() < 0.5, rng.choice([None, None, 3, -2])
        ours = crt.tensor(channels_last(x, n))
        averages = (k, s, p, ceil_mode, include) if n == 1 else (k, s, p, ceil_mode, include, divisor)
        size = [rng.choice([1, 2, 3, 7, 20]) for _ in range(n)]
        calls: list[tuple[str, tuple[Any, ...]]] = [
            (f"max_pool{n}d_with_indices", (k, s, p, d, ceil_mode)),
            (f"avg_pool{n}d", averages),
            (f"adaptive_avg_pool{n}d", (size,)),
            (f"adaptive_max_pool{n}d", (size,)),
        ]
        for name, arguments in calls:
            theirs = getattr(F, name.removesuffix("_with_indices"))
            if name.endswith("_with_indices") and any(2 * a > (b - 1) * c + 1 for a, b, c in zip(p, k, d, strict=True)):
                with pytest.raises(ValueError, match=f"^{name}: "):
                    getattr(crt, name)(ours, *arguments)
                continue
            try:
                options = {"return_indices": True} if name.endswith("_with_indices") else {}
                want = theirs(x, *arguments, **options)
            except RuntimeError:
                want = None
            if want is None:
                if any(2 * a > b for a, b in zip(p, k, strict=True)) and name.startswith("max"):
                    continue  # torch's rule in one dimension is half of the kernel, whatever the dilation
                if name == "avg_pool3d" and ceil_mode:
                    continue  # torch refuses windows larger than the padded x here, which it takes in two dimensions
                with pytest.raises(ValueError, match=f"^{name}: "):
                    getattr(crt, name)(ours, *arguments)
                continue
            got = getattr(crt, name)(ours, *arguments)
            compared += 1
            if options:
                np.testing.assert_array_equal(got.values.numpy(), channels_last(want[0], n), err_msg=f"{name} {sizes} {arguments}")
                np.testing.assert_array_equal(got.indices.numpy(), channels_last(want[1], n), err_msg=f"{name} {sizes} {arguments}")
                plain = getattr(crt, f"max_pool{n}d")(ours, *arguments)
                np.testing.assert_array_equal(plain.numpy(), got.values.numpy())
            else:
                np.testing.assert_allclose(got.numpy(), channels_last(want, n), rtol=1e-5, atol=1e-6, err_msg=f"{name} {sizes} {arguments}")
    assert compared > 150


def test_pools_give_the_same_bits_for_any_number_of_threads() -> None:
    before = crt.num_threads()
    x = crt.tensor(np.random.default_rng(0).standard_normal((2, 60, 50, 65)).astype(np.float32))
    results = []
    try:
        for threads in (1, 2, 4):
            crt.set_num_threads(threads)
            pools = [crt.max_pool2d(x, 3, 2, 1), crt.avg_pool2d(x, 3, 2, 1), crt.adaptive_avg_pool2d(x, [1, 3]), crt.max_pool2d_with_indices(x, 3).indices]
            results.append([t.bytes() for t in pools])
    finally:
        crt.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_a_mean_of_many_places_is_close() -> None:
    x = np.random.default_rng(0).random((1, 300, 300, 3)).astype(np.float32) + 100
    np.testing.assert_allclose(crt.adaptive_avg_pool2d(crt.tensor(x), 1).numpy(), x.astype(np.float64).mean((1, 2), keepdims=True), rtol=3e-6)


def test_integers_have_a_largest_element_too() -> None:
    for dtype in (np.uint64, np.int64):
        x = np.array([[1], [np.iinfo(dtype).max], [3], [np.iinfo(dtype).min]], dtype)
        np.testing.assert_array_equal(crt.max_pool1d(crt.tensor(x), 2).numpy(), x[[1, 2]])
        empty = crt.max_pool1d(crt.tensor(x[:1]), 2, 1, 1, 2).numpy()  # both places of the window are outside
        np.testing.assert_array_equal(empty, [[np.iinfo(dtype).min]])


def test_windows_that_reach_far_beyond_the_input():
    """Zeros around an input are not written down where they would be most of the memory."""
    x, w = crt.ones(1, 2, 2, 512), crt.ones(128, 2, 2, 512)
    for padding, dilation in ((2**30 - 1, 2**31 - 1), (999, 1999), (5, 11)):
        y = crt.conv2d(x, w, None, [1, 1], [padding, padding], [dilation, dilation])
        assert y.shape == (1, 1, 1, 128) and y.tolist() == crt.zeros(1, 1, 1, 128).tolist()
    x, w = crt.tensor(np.random.default_rng(0).standard_normal((1, 8, 8, 64)).astype("f")), crt.ones(64, 3, 3, 64)
    y = crt.conv2d(x, w, None, [1, 1], [1000, 1000], [1000, 1000])  # each window meets one place
    assert np.allclose(y.numpy(), x.numpy().sum(-1, keepdims=True).repeat(64, -1), atol=1e-4)


FEW_RESULTS = [  # sizes, in, out, kernel, stride, padding, dilation, batch
    ((7, 7), 128, 256, (3, 3), 1, 1, 1, 1),
    ((7, 5), 128, 256, (3, 3), 2, 1, 1, 1),
    ((4, 6), 64, 300, (5, 5), 1, 4, 1, 1),  # windows that lie outside wholly
    ((3, 3), 128, 256, (3, 3), 1, 3, 1, 1),
    ((9, 8), 64, 512, (3, 3), 1, 2, 2, 1),
    ((9, 8), 64, 512, (3, 3), 3, 5, 4, 1),
    ((6, 6), 128, 256, (3, 3), 1, 1, 1, 3),
    ((40,), 256, 400, (3,), 1, 1, 1, 1),
    ((3, 4, 4), 64, 256, (3, 3, 3), 1, 1, 1, 1),
    ((1, 6, 6), 128, 256, (1, 3, 3), 1, (0, 1, 1), 1, 1),
    ((1, 1), 512, 600, (1, 1), 1, 0, 1, 1),
    ((8, 9), 67, 500, (3, 5), 1, (1, 2), 1, 1),  # no whole vectors
    ((5, 6), 700, 130, (3, 3), 1, 1, 1, 1),  # lines in two parts
    ((4, 8), 32, 301, (5, 9), 1, (2, 4), 1, 2),  # each column finds something else
    ((6, 6), 64, 500, (3, 3), 2, 2, 1, 1),
    ((1, 1), 512, 600, (1, 1), 8, 4, 1, 1),  # nothing at all
]


@pytest.mark.parametrize("case", FEW_RESULTS, ids=str)
def test_few_results_of_many_weights(case: tuple[Any, ...]) -> None:
    """These pass over what is nothing but zeros, wherever that lies."""
    sizes, inputs, outputs, kernel, stride, padding, dilation, batch = case
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.integers(-3, 4, s).astype(np.float32) for s in ((batch, *sizes, inputs), (outputs, *kernel, inputs), (outputs,)))
    n = len(sizes)
    around = list(padding) if isinstance(padding, tuple) else [padding] * n
    want = convolution_oracle(x, weight, bias, [stride], around, [dilation], 1)
    for _ in range(2):  # the second finds the first one's results in its memory
        got = getattr(crt, f"conv{n}d")(crt.tensor(x), crt.tensor(weight), crt.tensor(bias), stride=stride, padding=padding, dilation=dilation)
        np.testing.assert_array_equal(got.numpy(), want)
        del got


@pytest.mark.parametrize("batch", [1, 3])
def test_weights_over_the_edge_multiply_nothing(batch: int) -> None:
    weight = np.ones((256, 3, 3, 128), np.float32)
    weight[0, 0, 0, 0], weight[1, 1, 2, 5] = np.inf, np.nan
    rows = np.full(7, 3)
    rows[[0, -1]] = 2
    want = np.broadcast_to((128.0 * np.outer(rows, rows))[..., None], (7, 7, 256)).copy()
    want[1:, 1:, 0] = np.inf
    want[:, :-1, 1] = np.nan
    for got in crt.conv2d(crt.ones(batch, 7, 7, 128), crt.tensor(weight), padding=1).numpy():
        np.testing.assert_array_equal(got, want)


def test_an_image_of_few_results_has_the_same_bits_in_any_batch() -> None:
    rng = np.random.default_rng(0)
    for size in ((3, 7), (7, 7), (1, 12)):
        x, weight = rng.standard_normal((5, *size, 67)).astype(np.float32), crt.tensor(rng.standard_normal((600, 3, 3, 67)).astype(np.float32))
        together = crt.conv2d(crt.tensor(x), weight, padding=1).numpy()
        for image in range(5):
            np.testing.assert_array_equal(crt.conv2d(crt.tensor(x[image]), weight, padding=1).numpy(), together[image])
