"""Matrix products: ranks, layouts, extremes, what is refused, and the same bits for every number of threads."""

from __future__ import annotations

import itertools
import os
import string
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clika_runtime as crt
import samples


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


FLOATS = {"float16": crt.float16, "bfloat16": crt.bfloat16, "float32": crt.float32, "float64": crt.float64}
#: One shape for each way a product is computed: vectors on both sides, few rows, small, stacked, in tiles.
SHAPES = [
    ((1, 1500), (1500, 900)),
    ((900, 1500), (1500, 1)),
    ((1, 70_000), (70_000, 3)),
    ((5, 700), (700, 300)),
    ((60, 60), (60, 60)),
    ((9, 70, 50), (9, 50, 60)),
    ((12, 1, 64), (12, 64, 512)),
    ((600, 300), (300, 700)),
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int64"])
def test_every_number_of_threads_gives_the_same_bits(dtype: str) -> None:
    before = crt.num_threads()
    try:
        for (a, b), transposed in itertools.product(SHAPES, (False, True)):
            x = crt.tensor(samples.values(a, dtype))
            y = crt.tensor(samples.values(b, dtype, 1))
            if transposed:
                order = [*range(len(b) - 2), len(b) - 1, len(b) - 2]
                y = crt.permute(crt.copy(crt.permute(y, order)), order)
            weight = crt.permute(y, (1, 0)) if len(b) == 2 else None
            results = set()
            for threads in (1, 2, 3, 16):
                crt.set_num_threads(threads)
                found = crt.matmul(x, y).bytes()
                if weight is not None:
                    found += crt.linear(x, weight, crt.select(y, 0, 0)).bytes()
                results.add(found)
            assert len(results) == 1, (dtype, a, b, transposed)
    finally:
        crt.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_against_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    limit = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 1e-6, "float64": 1e-14}[dtype]
    for a, b in SHAPES:
        x, y = random(a), random(b, 1)
        want = torch.matmul(torch.from_numpy(x).to(getattr(torch, dtype)).double(), torch.from_numpy(y).to(getattr(torch, dtype)).double()).numpy()
        got = crt.matmul(crt.cast(crt.tensor(x), FLOATS[dtype]), crt.cast(crt.tensor(y), FLOATS[dtype]))
        scale = np.matmul(np.abs(x).astype(np.float64), np.abs(y).astype(np.float64))
        off = np.abs(crt.cast(got, crt.float64).numpy() - want)
        assert np.all(off <= 1.01 * limit * (np.abs(want) if dtype in ("float16", "bfloat16") else scale) + 1e-6 * scale), (dtype, a, b)


def test_narrow_floats_are_rounded_once() -> None:
    for dtype, rows, columns in itertools.product((crt.float16, crt.bfloat16), (1, 5, 300), (1, 7, 300)):
        y = crt.matmul(crt.full([rows, 4096], 1.0, dtype), crt.full([4096, columns], 1.0, dtype))
        assert np.all(crt.cast(y, crt.float32).numpy() == 4096), (dtype, rows, columns)
    # 256 + 1 is not a bfloat16, 257 + 1 is: the bias is added before rounding.
    x, weight, bias = crt.full([3, 257], 1.0, crt.bfloat16), crt.full([40, 257], 1.0, crt.bfloat16), crt.full([40], 1.0, crt.bfloat16)
    assert np.all(crt.cast(crt.linear(x, weight, bias), crt.float32).numpy() == 258)
    assert np.all(crt.cast(crt.addmm(bias, x, crt.permute(weight, (1, 0)), 1.0, 1.0), crt.float32).numpy() == 258)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 40, 1), (1, 40, 70), (70, 40, 1), (5, 40, 70), (70, 90, 80)])
