"""Graphs: recording a function's operators once, and running them again without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._convert import operand
from ._enums import ClikaRTNotImplementedError, ClikaRTTypeError, ClikaRTValueError, NodeKind, OpCode
from ._library import attend, c_text, check, check_pointer, ffi, lib, origins, text
from .dtype import DType
from .scopes import apply, scoped
from .tensor import Size, Tensor, wrap

__all__ = ["ModelGraph", "Node", "NodeKind", "OpCode", "trace"]


@dataclass(frozen=True)
class Node:
    """One node of a graph."""

    op_code: OpCode
    kind: NodeKind
    dtype: DType
    shape: Size
    #: The numbers of the nodes it reads.
    inputs: tuple[int, ...]


class ModelGraph:
    """A runnable graph, as :func:`clika_runtime.trace` returns it.  Any number of threads may run it at once."""

    __slots__ = ("__weakref__", "_handle")

    def __init__(self, handle: Any) -> None:
        self._handle = ffi.gc(handle, lib.clikart_graph_release)

    def input_names(self) -> list[str]:
        return [text(lib.clikart_graph_input_name(self._handle, i)) for i in range(lib.clikart_graph_input_count(self._handle))]

    def output_names(self) -> list[str]:
        return [text(lib.clikart_graph_output_name(self._handle, i)) for i in range(lib.clikart_graph_output_count(self._handle))]

    def nodes(self) -> list[Node]:
        """The nodes in the order they run; inputs, and tensors from outside, are nodes too."""
        found = []
        node = ffi.new("clikart_node*")
        for i in range(lib.clikart_graph_node_count(self._handle)):
            node.struct_size = ffi.sizeof("clikart_node")
            check(lib.clikart_graph_node(self._handle, i, node))
            shape, inputs = Size(node.shape[0 : node.rank]), tuple(node.inputs[0 : node.n_inputs])
            found.append(Node(OpCode(node.op_code), NodeKind(node.kind), DType.of_code(node.dtype), shape, inputs))
        return found

    def run(self, inputs: Sequence[Tensor] | Mapping[str, Tensor]) -> list[Tensor]:
        """Runs the graph.

        Args:
            inputs: tensors in the order of ``input_names()``, or by name.

        Raises:
            ValueError: a wrong number of inputs, a wrong name or a wrong shape.
            TypeError: a wrong dtype.
        """
        if scoped:
            apply()
        count = lib.clikart_graph_output_count(self._handle)
        outputs = ffi.new("clikart_tensor*[]", count)
        if isinstance(inputs, Mapping):
            given = list(inputs.items())  # keeps alive what the handles belong to
            names = [c_text(name, "run") for name, _ in given]
            handles = [_handle_of(t) for _, t in given]
            status = lib.clikart_graph_run_named(self._handle, names, handles, len(handles), outputs, count)
        else:
            tensors = list(inputs)
            handles = [_handle_of(t) for t in tensors]
            status = lib.clikart_graph_run(self._handle, handles, len(handles), outputs, count)
        if origins:
            attend()
        check(status)
        return [wrap(outputs[i]) for i in range(count)]


def _handle_of(value: object) -> Any:
    if not isinstance(value, Tensor):
        raise ClikaRTTypeError(f"run: the inputs of a graph are tensors, got {type(value).__name__}")
    return value._handle


def _names(given: Sequence[str] | None, count: int, what: str) -> list[str]:
    if given is None:
        return [f"{what}_{i}" for i in range(count)]
    if len(given) != count:
        raise ClikaRTValueError(f"trace: {len(given)} {what} names given for {count} {what}s")
    return list(given)


def trace(
    fn: Callable[[list[Tensor]], list[Tensor]],
    example_inputs: Sequence[Tensor],
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> ModelGraph:
    """Records what a function does to its inputs as a graph.

    The function runs once, over stand-ins that have the shapes and dtypes of the examples and no values: reading a
    value raises.  It takes one list of tensors and returns one.  Other tensors it uses, parameters among them, are part
    of the graph: it sees what is written into them in place later, not what a name or a parameter is bound to later.

    Args:
        fn: the function.
        example_inputs: a list of tensors; only their shapes and dtypes matter.
        input_names: a name for each input; ``input_0``, ... without it.
        output_names: a name for each output; ``output_0``, ... without it.

    Raises:
        ClikaRTError: the function read a value.
        TypeError: the function did not return a list of tensors.
        ValueError: wrong or repeated names.
    """
    if not isinstance(example_inputs, list):
        raise ClikaRTNotImplementedError("trace: example_inputs must be a list; other structures of tensors are not supported yet")
    names = _names(input_names, len(example_inputs), "input")
    for example in example_inputs:
        if not isinstance(example, Tensor):
            raise ClikaRTTypeError(f"trace: example inputs are tensors, got {type(example).__name__}")
    if scoped:
        apply()
    check(lib.clikart_capture_begin())
    try:
        stand_ins = [
            wrap(lib.clikart_capture_input(c_text(name, "trace"), example.dtype.code, tuple(example.shape) or ffi.NULL, example.ndim))
            for name, example in zip(names, example_inputs, strict=True)
        ]
        results = fn(stand_ins)
        if not isinstance(results, (list, tuple)) or not all(isinstance(r, Tensor) for r in results):
            raise ClikaRTTypeError(f"trace: the function must return a list of tensors, it returned {type(results).__name__}")
        out_names = [c_text(name, "trace") for name in _names(output_names, len(results), "output")]
        handles = [operand(r) for r in results]
    except BaseException:
        lib.clikart_capture_cancel()
        raise
    return ModelGraph(check_pointer(lib.clikart_capture_end(handles, out_names, len(handles))))
