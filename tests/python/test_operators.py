"""Every row of the operator table: every dtype, layout and edge, against its oracle; eager, synchronous and traced.

The rows name their samples, oracle and tolerance; a new row needs nothing here.
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import clika_runtime as crt
import samples
from generator.tables import Op, read_ops

OPS = {op.name: op for op in read_ops()}
DTYPE = {name: getattr(crt, "bool_" if name == "bool" else name) for name in samples.DTYPES}


FLOATS = [d for d in samples.DTYPES if samples.is_float(d)]
INTEGERS = [d for d in samples.DTYPES if "int" in d]

# Which dtypes the dtype rules refuse with TypeError.
REFUSED = {
    "same_number": ["bool"],
    "promote_number": ["bool"],
    "promote_product": ["bool"],
    "float": ["bool", *INTEGERS],
    "integer": ["bool", *FLOATS],
    "bitwise": FLOATS,
}


def torch_dtype(rule: str, dtype: str, call: dict[str, Any]) -> str:
    """The result's dtype for operands that are all of one dtype."""
    if rule in ("given", "given_or_value"):
        return str(call["dtype"])
    if rule == "promote_float" and dtype not in FLOATS:
        return "float32"
    if rule == "sum" and dtype not in FLOATS:
        return "int64"
    if rule in ("compare", "logical", "predicate"):
        return "bool"
    return "int64" if rule == "index" else dtype


# ---- oracles that NumPy has no single function for


def special(name: str, x: np.ndarray) -> np.ndarray:
    """SciPy's functions know no wider type than double."""
    return np.asarray(getattr(scipy.special, name)(x.astype(np.float64)))


def sigmoid_oracle(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x < 0, e, 1) / (1 + e))


def gelu_oracle(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.longdouble(np.pi)) * (x + 0.044715 * x**3)))
    return x / 2 * special("erfc", -x / np.sqrt(2))


def floor_divide_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a / b, np.floor_divide(a, b)).astype(a.dtype) if a.dtype.kind == "f" else np.floor_divide(a, b)


def trunc_divide_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    floored, rest = np.floor_divide(a, b), np.remainder(a, b)
    return np.where((rest != 0) & ((a < 0) != (b < 0)), floored + floored.dtype.type(1), floored)


def remainder_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return np.remainder(a, b)
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def pow_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.power(a, b)
    negative = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype) if a.dtype.kind == "i" else a
    return np.where(b < 0, negative, np.power(a, np.where(b < 0, 0, b).astype(b.dtype)))


def left_shift_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0).astype(b.dtype)), 0).astype(a.dtype)


def right_shift_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(inside, np.right_shift(a, np.where(inside, b, 0).astype(b.dtype)), np.where(a < 0, -1, 0)).astype(a.dtype)


def softmax_oracle(x: np.ndarray, dim: int) -> np.ndarray:
    if x.ndim == 0:
        return np.ones_like(x)
    if x.size == 0:
        return x
    e = np.exp(x - x.max(axis=dim, keepdims=True))
    return e / e.sum(axis=dim, keepdims=True)


def argmax_oracle(x: np.ndarray, dims: tuple[int, ...] | None, keepdim: bool) -> np.ndarray:
    reduced = tuple(range(x.ndim)) if dims is None else tuple(d % x.ndim for d in dims)
    kept = [d for d in range(x.ndim) if d not in reduced]
    flat = x.transpose(kept + sorted(reduced)).reshape([x.shape[d] for d in kept] + [-1])
    result = np.argmax(flat, axis=-1)
    return result.reshape([1 if d in reduced else x.shape[d] for d in range(x.ndim)]) if keepdim else result


def slice_oracle(x: np.ndarray, dim: int, start: int | None, end: int | None, step: int) -> np.ndarray:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, end, step)
    return x[tuple(index)]


ORACLES = {name: function for name, function in globals().items() if name.endswith("_oracle") or name == "special"}


