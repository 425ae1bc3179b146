"""Sizes under ``dynamic``: they follow the inputs where the graph can tell, and are conditions of it elsewhere."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import threading
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import clika_runtime as crt
from compiling import array, same

SHAPES = [(2, 6, 4), (3, 4, 8), (1, 2, 4), (5, 6, 4), (2, 6, 4), (4, 2, 12)]
W = crt.tensor(array(4, 3))


def heads(x):  # as attention takes a model's dimension apart
    b, t, c = x.shape
    q = x.reshape(b, t, 2, c // 2).transpose(1, 2)
    y = crt.scaled_dot_product_attention(q, q, q)
    return y.transpose(1, 2).reshape(b, t, c)


def causal(x):
    t = x.size(1)
    scores = x @ x.mT
    mask = crt.tril(crt.ones(t, t)) == 0
    return crt.softmax(crt.masked_fill(scores, mask, -1e9), dim=-1)


def cached(x):
    cache = crt.zeros(x.shape[0], x.shape[1] + 2, x.shape[2])
    cache[:, 1 : x.shape[1] + 1] = x
    return crt.concat([cache, x], 1)


def positions(x):
    places = crt.arange(x.shape[1])
    return x + places.reshape(1, -1, 1) * 0.5, crt.arange(0, x.shape[0] * 2, 2)


def written(x):
    y = x.clone()
    y[x.shape[0] - 1] += x.shape[1]
    return y


def overwritten(x):
    y = x.clone()
    y[:, -1] = -x.shape[2]
    return y


def of_result(x):
    y = crt.concat([x, x], 2) + 1
    return y.reshape(y.shape[0], y.shape[1] * y.shape[2])


def halves(x):
    h = x.shape[1] // 2
    return crt.concat([-x[:, h:], x[:, :h]], 1), x.narrow(1, h, x.shape[1] - h)


#: Functions that are captured once for all sizes.
FOLLOWING = {
    "reshape": lambda x: x.reshape(x.shape[0] * x.shape[1], x.shape[2]) * 2,
    "view": lambda x: x + crt.reshape(x, (x.shape[0], -1)).sum(),
    "heads": heads,
    "causal": causal,
    "cached": cached,
    "positions": positions,
    "written": written,
    "halves": halves,
    "mean": lambda x: x.sum(0) / x.shape[0],
    "mean of all": lambda x: x.sum() / x.numel() + x.shape.numel(),
    "reflected": lambda x: (x.shape[1] - x, 2 ** (x * 0) * x.shape[0], x.shape[2] / (x * x + 1)),
    "integers": lambda x: crt.cast(x, crt.int32) * x.shape[0] // x.shape[1] % x.shape[2],
    "expand": lambda x: x[:1].expand(x.shape[0], -1, -1) + crt.broadcast_to(x[:, :1], x.shape),
    "like": lambda x: (crt.zeros_like(x) + x, crt.full_like(x, 2.0), x.new_zeros(x.shape[0])),
    "flip": lambda x: crt.flip(x, [1]),
    "repeat": lambda x: crt.repeat(x, [1, x.shape[0], 1]),
    "tile": lambda x: crt.tile(x, [2, 1]),
    "roll": lambda x: crt.roll(x, [x.shape[1] - 1], [1]),
    "normalize": lambda x: crt.normalize(x, dim=1),
    "flatten": lambda x: x.flatten(1) + x.flatten(1, 2),
    "unflatten": lambda x: x.unflatten(2, [2, x.shape[2] // 2]),
    "select": lambda x: x[x.shape[0] - 1, ..., x.shape[2] // 2],
    "slice": lambda x: (x[..., 1 : x.size(-1)], x[:, :: x.shape[1] // 2], x[: x.shape[0] + 7]),
    "index": lambda x: x[:, crt.arange(x.shape[1]) - 1],
    "one hot": lambda x: crt.eye(x.shape[1]) @ x,
    "pad": lambda x: crt.pad(x, [0, x.shape[0], 1, 1]),
    "topk": lambda x: crt.topk(x, x.shape[2] // 2, dim=-1),
    "divmod": lambda x: x * (divmod(x.shape[2], 3)[1] + divmod(17, x.shape[1])[0]) + (-x.shape[0] - ~x.shape[1] + +x.shape[2]),
    "stack": lambda x: (crt.stack([x, x * 2], 1), crt.hstack([x, x]), crt.vstack([x, x])),
    "of a result": of_result,
    "contiguous": lambda x: (x + 1).contiguous() * 2,
    "einsum": lambda x: x.swapaxes(1, 2) @ x,
    "chained": lambda x: crt.ones(sum(x.shape) + 1 - 1),
    "random": lambda x: crt.zeros(x.shape[1]) * crt.rand(x.shape[1]),
    "numpy's numbers": lambda x: x * (np.int64(3) + x.shape[0] * np.int32(2)),
}
#: Functions that look at sizes otherwise, and how many captures that makes of SHAPES.
LOOKING = {
    "branch": (lambda x: x * 2 if x.shape[0] > 2 else x + x.shape[0], 2),
    "loop": (lambda x: sum((x[i] for i in range(x.shape[0])), x[0] * 0), 5),
    "view": (lambda x: (x + 1).view(x.shape[0], -1).sum(), 1),
    "root": (lambda x: x / math.sqrt(x.shape[-1]), 3),
    "division": (lambda x: x * (x.shape[1] / 2), 3),
    "iteration": (lambda x: crt.stack(list(x)), 5),
    "squeeze": (lambda x: crt.squeeze(x) * crt.squeeze(x).ndim, 2),
    "even": (lambda x: x if x.shape[2] % 8 == 0 else x + 1, 2),
    "smaller": (lambda x: x * min(x.shape[0], 2), 2),
    "overwritten": (overwritten, 3),
    "still a view": (lambda x: x.transpose(1, 2).transpose(1, 2).contiguous() + 1, 1),
    "contiguous": (lambda x: x.transpose(0, 1).contiguous() * 2, 2),
    "caught": (lambda x: x @ W if x.shape[2] == 4 else x, 2),
    "truth": (lambda x: x if x.shape[0] - 1 else x + 1, 2),
    "hash": (lambda x: x * {1: 2.0, 2: 3.0}.get(x.shape[0], 5.0), 5),
    "text": (lambda x: (x, f"{x.shape[0]}")[0], 5),
    "result": (lambda x: (x, x.shape[1]), 3),
    "einsum": (lambda x: crt.einsum("bij,bkj->bik", x, x), 5),
}


def check(fn, shapes=SHAPES):
    step = crt.compile(fn, dynamic=True)
    for seed, shape in enumerate(shapes):
        x = crt.tensor(array(*shape, seed=seed))
        crt.manual_seed(seed)
        want = fn(x)
        for _ in range(2):
            crt.manual_seed(seed)
            got = step(x)
            for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
                same(a, b)
                assert type(a) is type(b)
    assert step.state is crt.State.Compiled, step.fallback_reason
    return step


@pytest.mark.parametrize("name", FOLLOWING)
def test_one_graph_for_all_sizes(name):
    step = check(FOLLOWING[name])
    assert step.recapture_count == 0, step.explain()
    assert "holds where" not in step.explain()


@pytest.mark.parametrize("name", LOOKING)
def test_one_graph_for_each_way(name):
    fn, captures = LOOKING[name]
    step = check(fn)
    assert step.recapture_count == captures - 1, step.explain()
    assert "holds where" in step.explain() and __file__ in step.explain()


def test_sizes_outlive_their_capture_as_numbers():
    kept = []

    def fn(x):
        kept.append(x.shape[0])
        return x + 1

    step = crt.compile(fn, dynamic=True)
    for n in (3, 4):
        assert step(crt.ones(n)).tolist() == [2.0] * n
    n = kept[0]
    assert type(n) is crt.SymInt and n == 3 and n + 1 == 4 and type(n + 1) is int and range(n) == range(3) and [1, 2, 3, 4][n] == 4
    assert f"{n} {n:03}" == "3 003" and repr(n) == "3" and hash(n) == hash(3) and {3: "three"}[n] == "three"
    assert n / 2 == 1.5 and 2**n == 8 and n**2 == 9 and n & 1 == 1 and n << 1 == 6 and divmod(n, 2) == (1, 1) and divmod(7, n) == (2, 1)
    assert float(n) == 3.0 and complex(n) == 3 and round(n) == 3 and abs(-n) == 3 and ~n == -4 and n == 3.0 and n != "3" and n < 3.5 and bool(n)
    assert pickle.loads(pickle.dumps(n)) == 3 and type(copy.deepcopy(n)) is int
    assert np.arange(n).tolist() == [0, 1, 2] and (np.ones(2) * n).tolist() == [3, 3] and np.float64(2) * n == 6
    assert crt.zeros(n, 2).shape == (3, 2) and (crt.ones(1) * n).item() == 3 and crt.tensor([n, 1]).tolist() == [3, 1]
    with pytest.raises(TypeError):
        n + "text"
    with pytest.raises(TypeError):
        assert n < "text"


def test_a_size_is_a_number_to_everything_else():
    def fn(x):
        n = x.shape[0]
        kinds.add(type(n))
        table = {2: 10.0, 3: 20.0}
        return x * table[n] + len([0] * n) + int(f"{n}") + np.full(3, n)[0].item() + n / 2 + n**2 + (n | 8) + round(n)

    kinds = set()
    check(fn, [(2, 3), (3, 3), (2, 3)])
    assert kinds == {int, crt.SymInt}


def test_what_other_threads_do_with_a_size_is_for_that_size():
    def fn(x):
        n, results = x.shape[0], []
        thread = threading.Thread(target=lambda: results.append(n + 1))
        thread.start()
        thread.join()
        return x * results[0]

    step = check(fn, [(2, 3), (3, 3), (2, 3)])
    assert "holds for these sizes only, as another thread works with one" in step.explain() and step.recapture_count == 1


def test_another_recording_inside_ends_the_following():
    def fn(x):
        n = x.shape[0]
        graph = crt.trace(lambda i: [i[0] * n + crt.zeros(n)], [crt.ones(2)])
        return x + n + graph.run([crt.ones(2)])[0].sum()

    step = crt.compile(fn, dynamic=True)
    assert step(crt.ones(2)).tolist() == [7.0, 7.0] and step.state is crt.State.Fallback


def test_division_by_a_size_that_is_zero():
    def fn(x):
        try:
            return x + 6 // x.shape[0]
        except ZeroDivisionError:
            return x - 1

    step = crt.compile(fn, dynamic=True)
    for n in (2, 3, 0, 6, 0):
        same(step(crt.ones(n)), fn(crt.ones(n)))
    assert step.recapture_count == 1


def test_sizes_beyond_64_bits_are_numbers():
    step = check(lambda x: x + float((x.shape[0] + 2**61) * 4 % 7), [(2, 3), (3, 3), (2, 3)])
    assert step.recapture_count == 1


def test_sizes_of_inner_calls_follow():
    inner = crt.compile(lambda x: x.reshape(x.shape[0] * x.shape[1]), dynamic=True)
    step = check(lambda x: inner(x) * x.shape[0], [(2, 3), (4, 5), (1, 7)])
    assert step.recapture_count == 0
    whole = crt.compile(lambda x: x[: x.shape[0] // 2], dynamic=True)
    whole(crt.ones(4))
    graph = whole.take_graph()  # which knows nothing of the sizes of another
    check(lambda x: graph.run([x])[0] + 1, [(4,), (6,), (8,)])


def test_parameters_have_fixed_sizes():
    check(lambda x: x @ W.reshape(W.shape[0], W.shape[1]) * W.numel(), [(2, 4), (3, 4)])


def test_a_graph_refuses_what_it_does_not_hold_for(tmp_path):
    def fn(x, y):
        return x.reshape(x.shape[0] * x.shape[1]) + y if x.shape[0] > y.shape[0] else y

    step = crt.compile(fn, dynamic=True)
    step(crt.ones((3, 2)), crt.ones(1))
    graph = step.take_graph()
    assert [c.partition(", at ")[0] for c in graph.conditions()] == ["y.shape[0] < x.shape[0]"]
    graph.save(tmp_path / "m.graph")
    for held in (graph, crt.graph.load(tmp_path / "m.graph")):
        assert held.conditions() == graph.conditions()
        assert held.run([crt.ones((4, 5)), crt.ones(1)])[0].shape == (20,)
        assert held.peak([(8, 9), (1,)]) >= 72 * 4
        with pytest.raises(ValueError, match=r"inputs where y\.shape\[0\] < x\.shape\[0\], at .*; here x is float32 \[2, 2\], y is float32 \[4\]"):
            held.run([crt.ones((2, 2)), crt.ones(4)])
        with pytest.raises(ValueError, match=r"^run: the graph is for inputs where"):
            held.peak([(2, 2), (4,)])
        with pytest.raises(ValueError, match="add: shapes"):
            held.run([crt.ones((4, 5)), crt.ones(3)])
    assert held.audit([crt.ones((4, 5)), crt.ones(1)]) == ""


def test_memory_does_not_grow_with_new_shapes():
    step = crt.compile(lambda x: x.reshape(x.shape[0] * x.shape[1])[: x.shape[0]] + x.shape[1], dynamic=True)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        a, b = rng.integers(1, 60, 2).tolist()
        assert step(crt.ones((a, b))).shape == (a,)
    assert step.recapture_count == 0


def caught_attribute(x):
    try:
        return x + crt.zeros(x.shape[0] - 3).sum()
    except ValueError:
        return -x


def caught_write(x):
    y = crt.zeros(x.shape[0])
    try:
        y.add_(crt.ones(3))
    except ValueError:
        return -x
    return y


def caught_copy(x):
    y = crt.zeros(x.shape[0])
    try:
        y[:] = crt.ones(3)
    except ValueError:
        return -x
    return y


def caught_number(x):
    y = crt.zeros(2, dtype=crt.uint8)
    try:
        y.fill_(x.shape[0] * 100)
    except OverflowError:
        return -x
    return x + y.sum()


def caught_composite(x):
    try:
        return crt.repeat(x, [x.shape[0] - 3])
    except ValueError:
        return -x


def caught_unused(x):
    try:
        crt.broadcast_to(x, (3,))
    except ValueError:
        return -x
    return x * 2


def caught_division(x):
    try:
        6 // (x.shape[0] - 2)
    except ZeroDivisionError:
        return -x
    return x * 2


def caught_strides(x):
    try:
        return crt.as_strided(x, (x.shape[0],), (2,), 0)
    except (ValueError, NotImplementedError):
        return -x


@pytest.mark.parametrize("fn", [caught_attribute, caught_write, caught_copy, caught_number, caught_composite, caught_unused, caught_division, caught_strides])
def test_a_failure_that_is_caught_is_a_condition(fn):
    for order in ([2, 4, 3, 1], [3, 2, 4], [4, 1, 3, 2], [1, 3, 1, 2]):
        step = crt.compile(fn, dynamic=True)
        for n in order:
            same(step(crt.ones(n)), fn(crt.ones(n)))


def test_what_nobody_needs_may_fail():
    for fn, kind in ((lambda x: (6 // x.shape[0], x + 1)[1], ZeroDivisionError), (lambda x: (x.reshape(2, -1), x + 1)[1], ValueError)):
        for optimize in (0, 2):
            step = crt.compile(fn, dynamic=True, optimize=optimize)
            assert step(crt.ones(2)).tolist() == [2.0, 2.0]
            with pytest.raises(kind):
                step(crt.ones(0) if kind is ZeroDivisionError else crt.ones(3))
            assert all(node.op_code.name != "Reshape" for node in step.take_graph().nodes())


def test_limits_of_slices_are_no_sizes():
    for start in (-(10**30), -sys.maxsize, -sys.maxsize - 1, -(2**62)):
        check(lambda x, start=start: (x * x.shape[0])[start:], [(2,), (3,)])


def test_strides_of_one_element_are_told_apart():
    dense, wide = crt.ones((1, 4)), crt.ones((3, 100))[:1, :4]
    for dynamic in (False, True):
        for fn in (lambda x: x * x.stride(0), lambda x: x.clone().add_(x.stride(0)), lambda x: x.add_(x.stride(0))):
            step = crt.compile(fn, dynamic=dynamic)
            for x in (dense, wide, dense):
                same(step(x.clone() if x is dense else crt.ones((3, 100))[:1, :4]), fn(x.clone() if x is dense else crt.ones((3, 100))[:1, :4]))


def test_sizes_and_numpy():
    def fn(x):
        n = x.shape[0]
        a = np.arange(5)
        kinds.add((type(np.int32(2) * n), type(n - np.int64(1)), type(n * 1.5)))
        truths = [
            n == np.float32(3),
            n != np.float32(3),
            np.float32(3.5) > n,
            n in a,
            n < 2**64,
            n == 10**30,
            min(n, 2**63) == n,
            n < Decimal("3.5"),
            n == Fraction(3),
        ]
        a += n
        return x * (
            float(np.sqrt(n)) + int(np.minimum(n, 2)) + truths.count(True) + (a == n + 1).sum().item() + (n == a).sum().item() + Fraction(n, 3).numerator
        )

    kinds = set()
    check(fn, [(3, 2), (4, 2), (3, 2)])
    assert (crt.SymInt, crt.SymInt, float) in kinds


def test_sizes_have_what_ints_have():
    def fn(x):
        n = x.shape[0]
        extra = n.numerator + n.bit_length() + n.real + pow(n, 2, 5) + n.conjugate() + n.as_integer_ratio()[1]
        crt.manual_seed(n)
        assert crt.TensorSpec("x", crt.float32, [n]).shape == (x.shape[0],)
        kept.append(n)
        return x * extra

    kept = []
    for n in (3, 4):
        same(fn(crt.ones(n)), crt.compile(fn, dynamic=True)(crt.ones(n)))
    with pytest.raises(AttributeError):
        assert kept[1].nothing
    n = kept[1]  # a number among the arguments
    traced, step = crt.trace(lambda x, n: x * n, (crt.ones(1), n)), crt.compile(lambda x, n: x * n)
    assert traced(crt.ones(1), 3).item() == step(crt.ones(1), n).item() == step(crt.ones(1), 3).item() == 3 and step.recapture_count == 0


def test_views_of_numbers():
    assert crt.unsqueeze(5, 0).shape == (1,)
    assert crt.trace(lambda i: [crt.unsqueeze(5, 0) * i[0]], [crt.ones(2)]).run([crt.ones(2)])[0].shape == (2,)


def test_parts_follow_while_they_are_as_many():
    def fn(x):
        a, b = x.chunk(2, 1)
        c, d = x.split(x.shape[1] // 2, 1)
        return a + c, b * d, x.split([1, 3], 2)[1]

    step = check(fn, [(2, 6, 4), (3, 4, 4), (1, 8, 4), (2, 6, 4)])
    assert step.recapture_count == 0
    assert [part.shape for part in crt.ones(5).chunk(3)] == [(2,), (2,), (1,)] and [part.shape for part in crt.ones(0).split(3)] == [(0,)]
    assert len(crt.ones((2, 3)).unbind(1)) == 3 and len(crt.ones(5).tensor_split(2)) == 2
    squeezes = check(lambda x: x.squeeze(-1) + x.squeeze((2,)), [(2, 4, 1), (1, 4, 1), (2, 1, 1)])
    assert squeezes.recapture_count == 0 and squeezes.take_graph().conditions()[0].startswith("x.shape[2] == 1, at ")


def test_explain_names_what_did_not_hold():
    step = crt.compile(lambda x: x.reshape(x.shape[0], 2, -1) * (2 if x.shape[1] > 4 else 3), dynamic=True)
    for shape in ((1, 4), (2, 6), (3, 8)):
        step(crt.ones(shape))
    line = step.explain().splitlines()[1]
    assert line.startswith("capture 2: x is float32 [2, 6], was float32 [1, 4]; the one before holds where x.shape[1] <= 4, at ") and step.recapture_count == 1
    refuses = crt.compile(lambda x: x.reshape(2, -1), dynamic=True)
    refuses(crt.ones(4))
    with pytest.raises(ValueError, match="reshape"):
        refuses(crt.ones(3))
    rows = crt.compile(lambda x: x + 1)
    rows(crt.ones((1, 2))), rows(crt.ones((2, 1)).T)
    assert rows.explain().splitlines()[1] == "capture 2: x is float32 [1, 2] with strides [1, 1], was float32 [1, 2]"


def test_tensors_of_sizes_follow_where_numbers_do_not():
    def loops(x):
        n = crt.full((), x.shape[0], dtype=crt.int64)
        return crt.while_loop(lambda i: i < n, lambda i: (i + 1,), (0,))[0]

    for fn in (lambda x: x / crt.full((), x.shape[1]).sqrt(), loops):
        assert check(fn, [(2, 3), (4, 5), (1, 7)]).recapture_count == 0
