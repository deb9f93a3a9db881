"""When two rows are the same row: typed, null-aware, and whatever the files behind them are."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.core.ids import TableKey
from omnigraph.errors import ConflictKind
from omnigraph.graph.graph import Graph
from support.branched_people import conflicts_of, named, put
from support.graphs import everything, new_graph

SCHEMA = """
node Thing {
    name: String @key
    text: String?
    tags: [String]?
    counts: [I64]?
    flags: [Bool]?
    days: [Date]?
    vec: Vector(3)?
    data: Blob?
    i64: I64?
    f64: F64?
    flag: Bool?
    day: Date?
    at: DateTime?
    stage: enum(draft, final)?
    _row_note: String?
}
"""
THING = TableKey("node:Thing")


def blob(value: bytes) -> str:
    return f"base64:{base64.b64encode(value).decode()}"


#: A property and values of it that are all different.
DIFFERENT: dict[str, list[Any]] = {
    "text": [None, "", " ", "a", "a\u0301", "\u00e1"],
    "tags": [None, [], [""], ["a", "b"], ["b", "a"], ["ab"], ["a,b"]],
    "counts": [None, [], [0], [1, 2], [2, 1]],
    "flags": [None, [], [False], [True], [True, False]],
    "days": [None, [], ["2020-01-01"], ["2020-01-02"]],
    "vec": [None, [0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
    "data": [None, blob(b""), blob(b"\0"), blob(b"\0" * 100_000), blob(b"\0" * 99_999 + b"\1")],
    "i64": [None, 0, 9007199254740992, 9007199254740993],
    "f64": [None, 0.0, 0.1, 0.30000000000000004, 0.3],
    "flag": [None, False, True],
    "day": [None, "1970-01-01", "1969-12-31"],
    "at": [None, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001Z"],
    "stage": [None, "draft", "final"],
    "_row_note": [None, "", "a", "b"],
}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path, SCHEMA) as graph:
        yield graph


def thing(name: str, property_: str, value: object) -> dict[str, Any]:
    return {"type": "Thing", "data": {"name": name, property_: value}}


def held(graph: Graph, property_: str, branch: str = "main") -> dict[str, Any]:
    return {row["id"]: row[property_] for row in everything(graph, branch)[THING]}


@pytest.mark.parametrize("property_", DIFFERENT)
def test_different_values_conflict_and_equal_ones_do_not(graph: Graph, property_: str) -> None:
    """Every pair of values of a property, one on each branch."""
    values = DIFFERENT[property_]
    pairs = {(one, other) for one in range(len(values)) for other in range(len(values))}
    put(graph, "main", *(thing(f"{a} {b}", "text", "before") for a, b in pairs))
    graph.create_branch("feature")
    put(graph, "feature", *(thing(f"{a} {b}", property_, values[a]) for a, b in pairs))
    put(graph, "main", *(thing(f"{a} {b}", property_, values[b]) for a, b in pairs))
    theirs, ours = held(graph, property_, "feature"), held(graph, property_)
    found = conflicts_of(graph, "feature")
    assert named(found) == sorted(
        (ConflictKind.DIVERGENT_UPDATE, THING, f"{a} {b}") for a, b in pairs if a != b
    )
    graph.merge("feature", strategy="theirs")
    assert held(graph, property_) == theirs
    assert theirs != ours


@pytest.mark.parametrize("property_", DIFFERENT)
def test_a_change_of_a_value_arrives(graph: Graph, property_: str) -> None:
    values = DIFFERENT[property_]
    put(graph, "main", *(thing(f"{n}", property_, value) for n, value in enumerate(values)))
    graph.create_branch("feature")
    moved = [*values[1:], values[0]]
    put(graph, "feature", *(thing(f"{n}", property_, value) for n, value in enumerate(moved)))
    put(graph, "main", thing("other", property_, values[1]))
    expected = held(graph, property_, "feature") | {"other": held(graph, property_)["other"]}
    result = graph.merge("feature")
    assert [(c.inserted, c.updated, c.deleted) for c in result.changes] == [(0, len(values), 0)]
    assert held(graph, property_) == expected


def test_rows_with_values_of_every_type_are_equal_after_they_were_written_again(
    graph: Graph,
) -> None:
    """Blobs get other files; their bytes count."""
    rows = [
        thing(f"{property_} {n}", property_, value)
        for property_, values in DIFFERENT.items()
        for n, value in enumerate(values)
    ]
    put(graph, "main", *rows)
    graph.create_branch("feature")
    put(graph, "feature", *rows, mode="overwrite")
    pins = graph.snapshot().pins
    assert graph.snapshot("feature").pins != pins
    result = graph.merge("feature")
    assert (result.changes, graph.snapshot().pins) == ((), pins)


def test_values_of_every_type_are_copied_as_they_are(graph: Graph) -> None:
    graph.create_branch("feature")
    rows = [
        thing(f"{property_} {n}", property_, value)
        for property_, values in DIFFERENT.items()
        for n, value in enumerate(values)
    ]
    put(graph, "feature", *rows)
    put(graph, "main", thing("own", "text", "x"))
    graph.merge("feature")
    merged = {row["id"]: row for row in everything(graph)[THING]}
    assert merged.pop("own")["text"] == "x"
    assert merged == {row["id"]: row for row in everything(graph, "feature")[THING]}
    assert graph.read_blob(THING, "data 3", "data") == b"\0" * 100_000


def test_a_conflict_shows_values_of_every_type(graph: Graph) -> None:
    values = {name: items[1] for name, items in DIFFERENT.items()}
    graph.create_branch("feature")
    put(graph, "feature", {"type": "Thing", "data": {"name": "x", **values}})
    put(graph, "main", {"type": "Thing", "data": {"name": "x"}})
    (conflict,) = conflicts_of(graph, "feature")
    assert conflict.ours == {"properties": {**dict.fromkeys(values), "name": "x"}}
    assert conflict.theirs is not None
    shown = {**values, "name": "x", "at": "1970-01-01T00:00:00.000Z"}
    assert conflict.theirs == {"properties": shown}
