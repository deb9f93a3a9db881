"""A graph with every type of value, and what an export of it has to say."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from omnigraph.graph.graph import Graph

SCHEMA = """
node Thing {
    name: String @key
    text: String?
    flag: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    day: Date?
    at: DateTime?
    stage: enum(draft, final)?
    tags: [String]?
    counts: [I64]?
    floats: [F32]?
    days: [Date]?
    ats: [DateTime]?
    flags: [Bool]?
    vec: Vector(3)?
    data: Blob?
}
node Slot { series: String number: I32 @key(series, number) }
node Empty { k: String @key }
edge Near: Thing -> Slot { weight: F64? since: Date? }
edge Same: Thing -> Thing
"""
_TYPES = {
    "name": "String",
    "text": "String",
    "flag": "Bool",
    "i32": "I32",
    "i64": "I64",
    "u32": "U32",
    "u64": "U64",
    "f32": "F32",
    "f64": "F64",
    "day": "Date",
    "at": "DateTime",
    "stage": "String",
    "tags": "[String]",
    "counts": "[I64]",
    "floats": "[F32]",
    "days": "[Date]",
    "ats": "[DateTime]",
    "flags": "[Bool]",
    "vec": "Vector(3)",
    "data": "Blob",
}
LARGE = bytes(range(256)) * 512
FULL: dict[str, Any] = {
    "name": 'full "ü" 🦊',
    "text": 'say "hi"\\\n\t\x00\x1f\u2028',
    "flag": True,
    "i32": -(2**31),
    "i64": -(2**63),
    "u32": 2**32 - 1,
    "u64": 2**63 - 1,
    "f32": 0.1,
    "f64": 1e300,
    "day": "2024-02-29",
    "at": "2024-02-29T12:34:56.789Z",
    "stage": "draft",
    "tags": ["x", 'é, "y"\n'],
    "counts": [1, -(2**63)],
    "floats": [0.1, 2.5],
    "days": ["2024-01-01", "1969-12-31"],
    "ats": ["1969-12-31T23:59:59.999Z", "2024-01-01T00:00:00Z"],
    "flags": [True, False],
    "vec": [0.5, 0.1, -3.25],
    "data": "base64:" + base64.b64encode(LARGE).decode(),
}
EMPTY: dict[str, Any] = {"name": "", "text": "", "tags": [], "days": [], "data": "base64:"}
NULLS: dict[str, Any] = {"name": "nulls"}


def insert_thing(graph: Graph, row: dict[str, Any], branch: str = "main") -> Any:
    declared = ", ".join(f"${name}: {_TYPES[name]}" for name in row)
    given = ", ".join(f"{name}: ${name}" for name in row)
    return graph.mutate(f"query q({declared}) {{ insert Thing {{ {given} }} }}", row, branch=branch)


def exported_thing(row: dict[str, Any]) -> dict[str, Any]:
    """The line of a row: days and instants as numbers, everything that is missing as null."""
    data = {name: row.get(name) for name in _TYPES}
    if "day" in row:
        data |= {"day": 19782, "at": 1709210096789, "days": [19723, -1], "ats": [-1, 1704067200000]}
    return {"type": "Thing", "data": {"id": row["name"], **data}}


def world(folder: Path) -> Graph:
    """Three things, twelve slots in as many commits, and edges between them."""
    graph = Graph.init(folder / "world.omni", SCHEMA)
    for row in (NULLS, FULL, EMPTY):
        insert_thing(graph, row)
    for number in (3, 1, 2):
        slots = " ".join(f'insert Slot {{ series: "{s}", number: {number} }}' for s in "dacb")
        graph.mutate(f"query q() {{ {slots} }}")
    graph.mutate(
        'query q($a: String, $b: String) { insert Near { from: $a, to: $b, weight: 0.25, since: date("1970-01-02") } }',
        {"a": FULL["name"], "b": '["1","a"]'},
    )
    graph.mutate(
        "query q($a: String, $b: String) { insert Same { from: $a, to: $b } insert Same { from: $b, to: $a } }",
        {"a": FULL["name"], "b": "nulls"},
    )
    return graph


def lines_of(text: str) -> list[dict[str, Any]]:
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def key_of(line: dict[str, Any]) -> tuple[str, str]:
    key = f"edge:{line['edge']}" if "edge" in line else f"node:{line['type']}"
    return key, line["data"]["id"]
