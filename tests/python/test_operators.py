"""Every row of the operator table: every dtype, layout and edge, against its oracle; eager, synchronous and traced.

The rows name their samples, oracle and tolerance; a new row needs nothing here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import clika_runtime as crt
import samples
from generator.tables import Op, read_ops

OPS = {op.name: op for op in read_ops()}
DTYPE = {name: getattr(crt, "bool_" if name == "bool" else name) for name in samples.DTYPES}

# Which dtypes the dtype rules refuse with TypeError.
REFUSED = {
    "same_number": {"bool"},
    "promote_number": {"bool"},
    "promote_product": {"bool"},
    "float": {"bool", "int32", "int64"},
}


def torch_dtype(rule: str, dtype: str, call: dict[str, Any]) -> str:
    """The result's dtype for operands that are all of one dtype."""
    if rule in ("given", "given_or_value"):
        return str(call["dtype"])
    if rule == "promote_float" and not dtype.startswith("float"):
        return "float32"
    if rule == "sum" and not dtype.startswith("float"):
        return "int64"
    return "int64" if rule == "index" else dtype


# ---- oracles that NumPy has no single function for


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


def expected(op: Op, dtype: str, call: dict[str, Any], result: str, magnitudes: bool = False) -> np.ndarray:
    """The oracle's answer; float operators are computed in a wider type when the table allows a tolerance."""
    exact = op.row["tolerance"].get(dtype, 0) == 0
    names: dict[str, Any] = dict(call, np=np, out=np.longdouble if result.startswith("float") and not exact else result)
    if "dims" in call and call["x"].ndim == 0:
        names["dims"] = None
    for key, value in call.items():
        if isinstance(value, np.ndarray):
            if result.startswith("float") and op.kind != "view":
                value = value.astype(result if exact or op.name == "argmax" else np.longdouble)
            elif op.row["dtype"] == "sum":
                value = value.astype(result)
            names[key] = np.abs(value) if magnitudes else value
    functions = {"softmax_oracle": softmax_oracle, "argmax_oracle": argmax_oracle, "slice_oracle": slice_oracle}
    with np.errstate(all="ignore"):
        return np.asarray(eval(op.row["oracle"], functions, names))


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
    if tolerance == 0 or not np.issubdtype(got.dtype, np.floating):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=what)
        return
    wide = got.astype(np.longdouble)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype(np.longdouble)  # overflow and underflow as the dtype has them
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(np.isfinite(wide), finite, err_msg=what)
        np.testing.assert_array_equal(got[~finite], want.astype(got.dtype)[~finite], err_msg=what)
    limit = tolerance * np.broadcast_to(scale, want.shape)[finite].astype(np.longdouble)
    tiny = np.finfo(got.dtype).smallest_subnormal
    assert np.all(np.abs(wide[finite] - want[finite]) <= limit + tiny), f"{what}: off by {np.abs(wide[finite] - want[finite]).max()}"


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_against_the_oracle(name: str, dtype: str) -> None:
    op = OPS[name]
    rule = op.row["dtype"]
    calls = list(getattr(samples, op.row["samples"])(dtype))
    assert calls
    for call in calls:
        arrays = arrays_of(call)
        if dtype in REFUSED.get(rule, ()):
            with pytest.raises(TypeError, match=f"^{name}: "):
                invoke(op, call, [crt.tensor(a) for a in arrays])
            continue
        result = torch_dtype(rule, dtype, call)
        want = expected(op, dtype, call, result)
        # Sums err relative to what was added up, softmax to the row's largest result (the difference from the maximum is
        # rounded before exp), everything else to the result.
        scale = np.abs(want)
        if name in ("sum", "mean", "matmul"):
            scale = expected(op, dtype, call, result, magnitudes=True)
        elif name == "softmax" and want.size:
            scale = np.ones_like(want)
        tolerance = op.row["tolerance"].get(dtype, 0) if dtype.startswith("float") else 2.4e-7 if result == "float32" else 0
        for layout in LAYOUTS:
            what = f"{name} {dtype} {layout.__name__} { {k: getattr(v, 'shape', v) for k, v in call.items()} }"
            tensors = [layout(a) for a in arrays]
            got = invoke(op, call, tensors)
            assert got.dtype is DTYPE[result], what
            compare(got.numpy(), want, tolerance, what, scale)
            if not arrays:
                break
        with crt.synchronous():
            again = invoke(op, call, tensors)
        np.testing.assert_array_equal(again.numpy(), got.numpy(), err_msg=what)
        if op.row.get("data_dependent"):
            with pytest.raises(NotImplementedError, match=f"^{name}: "):
                crt.trace(lambda inputs, op=op, call=call: [invoke(op, call, inputs)], example_inputs=tensors)
            continue
        with crt.tracing():
            deferred = invoke(op, call, tensors)
        np.testing.assert_array_equal(deferred.numpy(), got.numpy(), err_msg=what)
        graph = crt.trace(functools.partial(lambda op, call, inputs: [invoke(op, call, inputs)], op, call), example_inputs=tensors)
        np.testing.assert_array_equal(graph.run(tensors)[0].numpy(), got.numpy(), err_msg=what)


@pytest.mark.parametrize("name", [op.name for op in OPS.values() if op.kind != "view" and op.name not in ("copy", "concat")])
def test_a_missing_kernel_is_one_clear_error(name: str) -> None:
    op = OPS[name]
    half = crt.tensor(np.ones((2, 2), np.float16))
    arguments: dict[str, Any] = {
        "arange": {"start": 0, "end": 2, "step": 1, "dtype": crt.float16},
        "full": {"shape": [2], "value": 1, "dtype": crt.float16},
        "cast": {"x": half, "dtype": crt.float32},
    }.get(name) or {p.name: half for p in op.tensors}
    with pytest.raises(NotImplementedError, match=f"^op '{name}' has no float16 kernel on cpu$"):
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
