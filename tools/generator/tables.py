"""Reads src/ops/table/*.toml, src/core/dtypes.toml and src/base/errors.toml, and checks them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PARAM_TYPES = ("Tensor", "Tensor?", "Tensor[]", "int", "int?", "int[]", "int[]?", "padding", "float", "float?", "bool", "dtype", "dtype?", "Generator?")
KINDS = ("create", "elementwise", "reduce", "row", "view", "join", "product", "index", "window", "random", "composite")
COLUMNS = {
    "code",
    "enum",
    "c",
    "sig",
    "kind",
    "dtype",
    "shape",
    "cost",
    "in_place",
    "data_dependent",
    "kernels",
    "list_limit",
    "doc",
    "example",
    "oracle",
    "samples",
    "tolerance",
    "error",
    "why",
}

#: What operators compute in unless their row says otherwise: all but the 8-bit floats, which are only stored.
COMPUTED = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]

# Nodes of a graph that no operator makes; Result is one more of the results of an operator that has several.  Their codes
# live below those of the table.
PSEUDO_OPS = {"Input": 1, "External": 2, "Constant": 3, "Result": 4, "Cond": 5, "WhileLoop": 6}
NODE_KINDS = {"Input": 1, "External": 2, "Constant": 3, "Create": 4, "Elementwise": 5, "Reduce": 6, "Row": 7, "View": 8, "Join": 9, "Product": 10, "Index": 11}
NODE_KINDS |= {"Window": 12, "Random": 13, "Composite": 14, "Control": 15}


@dataclass
class Param:
    """One parameter of an operator; `default` is Python text, or None where the caller must give it.

    `choices` are the words of an enum, whose `type` is then its name.
    """

    type: str
    name: str
    default: str | None
    choices: list[str] | None = None

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("Tensor")

    @property
    def kind(self) -> str:
        """The type, or "enum"; of paddings "int[]", which they are everywhere but in Python."""
        return "enum" if self.choices else "int[]" if self.type == "padding" else self.type


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
    outputs: list[str]  # their names; one without a name where there is one
    row: dict[str, Any] = field(repr=False)

    @property
    def tensors(self) -> list[Param]:
        return [p for p in self.params if p.is_tensor]

    @property
    def attributes(self) -> list[Param]:
        return [p for p in self.params if not p.is_tensor and p.type != "Generator?"]

    @property
    def random(self) -> bool:
        """Whether it draws from a generator."""
        return any(p.type == "Generator?" for p in self.params)

    @property
    def optional(self) -> bool:
        """Whether a tensor may be absent; the last attribute then says, bit by bit, which parameters were given."""
        return any(p.type == "Tensor?" for p in self.params)

    @property
    def c_name(self) -> str:
        """The name in C after the prefix, where it is taken by something else."""
        return str(self.row.get("c", self.name))

    @property
    def list_limit(self) -> str:
        """One more argument, where lists may have more entries than a tensor dimensions."""
        return f", {self.row['list_limit']}" if "list_limit" in self.row else ""

    @property
    def kernels(self) -> list[str]:
        """The dtypes that it computes in."""
        return list(self.row.get("kernels", COMPUTED))

    @property
    def composite(self) -> bool:
        """Whether it is made of other operators, and no node of a graph itself."""
        return self.kind == "composite"

    @property
    def has_kernel(self) -> bool:
        return self.kind not in ("view", "composite")

    @property
    def placed(self) -> bool:
        """Whether the caller says where the result is to live."""
        return not self.tensors or self.kind == "create"

    @property
    def result_class(self) -> str:
        """What several results are returned as."""
        return f"{camel(self.name)}Result"

    @property
    def in_place(self) -> bool:
        """Whether there is a form that writes over the first operand; its name has an underscore at the end."""
        return bool(self.row.get("in_place", False))


def is_method(op: Op) -> bool:
    """Whether the first operand is what it is about, so that it is a method of tensors too."""
    return bool(op.params) and op.params[0].type == "Tensor" and not op.placed


def in_place_doc(op: Op) -> str:
    first = op.params[0].name
    lines = op.doc.splitlines()
    return f"``{op.name}`` written over {first}: " + lines[0][:1].lower() + lines[0][1:]


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def read_enums() -> dict[str, dict[str, Any]]:
    """The enums of attributes: their `words`, whose places are their numbers, and `doc`."""
    return tomllib.loads((ROOT / "src/ops/enums.toml").read_text())


def parse_signature(text: str, where: str) -> tuple[list[Param], list[str]]:
    match = re.fullmatch(r"\((.*)\) -> (Tensor|\(Tensor \w+, Tensor \w+\))", text)
    if not match:
        raise SystemExit(f"{where}: cannot read signature {text!r}")
    enums = read_enums()
    params = []
    for part in filter(None, (p.strip() for p in match[1].split(", "))):
        fields = re.fullmatch(r"(\S+) (\w+)(?:=(\S+))?", part)
        if not fields or (fields[1] not in PARAM_TYPES and fields[1] not in enums):
            raise SystemExit(f"{where}: cannot read parameter {part!r}")
        words = enums[fields[1]]["words"] if fields[1] in enums else None
        params.append(Param(fields[1], fields[2], fields[3], words))
    lists = [p for p in params if p.type == "Tensor[]"]
    if lists and (len(lists) > 1 or [p for p in params if p.is_tensor][-1] is not lists[0] or any(p.type == "Tensor?" for p in params)):
        raise SystemExit(f"{where}: a list of tensors must be the only one and the last of the tensors, none of them optional")
    return params, re.findall(r"Tensor (\w+)", match[2]) or [""]


def read_ops() -> list[Op]:
    ops: list[Op] = []
    for path in sorted((ROOT / "src/ops/table").glob("*.toml")):
        for name, row in tomllib.loads(path.read_text()).items():
            where = f"{path.name}: [{name}]"
            if unknown := set(row) - COLUMNS:
                raise SystemExit(f"{where}: unknown columns {sorted(unknown)}")
            if row["kind"] not in KINDS:
                raise SystemExit(f"{where}: unknown kind {row['kind']!r}")
            params, outputs = parse_signature(row["sig"], where)
            rules = (row.get("dtype", ""), row.get("shape", ""))
            if (row["kind"] == "composite") == all(rules):
                raise SystemExit(f"{where}: all but composites have rules for dtype and shape")
            ops.append(Op(name, row["code"], row.get("enum", camel(name)), params, row["kind"], *rules, row["doc"].strip(), outputs, row))
    codes = [op.code for op in ops] + list(PSEUDO_OPS.values())
    if len(set(codes)) != len(codes):
        raise SystemExit("operator codes are not unique")
    return sorted(ops, key=lambda op: op.code)


def read_dtypes() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "src/core/dtypes.toml").read_text())["dtype"])


def read_errors() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "src/base/errors.toml").read_text())["error"])
