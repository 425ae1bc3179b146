"""Reads src/ops/table/*.toml, src/core/dtypes.toml and src/base/errors.toml, and checks them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PARAM_TYPES = ("Tensor", "Tensor[]", "int", "int?", "int[]", "int[]?", "float", "bool", "dtype", "dtype?")
KINDS = ("create", "elementwise", "reduce", "row", "view", "join", "product", "index")
COLUMNS = {"code", "enum", "sig", "kind", "dtype", "shape", "cost", "in_place", "data_dependent", "doc", "example", "oracle", "samples", "tolerance", "why"}

# Nodes of a graph that no operator makes.  Their codes live below those of the table.
PSEUDO_OPS = {"Input": 1, "External": 2, "Constant": 3}
NODE_KINDS = {"Input": 1, "External": 2, "Constant": 3, "Create": 4, "Elementwise": 5, "Reduce": 6, "Row": 7, "View": 8, "Join": 9, "Product": 10, "Index": 11}


@dataclass
class Param:
    """One parameter of an operator; `default` is Python text, or None where the caller must give it."""

    type: str
    name: str
    default: str | None

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("Tensor")


@dataclass
class Op:
    """One row of the operator table."""

    name: str
    code: int
    enum: str
    params: list[Param]
    kind: str
    dtype: str
    shape: str
    doc: str
    row: dict[str, Any] = field(repr=False)

    @property
    def tensors(self) -> list[Param]:
        return [p for p in self.params if p.is_tensor]

    @property
    def attributes(self) -> list[Param]:
        return [p for p in self.params if not p.is_tensor]

    @property
    def placed(self) -> bool:
        """Whether the caller says where the result is to live."""
        return self.kind == "create"

    @property
    def in_place(self) -> bool:
        """Whether there is a form that writes over the first operand; its name has an underscore at the end."""
        return bool(self.row.get("in_place", False))


def in_place_doc(op: Op) -> str:
    first = op.params[0].name
    lines = op.doc.splitlines()
    return f"``{op.name}`` written over {first}: " + lines[0][:1].lower() + lines[0][1:]


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def parse_signature(text: str, where: str) -> list[Param]:
    match = re.fullmatch(r"\((.*)\) -> Tensor", text)
    if not match:
        raise SystemExit(f"{where}: cannot read signature {text!r}")
    params = []
    for part in filter(None, (p.strip() for p in match[1].split(","))):
        fields = re.fullmatch(r"(\S+) (\w+)(?:=(\S+))?", part)
        if not fields or fields[1] not in PARAM_TYPES:
            raise SystemExit(f"{where}: cannot read parameter {part!r}")
        params.append(Param(fields[1], fields[2], fields[3]))
    return params


def read_ops() -> list[Op]:
    ops: list[Op] = []
    for path in sorted((ROOT / "src/ops/table").glob("*.toml")):
        for name, row in tomllib.loads(path.read_text()).items():
            where = f"{path.name}: [{name}]"
            if unknown := set(row) - COLUMNS:
                raise SystemExit(f"{where}: unknown columns {sorted(unknown)}")
            if row["kind"] not in KINDS:
                raise SystemExit(f"{where}: unknown kind {row['kind']!r}")
            params = parse_signature(row["sig"], where)
            ops.append(Op(name, row["code"], row.get("enum", camel(name)), params, row["kind"], row["dtype"], row["shape"], row["doc"].strip(), row))
    codes = [op.code for op in ops] + list(PSEUDO_OPS.values())
    if len(set(codes)) != len(codes):
        raise SystemExit("operator codes are not unique")
    return sorted(ops, key=lambda op: op.code)


def read_dtypes() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "src/core/dtypes.toml").read_text())["dtype"])


def read_errors() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "src/base/errors.toml").read_text())["error"])