def test_nan_and_infinity_reach_what_they_touch(dtype: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    a[m - 1, k - 1], a[0, 0], b[1, n - 1] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = (a[:, :, None] * b[None]).sum(1)
    for layout in (lambda t: t, lambda t: crt.permute(crt.copy(crt.permute(t, (1, 0))), (1, 0))):
        got = crt.matmul(layout(crt.cast(crt.tensor(a), FLOATS[dtype])), layout(crt.cast(crt.tensor(b), FLOATS[dtype])))
        np.testing.assert_array_equal(crt.cast(got, crt.float32).numpy(), want)


def test_integers_wrap_around() -> None:
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        info = np.iinfo(dtype)
        a, b = np.full((3, 50), info.max, dtype), np.full((50, 40), info.max - 2, dtype)
        np.testing.assert_array_equal(crt.matmul(crt.tensor(a), crt.tensor(b)).numpy(), np.matmul(a, b))


def test_layouts_without_a_contiguous_side() -> None:
    a, b = random((70, 80)), random((80, 90), 1)
    wide_a, wide_b = np.zeros((140, 160), np.float32), np.zeros((160, 180), np.float32)
    wide_a[::2, ::2], wide_b[::2, ::2] = a, b
    x = crt.slice(crt.slice(crt.tensor(wide_a), 0, None, None, 2), 1, None, None, 2)
    y = crt.slice(crt.slice(crt.tensor(wide_b), 0, None, None, 2), 1, None, None, 2)
    np.testing.assert_allclose(crt.matmul(x, y).numpy(), a @ b, rtol=1e-4, atol=1e-4)
    flipped = crt.slice(crt.slice(crt.tensor(b), 0, None, None, -1), 1, None, None, -1)
    np.testing.assert_allclose(crt.matmul(crt.tensor(a), flipped).numpy(), a @ b[::-1, ::-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(crt.matmul(crt.select(x, 0, 1), flipped).numpy(), a[1] @ b[::-1, ::-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(crt.matmul(y, crt.select(y, 0, 3)).numpy(), b @ b[3], rtol=1e-4, atol=1e-4)


def test_stacks_that_broadcast() -> None:
    for a, b in [
        ((5, 1, 2, 3), (4, 3, 2)),
        ((1, 4, 2, 3), (5, 1, 3, 2)),
        ((2, 1, 7), (2, 7, 5)),
        ((3, 1, 1, 7), (7, 5)),
        ((6, 40), (2, 3, 40, 9)),
        ((40,), (2, 3, 40, 9)),
    ]:
        x, y = random(a), random(b, 1)
        np.testing.assert_allclose(crt.matmul(crt.tensor(x), crt.tensor(y)).numpy(), np.matmul(x, y), rtol=1e-4, atol=1e-4)
    x, y = random((3, 1, 7)), random((7, 5))
    wide = crt.slice(crt.tensor(np.repeat(x, 2, axis=0)), 0, None, None, 2)  # one row each, far apart
    np.testing.assert_allclose(crt.matmul(wide, crt.tensor(y)).numpy(), np.matmul(x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: crt.matmul(crt.ones((2, 3)), crt.ones((4, 5))), ValueError, r"^matmul: inner sizes differ, got shapes \[2, 3\] and \[4, 5\]"),
        (lambda: crt.matmul(crt.ones(()), crt.ones((4,))), ValueError, r"^matmul: "),
        (lambda: crt.matmul(crt.ones((3,)), crt.ones((3,), crt.float64)), TypeError, r"^matmul: needs one dtype"),
        (lambda: crt.linear(crt.ones((2, 3)), crt.ones((4, 5))), ValueError, r"^linear: .*got shapes \[2, 3\] and \[4, 5\]"),
        (lambda: crt.linear(crt.ones((2, 3)), crt.ones((3,))), ValueError, r"^linear: weight must be 2-d"),
        (lambda: crt.linear(crt.ones(()), crt.ones((3, 3))), ValueError, r"^linear: "),
        (lambda: crt.linear(crt.ones((2, 3)), crt.ones((4, 3)), crt.ones((3,))), ValueError, r"^linear: bias .*got shapes \[2, 3\], \[4, 3\] and \[3\]"),
        (lambda: crt.linear(crt.ones((2, 3)), crt.ones((4, 3)), crt.ones((4,), crt.float64)), TypeError, r"^linear: needs one dtype"),
        (lambda: crt.linear(crt.ones((2, 3), crt.bool_), crt.ones((4, 3), crt.bool_)), TypeError, r"^linear: needs numbers"),
        (lambda: crt.addmm(crt.ones((3,)), crt.ones((2, 3)), crt.ones((3, 4))), ValueError, r"^addmm: input does not broadcast"),
        (lambda: crt.addmm(crt.ones((1, 2, 4)), crt.ones((2, 3)), crt.ones((3, 4))), ValueError, r"^addmm: input does not broadcast"),
        (lambda: crt.addmm(crt.ones((4,)), crt.ones((3,)), crt.ones((3, 4))), ValueError, r"^addmm: a and b must be 2-d"),
        (lambda: crt.addmm(crt.ones((4,), crt.int32), crt.ones((2, 3), crt.int32), crt.ones((3, 4), crt.int32), 0.5), ValueError, r"^addmm: beta 0.5"),
        (lambda: crt.addmm(crt.ones((4,), crt.int32), crt.ones((2, 3), crt.int32), crt.ones((3, 4), crt.int32), 1, float("nan")), ValueError, r"^addmm: "),
        (lambda: crt.addmm(1.0, crt.ones((2, 3)), crt.ones((3, 4))), TypeError, r"^addmm: needs tensors"),
        (lambda: crt.baddbmm(crt.ones((4,)), crt.ones((5, 2, 3)), crt.ones((4, 3, 4))), ValueError, r"^baddbmm: .*different lengths"),
        (lambda: crt.baddbmm(crt.ones((4,)), crt.ones((2, 3)), crt.ones((3, 4))), ValueError, r"^baddbmm: a and b must be 3-d"),
        (lambda: crt.bmm(crt.ones((2, 3)), crt.ones((3, 4))), ValueError, r"^bmm: needs 3 and 3 dimensions"),
        (lambda: crt.bmm(crt.ones((2, 3, 4)), crt.ones((3, 4, 2))), ValueError, r"^bmm: stacks of different lengths"),
        (lambda: crt.bmm(crt.ones((2, 3, 4)), crt.ones((2, 3, 2))), ValueError, r"^bmm: inner sizes differ"),
        (lambda: crt.mv(crt.ones((3,)), crt.ones((3,))), ValueError, r"^mv: "),
        (lambda: crt.mv(crt.ones((2, 3), crt.bool_), crt.ones((3,), crt.bool_)), TypeError, r"^mv: needs numbers"),
        (lambda: crt.dot(crt.ones((3,)), crt.ones((4,))), ValueError, r"^dot: inner sizes differ"),
        (lambda: crt.dot(crt.ones((3,)), 2.0), TypeError, r"^dot: needs tensors"),
        (lambda: crt.dot(crt.ones((3,)), crt.ones((3,), crt.int32)), TypeError, r"^dot: needs one dtype"),
        (lambda: crt.outer(crt.ones((3, 1)), crt.ones((4,))), ValueError, r"^outer: needs two vectors"),
        (lambda: crt.kron(crt.ones((1,) * 9), crt.ones((4,))), ValueError, r"^kron: at most 8"),
        (lambda: crt.tril(crt.ones((3,))), ValueError, r"^tril: needs at least two dimensions"),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_what_is_multiplied_with_zero_is_not_read() -> None:
    nan = crt.full([3, 4], float("nan"))
    assert np.all(crt.addmm(nan, crt.ones((3, 2)), crt.ones((2, 4)), 0.0).numpy() == 2)
    assert np.all(crt.baddbmm(nan, crt.ones((5, 3, 2)), crt.ones((5, 2, 4)), 0.0, 0.5).numpy() == 1)


def test_triangles_of_stored_bytes_and_far_diagonals() -> None:
    x = crt.cast(crt.ones((3, 3)), crt.float8_e4m3fn)
    np.testing.assert_array_equal(crt.cast(crt.tril(x), crt.float32).numpy(), np.tril(np.ones((3, 3))))
    for diagonal in (2**63 - 1, -(2**63)):
        np.testing.assert_array_equal(crt.triu(crt.ones((2, 3)), diagonal).numpy(), np.triu(np.ones((2, 3)), max(-9, min(9, diagonal))))


def test_onednn_uses_its_fast_kernels_and_no_team_of_its_own() -> None:
    code = """
        import os, clika_runtime as crt
        crt.set_num_threads(2)
        def multiply(n, dtype):
            x = crt.full([n, n], 1.0, dtype)
            return crt.cast(crt.select(crt.matmul(x, x), 0, 0), crt.float32).numpy()[0] == n
        assert multiply(256, crt.float32)
        before = len(os.listdir("/proc/self/task"))
        assert multiply(2048, crt.float32) and multiply(1024, crt.bfloat16)
        assert len(os.listdir("/proc/self/task")) == before
        print("has tiles:", "amx_bf16" in open("/proc/cpuinfo").read())
        """
    env = os.environ | {"ONEDNN_VERBOSE": "1", "OMP_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    executed = [line.split(",") for line in done.stdout.splitlines() if line.startswith("onednn_verbose,exec,cpu,matmul")]
    assert executed, done.stdout
    for line in executed:
        assert line[4].startswith(("brg:avx", "jit:avx", "gemm:jit")), line
    kinds = {"bf16" in line[6] for line in executed}
    assert kinds == ({True, False} if "has tiles: True" in done.stdout else {False}), done.stdout


def test_sizes_that_depend_on_data_are_waited_for() -> None:
    found = crt.reshape(crt.cast(crt.nonzero(crt.tensor(np.array([0.0, 1.0, 1.0], np.float32))), crt.float32), [-1])
    np.testing.assert_array_equal(crt.outer(found, found).numpy(), np.outer([1, 2], [1, 2]))
    rows = crt.nonzero(crt.tensor(np.eye(3, dtype=np.float32)))
    np.testing.assert_array_equal(crt.einsum("ij,ij->i", rows, rows).numpy(), [0, 2, 8])
    np.testing.assert_array_equal(crt.mv(crt.nonzero(crt.ones((2, 2))), crt.tensor(np.array([10, 1]))).numpy(), [0, 1, 10, 11])


# ---- einsum

LETTERS = "abcXY"


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[np.ndarray]]:
    sizes = {letter: draw(st.integers(0 if i == 4 else 1, 4)) for i, letter in enumerate(LETTERS)}
    hidden = draw(st.lists(st.integers(1, 3), max_size=2))
    terms, arrays = [], []
    for i in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.sampled_from(LETTERS), max_size=3))
        shape = [sizes[letter] for letter in labels]
        text = "".join(labels)
        if draw(st.booleans()):
            at, kept = draw(st.integers(0, len(labels))), draw(st.integers(0, len(hidden)))
            middle = [1 if draw(st.booleans()) else size for size in hidden[len(hidden) - kept :]]
            shape[at:at] = middle
            text = text[:at] + "..." + text[at:]
        terms.append(text)
        arrays.append(np.random.default_rng(i).integers(-4, 5, shape).astype(np.float64))
    equation = draw(st.sampled_from([",", " , "])).join(terms)
    if draw(st.booleans()):
        used = sorted({c for term in terms for c in term if c != "."})
        output = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        if "..." in equation:  # NumPy wants it in the result
            at = draw(st.integers(0, len(output)))
            output[at:at] = ["..."]
        equation += " -> " + "".join(output)
    return equation, arrays


@settings(max_examples=300, deadline=None, derandomize=True)
@given(equations())
def test_einsum_as_numpy(case: tuple[str, list[np.ndarray]]) -> None:
    equation, arrays = case
    want = np.einsum(equation, *arrays)
    got = crt.einsum(equation, *map(crt.tensor, arrays)).numpy()
    assert got.shape == want.shape, equation
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=equation)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("iij->j", [(3, 3, 2)]),
        ("iii->i", [(3, 3, 3)]),
        ("ij->ji", [(3, 4)]),
        ("ba", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(5,), (5,)]),
        ("ij,ij->i", [(3, 4), (3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("i...,i...->...", [(3, 2, 2), (3, 2, 2)]),
        ("Ab,bC", [(2, 3), (3, 4)]),
        ("ij,ij->ij", [(3, 1), (3, 4)]),
        (",i->i", [(), (3,)]),
        ("", [()]),
        ("ij,jk->ik", [(3, 0), (0, 5)]),
        ("ii->i", [(0, 0)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    arrays = [samples.values(shape, dtype, i) for i, shape in enumerate(shapes)]
    want = np.einsum(equation, *arrays)
    got = crt.einsum(equation, *map(crt.tensor, arrays))
    assert got.numpy().dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def test_einsum_sums_an_ellipsis_that_the_result_lacks() -> None:
    x = random((2, 3, 4))
    np.testing.assert_allclose(crt.einsum("...i->i", crt.tensor(x)).numpy(), x.sum((0, 1)), rtol=1e-5)


def test_einsum_is_recorded() -> None:
    x, y = random((3, 3)), random((3, 4), 1)
    want = np.einsum("ii,ij->j", x, y)
    graph = crt.trace(lambda inputs: [crt.einsum("ii,ij->j", *inputs)], [crt.tensor(x), crt.tensor(y)])
    np.testing.assert_allclose(graph.run([crt.tensor(x), crt.tensor(y)])[0].numpy(), want, rtol=1e-5)
    with crt.tracing():
        deferred = crt.einsum("ii,ij->j", crt.tensor(x), crt.tensor(y))
    np.testing.assert_allclose(deferred.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes", "error"),
    [
        ("ij,jk", [(2, 3)], ValueError),
        ("ij", [(2, 3), (3, 2)], ValueError),
        ("ij,jk", [(2, 3), (4, 5)], ValueError),
        ("ijk", [(2, 3)], ValueError),
        ("i", [(2, 3)], ValueError),
        ("ii", [(2, 3)], ValueError),
        ("ij->ik", [(2, 3)], ValueError),
        ("ij->ii", [(2, 3)], ValueError),
        ("i1", [(2, 3)], ValueError),
        ("i.j", [(2, 3)], ValueError),
        ("i....", [(2, 3)], ValueError),
        ("......", [(2, 3)], ValueError),
        ("ij->i->j", [(2, 3)], ValueError),
        ("ij-", [(2, 3)], ValueError),
        ("i...j", [(2,)], ValueError),
        ("...i,...i->...", [(2, 3), (4, 3)], ValueError),
        ("i\0j", [(2, 3)], ValueError),
        ("é", [(2,)], ValueError),
        (7, [(2, 3)], TypeError),
    ],
)
def test_einsum_refuses(equation: Any, shapes: list[tuple[int, ...]], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^einsum: ") as raised:
        crt.einsum(equation, *[crt.ones(shape) for shape in shapes])
    if isinstance(equation, str) and equation.isascii() and "\0" not in equation:
        assert f"'{equation}'" in str(raised.value) and str(list(shapes[0])) in str(raised.value)


def test_einsum_refuses_what_cannot_be_multiplied() -> None:
    with pytest.raises(ValueError, match=r"^einsum: no operands"):
        crt.einsum("")
    with pytest.raises(TypeError, match=r"^einsum: needs one dtype"):
        crt.einsum("i,i", crt.ones((2,)), crt.ones((2,), crt.float64))
    with pytest.raises(TypeError, match=r"^einsum: needs tensors"):
        crt.einsum(",i", 2.0, crt.ones((2,)))
    bools = crt.ones((2, 2), crt.bool_)
    assert crt.einsum("ij->ji", bools).numpy().all()
    for equation, operands in (("ij->i", [bools]), ("i,j->ij", [crt.select(bools, 0, 0)] * 2)):
        with pytest.raises(TypeError, match=r"^einsum: bools"):
            crt.einsum(equation, *operands)
    many = [crt.ones((1, 1, 1, 1)) for _ in range(5)]
    letters = iter(string.ascii_lowercase)
    with pytest.raises(ValueError, match=r"^einsum: the result would have 20 dimensions"):
        crt.einsum(",".join("".join(next(letters) for _ in range(4)) for _ in range(5)), *many)
