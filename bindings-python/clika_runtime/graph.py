"""Graphs: what was recorded, to run again without Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import graph_page, graph_text
from ._enums import ClikaRTTypeError, ClikaRTValueError, NodeKind, OpCode
from ._library import attend, c_text, check, check_pointer, ffi, lib, origins, text
from ._refused import int_argument
from .dtype import DType
from .files import naming_file, path_bytes
from .scopes import apply, scoped
from .tensor import Size, Tensor, wrap

__all__ = ["ModelGraph", "Node", "NodeKind", "OpCode", "load"]


@dataclass(frozen=True)
class Node:
    """One node of a graph."""

    op_code: OpCode
    kind: NodeKind
    dtype: DType
    shape: Size
    #: The numbers of the nodes it reads.
    inputs: tuple[int, ...]
    #: Operators that are computed with it on the spot, in their order; the last of ``inputs`` are operands of theirs.
    epilogues: tuple[OpCode, ...] = ()
    #: It writes over its first input; nobody reads what it makes itself.
    in_place: bool = False
    #: The file and line of the call that it comes from; empty where that is unknown.
    place: str = ""
    #: Programs that it runs, as often as values say: the branches of a ``Cond``, condition and body of a ``WhileLoop``.  Their inputs are the node's.
    regions: tuple[ModelGraph, ...] = ()


class ModelGraph:
    """A runnable graph, as :func:`clika_runtime.trace` and :meth:`Compiled.take_graph` return it.  Any number of threads may run it at once."""

    __slots__ = ("__weakref__", "_handle", "_n_outputs")

    def __init__(self, handle: Any) -> None:
        self._handle = ffi.gc(handle, lib.clikart_graph_release)
        self._n_outputs: int = lib.clikart_graph_output_count(handle)

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
            found.append(
                Node(
                    OpCode(node.op_code),
                    NodeKind(node.kind),
                    DType.of_code(node.dtype),
                    shape,
                    inputs,
                    epilogues,
                    node.in_place,
                    text(node.place) if node.place else "",
                    tuple([ModelGraph(check_pointer(lib.clikart_graph_region(self._handle, i, k))) for k in range(node.n_regions)]),
                )
            )
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
        return graph_text.dot(self.nodes(), self.input_names(), self.outputs())

    def outputs(self) -> list[tuple[str, int]]:
        """The name of each output, and the node that makes it."""
        return [(name, check(lib.clikart_graph_output_node(self._handle, i))) for i, name in enumerate(self.output_names())]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph, with the tensors it holds, to a file that :func:`load` reads, here or in C and C++.

        Raises:
            OSError: the file cannot be written.
            NotImplementedError: the graph has something that a file cannot hold, such as a random generator of its own.
        """
        with naming_file("graph.save", path):
            check(lib.clikart_graph_save(self._handle, c_text(path_bytes(path, "graph.save"), "graph.save")))

    def to_html(self) -> str:
        """The graph as one page for a browser, which needs nothing else: a drawing, and a table with the line each node comes from."""
        return graph_page.page(self.nodes(), self.input_names(), self.outputs())

    def peak(self, shapes: Sequence[Sequence[int]] | Mapping[str, Sequence[int]] | None = None) -> int:
        """How many bytes a run takes, its results included; what kernels take for themselves for a while comes on top.

        Args:
            shapes: of the inputs, in their order or by name; without it those that the graph was recorded for.

        Raises:
            ValueError: shapes that do not fit.
            NotImplementedError: the graph's memory depends on more than the shapes.
        """
        if shapes is None:
            return check(lib.clikart_graph_peak(self._handle, ffi.NULL, ffi.NULL, 0))
        if isinstance(shapes, Mapping):
            if set(shapes) != set(self.input_names()):
                raise ClikaRTValueError(f"peak: shapes of {sorted(shapes)} given, the graph has the inputs {self.input_names()}")
            shapes = [shapes[name] for name in self.input_names()]
        sizes = [int_argument("peak", "shapes", size) for shape in shapes for size in shape]
        return check(lib.clikart_graph_peak(self._handle, sizes, [len(shape) for shape in shapes], len(shapes)))

    def audit(self, inputs: Iterable[Tensor]) -> str:
        """Runs the graph as always and operator by operator, as it was recorded, and compares all bits.

        Returns:
            Nothing when they agree, else what differs first: a node, with the line it comes from.

        Raises:
            NotImplementedError: the graph writes over memory or draws random numbers, so it cannot be run twice for the same.
        """
        handles = [_handle_of(t) for t in inputs]
        return self.audit_handles(handles, len(handles))

    def audit_handles(self, handles: Any, count: int) -> str:
        """As :meth:`audit`, for those who have the handles at hand, as a list or an array."""
        if scoped:
            apply()
        return text(check_pointer(lib.clikart_graph_audit(self._handle, handles, count)))

    def can_be_audited(self) -> bool:
        """Whether a run can be repeated: the graph writes over no memory and draws no random numbers."""
        return bool(lib.clikart_graph_can_be_audited(self._handle))

    def conditions(self) -> list[str]:
        """What has to hold for a graph that was captured with ``dynamic=True``, with the lines that come to depend on it; other inputs are refused."""
        return [text(check_pointer(lib.clikart_graph_condition(self._handle, i))) for i in range(lib.clikart_graph_condition_count(self._handle))]

    def mismatch(self, handles: Any, count: int) -> str:
        """What does not hold, or which operator does not take such sizes, for inputs whose handles are given as a list or an array; empty: all is right."""
        return text(check_pointer(lib.clikart_graph_mismatch(self._handle, handles, count)))

    def run(self, inputs: Iterable[Tensor] | Mapping[str, Tensor], out: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Runs the graph.

        Args:
            inputs: tensors in the order of ``input_names()``, or by name.
            out: tensors that the results are written to, one for each, of its shape and dtype; they are then what is returned.  Inputs may
                be among them, and are written over: a state by its successor, say, without other memory where the graph allows it.

        Raises:
            ValueError: a wrong number of inputs, a wrong name or a wrong shape.
            TypeError: a wrong dtype.
        """
        if out is not None:
            return self._run_into(inputs, out)
        if type(inputs) is list:
            handles = [_handle_of(t) for t in inputs]
            return self.run_handles(handles, len(handles))
        if isinstance(inputs, Tensor) or not isinstance(inputs, Iterable):
            raise ClikaRTTypeError(f"run: expected a list of tensors, or tensors by name, got {type(inputs).__name__}")
        if not isinstance(inputs, Mapping):
            return self.run(list(inputs))
        given = list(inputs.items())  # keeps alive what the handles belong to
        names = [c_text(name, "run") for name, _ in given]
        handles = [_handle_of(t) for _, t in given]
        if scoped:
            apply()
        outputs = ffi.new(_HANDLES, self._n_outputs)
        return self._results(lib.clikart_graph_run_named(self._handle, names, handles, len(handles), outputs, self._n_outputs), outputs)

    def _run_into(self, inputs: Iterable[Tensor] | Mapping[str, Tensor], out: Sequence[Tensor]) -> list[Tensor]:
        if isinstance(inputs, Mapping):
            names = self.input_names()
            if set(inputs) != set(names):
                raise ClikaRTValueError(f"run: inputs named {sorted(inputs)} given, the graph has {names}")
            inputs = [inputs[name] for name in names]
        if isinstance(out, Tensor) or not isinstance(out, Sequence):
            raise ClikaRTTypeError(f"run: out is a list of tensors, got {type(out).__name__}")
        handles, into = [_handle_of(t) for t in inputs], [_handle_of(t) for t in out]
        if scoped:
            apply()
        status = lib.clikart_graph_run_into(self._handle, handles, len(handles), into, len(into))
        if origins:
            attend()
        check(status)
        return list(out)

    def run_handles(self, handles: Any, count: int) -> list[Tensor]:
        """As :meth:`run`, for those who have the handles at hand, as a list or an array."""
        if scoped:
            apply()
        outputs = ffi.new(_HANDLES, self._n_outputs)
        return self._results(lib.clikart_graph_run(self._handle, handles, count, outputs, self._n_outputs), outputs)

    def run_like(self, handles: Any, layouts: Any) -> list[Tensor] | None:
        """The same, if the inputs lie as ``layouts`` say (an array of what ``clikart_tensor_layouts`` tells) and nothing is recorded."""
        if scoped:
            apply()
        outputs = ffi.new(_HANDLES, self._n_outputs)
        status = lib.clikart_graph_run_like(self._handle, handles, len(handles), layouts, len(layouts), outputs, self._n_outputs)
        return None if status == 0 else self._results(status, outputs)

    def _results(self, status: int, outputs: Any) -> list[Tensor]:
        if origins:
            attend()
        if status < 0:
            check(status)
        return [wrap(handle) for handle in outputs]


def load(path: str | os.PathLike[str], optimize: int = 2) -> ModelGraph:
    """Reads a graph that :meth:`ModelGraph.save` wrote.

    The tensors in it are mapped, not read: the file has to stay as it is while the graph is used.  Nothing in it is trusted.

    Args:
        path: the file.
        optimize: as for :func:`clika_runtime.trace`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no graph, or one of a later version.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> graph = crt.trace(lambda i: [i[0] * 2], [crt.ones(2)], ["x"], ["y"])
        >>> path = Path(tempfile.mkdtemp()) / "twice.graph"
        >>> graph.save(path)
        >>> crt.graph.load(path).run({"x": crt.tensor([1.0, 2.0])})[0].tolist()
        [2.0, 4.0]
    """
    with naming_file("graph.load", path):
        return ModelGraph(check_pointer(lib.clikart_graph_load(c_text(path_bytes(path, "graph.load"), "graph.load"), optimize)))


_HANDLES = ffi.typeof("clikart_tensor*[]")


def _handle_of(value: object) -> Any:
    if not isinstance(value, Tensor):
        raise ClikaRTTypeError(f"run: the inputs of a graph are tensors, got {type(value).__name__}")
    return value._handle
