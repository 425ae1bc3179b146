"""Every row of the operator table: every dtype, layout and edge, against its oracle; eager, synchronous, traced and compiled.

The rows name their samples, oracle and tolerance; a new row needs nothing here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
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


def _float_or_float32(dtype: str, call: dict[str, Any]) -> str:
    return dtype if dtype in FLOATS else "float32"


# What dtype rules answer for operands that are all of one dtype, where it is not that.
RESULTS: dict[str, Callable[[str, dict[str, Any]], str | tuple[str, ...]]] = {
    "given": lambda dtype, call: str(call["dtype"]),
    "full": lambda dtype, call: str(call["dtype"]),
    "given_or_number": lambda dtype, call: str(call["dtype"]),
    "promote_float": _float_or_float32,
    "sum": lambda dtype, call: dtype if dtype in FLOATS else "int64",
    "compare": lambda dtype, call: "bool",
    "logical": lambda dtype, call: "bool",
    "predicate": lambda dtype, call: "bool",
    "index": lambda dtype, call: "int64",
}


# ---- oracles that NumPy has no single function for


def special(name: str, x: np.ndarray) -> np.ndarray:
    """SciPy's functions know no wider type than double."""
    return np.asarray(getattr(scipy.special, name)(x.astype(np.float64)))


def sigmoid_oracle(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x < 0, e, 1) / (1 + e))


def nan_to_num_oracle(x: np.ndarray, nan: float, posinf: float | None, neginf: float | None, stored: np.dtype) -> np.ndarray:
    most = float(ml_dtypes.finfo(stored).max) if x.dtype.kind == "f" else None  # of the dtype it is stored in
    return np.nan_to_num(x, nan=nan, posinf=most if posinf is None else posinf, neginf=-most if neginf is None and most is not None else neginf)


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


#: Every module of samples: what makes calls, oracles (functions whose names end so), and what its dtype rules answer.
MODULES = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("samples*.py"))]
SAMPLES = {name: value for module in MODULES for name, value in vars(module).items() if callable(value)}
ORACLES = {name: value for space in [*map(vars, MODULES), globals()] for name, value in space.items() if name.endswith("_oracle") or name == "special"}
for module in MODULES:
    REFUSED |= getattr(module, "REFUSED", {})
    RESULTS |= getattr(module, "RESULTS", {})


def result_dtypes(op: Op, dtype: str, call: dict[str, Any]) -> list[str]:
    """The results' dtypes for operands that are all of one dtype."""
    answer = RESULTS.get(op.dtype, lambda dtype, call: dtype)(dtype, call)
    return list(answer) if isinstance(answer, tuple) else [answer]


def expected(op: Op, dtype: str, call: dict[str, Any], results: list[str], magnitudes: bool = False) -> list[np.ndarray]:
    """The oracle's answer.  What is computed in floats is computed in a wider type, unless it is to be exact: then in the type
    itself, or in float32 for those that are computed in it."""
    names: dict[str, Any] = {p.name: eval(p.default) for p in op.attributes if p.default is not None and not p.choices}
    names |= dict(call, np=np)
    result = results[0]
    wide = np.dtype(np.longdouble)
    if op.row["tolerance"].get(dtype if dtype in ("float32", "float64") else "float32", 0) == 0:
        wide = np.dtype("float64" if dtype == "float64" else "float32")
    names["out"] = wide if samples.is_float(result) else result
    names["stored"] = samples.numpy_dtype(result)
    if "dims" in call and call["x"].ndim == 0:
        names["dims"] = None
    for key, value in call.items():
        if isinstance(value, np.ndarray):
            of_integers = value.dtype.kind in "bui" and dtype in FLOATS  # indices and conditions of float operators
            if op.kind not in ("view", "join", "index") and (dtype in FLOATS or result in FLOATS) and not of_integers:
                value = value.astype(wide)
            elif op.dtype == "sum":
                value = value.astype(result)
            names[key] = np.abs(value) if magnitudes and not of_integers else value
    with np.errstate(all="ignore"):
        answer = eval(op.row["oracle"], ORACLES, names)
    return [np.asarray(a) for a in (answer if isinstance(answer, tuple) else (answer,))]


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


def samples_of(op: Op, dtype: str) -> list[dict[str, Any]]:
    calls = list(SAMPLES[op.row["samples"]](dtype))
    return calls if dtype in samples.MAIN_DTYPES else calls[::4]


def together(results: Any) -> list[crt.Tensor]:
    return list(results) if isinstance(results, tuple) else [results]


