"""What makes a tensor feel at home in Python: operators, methods, protocols."""

import copy
import operator
import pickle
import re
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
import torch

import clika_runtime as crt
from clika_runtime import nn, ops
from clika_runtime._methods import DIRECT, SPREADING
from clika_runtime._operators import ARITHMETIC, COMPARISONS
from generator import tables
from waiting import busy


def numbers(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


A = np.array([[7, -7, 3], [2, 0, -1]])
B = np.array([[2, 2, -4], [5, 3, 2]])
BITS = ("and", "or", "xor", "lshift", "rshift")


def function(word):
    return getattr(operator, f"{word}_" if word in ("and", "or") else word)


# ---- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [*ARITHMETIC, *COMPARISONS])
def test_operators_are_numpys(word):
    apply = function(word)
    a = A.astype(np.int64 if word in BITS else np.float32)
    count = abs(B).astype(a.dtype)
    b = (count if word in ("pow", "lshift", "rshift") else B).astype(a.dtype)
    with np.errstate(all="ignore"):
        want = apply(a, b)
        x, y = crt.tensor(a), crt.tensor(b)
        for got in (apply(x, y), apply(x, b), apply(a, y)):
            assert type(got) is crt.Tensor and got.shape == want.shape and np.array_equal(got.numpy(), want, equal_nan=True), got
        for number in (3, 2) if word in BITS else (3, 2.0, np.float32(2)):
            assert np.array_equal(apply(x, number).numpy(), apply(a, number), equal_nan=True)
            assert np.array_equal(apply(number, crt.tensor(count)).numpy(), apply(a.dtype.type(number), count), equal_nan=True)
    row = crt.tensor(b[0])
    assert apply(x, row).shape == apply(row, x).shape == (2, 3)
    for value in (apply(x, y), apply(x, 3)):
        assert (value.dtype is crt.bool_) == (word in COMPARISONS)


@pytest.mark.parametrize("word", ARITHMETIC)
def test_operators_in_place(word):
    a = abs(A).astype(np.int64 if word in BITS else np.float32)
    b = abs(B).astype(a.dtype)
    x = same = crt.tensor(a)
    with np.errstate(all="ignore"):
        want = function(word)(a, b)
    x = getattr(operator, f"i{word}")(x, crt.tensor(b))
    assert x is same and np.array_equal(x.numpy(), want, equal_nan=True)
    x = getattr(operator, f"i{word}")(x, b[0])
    assert x is same


def test_other_operators():
    x = crt.tensor(numbers(2, 3))
    assert np.array_equal((x @ x.T).numpy(), numbers(2, 3) @ numbers(2, 3).T)
    assert np.array_equal((x @ numbers(3)).numpy(), numbers(2, 3) @ numbers(3)) and np.array_equal((numbers(4, 2) @ x).numpy(), numbers(4, 2) @ numbers(2, 3))
    y = x
    y @= crt.ones((3, 2))  # of another shape, so it is a new one
    assert y is not x and y.shape == (2, 2)
    assert (-x).tolist()[1] == [-3, -4, -5] and (+x) is x and abs(-x).tolist() == x.tolist()
    assert (~crt.tensor([True, False])).tolist() == [False, True] and (~crt.tensor([0, 5])).tolist() == [-1, -6]
    quotient, remainder = divmod(crt.tensor([7, -7]), 3)
    assert (quotient.tolist(), remainder.tolist()) == ([2, -3], [1, 2])
    quotient, remainder = divmod(7, crt.tensor([2, -2]))
    assert (quotient.tolist(), remainder.tolist()) == ([3, -4], [1, -1])
    assert pow(crt.tensor([2.0]), 3).tolist() == [8]
    assert (x + True).dtype is crt.float32 and (crt.tensor([1]) / 2).dtype is crt.float32


def test_other_operands_are_pythons_to_refuse():
    x = crt.ones(2)
    for other in ("1", None, [1, 2], (1, 2), {}, object(), 1j, b"1", np.array(["a"])):
        for apply in (operator.add, operator.matmul, operator.lt, operator.and_, operator.pow, operator.iadd):
            with pytest.raises(TypeError):
                apply(x, other)
        with pytest.raises(TypeError):
            operator.mul(other, x)
        assert (x == "1") is False and (x != "1") is True
    with pytest.raises(TypeError):
        pow(x, 2, 3)
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "1"

    class Other:
        def __radd__(self, left):
            return "mine"

        def __eq__(self, left):
            return "equal"

        __hash__ = None

    assert x + Other() == "mine" and (x == Other()) == "equal"


def test_shape_and_dtype_errors_name_the_operator():
    with pytest.raises(ValueError, match=r"^add: shapes \[2\] and \[3\] do not broadcast$"):
        crt.ones(2) + crt.ones(3)
    with pytest.raises(ValueError, match=r"^le: "):
        _ = crt.ones(2) <= np.ones(3)
    with pytest.raises(TypeError, match=r"^bitwise_and: "):
        crt.ones(2) & 1
    x = crt.tensor([1, 2])
    with pytest.raises(TypeError, match=r"^div_: |^div: "):
        x /= 2


def test_comparing():
    x = crt.tensor([1.0, float("nan"), 3.0])
    y = x
    assert (x == y).tolist() == [True, False, True] and (x != y).tolist() == [False, True, False]
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert {x: 1}[x] == 1 and x in [x] and hash(x) != hash(crt.tensor([1.0])) and len({x, x}) == 1
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(x == 1)
    assert crt.tensor(3) == 3 and not crt.tensor(3) == 4 and 3 < crt.tensor(4)


def test_numpys_functions_see_an_array():
    x = crt.tensor(numbers(3))
    assert type(np.exp(x)) is np.ndarray and np.sum(x) == 3 and np.mean(x) == 1 and np.max(x, axis=0) == 2 and np.stack([x, x]).shape == (2, 3)
    assert type(np.concatenate((x, [5.0]))) is np.ndarray and np.reshape(x, (3, 1)).shape == (3, 1) and np.array_equal(x, np.clip(x, a_min=0, a_max=5))
    array = numbers(3)
    array += x
    assert array.tolist() == [0, 2, 4] and np.allclose(x, numbers(3))
    for number in (np.float64(2), np.int32(2), np.float16(2)):
        assert type(number * x) is crt.Tensor and (number * x).dtype is crt.float32
    # An array keeps its dtype where a number gives way.
    assert (x + np.ones(3)).dtype is crt.float64 and (x + 1.0).dtype is crt.float32


def test_operators_do_not_wait_and_ride_scopes():
    x = busy()
    y = (x * 2 + 1 > 0) & (x[0] == x)
    assert not y.is_ready() and y.dtype is crt.bool_
    with crt.tracing():
        z = 2 ** -crt.tensor([1.0])
        assert z.status == "Unscheduled"
    assert z.tolist() == [0.5]
    graph = crt.trace(lambda i: [(i[0] % 3 == 0) | (i[0] // 2 > 3)], example_inputs=[crt.tensor([1])])
    assert graph.run([crt.tensor([3])])[0].tolist() == [True] and graph.run([crt.tensor([4])])[0].tolist() == [False]


# ---- methods ---------------------------------------------------------------------------------------------------------


def test_every_operator_on_a_tensor_is_a_method():
    for op in filter(tables.is_method, tables.read_ops()):
        for name in [op.name, f"{op.name}_"][: 1 + op.in_place]:
            method = getattr(crt.Tensor, name)
            assert callable(method) and method.__doc__, name
            if name in DIRECT:
                assert method is getattr(ops, name)
    x = crt.tensor(numbers(2, 3))
    assert x.softmax(dim=0).tolist() == crt.softmax(x, 0).tolist() and x.sum(1, keepdim=True).shape == (2, 1) and x.add(1).tolist()[0] == [1, 2, 3]
    assert x.exp_() is x and x.clone().relu_().sum().item() > 0
    assert {"reshape", "permute"} <= set(SPREADING)
    for shaped in (x.reshape(3, 2), x.reshape((3, 2)), x.reshape([3, -1]), x.reshape(shape=(3, 2)), x.permute(1, 0), x.permute(dims=(1, 0))):
        assert shaped.shape == (3, 2)
    assert x.reshape(6).shape == x.reshape(-1).shape == (6,) and crt.ones(1).reshape(()).shape == ()


def test_shapes():
    x = crt.tensor(numbers(2, 3, 4))
    assert x.size() == x.shape and x.size(-1) == 4 and x.dim() == 3 and x.stride(0) == 12 and x.stride() == (12, 4, 1)
    assert x.T.shape == (4, 3, 2) and x.mT.shape == (2, 4, 3) and x[0].t().shape == (4, 3) and crt.tensor(1).T.shape == ()
    for call in (lambda: x.size(3), lambda: x.stride(-4)):
        with pytest.raises(IndexError):
            call()
    for call in (lambda: crt.ones(2).mT, lambda: x.t(), lambda: x.mT.view(24), lambda: x.view(5)):
        with pytest.raises(ValueError):
            call()
    view = x.view(6, -1)
    view[0, 0] = 50
    assert x[0, 0, 0].item() == 50 and x[:, 1:2].view(2, 4).shape == (2, 4) and x.view_as(view).shape == x.reshape_as(view).shape == (6, 4)
    assert crt.zeros((0, 2)).view(0).shape == (0,)
    graph = crt.trace(lambda i: [i[0].view(-1)], example_inputs=[x])
    assert graph.run([x])[0].shape == (24,)


def test_conversions():
    x = crt.tensor([0.0, 1.5, -2.5])
    for name, dtype in {
        "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
        "short": "int16", "char": "int8", "bool": "bool",
    }.items():  # fmt: skip
        got = getattr(x, name)()
        assert got.dtype.name == dtype and got.tolist() == [float(v) if "float" in dtype else np.array(v).astype(dtype).item() for v in x.tolist()]
    assert x.abs().byte().tolist() == [0, 1, 2]
    assert x.float() is x and x.to(crt.float32) is x and x.to("cpu") is x and x.cpu() is x and x.detach() is x and x.contiguous() is x
    assert x.to(crt.int32).dtype is x.to(dtype=crt.int32).dtype is x.to("cpu", crt.int32).dtype is x.type_as(crt.tensor([1], crt.int32)).dtype is crt.int32
    assert x.to(crt.tensor([1])).dtype is crt.int64 and x.to(x, copy=True) is not x
    assert x.to("meta").device == "meta" and x.to(crt.Device("meta"), crt.int8).dtype is crt.int8
    with pytest.raises(ValueError, match="no values"):
        x.to("meta").cpu()
    with pytest.raises(NotImplementedError):
        x.to("cuda:0")
    for wrong in ("toaster", 3, None):
        with pytest.raises((ValueError, TypeError)):
            x.to(wrong)
    y = x[::-1]
    assert not y.is_contiguous() and y.contiguous().is_contiguous() and y.contiguous().tolist() == y.tolist()
    other = x.clone()
    other.zero_()
    assert x.tolist() == [0, 1.5, -2.5] and x.element_size() == x.itemsize == 4 and x.data_ptr() == x.numpy().ctypes.data
    assert x.is_floating_point() and not crt.tensor([1]).is_floating_point() and crt.bfloat16.is_floating_point


def test_new_tensors_and_where():
    x = crt.tensor([1, 2])
    assert x.new_zeros(2, 3).dtype is crt.int64 and x.new_ones((2, 3)).shape == (2, 3) and x.new_full(2, 7).tolist() == [7, 7]
    assert x.new_zeros(1, dtype=crt.float32).dtype is crt.float32 and x.to("meta").new_ones(2).device == "meta"
    assert x.where(x > 1, 0).tolist() == [0, 2] and x.where(x > 1, crt.tensor([5, 6])).tolist() == [5, 2]


@pytest.mark.skipif("max" not in ops.__all__, reason="needs its three operators")
def test_torchs_max_and_min():
    x = crt.tensor([[1.0, 5.0], [4.0, 2.0]])
    for max_, row in ((x.max, [5, 4]), (lambda *a, **k: crt.max(x, *a, **k), [5, 4]), (x.min, [1, 2]), (lambda *a, **k: crt.min(x, *a, **k), [1, 2])):
        assert max_().item() == (5 if row == [5, 4] else 1)
        values, indices = max_(1)
        assert values.tolist() == row and indices.tolist() == ([1, 0] if row == [5, 4] else [0, 1])
        assert max_(dim=-1, keepdim=True).values.shape == (2, 1)
        assert max_(crt.tensor(3.0)).tolist() == max_(other=3.0).tolist() == ([[3, 5], [4, 3]] if row == [5, 4] else [[1, 3], [3, 2]])


# ---- protocols -------------------------------------------------------------------------------------------------------


def test_numbers():
    for value in (3, -2.5, True):
        t = crt.tensor(value)
        assert float(t) == value and int(t) == int(value) and bool(t) is True and t.item() == value and complex(t) == value
    assert operator.index(crt.tensor(3)) == 3 and [10, 20, 30][crt.tensor(2)] == 30 and "ab" * crt.tensor(2, crt.int8) == "abab"
    for no_index in (crt.tensor(3.0), crt.tensor(True), crt.tensor([3]), crt.tensor([1, 2])):
        with pytest.raises(TypeError):
            operator.index(no_index)
    assert crt.full((crt.tensor(2), 3), 1).shape == (2, 3) and len(range(crt.tensor(4))) == 4


def test_format():
    x = crt.tensor(3.14159)
    assert f"{x:.2f}" == "3.14" and f"{crt.tensor([5]):04d}" == "0005" and f"{x}" == str(x.item()) and str(x) == "Tensor(3.14159, dtype=float32)"
    with pytest.raises(TypeError, match=r"\[2\]"):
        f"{crt.ones(2):.2f}"


def test_repr():
    assert repr(crt.tensor(numbers(2, 3))) == "Tensor([[0., 1., 2.],\n        [3., 4., 5.]], dtype=float32)"
    assert repr(crt.zeros((0, 3), crt.int32)) == "Tensor([], shape=[0, 3], dtype=int32)" and repr(crt.tensor([])) == "Tensor([], dtype=float32)"
    assert repr(crt.tensor([True])) == "Tensor([ True], dtype=bool)"
    assert repr(crt.tensor([1.5], crt.bfloat16)) == "Tensor([1.5], dtype=bfloat16)"
    assert repr(nn.Parameter(crt.ones(1))) == "Parameter([1.], dtype=float32)"
    with np.printoptions(precision=2):
        assert repr(crt.tensor([1 / 3])) == "Tensor([0.33], dtype=float32)"


def test_the_repr_of_a_big_tensor():
    for shape in ((2000,), (1001, 1), (40, 30), (3, 2000), (7, 7, 7, 7), (2, 600)):
        array = numbers(*shape, dtype=np.int64)
        got = repr(crt.tensor(array))
        want = np.array2string(array, separator=", ", prefix="Tensor(", suffix=",")
        assert got == f"Tensor({want}, shape={list(shape)}, dtype=int64)"
        turned = np.array2string(array.T, separator=", ", prefix="Tensor(", suffix=",")
        assert repr(crt.tensor(array).T) == f"Tensor({turned}, shape={list(shape[::-1])}, dtype=int64)"
    # Only what is shown is read: this would be 2 TiB.
    with crt.tracing():
        x = crt.ones(())
    huge = crt.from_numpy(np.broadcast_to(np.float32(1), (1 << 20, 1 << 19)))
    before = crt.memory.peak()
    assert repr(huge).count("1.") == 36 and crt.memory.peak() - before < 1 << 16
    assert x.item() == 1


def test_a_big_tensor_is_shown_while_a_graph_is_recorded():
    weight, shown = crt.ones((100, 100)), []
    graph = crt.trace(lambda i: [i[0] + 1, shown.append(repr(weight))][:1], example_inputs=[crt.ones(1)])
    assert "shape=[100, 100]" in shown[0] and len(list(graph.nodes())) < 5


DTYPES = [*"bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split(), "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_in_and_out(dtype, tmp_path):
    kind = getattr(ml_dtypes, dtype, dtype)
    array = np.array([[0, 1, 2], [4, 8, 1]]).astype(kind)
    t = crt.tensor(array)
    assert t.dtype.name == dtype and t.numpy().dtype == kind and np.array_equal(t.numpy(), array)
    assert np.asarray(t).dtype == kind and t.tolist() == array.astype(float).tolist() and t[1, 0].item() == (4 if dtype != "bool" else True)
    assert type(t[0, 0].item()) is type(t.tolist()[0][0]) is (bool if dtype == "bool" else float if "float" in dtype else int)
    for other in (
        pickle.loads(pickle.dumps(t)),
        pickle.loads(pickle.dumps(t.T, protocol=2)).T,
        copy.copy(t),
        copy.deepcopy(t),
        crt.tensor(t),
        crt.tensor(t, t.dtype),
    ):
        assert other.dtype is t.dtype and np.array_equal(other.numpy(), array) and other.data_ptr() != t.data_ptr()
    crt.save({"t": t}, tmp_path / "file")
    back = crt.load(tmp_path / "file")["t"]
    assert back.dtype is t.dtype and np.array_equal(back.numpy(), array)
    assert np.array_equal(crt.from_numpy(array).numpy(), array) and dtype in repr(t) and t.bytes() == array.tobytes()
    assert np.array(t, dtype=np.float64).tolist() == array.astype(float).tolist()


def test_copies_of_parameters_and_modules():
    layer = nn.Linear(3, 2)
    layer.again = layer
    del layer.again
    p = nn.Parameter(crt.tensor(numbers(2)))
    for other in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(other) is nn.Parameter and other.tolist() == [0, 1] and other.data_ptr() != p.data_ptr()
    tied = copy.deepcopy({"a": p, "b": p})
    assert tied["a"] is tied["b"] and tied["a"] is not p
    twin = copy.deepcopy(layer)
    twin.weight[...] = 0
    assert float(abs(layer.weight).sum()) > 0 and [n for n, _ in twin.named_parameters()] == ["weight", "bias"]
    pending = busy()
    assert not copy.deepcopy(pending).is_ready()


def test_arrays():
    t = crt.tensor(numbers(3))
    assert np.shares_memory(np.asarray(t), t.numpy()) and np.shares_memory(np.array(t, copy=False), t.numpy())
    assert not np.shares_memory(np.array(t), t.numpy()) and not np.shares_memory(t.__array__(copy=True), t.numpy())
    with pytest.raises(ValueError):
        np.array(t, dtype=np.int32, copy=False)
    assert torch.tensor(t.numpy()).tolist() == [0, 1, 2] and memoryview(t.numpy()).shape == (3,)
    with pytest.raises(TypeError):
        memoryview(t)  # NumPy's array has the buffer


# ---- types and C++ ---------------------------------------------------------------------------------------------------

PROGRAM = """
import clika_runtime as crt
import numpy as np

x: crt.Tensor = crt.tensor([1.0, 2.0])
y: crt.Tensor = (x + 1) * np.ones(2) - 2 ** x // x.exp() @ x
mask: crt.Tensor = (x == 1) & ~(x < y) | (x != None)
x += 1
x[0] = 5
x[mask] = y[..., None, ::2]
total: float = float(x.sum(dims=0, keepdim=True))
value: bool | int | float = x.softmax(-1).item()
size: int = x.size(0) + len(x) + x.shape[0] + x.dim()
z: crt.Tensor = x.to(crt.float16).float().reshape(1, 2).permute((1, 0)).T.gelu(approximate="tanh").relu_()
for row in z:
    row.add_(row.maximum(0).long())
w: crt.Tensor = crt.from_dlpack(np.ones(2), copy=True).view(-1)
"""


def test_programs_are_typed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, program], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    program.write_text(PROGRAM + 'x.softmax("0")\nx.reshape("3")\nx + "1"\nx.no_such_method()\n')
    checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, program], capture_output=True, text=True, check=False)
    assert re.search(r"Found 4 errors", checked.stdout), checked.stdout


CPP = """
    #include <ClikaRT/clika_rt.h>
    #include <cassert>
    #include <sstream>
    using namespace ClikaRT;

    int main() {
        const Tensor x = ops::arange(0, 6, 1, DataType::Float32).reshape({2, 3});
        const Tensor y = (2 + x * 3 - x / 2) % 4;
        assert(y.item_as_vec<float>() == (std::vector<float>{2, 0.5, 3, 1.5, 0, 2.5}));
        assert((x == x).sum().item<std::int64_t>() == 6 && (x < 2).sum().item<std::int64_t>() == 2 && (1 >= x).sum().item<std::int64_t>() == 2);
        assert((~(x > 2) & (x != 0)).item_as_vec<bool>() == (std::vector<bool>{false, true, true, false, false, false}));
        x[0] += 1;
        x[-1] *= x[0];
        assert((-x).item_as_vec<float>() == (std::vector<float>{-1, -2, -3, -3, -8, -15}));
        assert(x.sum({0}).item_as_vec<float>() == (std::vector<float>{4, 10, 18}) && x.sum({0, 1}, true).shape() == (Shape{1, 1}));
        assert(x.sum().item<float>() == 32 && x.slice(1, 0, std::nullopt, 2).shape() == (Shape{2, 2}) && x.maximum(4).relu().amax({}).item<float>() == 15);
        Tensor again = x;
        again += x;  // a handle: x too
        assert(x[1][2].item<float>() == 30 && x.sub_(again).sum().item<float>() == 0);
        std::ostringstream text;
        text << x[0];
        assert(text.str() == "Tensor(shape=[3], dtype=Float32, device=CPU, numel=3, data=[0, 0, 0])");
        try {
            static_cast<void>(x[2]);
            return 1;
        } catch (const IndexError&) {
        }
        return 0;
    }
"""


def test_cpp_operators_and_methods(tmp_path):
    source = tmp_path / "native.cpp"
    source.write_text(textwrap.dedent(CPP))
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "clikart"],
        check=True,
        capture_output=True,
        text=True,
        env={"PKG_CONFIG_PATH": crt.pkgconfig_dir(), "PATH": "/usr/bin:/bin"},
    ).stdout.split()
    subprocess.run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", tmp_path / "native", *flags], check=True)
    subprocess.run([tmp_path / "native"], check=True)
