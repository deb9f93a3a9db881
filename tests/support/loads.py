"""A schema with every kind of property and rule, plenty of good records for it, and looks at a graph from outside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lance

from omnigraph.graph.graph import Graph

SCHEMA = """
node Thing {
    name: String @key
    must: I32
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
    vec: Vector(3)?
    data: Blob?
    year: I32?
    code: String?
    isbn: String? @unique
    room: String?
    slot: I32?
    @range(year, 1600..2100)
    @check(code, "^[A-Z]{2}[0-9]+$")
    @unique(room, slot)
}
node Place { series: String number: I32 @key(series, number) }
node Note { text: String }
edge Near: Thing -> Place { weight: F64?  role: enum(first, last)? }
edge Leads: Thing -> Thing @card(0..1)
edge Reviews: Thing -> Thing @card(2..3)
"""

#: Rows that are committed before any load: ann has a taken isbn, a taken room, a leader and two reviews.
COMMITTED = """query seed() {
    insert Thing { name: "ann", must: 1, isbn: "i-ann", room: "a", slot: 1 }
    insert Thing { name: "bob", must: 2 }
    insert Thing { name: "cid", must: 3 }
    insert Place { series: "s", number: 1 }
    insert Near { from: "bob", to: "[\\"1\\",\\"s\\"]" }
    insert Leads { from: "ann", to: "bob" }
    insert Reviews { from: "ann", to: "bob" }
    insert Reviews { from: "ann", to: "cid" }
}"""


def new_graph(root: Path) -> Graph:
    graph = Graph.init(root, SCHEMA)
    graph.mutate(COMMITTED)
    return graph


def thing(name: object, **data: object) -> str:
    """The line of a thing; good unless `data` makes it bad."""
    return json.dumps({"type": "Thing", "data": {"name": name, "must": 1, **data}})


def edge(kind: str, source: object, target: object, **data: object) -> str:
    return json.dumps({"edge": kind, "from": source, "to": target, "data": data})


def good_line(number: int) -> str:
    """One of many good records of every type; things come first, what refers to them later."""
    match number % 5:
        case 0 | 1:
            return f'{{"type": "Thing", "data": {{"name": "t{number}", "must": {number}, "isbn": "i{number}"}}}}'
        case 2:
            return f'{{"type": "Place", "data": {{"series": "p", "number": {number}}}}}'
        case 3:
            place = f'[\\"{number - 1}\\",\\"p\\"]'
            return f'{{"edge": "Near", "from": "t{number - 2}", "to": "{place}", "data": {{"weight": 0.5}}}}'
        case _:
            return f'{{"edge": "leads", "from": "t{number - 4}", "to": "t{number - 3}"}}'


def good_lines(count: int) -> list[bytes]:
    return [good_line(number).encode() for number in range(count)]


def write_lines(path: Path, lines: Iterable[bytes]) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


# ---- looking from outside


def files_of(root: Path) -> dict[str, str]:
    """Every file of a graph with a digest of its bytes; locks are no content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def rows_of(graph: Graph, key: str, branch: str = "main") -> list[dict[str, Any]]:
    """The visible rows of a type, ordered by their ids."""
    (pin,) = [pin for name, pin in graph.snapshot(branch).pins.items() if name == key]
    uri = graph._core.environment.location.child(pin.location)
    if pin.branch is not None:
        uri = f"{uri}/tree/{pin.branch}"
    rows = lance.dataset(uri, version=pin.version).to_table().to_pylist()
    assert len(rows) == pin.row_count
    return sorted(rows, key=lambda row: row["id"])


def ids_of(graph: Graph, key: str, branch: str = "main") -> list[str]:
    return [row["id"] for row in rows_of(graph, key, branch)]