def expected(op: Op, dtype: str, call: dict[str, Any], result: str, magnitudes: bool = False) -> np.ndarray:
    """The oracle's answer.  What is computed in floats is computed in a wider type, unless it is to be exact: then in the type
    itself, or in float32 for those that are computed in it."""
    names: dict[str, Any] = {p.name: eval(p.default) for p in op.attributes if p.default is not None and not p.choices}
    names |= dict(call, np=np)
    wide = np.dtype(np.longdouble)
    if op.row["tolerance"].get(dtype if dtype in ("float32", "float64") else "float32", 0) == 0:
        wide = np.dtype("float64" if dtype == "float64" else "float32")
    names["out"] = wide if samples.is_float(result) else result
    if "dims" in call and call["x"].ndim == 0:
        names["dims"] = None
    for key, value in call.items():
        if isinstance(value, np.ndarray):
            if op.kind not in ("view", "join", "index") and (dtype in FLOATS or result in FLOATS) and key != "condition":
                value = value.astype(wide)
            elif op.row["dtype"] == "sum":
                value = value.astype(result)
            names[key] = np.abs(value) if magnitudes else value
    with np.errstate(all="ignore"):
        return np.asarray(eval(op.row["oracle"], ORACLES, names))


# ---- layouts: the same values, other strides


def contiguous(x: np.ndarray) -> crt.Tensor:
    return crt.tensor(x)


def transposed(x: np.ndarray) -> crt.Tensor:
    order = list(range(x.ndim))[::-1]
    return crt.permute(crt.tensor(x.transpose(order).copy()), order)


def strided(x: np.ndarray) -> crt.Tensor:
    """Every second column of a wider array, which holds other values in between."""
    if x.ndim == 0:
        return crt.select(crt.tensor(np.array([x, x])), 0, 1)
    wide = np.repeat(x, 2, axis=-1)
    wide[..., 1::2] = np.ones((), x.dtype)
    return crt.slice(crt.tensor(wide), -1, 0, None, 2)


def reversed_(x: np.ndarray) -> crt.Tensor:
    if x.ndim == 0:
        return crt.tensor(x)
    return crt.slice(crt.tensor(np.ascontiguousarray(x[::-1])), 0, None, None, -1)


LAYOUTS = [contiguous, transposed, strided, reversed_]


def invoke(op: Op, call: dict[str, Any], tensors: list[crt.Tensor]) -> crt.Tensor:
    """Calls the operator, the tensors taking the place of the arrays in `call`."""
    rest = iter(tensors)

    def argument(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [next(rest) for _ in value]
        return next(rest) if isinstance(value, np.ndarray) else value

    arguments = {name: argument(value) for name, value in call.items()}
    if "dtype" in arguments:
        arguments["dtype"] = DTYPE[arguments["dtype"]]
    return getattr(crt, op.name)(**arguments)


def arrays_of(call: dict[str, Any]) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for value in call.values():
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            found += value
    return found


def compare(got: np.ndarray, want: np.ndarray, tolerance: float, what: str, scale: np.ndarray) -> None:
    assert got.shape == want.shape, what
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)  # overflow and underflow as the dtype has them
    if got.dtype == ml_dtypes.bfloat16:
        rounded = rounded.astype(np.float32)
    if tolerance == 0 or not samples.is_float(got.dtype.name):
        np.testing.assert_array_equal(got.astype(rounded.dtype), rounded, err_msg=what)
        return
    wide = got.astype(np.longdouble)
    with np.errstate(all="ignore"):
        finite = np.isfinite(rounded.astype(np.longdouble))
    np.testing.assert_array_equal(np.isfinite(wide), finite, err_msg=what)
    np.testing.assert_array_equal(got.astype(rounded.dtype)[~finite], rounded[~finite], err_msg=what)
    limit = tolerance * np.broadcast_to(scale, want.shape)[finite].astype(np.longdouble)
    tiny = ml_dtypes.finfo(got.dtype).smallest_subnormal.astype(np.longdouble)
    off = np.abs(wide[finite] - want[finite])
    assert np.all(off <= limit + tiny), f"{what}: off by {off.max()}, {(off / np.maximum(limit, tiny)).max()} of what is allowed"


