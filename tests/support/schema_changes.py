"""Graphs whose schema changes, and looks at them that do not go through the code under test."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import OmniError
from omnigraph.graph.graph import Graph
from support.graphs import run

PAPERS = """
interface Named { label: String? }
node Paper implements Named {
    doi: String @key
    title: String? @index
    year: I32? @index
    score: F32?
    stage: enum(draft, final)?
    tags: [String]?
    vec: Vector(3)? @index
    day: Date?
    body: Blob?
}
node Venue { name: String @key  city: String? }
edge Cites: Paper -> Paper { weight: F32?  note: String? }
edge At: Paper -> Venue
"""

PAPER, VENUE = TableKey("node:Paper"), TableKey("node:Venue")
CITES, AT = TableKey("edge:Cites"), TableKey("edge:At")


def _paper(number: int) -> dict[str, Any]:
    return {
        "type": "Paper",
        "data": {
            "doi": f"p{number}",
            "title": f"On Heaps {number}",
            "year": 2000 + number,
            "score": 0.1 * number,
            "stage": "draft" if number % 2 else "final",
            "tags": ["a", f"ü{number}"],
            "vec": [float(number), 0.5, -1.0],
            "day": f"2020-01-{number + 1:02d}",
            "body": f"base64:{'YWJj' * number}",
            "label": f"L{number}",
        },
    }


def _cites(number: int, source: str, target: str) -> dict[str, Any]:
    data = {"id": f"c{number}", "weight": 0.1 * number, "note": f"n{number}"}
    return {"edge": "Cites", "from": source, "to": target, "data": data}


def load(graph: Graph, *records: dict[str, Any], mode: str = "merge") -> None:
    """Load records in process."""
    path = Path(graph.uri).parent / f"{new_ulid()}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    graph.load(path, mode=mode, engine="local")


def fill(graph: Graph, folder: Path) -> None:
    """Rows in several fragments, some of them updated and deleted, half of them covered by indexes."""
    venues = [{"type": "Venue", "data": {"name": name}} for name in ("v1", "v2")]
    load(graph, *(_paper(number) for number in range(4)), *venues)
    load(graph, _paper(4), {"type": "Paper", "data": {"doi": "bare"}}, _cites(1, "p0", "p1"))
    load(graph, _cites(2, "p0", "p2"), _cites(3, "p2", "p3"), _cites(4, "p3", "p0"))
    load(graph, {"edge": "At", "from": "p1", "to": "v1", "data": {"id": "a1"}})
    graph.ensure_indices()
    load(graph, _paper(5), _paper(6))
    run(graph, 'update Paper set { title: "Trees", score: 2.5 } where doi = "p1"')
    run(graph, 'delete Paper where doi = "p3"')


# ---- looking


def dataset_of(graph: Graph, key: str) -> lance.LanceDataset:
    """The dataset behind a type, as Lance sees it."""
    pin = graph.snapshot().pins[TableKey(key)]
    return lance.dataset(f"{graph.uri}/{pin.location}", version=pin.version)


def row_ids(graph: Graph, key: str) -> dict[str, int]:
    """The row id of every entity of a type."""
    table = dataset_of(graph, key).to_table(columns=["id"], with_row_id=True)
    return dict(zip(table["id"].to_pylist(), table["_rowid"].to_pylist(), strict=True))


def covered(graph: Graph, key: str) -> dict[str, frozenset[int]]:
    """The fragments that the indexes of each column know."""
    found: dict[str, set[int]] = {}
    dataset = dataset_of(graph, key)
    for item in dataset.describe_indices():
        for name in item.field_names:
            known = found.setdefault(name, set())
            for segment in item.segments:
                known |= set(segment.fragment_ids)
    return {name: frozenset(fragments) for name, fragments in found.items()}


def exported(graph: Graph, **options: Any) -> list[dict[str, Any]]:
    """Everything that an export writes, in a stable order."""
    out = io.StringIO()
    graph.export(out, **options)
    return sorted((json.loads(line) for line in out.getvalue().splitlines()), key=str)


def files(graph: Graph) -> set[str]:
    """Every file of a graph; locks and caches, which mean nothing, left out."""
    root = Path(graph.uri)
    every = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {name for name in every if not name.startswith(("__lock", "__staging", "__derived", "__read"))}


def values(graph: Graph, query: str, **options: Any) -> list[tuple[Any, ...]]:
    """The rows of a query: the inside of its braces."""
    result = graph.query(f"query q() {{ {query} }}", **options)
    return sorted((tuple(row.values()) for row in result.to_pylist()), key=repr)


# ---- changing


def edited(text: str, *edits: tuple[str, str]) -> str:
    """A schema text with some passages replaced; each of them is there."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def apply(graph: Graph, *edits: tuple[str, str], **options: Any) -> Any:
    """Apply the present schema with some passages replaced."""
    return graph.apply_schema(edited(graph.schema, *edits), engine="local", **options)


@contextmanager
def no_trace(graph: Graph, error: type[OmniError], *fragments: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block is refused: no version of any dataset, no file, no commit tells of it."""
    before = files(graph), graph.snapshot(), graph.commits(), graph.schema
    with pytest.raises(error) as caught:
        yield caught
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert (files(graph), graph.snapshot(), graph.commits(), graph.schema) == before
    assert graph.pending_recoveries() == []
