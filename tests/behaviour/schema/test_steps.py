"""Every step of a plan, applied to rows in several fragments: what the rows are then, and what goes on working."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from omnigraph.graph.graph import Graph
from support.graphs import everything, rows_of, run
from support.schema_changes import (
    AT,
    CITES,
    PAPER,
    PAPERS,
    VENUE,
    covered,
    edited,
    exported,
    load,
    row_ids,
    values,
)

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Edit = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """A change of the schema, and what it makes of the rows."""

    edits: tuple[Edit, ...]
    steps: tuple[str, ...]
    #: Changes the rows of the graph as the schema change should.
    model: Callable[[Rows], None] = lambda rows: None
    backfill: dict[str, object] = field(default_factory=dict)
    #: What a new paper needs now.
    required: str = ""
    #: Columns of papers whose indexes have to be built again.
    unindexed: frozenset[str] = frozenset()


def _each(key: str, change: Callable[[Row], None]) -> Callable[[Rows], None]:
    def model(rows: Rows) -> None:
        for row in rows[key]:
            change(row)

    return model


def _put(key: str, **added: Any) -> Callable[[Rows], None]:
    return _each(key, lambda row: row.update(added))


def _rename_key(old: str, new: str) -> Callable[[Rows], None]:
    return lambda rows: rows.update({new: rows.pop(old)})


def _rename(key: str, old: str, new: str) -> Callable[[Rows], None]:
    return _each(key, lambda row: row.update({new: row.pop(old)}))


def _fill(name: str, value: Any) -> Callable[[Row], None]:
    def change(row: Row) -> None:
        if row[name] is None:
            row[name] = value

    return change


def _in_order(*models: Callable[[Rows], None]) -> Callable[[Rows], None]:
    def model(rows: Rows) -> None:
        for item in models:
            item(rows)

    return model


CITE = "edge Cites: Paper -> Paper { weight: F32?  note: String? }"
CHANGES: dict[str, Change] = {
    "a new node type": Change(
        (("node Venue", "node Author { name: String @key }\nnode Venue"),),
        ("add_type",),
        lambda rows: rows.update({"node:Author": []}),
    ),
    "a new edge type": Change(
        (("edge At", "edge Follows: Venue -> Venue @card(0..1) { year: I32 }\nedge At"),),
        ("add_type",),
        lambda rows: rows.update({"edge:Follows": []}),
    ),
    "a renamed edge type": Change(
        (("edge Cites: Paper -> Paper", 'edge Quotes: Paper -> Paper @rename_from("Cites")'),),
        ("rename_type",),
        _rename_key(CITES, "edge:Quotes"),
    ),
    "a renamed node type with edges": Change(
        (
            ("node Venue {", 'node Place @rename_from("Venue") {'),
            ("Paper -> Venue", "Paper -> Place"),
        ),
        ("rename_type",),
        _rename_key(VENUE, "node:Place"),
    ),
    "a renamed type that gets a column": Change(
        (
            ("node Venue { name: String @key ", 'node Place @rename_from("Venue") { name: String @key  size: I64'),
            ("Paper -> Venue", "Paper -> Place"),
        ),
        ("rename_type", "add_property"),
        _in_order(_rename_key(VENUE, "node:Place"), _put("node:Place", size=3)),
        {"Place.size": 3},
    ),
    "new columns without values": Change(
        (
            (
                "day: Date?",
                "day: Date? extra: U64? at: DateTime? flags: [Bool]? near: Vector(2)? file: Blob? kind: enum(a, b)?",
            ),
        ),
        ("add_property",) * 6,
        _put(PAPER, extra=None, at=None, flags=None, near=None, file=None, kind=None),
    ),
    "a new column in front": Change(
        (("doi: String @key", "first: I32?\n doi: String @key"),),
        ("add_property",),
        _put(PAPER, first=None),
    ),
    "new columns with values": Change(
        (
            (
                "day: Date?",
                "day: Date? lang: String kind: enum(a, b) flags: [String] near: Vector(2) at: DateTime big: I64?",
            ),
        ),
        ("add_property",) * 6,
        _each(
            PAPER,
            lambda row: row.update(
                lang=(row["title"] or "Untitled").lower(),
                kind="b",
                flags=["ä", ""],
                near=[0.5, 1.0],
                at=np.datetime64("2020-01-02T03:04:05.006").item(),
                big=row["year"],
            ),
        ),
        {
            "Paper.lang": 'lower(coalesce(title, "Untitled"))',
            "Paper.kind": '"b"',
            "node:Paper.flags": ["ä", ""],
            "Paper.near": [0.5, 1],
            "Paper.at": '"2020-01-02T03:04:05.006Z"',
            "Paper.big": "year",
        },
        required='lang: "x", kind: "a", flags: ["f"], near: [1.0, 2.0], at: datetime("2021-01-01T00:00:00Z")',
    ),
    "new columns of an edge": Change(
        (("note: String?", "note: String? since: I32 why: String?"),),
        ("add_property",) * 2,
        _each(CITES, lambda row: row.update(since=1999, why=None)),
        {"Cites.since": "1999"},
    ),
    "a new property of an interface": Change(
        (("label: String?", "label: String? rank: I32?"),),
        ("add_property",) * 2,
        _put(PAPER, rank=None),
    ),
    "renamed columns, with an index and a key": Change(
        (
            ("title: String? @index", 'name: String? @index @rename_from("title")'),
            ("doi: String @key", 'handle: String @key @rename_from("doi")'),
        ),
        ("rename_property",) * 2,
        _in_order(_rename(PAPER, "title", "name"), _rename(PAPER, "doi", "handle")),
        unindexed=frozenset({"title", "doi", "name", "handle"}),
    ),
    "renamed columns of blobs and edges": Change(
        (
            ("body: Blob?", 'file: Blob? @rename_from("body")'),
            ("note: String?", 'remark: String? @rename_from("note")'),
        ),
        ("rename_property",) * 2,
        _in_order(_rename(PAPER, "body", "file"), _rename(CITES, "note", "remark")),
    ),
    "an index": Change(
        (("score: F32?", "score: F32? @index"), ("label: String?", "label: String? @index")),
        ("add_constraint",) * 3,
    ),
    "rules that all rows keep": Change(
        (
            (
                "day: Date?",
                'day: Date?\n @unique(title)\n @unique(year, title)\n @range(year, 1900..2100)\n @check(doi, "^[a-z]")',
            ),
            (CITE, CITE.replace("Paper {", "Paper @card(1..2) {").replace("note: String?", "note: String? @unique")),
        ),
        ("add_constraint",) * 6,
    ),
    "a required column that every row has": Change(
        ((CITE, CITE.replace("F32?", "F32")),),
        ("tighten_nullability",),
    ),
    "a required column with values for those that lack one": Change(
        (("title: String? @index", "title: String @index"), ("tags: [String]?", "tags: [String]")),
        ("tighten_nullability",) * 2,
        _in_order(
            _each(PAPER, _fill("title", "Untitled: bare")), _each(PAPER, _fill("tags", []))
        ),
        {"Paper.title": 'concat("Untitled: ", doi)', "Paper.tags": []},
        required='title: "T", tags: ["t"]',
        unindexed=frozenset({"title"}),
    ),
    "wider numbers": Change(
        (("year: I32? @index", "year: I64? @index"), ("score: F32?", "score: F64?")),
        ("widen_property",) * 2,
        unindexed=frozenset({"year"}),
    ),
    "a wider and required number under another name": Change(
        (("year: I32? @index", 'born: I64 @index @rename_from("year")'),),
        ("rename_property", "widen_property", "tighten_nullability"),
        _in_order(_rename(PAPER, "year", "born"), _each(PAPER, _fill("born", 1900))),
        {"Paper.born": 1900},
        required="born: 1",
        unindexed=frozenset({"year", "born"}),
    ),
    "more values of an enum": Change(
        (("enum(draft, final)?", "enum(draft, final, gone)?"),),
        ("extend_enum",),
    ),
    "descriptions": Change(
        (
            ("node Venue {", 'node Venue @description("where") @instruction("ask") {'),
            ("day: Date?", 'day: Date? @description("of birth")'),
        ),
        ("update_property_metadata", "update_type_metadata"),
    ),
    "dropped columns": Change(
        (("    title: String? @index\n", ""), ("body: Blob?", ""), ("  note: String?", "")),
        ("drop_property",) * 3,
        _in_order(
            _each(PAPER, lambda row: (row.pop("title"), row.pop("body"))),
            _each(CITES, lambda row: row.pop("note")),
        ),
        unindexed=frozenset({"title"}),
    ),
    "a dropped edge type": Change(
        (("edge At: Paper -> Venue", ""),), ("drop_type",), lambda rows: rows.pop(AT)
    ),
    "dropped types": Change(
        (
            ("edge At: Paper -> Venue", ""),
            ("node Venue { name: String @key  city: String? }", ""),
        ),
        ("drop_type",) * 2,
        lambda rows: (rows.pop(AT), rows.pop(VENUE)),
    ),
    "everything at once": Change(
        (
            ("edge At: Paper -> Venue", ""),
            ("node Venue {", 'node Place @rename_from("Venue") {'),
            ("    title: String? @index\n", "    @unique(name)\n"),
            ("year: I32? @index", 'born: I64 @rename_from("year") @index'),
            ("day: Date?", "day: Date? name: String pages: I32?"),
            ("enum(draft, final)?", "enum(draft, final, gone)?"),
            ("edge Cites", "edge Near: Place -> Place\nedge Cites"),
        ),
        (
            "rename_property", "widen_property", "tighten_nullability", "add_property", "add_property",
            "extend_enum", "add_constraint", "rename_type", "add_type", "drop_property", "drop_type",
        ),
        _in_order(
            _each(PAPER, lambda row: row.update(name=row["doi"].upper(), pages=None)),
            _each(PAPER, lambda row: row.pop("title")),
            _rename(PAPER, "year", "born"),
            _each(PAPER, _fill("born", -1)),
            _rename_key(VENUE, "node:Place"),
            lambda rows: (rows.pop(AT), rows.update({"edge:Near": []})),
        ),
        {"Paper.born": -1, "Paper.name": "upper(doi)"},
        required='born: 5, name: "N"',
        unindexed=frozenset({"title", "year", "born"}),
    ),
}  # fmt: skip


#: After these every way to write and to look things up is tried: one per way that a table changes.
LIVED = (
    "a renamed edge type",
    "new columns without values",
    "new columns with values",
    "new columns of an edge",
    "renamed columns, with an index and a key",
    "a required column with values for those that lack one",
    "dropped columns",
    "everything at once",
)


def _wanted(change: Change) -> str:
    return edited(PAPERS, *change.edits)


def _lives_on(graph: Graph, change: Change) -> None:
    """Every way to write and to look things up works on papers and on what they cite."""
    papers = {row["id"] for row in rows_of(graph, PAPER)}
    key = "handle" if "handle: String" in graph.schema else "doi"
    edge = "Quotes" if "edge Quotes" in graph.schema else "Cites"
    rest = f", {change.required}" if change.required else ""
    other = rest.replace('"N"', '"G"')
    needed = ", since: 1" if "since: I32" in graph.schema else ""
    needed += ", weight: 0.5" if "weight: F32 " in graph.schema else ""
    run(
        graph,
        f'insert Paper {{ {key}: "new"{rest} }} insert Paper {{ {key}: "gone"{other} }}',
    )
    run(graph, f'insert {edge} {{ from: "new", to: "p0"{needed} }}')
    run(graph, f'update Paper set {{ day: date("2022-02-02") }} where {key} = "p0"')
    run(graph, f'delete Paper where {key} = "gone"')
    lines = [line for line in exported(graph) if line.get("type") == "Paper"]
    load(graph, *(line for line in lines if line["data"][key] in ("p2", "new")))
    graph.ensure_indices()
    assert {row["id"] for row in rows_of(graph, PAPER)} == papers | {"new"}
    found = values(graph, f'match {{ $p: Paper {{ {key}: "p0" }} }} return {{ $p.day as day }}')
    assert [str(day) for (day,) in found] == ["2022-02-02"]
    cited = values(
        graph,
        f'match {{ $p: Paper {{ {key}: "new" }} $p {edge.lower()} $q }} return {{ $q.{key} as k }}',
    )
    assert cited == [("p0",)]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_does_to_rows_what_it_says_and_nothing_else(name: str, graph: Graph) -> None:
    change = CHANGES[name]
    before, old = everything(graph), graph.commits()[0].commit_id
    text_before, ids_before, covered_before = (
        exported(graph),
        row_ids(graph, PAPER),
        covered(graph, PAPER),
    )
    receipt = graph.apply_schema(_wanted(change), backfill=change.backfill, engine="local")
    assert sorted(change.steps) == sorted(step.kind for step in receipt.plan.steps)
    assert [commit.kind for commit in graph.commits()][:1] == ["schema_apply"]
    assert graph.commits()[1].commit_id == old

    change.model(before)
    after = Graph.open(graph.uri)
    assert everything(after) == before == everything(graph)
    assert after.schema == graph.schema == _wanted(change)
    assert row_ids(after, PAPER) == ids_before
    kept = {
        column: known for column, known in covered_before.items() if column not in change.unindexed
    }
    assert covered(after, PAPER) == kept
    assert exported(after, snapshot=old) == text_before
    assert graph.apply_schema(_wanted(change), engine="local").applied is False
    if name in LIVED:
        _lives_on(after, change)


@pytest.mark.parametrize(
    "name", ["new columns with values", "rules that all rows keep", "everything at once"]
)
def test_a_change_of_empty_tables_leaves_them_empty(
    name: str, copy_of: Callable[[str], Graph]
) -> None:
    graph, change = copy_of("empty"), CHANGES[name]
    before = everything(graph)
    graph.apply_schema(_wanted(change), backfill=change.backfill, engine="local")
    change.model(before)
    assert everything(graph) == before
    run(graph, f'insert Paper {{ doi: "p0"{change.required and ", " + change.required} }}')
    assert [row["id"] for row in rows_of(graph, PAPER)] == ["p0"]