#: Half a unit in the last place: what rounding to the narrow dtypes adds to what was computed in float32.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def tolerance_of(op: Op, dtype: str, result: str) -> float:
    if result in ROUNDING:
        base = op.row["tolerance"].get("float32", 0)
        return 1.01 * ROUNDING[result] + base if base else 0
    return op.row["tolerance"].get(dtype, 0) if dtype in FLOATS else 2.4e-7 if result == "float32" else 0


#: Operators that err relative to what was added up rather than to the result.
SUMS = ("sum", "mean", "matmul")
#: Operators that err relative to the largest of their operands and the result.
RELATIVE_TO_INPUTS = ("lerp", "gelu", "tanhshrink", "logaddexp", "softplus", "mish", "silu", "hardswish")


def samples_of(op: Op, dtype: str) -> list[dict[str, Any]]:
    calls = list(getattr(samples, op.row["samples"])(dtype))
    return calls if dtype in samples.MAIN_DTYPES else calls[::4]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if "samples" in op.row])
def test_against_the_oracle(name: str, dtype: str) -> None:
    op = OPS[name]
    rule = op.dtype
    calls = samples_of(op, dtype)
    assert calls
    if dtype in REFUSED.get(rule, ()):
        with pytest.raises(TypeError, match=f"^{name}: "):
            invoke(op, calls[0], [crt.tensor(a) for a in arrays_of(calls[0])])
        return
    result = torch_dtype(rule, dtype, calls[0])
    computing = result if rule in ("promote_float", "sum") else "bool" if rule == "logical" else dtype
    if computing not in op.kernels:
        with pytest.raises(NotImplementedError, match=f"^op '{name}' has no {computing} kernel on cpu$"):
            invoke(op, calls[0], [crt.tensor(a) for a in arrays_of(calls[0])])
        return
    for number, call in enumerate(calls):
        arrays = arrays_of(call)
        result = torch_dtype(rule, dtype, call)
        want = expected(op, dtype, call, result)
        scale = np.abs(want)
        if name in SUMS:
            scale = expected(op, dtype, call, result, magnitudes=True)
        elif name in RELATIVE_TO_INPUTS:
            scale = np.maximum.reduce(np.broadcast_arrays(scale, *(np.abs(np.nan_to_num(a.astype(np.float64), posinf=0, neginf=0)) for a in arrays)))
        elif name == "softmax" and want.size:
            scale = np.ones_like(want)
        tolerance = tolerance_of(op, dtype, result)
        what = f"{name} {dtype} { {k: getattr(v, 'shape', v) for k, v in call.items()} }"
        for layout in LAYOUTS if dtype in samples.MAIN_DTYPES else [LAYOUTS[number % len(LAYOUTS)]]:
            tensors = [layout(a) for a in arrays]
            got = invoke(op, call, tensors)
            assert got.dtype is DTYPE[result], what
            compare(got.numpy(), want, tolerance, f"{what} {layout.__name__}", scale)
            if not arrays:
                break
        if number % 3:
            continue
        with crt.synchronous():
            again = invoke(op, call, tensors)
        assert again.bytes() == got.bytes(), what
        if op.row.get("data_dependent"):
            with pytest.raises(NotImplementedError, match=f"^{name}: "):
                crt.trace(lambda inputs, op=op, call=call: [invoke(op, call, inputs)], example_inputs=tensors)
            continue
        with crt.tracing():
            deferred = invoke(op, call, tensors)
        assert deferred.bytes() == got.bytes(), what
        graph = crt.trace(functools.partial(lambda op, call, inputs: [invoke(op, call, inputs)], op, call), example_inputs=tensors)
        assert graph.run(tensors)[0].bytes() == got.bytes(), what


