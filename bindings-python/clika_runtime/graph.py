"""Graphs: what was recorded, to run again without Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import graph_text
from ._enums import ClikaRTTypeError, NodeKind, OpCode
from ._library import attend, c_text, check, ffi, lib, origins, text
from .dtype import DType
from .scopes import apply, scoped
from .tensor import Size, Tensor, wrap

__all__ = ["ModelGraph", "Node", "NodeKind", "OpCode"]


@dataclass(frozen=True)
class Node:
    """One node of a graph."""

    op_code: OpCode
    kind: NodeKind
    dtype: DType
    shape: Size
    #: The numbers of the nodes it reads.
    inputs: tuple[int, ...]
    #: Operators that are applied to its result on the spot; their other operands are the last of ``inputs``.
    epilogues: tuple[OpCode, ...] = ()


class ModelGraph:
    """A runnable graph, as :func:`clika_runtime.trace` and :meth:`Compiled.take_graph` return it.  Any number of threads may run it at once."""

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
            epilogues = tuple([OpCode(check(lib.clikart_graph_node_epilogue(self._handle, i, k))) for k in range(node.n_epilogues)])
            found.append(Node(OpCode(node.op_code), NodeKind(node.kind), DType.of_code(node.dtype), shape, inputs, epilogues))
        return found

    def summary(self) -> str:
        """A table of the nodes: what each reads and makes, the bytes of its result, and roughly how many operations it takes.

        Example:
            >>> w = crt.ones((4, 3))
            >>> graph = crt.trace(lambda i: [crt.relu(i[0] @ w)], [crt.ones((2, 4))], ["x"], ["y"])
            >>> print(graph.summary())
            node  operator       reads  result          bytes  operations
               0  Input x               float32 [2, 4]      0           0
               1  External              float32 [4, 3]      0           0
               2  MatMul + Relu  0 1    float32 [2, 3]     24          54
            1 of 3 nodes compute; 24 bytes of results, 54 operations
        """
        return graph_text.summary(self.nodes(), self.input_names())

    def to_dot(self) -> str:
        """The graph as a text in the language of Graphviz."""
        names = self.output_names()
        outputs = [(name, check(lib.clikart_graph_output_node(self._handle, i))) for i, name in enumerate(names)]
        return graph_text.dot(self.nodes(), self.input_names(), outputs)

    def run(self, inputs: Iterable[Tensor] | Mapping[str, Tensor]) -> list[Tensor]:
        """Runs the graph.

        Args:
            inputs: tensors in the order of ``input_names()``, or by name.

        Raises:
            ValueError: a wrong number of inputs, a wrong name or a wrong shape.
            TypeError: a wrong dtype.
        """
        if isinstance(inputs, Tensor) or not isinstance(inputs, Iterable):
            raise ClikaRTTypeError(f"run: expected a list of tensors, or tensors by name, got {type(inputs).__name__}")
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
