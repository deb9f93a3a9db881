"""Pairs of graphs that have to be the same, one embedded and one behind a server."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph import Graph
from omnigraph.api.rows import Result
from omnigraph.client.remote_graph import RemoteGraph
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.snapshot import Snapshot
from omnigraph.display.listings import Listing
from omnigraph.display.pictures import Picture
from omnigraph.errors import OmniError
from omnigraph.lang.schema.catalog import Catalog

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  big: I64?
  ratio: F64?
  born: Date?
  seen: DateTime?
  tags: [String]?
  level: enum(high, low)?
  vec: Vector(2)?
  photo: Blob?
}
node Scan { name: String @key  file: Blob? }
node Paper { doi: String @key  year: I32? }
edge Wrote: Person -> Paper { role: String?  note: Blob? }
"""
QUERIES = """
query people() @description("Everybody") { match { $p: Person } return { $p.name as name } order { $p.name } }
query older($age: I32) { match { $p: Person  $p.age > $age } return { $p.name as name, $p.age as age } }
query add_person($name: String) { insert Person { name: $name } }
"""
ROWS = [
    {
        "type": "Person",
        "data": {
            "name": "ada",
            "age": 36,
            "big": 9007199254740993,
            "ratio": 0.1,
            "born": "1815-12-10",
            "seen": "2026-05-01T12:00:00.250Z",
            "tags": ["x", "ü\n"],
            "level": "high",
            "vec": [0.1, -1],
            "photo": "base64:SGVsbG8gd29ybGQ=",
        },
    },
    {"type": "Person", "data": {"name": 'gr"ace\t', "age": 85, "photo": "base64:"}},
    {"type": "Person", "data": {"name": "alan"}},
    {"type": "Paper", "data": {"doi": "10.1", "year": 1843}},
    {"type": "Paper", "data": {"doi": "10.2"}},
    {"edge": "Wrote", "from": "ada", "to": "10.1", "data": {"id": "w1", "role": "author", "note": "base64:bm90ZQ=="}},
]
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"

#: ULIDs, times in microseconds, hashes of schemas, which hold an id of their graph, and sizes of bodies, which are sent
#: unpacked and with line ends of their own.
#: Moments of commits as people read them.
_MOMENT = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{3}Z)?")
_OWN = re.compile(r"01[0-9A-HJKMNP-TV-Z]{24}|\b1[789]\d{14}\b|sha256:[0-9a-f]{64}|\d+ B of input[^\"]*")


def make_history(root: Path, outside: Path) -> str:
    """A graph with several commits, a branch that differs, one that is gone, and a blob outside of it."""
    lines = root / "rows.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in ROWS))
    uri = str(root / "people.omni")
    scan = {"type": "Scan", "data": {"name": "outside", "file": outside.as_uri()}}
    scans = root / "scans.jsonl"
    scans.write_text(json.dumps(scan))
    with Graph.init(uri, SCHEMA, external_blobs=[outside.parent.as_uri()]) as graph:
        graph.load(lines, mode="append", engine="local", actor="act-ivo")
        graph.load(scans, mode="overwrite", engine="local")
        graph.create_branch("draft/one")
        graph.mutate(ADD, {"name": "emmy", "age": 53}, branch="draft/one", actor="act-nadia")
        graph.mutate('query old() { update Person set { age: 37 } where name = "ada" }', branch="draft/one")
        graph.create_branch("gone")
        graph.mutate(ADD, {"name": "lost"}, branch="gone")
        graph.merge("gone", delete_branch=True)
        graph.mutate('query bye() { delete Person where name = "lost" }')
    return uri


def told(value: object) -> object:
    """Everything that a caller can see of an answer, as JSON."""
    if isinstance(value, Result):
        table = value.to_arrow()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return {
            "json": value.to_json(),
            "rows": repr(value.to_pylist()),
            "arrow": sink.getvalue().to_pybytes().hex(),
            "schema": table.schema.to_string(show_field_metadata=True),
            "text": repr(value),
            "html": value._repr_html_(),
            "target": str(value.target),
            "types": [str(type_) for type_ in value.types],
        }
    if isinstance(value, Snapshot):
        return value.document()
    if isinstance(value, GraphCommit):
        # The schema of a commit is what its graph decodes old rows with; it stays where they are.
        fields = vars_of(replace(value, schema_source=None, schema_contract=None))
        return {"fields": repr(fields), "text": repr(value), "html": value._repr_html_()}
    if isinstance(value, Listing):
        return {"items": [told(item) for item in value], "text": repr(value), "html": value._repr_html_()}
    if isinstance(value, list):
        return [told(item) for item in value]
    if isinstance(value, Catalog):
        return {"fields": repr(vars_of(value)), "text": repr(value), "html": value._repr_html_()}
    if isinstance(value, Picture):
        return {"text": repr(value), "html": value.to_html(), "svg": value.to_svg()}
    if hasattr(value, "to_json"):
        return {"json": value.to_json(), "text": _shown(value), "html": _html_of(value)}
    return repr(value)


def _html_of(value: Any) -> str:
    return value._repr_html_() if hasattr(value, "_repr_html_") else ""


def vars_of(value: Any) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in fields(value)}


def _shown(value: object) -> str:
    """The fields of receipts and infos; of diffs, whose classes differ, what iterating over them gives."""
    if hasattr(value, "to_arrow"):
        table = value.to_arrow().combine_chunks()
        return repr([*value, value.stats, len(value), value.graph_branch, table, value])
    return "" if hasattr(value, "plan") else repr(value)


def outcome(call: Callable[[Any], object], graph: Graph | RemoteGraph) -> str:
    """What a call gives or raises, as one text; addresses are left out."""
    try:
        answer = told(call(graph))
    except OmniError as error:
        answer = {
            "class": type(error).__name__,
            "fields": dict(sorted(vars(error).items())),
            "body": error.to_json(),
            "text": str(error),
            "exit": error.exit_code,
        }
    return json.dumps(answer, indent=1, default=repr).replace(graph.uri, "<address>")


def neutral(text: str) -> str:
    """The same text with ids and times replaced in the order of their appearance."""
    seen: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"<{len(seen)}>")

    return _OWN.sub(stand_in, _MOMENT.sub("<moment>", text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An embedded graph and a remote one."""

    embedded: Graph
    remote: RemoteGraph

    def outcomes(self, call: Callable[[Any], object]) -> tuple[str, str]:
        """What a call gives on both, as texts that have to be equal byte for byte."""
        return outcome(call, self.remote), outcome(call, self.embedded)

    def neutral_outcomes(self, call: Callable[[Any], object]) -> tuple[str, str]:
        """The same for twins, which have ids and times of their own."""
        remote, embedded = self.outcomes(call)
        return neutral(remote), neutral(embedded)


def exported(graph: Graph | RemoteGraph, **options: Any) -> tuple[str, object]:
    """The lines of an export, and its result."""
    out = io.StringIO()
    result = graph.export(out, engine="local", **options)
    return out.getvalue(), result.to_json()