@pytest.mark.parametrize(
    "name",
    [op.name for op in OPS.values() if op.kind in ("elementwise", "reduce", "row") and op.dtype not in ("given", "where", "logical") and op.name != "copy"],
)
def test_a_missing_kernel_is_one_clear_error(name: str) -> None:
    op = OPS[name]
    stored = crt.cast(crt.ones([2, 2]), crt.float8_e4m3fn)
    arguments: dict[str, Any] = {p.name: stored for p in op.tensors} | {p.name: 1.0 for p in op.attributes if p.default is None and p.type == "float"}
    with pytest.raises((NotImplementedError, TypeError), match=f"^(op '{name}' has no float8_e4m3fn kernel on cpu|{name}: .*float8_e4m3fn)"):
        getattr(crt, name)(**arguments)


# torch.result_type over (standing, dtype) pairs, as torch 2.13 gives it for the dtypes that have kernels: the category
# of the higher standing wins unless the lower one's category is higher.
ORDER = ["bool", "int32", "int64", "float32", "float64"]


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (("tensor", "int32"), ("tensor", "int64"), "int64"),
        (("tensor", "int64"), ("tensor", "float32"), "float32"),
        (("tensor", "float32"), ("tensor", "float64"), "float64"),
        (("tensor", "bool"), ("tensor", "int32"), "int32"),
        (("tensor", "int32"), ("0-d", "int64"), "int32"),
        (("tensor", "int32"), ("0-d", "float64"), "float64"),
        (("tensor", "float32"), ("0-d", "float64"), "float32"),
        (("tensor", "bool"), ("0-d", "int32"), "int32"),
        (("0-d", "int32"), ("0-d", "int64"), "int64"),
        (("0-d", "float32"), ("0-d", "float64"), "float64"),
        (("tensor", "int32"), ("number", 2), "int32"),
        (("tensor", "int32"), ("number", 2.5), "float32"),
        (("tensor", "float64"), ("number", 2.5), "float64"),
        (("tensor", "bool"), ("number", 2), "int64"),
        (("tensor", "bool"), ("number", True), "bool"),
        (("0-d", "int32"), ("number", 2), "int32"),
        (("0-d", "int32"), ("number", 2.5), "float32"),
        (("0-d", "float64"), ("number", 2.5), "float64"),
        (("number", 1), ("number", 2.5), "float32"),
        (("number", 1), ("number", 2), "int64"),
    ],
)
def test_promotion(a: tuple[str, Any], b: tuple[str, Any], want: str) -> None:
    def make(standing: str, what: Any) -> Any:
        return what if standing == "number" else crt.tensor(np.ones((2,) if standing == "tensor" else (), what))

    assert crt.add(make(*a), make(*b)).dtype is DTYPE[want]
    assert crt.add(make(*b), make(*a)).dtype is DTYPE[want]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_accuracy_over_the_whole_range(name: str, dtype: str) -> None:
    """ULPs of a dense sample; the tolerance column in ULPs is what docs/numerics.md promises."""
    reach = {"exp": (-104, 89) if dtype == "float32" else (-746, 710), "tanh": (-25, 25)}[name]
    x = np.concatenate([np.linspace(*reach, 400_001), np.geomspace(1e-30, 1, 100_001), -np.geomspace(1e-30, 1, 100_001)]).astype(dtype)
    got = getattr(crt, name)(crt.tensor(x)).numpy().astype(np.longdouble)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x.astype(np.longdouble))
        ulp = np.spacing(np.abs(want).astype(dtype)).astype(np.longdouble)
        finite = np.isfinite(want.astype(dtype))
    worst = (np.abs(got - want)[finite] / ulp[finite]).max()
    limit = {"exp": 1, "tanh": 2.5 if "baseline" in crt.build_report() else 2.0}[name]
    assert worst <= limit, worst


def test_bytes_move_whatever_their_dtype() -> None:
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    t = crt.tensor(x)
    np.testing.assert_array_equal(crt.copy(crt.permute(t, (1, 0))).numpy(), x.T)
    np.testing.assert_array_equal(crt.concat([t, crt.slice(t, 0, None, None, -1)]).numpy(), np.concatenate([x, x[::-1]]))
    np.testing.assert_array_equal(crt.reshape(crt.permute(t, (1, 0)), [-1]).numpy(), x.T.reshape(-1))