def scale_of(op: Op, dtype: str, call: dict[str, Any], results: list[str], wants: list[np.ndarray]) -> list[np.ndarray]:
    """What the tolerance is relative to."""
    match op.row.get("error", "result"):
        case "magnitudes":
            return expected(op, dtype, call, results, magnitudes=True)
        case "inputs":
            sizes = [np.abs(np.nan_to_num(a.astype(np.float64), posinf=0, neginf=0)) for a in arrays_of(call)]
            return [np.maximum.reduce(np.broadcast_arrays(np.abs(want), *sizes)) for want in wants]
        case "one":
            return [np.ones_like(want) for want in wants]
        case _:
            return [np.abs(want) for want in wants]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if "samples" in op.row])
def test_against_the_oracle(name: str, dtype: str) -> None:
    op = OPS[name]
    calls = samples_of(op, dtype)
    if not calls:
        return  # the samples have none for this dtype
    if dtype in REFUSED.get(op.dtype, ()):
        with pytest.raises(TypeError, match=f"^{name}: "):
            invoke(op, calls[0], [crt.tensor(a) for a in arrays_of(calls[0])])
        return
    computing = result_dtypes(op, dtype, calls[0])[0] if op.dtype in ("promote_float", "sum") else "bool" if op.dtype == "logical" else dtype
    if computing not in op.kernels:
        with pytest.raises(NotImplementedError, match=f"^op '{name}' has no {computing} kernel on cpu$"):
            invoke(op, calls[0], [crt.tensor(a) for a in arrays_of(calls[0])])
        return
    for number, call in enumerate(calls):
        arrays = arrays_of(call)
        results = result_dtypes(op, dtype, call)
        wants = expected(op, dtype, call, results)
        scales = scale_of(op, dtype, call, results, wants)
        what = f"{name} {dtype} { {k: getattr(v, 'shape', v) for k, v in call.items()} }"
        for layout in LAYOUTS if dtype in samples.MAIN_DTYPES else [LAYOUTS[number % len(LAYOUTS)]]:
            tensors = [layout(a) for a in arrays]
            gots = together(invoke(op, call, tensors))
            assert len(gots) == len(wants) == len(results), what
            for got, want, scale, result in zip(gots, wants, scales, results, strict=True):
                assert got.dtype is DTYPE[result], what
                compare(got.numpy(), want, tolerance_of(op, dtype, result), f"{what} {layout.__name__}", scale)
            if not arrays:
                break
        if number % 3:
            continue

        def same(others: list[crt.Tensor], gots: list[crt.Tensor] = gots, what: str = what) -> None:
            for other, got in zip(others, gots, strict=True):
                assert other.shape == got.shape and other.bytes() == got.bytes(), what

        with crt.synchronous():
            same(together(invoke(op, call, tensors)))
        if op.row.get("data_dependent"):
            with pytest.raises(NotImplementedError, match=f"^{name}: "):
                crt.trace(lambda inputs, op=op, call=call: together(invoke(op, call, inputs)), example_inputs=tensors)
            continue
        with crt.tracing():
            deferred = together(invoke(op, call, tensors))
        same(deferred)
        function = functools.partial(lambda op, call, inputs: together(invoke(op, call, inputs)), op, call)
        same(crt.trace(function, example_inputs=tensors).run(tensors))
        compiled = crt.compile(function)
        for _ in range(2):  # captured, then replayed
            same(compiled(tensors))
        assert compiled.state is crt.State.Compiled, compiled.fallback_reason


@pytest.mark.parametrize(
    "name",
    [op.name for op in OPS.values() if op.kind in ("elementwise", "reduce", "row") and op.dtype not in ("given", "where", "logical") and op.name != "copy"],
)
def test_a_missing_kernel_is_one_clear_error(name: str) -> None:
    op = OPS[name]
    stored = crt.cast(crt.ones([2, 2]), crt.float8_e4m3fn)
    arguments: dict[str, Any] = {p.name: stored for p in op.tensors} | {p.name: 1.0 for p in op.attributes if p.default is None and p.type == "float"}
    arguments |= {p.name: {"int": 1, "int[]": [2]}[p.type] for p in op.attributes if p.default is None and p.type in ("int", "int[]")}
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


def test_bytes_move_whatever_their_dtype() -> None:
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    t = crt.tensor(x)
    np.testing.assert_array_equal(crt.copy(crt.permute(t, (1, 0))).numpy(), x.T)
    np.testing.assert_array_equal(crt.concat([t, crt.slice(t, 0, None, None, -1)]).numpy(), np.concatenate([x, x[::-1]]))
    np.testing.assert_array_equal(crt.reshape(crt.permute(t, (1, 0)), [-1]).numpy(), x.T.reshape(-1))
