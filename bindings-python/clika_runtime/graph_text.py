"""Graphs as text: a table for people, and the language of Graphviz."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ._enums import NodeKind, OpCode

if TYPE_CHECKING:
    from .graph import ModelGraph, Node

LEAVES = (NodeKind.Input, NodeKind.External, NodeKind.Constant)


def title(node: Node) -> str:
    """The operator, with the ones that are applied to its result."""
    title = " + ".join([node.op_code.name, *(epilogue.name for epilogue in node.epilogues)])
    return f"{title} ({', '.join(str(computing(region.nodes())) for region in node.regions)} nodes)" if node.regions else title


def computing(nodes: Sequence[Node]) -> int:
    """How many nodes compute."""
    return sum(node.kind not in LEAVES for node in nodes)


def result_bytes(node: Node) -> int:
    """What the result takes; views take nothing."""
    return 0 if node.kind in (NodeKind.View, *LEAVES) else math.ceil(node.shape.numel() * node.dtype.bits / 8)


def operations(node: Node, nodes: Sequence[Node]) -> int:
    """Roughly how many numbers are multiplied or added: two for each step of a product's sums, one for each element of all else."""
    elements = node.shape.numel()
    if node.kind in (NodeKind.View, *LEAVES):
        return 0
    if node.regions:  # of a round, or of the longer branch
        counts = [sum(operations(inner, region.nodes()) for inner in region.nodes()) for region in node.regions]
        return max(counts) if node.op_code is OpCode.Cond else sum(counts)
    count = elements * len(node.epilogues)
    if node.op_code is OpCode.ScaledDotProductAttention:  # with each key, and with each value
        keys = nodes[node.inputs[1]].shape[-2]
        return count + 2 * keys * (nodes[node.inputs[0]].shape.numel() + elements)
    if node.kind is NodeKind.Product:
        operands = [nodes[i].shape for i in node.inputs]
        if node.op_code in (OpCode.Addmm, OpCode.Baddbmm):
            operands = operands[1:]
        if node.op_code.name.startswith("Conv"):
            multiplied = operands[0].numel() if "Transpose" in node.op_code.name else elements
            return count + 2 * multiplied * (operands[1].numel() // max(1, operands[1][0]))
        return count + 2 * elements * (operands[0][-1] if operands[0] else 1)
    if node.kind is NodeKind.Reduce:
        return count + nodes[node.inputs[0]].shape.numel()
    return count + elements


def regions_of(nodes: Sequence[Node]) -> Iterator[tuple[str, ModelGraph]]:
    """What nodes run, each under a name."""
    for number, node in enumerate(nodes):
        names = ("on_true", "on_false") if node.op_code is OpCode.Cond else ("condition", "body")
        for name, region in zip(names, node.regions, strict=False):
            yield f"{name} of node {number}", region


def summary(nodes: Sequence[Node], names: Sequence[str]) -> str:
    """A line for each node, and sums; behind them the same of what nodes run."""
    rows = [("node", "operator", "reads", "result", "bytes", "operations")]
    inputs = iter(names)
    for number, node in enumerate(nodes):
        what = f"Input {next(inputs)}" if node.kind is NodeKind.Input else title(node)
        result = f"{node.dtype.name} {list(node.shape)}"
        reads = " ".join(map(str, node.inputs))
        rows.append((str(number), what, reads, result, f"{result_bytes(node):,}", f"{operations(node, nodes):,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = [
        "  ".join(cell.rjust(w) if column in (0, 4, 5) else cell.ljust(w) for column, (cell, w) in enumerate(zip(row, widths, strict=True))) for row in rows
    ]
    total_bytes, total = sum(map(result_bytes, nodes)), sum(operations(node, nodes) for node in nodes)
    inner = [f"\n{name}:\n{textwrap.indent(region.summary(), '  ')}" for name, region in regions_of(nodes)]
    return "\n".join(
        [
            *(line.rstrip() for line in lines),
            f"{computing(nodes)} of {len(nodes)} nodes compute; {total_bytes:,} bytes of results, {total:,} operations",
            *inner,
        ]
    )


def dot(nodes: Sequence[Node], input_names: Sequence[str], outputs: Sequence[tuple[str, int]]) -> str:
    """The graph in the language of Graphviz."""
    lines = ["digraph {", "  node [shape=box, fontname=monospace]"]
    inputs = iter(input_names)
    for number, node in enumerate(nodes):
        what = f"Input {next(inputs)}" if node.kind is NodeKind.Input else title(node)
        style = ", style=dashed" if node.kind in LEAVES else ""
        lines.append(f"  n{number} [label={_quoted(f'{what}{chr(10)}{node.dtype.name} {list(node.shape)}')}{style}]")
        lines += [f"  n{read} -> n{number}" for read in node.inputs]
    for i, (name, number) in enumerate(outputs):
        lines += [f"  o{i} [label={_quoted(f'Output {name}')}, style=dashed]", f"  n{number} -> o{i}"]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
