"""A graph as one page for a browser: a drawing in layers, and a table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._enums import NodeKind
from .graph_text import LEAVES, computing, operations, regions_of, result_bytes, title

if TYPE_CHECKING:
    from .graph import Node

_DRAWN = 400  # nodes; of more a drawing shows nothing
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 190, 44, 24, 40

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 24px; color: #1c2430; }
h1 { font-size: 20px; margin: 0 0 4px; }
h2 { font-size: 16px; margin: 28px 0 4px; }
p.sums { color: #566; margin: 0 0 16px; }
div.drawing { overflow: auto; max-height: 70vh; border: 1px solid #d5dbe3; border-radius: 6px; margin-bottom: 20px; }
svg text { font: 11px ui-monospace, monospace; fill: #1c2430; }
svg text.shape { fill: #667; }
rect { stroke: #8a97a8; fill: #f4f7fb; }
rect.Input, rect.output { fill: #e6f4ea; stroke: #4c9a68; }
rect.External, rect.Constant { fill: #fff; stroke-dasharray: 4 3; }
rect.Product { fill: #fdeedd; stroke: #cf8a3a; }
rect.Elementwise { fill: #e8effc; stroke: #5b83c9; }
rect.written { stroke: #c0392b; stroke-width: 2; }
path { fill: none; stroke: #9aa6b5; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 3px 12px 3px 0; border-bottom: 1px solid #e7ebf0; vertical-align: top; }
th { position: sticky; top: 0; background: #fff; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.place { color: #667; font-size: 12px; }
g.node:hover rect, tr:target { filter: brightness(0.94); background: #fff6d6; }
"""


def page(nodes: Sequence[Node], input_names: Sequence[str], outputs: Sequence[tuple[str, int]]) -> str:
    """The whole page."""
    left, right = (html.escape(", ".join(names) or "nothing") for names in (input_names, [name for name, _ in outputs]))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>Graph of {computing(nodes)} nodes</title><style>{_STYLE}</style></head><body>',
            f"<h1>{left} &rarr; {right}</h1>",
            *_part(nodes, input_names, outputs, "n"),
            "</body></html>",
            "",
        ]
    )


def _part(nodes: Sequence[Node], input_names: Sequence[str], outputs: Sequence[tuple[str, int]], prefix: str) -> list[str]:
    """One program, and behind it those that its nodes run; `prefix` is that of the nodes' places on the page."""
    titles = _titles(nodes, input_names)
    total, total_bytes = sum(operations(node, nodes) for node in nodes), sum(map(result_bytes, nodes))
    drawn = len(nodes) <= _DRAWN
    lines = [
        f'<p class="sums">{computing(nodes)} of {len(nodes)} nodes compute; {total_bytes:,} bytes of results, {total:,} operations</p>',
        f'<div class="drawing">{_drawing(nodes, titles, outputs, prefix)}</div>' if drawn else f"<p>No drawing: {len(nodes)} nodes.</p>",
        _table(nodes, titles, prefix),
    ]
    for i, (name, region) in enumerate(regions_of(nodes)):
        lines += [f"<h2>{name}</h2>", *_part(region.nodes(), region.input_names(), region.outputs(), f"{prefix}{i}-")]
    return lines


def _titles(nodes: Sequence[Node], input_names: Sequence[str]) -> list[str]:
    inputs = iter(input_names)
    return [f"Input {next(inputs)}" if node.kind is NodeKind.Input else title(node) for node in nodes]


def _layers(nodes: Sequence[Node]) -> list[int]:
    """How far each node is from what it begins with; what only stands for a value is right above its first reader."""
    layer = [0] * len(nodes)
    for number, node in enumerate(nodes):
        if node.kind not in LEAVES:
            layer[number] = 1 + max((layer[read] for read in node.inputs), default=0)
    for number in reversed(range(len(nodes))):
        if nodes[number].kind in LEAVES and nodes[number].kind is not NodeKind.Input:
            layer[number] = max(0, min((layer[i] for i, node in enumerate(nodes) if number in node.inputs), default=1) - 1)
    return layer


def _drawing(nodes: Sequence[Node], titles: Sequence[str], outputs: Sequence[tuple[str, int]], prefix: str) -> str:
    layer = _layers(nodes)
    boxes = [(layer[i], titles[i], f"{node.dtype.name} {list(node.shape)}", _classes(node), node.inputs) for i, node in enumerate(nodes)]
    boxes += [(max(layer, default=0) + 1, f"Output {name}", "", "output", (number,)) for name, number in outputs]
    columns: dict[int, int] = {}
    places: list[tuple[float, float]] = []
    for depth, *_ in boxes:
        column = columns.get(depth, 0)
        columns[depth] = column + 1
        places.append((column, depth))
    widest = max(columns.values(), default=1)
    centred = [
        ((column + (widest - columns[int(depth)]) / 2) * (_WIDTH + _GAP_X) + _GAP_X, depth * (_HEIGHT + _GAP_Y) + _GAP_Y / 2) for column, depth in places
    ]
    lines, shapes = [], []
    for number, (_, what, shape, classes, reads) in enumerate(boxes):
        x, y = centred[number]
        for read in reads:
            from_x, from_y = centred[read][0] + _WIDTH / 2, centred[read][1] + _HEIGHT
            to_x, middle = x + _WIDTH / 2, (centred[read][1] + _HEIGHT + y) / 2
            lines.append(f'<path d="M{from_x:.0f} {from_y:.0f} C{from_x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {y:.0f}"/>')
        text = what if len(what) <= 28 else what[:27] + "…"
        tip = f"{number}: {what}\n{shape}" + (f"\n{nodes[number].place}" if number < len(nodes) and nodes[number].place else "")
        label = (
            f'<text x="{x + 8:.0f}" y="{y + 18:.0f}">{html.escape(text)}</text><text class="shape" x="{x + 8:.0f}" y="{y + 34:.0f}">{html.escape(shape)}</text>'
        )
        box = f'<rect class="{classes}" x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
        link = f'<a href="#{prefix}{number}">{box}{label}</a>' if number < len(nodes) else box + label
        shapes.append(f'<g class="node"><title>{html.escape(tip)}</title>{link}</g>')
    width, height = widest * (_WIDTH + _GAP_X) + _GAP_X, (max(columns, default=0) + 1) * (_HEIGHT + _GAP_Y)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{"".join(lines)}{"".join(shapes)}</svg>'


def _classes(node: Node) -> str:
    return f"{node.kind.name}{' written' if node.in_place else ''}"


def _table(nodes: Sequence[Node], titles: Sequence[str], prefix: str) -> str:
    rows = []
    for number, node in enumerate(nodes):
        reads = " ".join(f'<a href="#{prefix}{read}">{read}</a>' for read in node.inputs)
        over = " (in place)" if node.in_place else ""
        rows.append(
            f'<tr id="{prefix}{number}"><td class="number">{number}</td><td>{html.escape(titles[number])}{over}</td><td>{reads}</td>'
            f'<td>{node.dtype.name} {list(node.shape)}</td><td class="number">{result_bytes(node):,}</td>'
            f'<td class="number">{operations(node, nodes):,}</td><td class="place">{html.escape(node.place)}</td></tr>'
        )
    names = (("node", "number"), ("operator", ""), ("reads", ""), ("result", ""), ("bytes", "number"), ("operations", "number"), ("from", ""))
    head = "<tr>" + "".join(f'<th class="{style}">{name}</th>' for name, style in names) + "</tr>"
    return f"<table>{head}{''.join(rows)}</table>"
