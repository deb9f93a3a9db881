"""Every step of a plan, applied to rows in several fragments: what the rows are then, and what goes on working."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import OmniGraphDataSource
from omnigraph.errors import HistoricalVersionReclaimedError, SchemaViolationsError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema.backfill import Call, Constant, Expression, PropertyValue
from omnigraph.pipeline.rewrite import evaluate
from support.graphs import everything, ids_of, new_graph, rows_of, run
from support.schema_changes import (
    AT,
    CITES,
    PAPER,
    PAPERS,
    VENUE,
    apply,
    covered,
    edited,
    exported,
    load,
    no_trace,
    row_ids,
    values,
)
from support.spark import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Edit = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """A change of the schema, and what it makes of the rows."""

    #: One or several: what the schema says, and what instead.
    edit: Edit | tuple[Edit, ...]
    #: One kind of step or several.
    step: str | tuple[str, ...]
    #: Changes the rows of the graph as the schema change should.
    model: Callable[[Rows], None] = lambda rows: None
    backfill: dict[str, object] = field(default_factory=dict)
    #: What a new paper needs now.
    required: str = ""
    #: Columns of papers whose indexes have to be built again.
    unindexed: frozenset[str] = frozenset()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return (self.edit,) if isinstance(self.edit[0], str) else self.edit

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,) if isinstance(self.step, str) else self.step


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
        ("node Venue", "node Author { name: String @key }\nnode Venue"),
        "add_type",
        lambda rows: rows.update({"node:Author": []}),
    ),
    "a new edge type": Change(
        ("edge At", "edge Follows: Venue -> Venue @card(0..1) { year: I32 }\nedge At"),
        "add_type",
        lambda rows: rows.update({"edge:Follows": []}),
    ),
    "a renamed edge type": Change(
        ("edge Cites: Paper -> Paper", 'edge Quotes: Paper -> Paper @rename_from("Cites")'),
        "rename_type",
        _rename_key(CITES, "edge:Quotes"),
    ),
    "a renamed node type with edges": Change(
        (("node Venue {", 'node Place @rename_from("Venue") {'), ("Paper -> Venue", "Paper -> Place")),
        "rename_type",
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
            "day: Date?",
            "day: Date? extra: U64? at: DateTime? flags: [Bool]? near: Vector(2)? file: Blob? kind: enum(a, b)?",
        ),
        ("add_property",) * 6,
        _put(PAPER, extra=None, at=None, flags=None, near=None, file=None, kind=None),
    ),
    "a new column in front": Change(
        ("doi: String @key", "first: I32?\n doi: String @key"), "add_property", _put(PAPER, first=None)
    ),
    "new columns with values": Change(
        (
            "day: Date?",
            "day: Date? lang: String kind: enum(a, b) flags: [String] near: Vector(2) at: DateTime big: I64?",
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
        ("note: String?", "note: String? since: I32 why: String?"),
        ("add_property",) * 2,
        _each(CITES, lambda row: row.update(since=1999, why=None)),
        {"Cites.since": "1999"},
    ),
    "a new property of an interface": Change(
        ("label: String?", "label: String? rank: I32?"), ("add_property",) * 2, _put(PAPER, rank=None)
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
        (("score: F32?", "score: F32? @index"), ("label: String?", "label: String? @index")), ("add_constraint",) * 3
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
    "a required column that every row has": Change((CITE, CITE.replace("F32?", "F32")), "tighten_nullability"),
    "a required column with values for those that lack one": Change(
        (("title: String? @index", "title: String @index"), ("tags: [String]?", "tags: [String]")),
        ("tighten_nullability",) * 2,
        _in_order(_each(PAPER, _fill("title", "Untitled: bare")), _each(PAPER, _fill("tags", []))),
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
        ("year: I32? @index", 'born: I64 @index @rename_from("year")'),
        ("rename_property", "widen_property", "tighten_nullability"),
        _in_order(_rename(PAPER, "year", "born"), _each(PAPER, _fill("born", 1900))),
        {"Paper.born": 1900},
        required="born: 1",
        unindexed=frozenset({"year", "born"}),
    ),
    "more values of an enum": Change(("enum(draft, final)?", "enum(draft, final, gone)?"), "extend_enum"),
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
            _each(PAPER, lambda row: (row.pop("title"), row.pop("body"))), _each(CITES, lambda row: row.pop("note"))
        ),
        unindexed=frozenset({"title"}),
    ),
    "a dropped edge type": Change((("edge At: Paper -> Venue", ""),), ("drop_type",), lambda rows: rows.pop(AT)),
    "dropped types": Change(
        (("edge At: Paper -> Venue", ""), ("node Venue { name: String @key  city: String? }", "")),
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
            "rename_property",
            "widen_property",
            "tighten_nullability",
            "add_property",
            "add_property",
            "extend_enum",
            "add_constraint",
            "rename_type",
            "add_type",
            "drop_property",
            "drop_type",
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
}


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
    run(graph, f'insert Paper {{ {key}: "new"{rest} }} insert Paper {{ {key}: "gone"{other} }}')
    run(graph, f'insert {edge} {{ from: "new", to: "p0"{needed} }}')
    run(graph, f'update Paper set {{ day: date("2022-02-02") }} where {key} = "p0"')
    run(graph, f'delete Paper where {key} = "gone"')
    lines = [line for line in exported(graph) if line.get("type") == "Paper"]
    load(graph, *(line for line in lines if line["data"][key] in ("p2", "new")))
    graph.ensure_indices()
    assert {row["id"] for row in rows_of(graph, PAPER)} == papers | {"new"}
    found = values(graph, f'match {{ $p: Paper {{ {key}: "p0" }} }} return {{ $p.day as day }}')
    assert [str(day) for (day,) in found] == ["2022-02-02"]
    cited = values(graph, f'match {{ $p: Paper {{ {key}: "new" }} $p {edge.lower()} $q }} return {{ $q.{key} as k }}')
    assert cited == [("p0",)]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_does_to_rows_what_it_says_and_nothing_else(name: str, graph: Graph) -> None:
    change = CHANGES[name]
    before, old = everything(graph), graph.commits()[0].commit_id
    text_before, ids_before, covered_before = (exported(graph), row_ids(graph, PAPER), covered(graph, PAPER))
    receipt = graph.apply_schema(_wanted(change), backfill=change.backfill, engine="local")
    assert sorted(change.steps) == sorted(step.kind for step in receipt.plan.steps)
    assert [commit.kind for commit in graph.commits()][:1] == ["schema_apply"]
    assert graph.commits()[1].commit_id == old

    change.model(before)
    after = Graph.open(graph.uri)
    assert everything(after) == before == everything(graph)
    assert after.schema == graph.schema == _wanted(change)
    assert row_ids(after, PAPER) == ids_before
    kept = {column: known for column, known in covered_before.items() if column not in change.unindexed}
    assert covered(after, PAPER) == kept
    assert exported(after, snapshot=old) == text_before
    assert graph.apply_schema(_wanted(change), engine="local").applied is False
    if name in LIVED:
        _lives_on(after, change)


@pytest.mark.parametrize("name", ["new columns with values", "rules that all rows keep", "everything at once"])
def test_a_change_of_empty_tables_leaves_them_empty(name: str, copy_of: Callable[[str], Graph]) -> None:
    graph, change = copy_of("empty"), CHANGES[name]
    before = everything(graph)
    graph.apply_schema(_wanted(change), backfill=change.backfill, engine="local")
    change.model(before)
    assert everything(graph) == before
    run(graph, f'insert Paper {{ doi: "p0"{change.required and ", " + change.required} }}')
    assert [row["id"] for row in rows_of(graph, PAPER)] == ["p0"]


# ---- Small graphs in unusual states: deleted rows, keys, names that mean something elsewhere


ITEM = "node:Item"


@pytest.mark.parametrize(
    "wanted",
    ["node Item { k: I32 @key  v: I32  l: [String] }", "node Item { k: I32 @key  v: I64  l: [String]  w: String? }"],
    ids=["nothing is written", "columns are written"],
)
def test_deleted_rows_do_not_count(tmp_path: Path, wanted: str) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key  v: I32?  l: [String]? }")
    run(graph, 'insert Item { k: 1, v: 1, l: ["a"] } insert Item { k: 2 }')
    run(graph, "insert Item { k: 3 }")
    run(graph, "delete Item where k > 1")
    graph.apply_schema(wanted, engine="local")
    run(graph, "insert Item { k: 4, v: 4, l: [] } update Item set { v: 9 } where k = 1")
    assert [(row["k"], row["v"], row["l"]) for row in rows_of(graph, ITEM)] == [(1, 9, ["a"]), (4, 4, [])]


@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_a_table_whose_rows_are_all_deleted_is_empty(tmp_path: Path, allow_data_loss: bool) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key  v: I32?  u: Blob? }")
    run(graph, "insert Item { k: 1 }")
    run(graph, "delete Item where k = 1")
    graph.apply_schema(
        "node Item { k: I32 @key  v: I64  w: String }",
        backfill={"Item.w": '"x"'},
        allow_data_loss=allow_data_loss,
        engine="local",
    )
    run(graph, 'insert Item { k: 2, v: 2, w: "w" }')
    assert rows_of(graph, ITEM) == [{"id": "2", "k": 2, "v": 2, "w": "w"}]


def test_ids_stay_when_a_key_gets_wider_and_another_name(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node Item { a: String  b: I32  @key(a, b) }\nedge Near: Item -> Item")
    run(graph, 'insert Item { a: "x", b: 1 }')
    graph.apply_schema(
        'node Item { z: String @rename_from("a")  b: I64  @key(z, b) }\nedge Near: Item -> Item', engine="local"
    )
    run(graph, f'insert Item {{ z: "x", b: {2**40} }}')
    assert ids_of(graph, ITEM) == {'["x","1"]', f'["x","{2**40}"]'}
    # The same key is the same row, whatever its members are called.
    run(graph, 'insert Item { z: "x", b: 1 }')
    assert len(rows_of(graph, ITEM)) == 2


def test_a_node_may_get_properties_that_are_columns_of_edges(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key }")
    run(graph, "insert Item { k: 1 }")
    graph.apply_schema("node Item { k: I32 @key  src: String?  dst: I32 }", backfill={"Item.dst": "k"}, engine="local")
    assert rows_of(graph, ITEM) == [{"id": "1", "k": 1, "src": None, "dst": 1}]


def test_values_of_two_dropped_properties_change_places(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key  a: String  b: String }")
    run(graph, 'insert Item { k: 1, a: "A", b: "B" }')
    fills: dict[str, Any] = {"Item.c": "b", "Item.d": "a"}
    graph.apply_schema("node Item { k: I32 @key  c: String  d: String }", backfill=fills, engine="local")
    assert rows_of(graph, ITEM) == [{"id": "1", "k": 1, "c": "B", "d": "A"}]


# ---- What readers of the past are told after a type was dropped with its data


BOTH = "node Kept { name: String @key }\nnode Dropped { name: String @key }"
ONE = "node Kept { name: String @key }"
KEPT = "query q() { match { $k: Kept } return { $k.name } }"
DROPPED = "query q() { match { $d: Dropped } return { $d.name } }"


@pytest.fixture
def dropped(tmp_path: Path) -> tuple[Path, str]:
    """A graph that lost a type with its data, and a commit in which both types had rows."""
    root = tmp_path / "g.omni"
    with Graph.init(root, BOTH) as graph:
        graph.mutate('query q() { insert Dropped { name: "d" } insert Kept { name: "a" } }')
        commit_id = graph.snapshot().commit_id
        graph.mutate('query q() { insert Kept { name: "b" } }')
        graph.apply_schema(ONE, allow_data_loss=True)
    return root, commit_id


def test_the_other_type_stays_readable(dropped: tuple[Path, str]) -> None:
    root, commit_id = dropped
    with Graph.open(root) as graph:
        assert [*graph.query(KEPT, snapshot=commit_id).json_rows()] == [{"k.name": "a"}]
        with pytest.raises(HistoricalVersionReclaimedError) as caught:
            list(graph.query(DROPPED, snapshot=commit_id).json_rows())
        assert caught.value.table_key == "node:Dropped"


def test_a_reader_of_another_type_is_not_told_about_the_dropped_one(dropped: tuple[Path, str]) -> None:
    root, commit_id = dropped
    with Graph.open(root) as graph:
        pin = graph.snapshot(snapshot=commit_id).pins["node:Kept"]
    for file in (root / pin.location / "data").iterdir():
        file.unlink()
    with Graph.open(root) as graph, pytest.raises(StorageError) as caught:
        list(graph.query(KEPT, snapshot=commit_id).json_rows())
    assert pin.location in caught.value.message
    assert "Dropped" not in caught.value.message


# ---- Backfills over batches of rows: nulls, and every type of value


TEXT, NUMBER = pa.field("x", pa.utf8()), pa.field("x", pa.int64())
A, B = PropertyValue("a"), PropertyValue("b")


def column(expression: Expression, field: Any = TEXT, **columns: Any) -> list[Any]:
    """The values of an expression over rows with these columns."""
    found = evaluate(expression, pa.record_batch(columns), field)
    assert found.type == field.type
    return found.to_pylist()  # type: ignore[no-any-return]  # the stubs of pyarrow know no types


def texts(*values: str | None) -> Any:
    return pa.array(values, pa.utf8())


_TEXTS = st.none() | st.text(max_size=3)


@given(rows=st.lists(st.tuples(_TEXTS, _TEXTS), min_size=1, max_size=5), last=st.text(max_size=2))
def test_functions_of_texts_mean_what_python_means(rows: list[tuple[str | None, str | None]], last: str) -> None:
    a, b = ([row[place] for row in rows] for place in (0, 1))
    columns = {"a": texts(*a), "b": texts(*b)}
    first = column(Call("coalesce", (A, B, Constant(last))), **columns)
    assert first == [x if x is not None else y if y is not None else last for x, y in rows]
    joined = column(Call("concat", (A, Constant("-"), B)), **columns)
    assert joined == [None if x is None or y is None else f"{x}-{y}" for x, y in rows]


def test_cases_and_spaces_are_those_of_unicode() -> None:
    values = texts(" Ärger\u3000", "straße", "", None)
    assert column(Call("lower", (A,)), a=values) == [" ärger\u3000", "straße", "", None]
    assert column(Call("trim", (A,)), a=values) == ["Ärger", "straße", "", None]
    assert column(Call("upper", (A,)), a=values)[0] == " ÄRGER\u3000"


def test_a_narrow_number_becomes_a_wide_one() -> None:
    narrow = pa.array([1, None], pa.int32())
    assert column(A, NUMBER, a=narrow) == [1, None]
    assert column(Call("coalesce", (A, Constant(2**40))), NUMBER, a=narrow) == [1, 2**40]
    real = pa.array([0.1, None], pa.float32())
    wide = pa.field("x", pa.float64())
    assert column(Call("coalesce", (A, Constant(0.1))), wide, a=real) == [0.10000000149011612, 0.1]


def test_no_rows_are_no_values() -> None:
    assert column(Constant("x"), a=texts()) == []


def test_a_value_may_come_from_a_property_that_goes(graph: Graph) -> None:
    titles = {row["id"]: row["title"] for row in rows_of(graph, PAPER)}
    apply(
        graph, ("title: String? @index", "headline: String @index"), backfill={"Paper.headline": "coalesce(title, doi)"}
    )
    found = {row["id"]: row["headline"] for row in rows_of(graph, PAPER)}
    assert found == titles | {"bare": "bare"}


@pytest.mark.parametrize(
    ("edits", "backfill", "name"),
    [
        ([("day: Date?", "day: Date? file: Blob")], {"Paper.file": '"base64:YWJj"'}, "file"),
        ([("body: Blob?", "body: Blob")], {"Paper.body": '"base64:YWJj"'}, "body"),
    ],
)
def test_blobs_are_filled(graph: Graph, edits: Any, backfill: dict[str, object], name: str) -> None:
    before = {row["id"]: row for row in rows_of(graph, PAPER)}
    old = graph.commits()[0].commit_id
    apply(graph, *edits, backfill=backfill)
    for row in rows_of(graph, PAPER):
        expected = before[row["id"]]
        expected[name] = expected.get(name) if expected.get(name) is not None else b"abc"
        assert row == expected
    assert len(row_ids(graph, PAPER)) == len(before)
    # Whole rows were written anew, but nothing was destroyed.
    assert graph.entity_at("node:Paper", "p0", snapshot=old) is not None
    run(graph, 'update Paper set { year: 7 } where doi = "p0"')


def test_a_blob_becomes_required_together_with_another_change(graph: Graph) -> None:
    run(graph, 'delete Paper where doi = "bare"')
    before = rows_of(graph, PAPER)
    apply(graph, ("body: Blob?", "body: Blob"), ("day: Date?", "day: Date? pages: I32?"))
    assert rows_of(graph, PAPER) == [row | {"pages": None} for row in before]


def test_nulls_are_found_also_where_rows_are_written_anew(graph: Graph) -> None:
    with no_trace(graph, SchemaViolationsError) as caught:
        apply(
            graph,
            ("title: String? @index", "headline: String @index"),
            backfill={"Paper.headline": "title"},
            allow_data_loss=True,
        )
    assert caught.value.report.totals == {"[OG-MF-104] missing value for Paper.headline": 1}


def test_filled_values_have_to_keep_the_rules_that_are_there(graph: Graph) -> None:
    apply(graph, ("day: Date?", "day: Date? @unique(title) @range(year, 1900..2100)"))
    run(graph, 'insert Paper { doi: "bare2" }')
    required = (("title: String? @index", "title: String @index"), ("year: I32?", "year: I32"))
    with no_trace(graph, SchemaViolationsError) as caught:
        apply(graph, *required, backfill={"Paper.title": '"same"', "Paper.year": 3000})
    assert caught.value.report.totals == {"@range violation on Paper.year": 2, "@unique violation on Paper.title": 1}
    assert apply(graph, *required, backfill={"Paper.title": "doi", "Paper.year": 1999}).applied


# ---- Schema changes on Spark, and Spark's own ways to read a graph whose schema changed


__all__ = ["spark"]

EDITS = (
    ("year: I32? @index", 'born: I64 @index @rename_from("year")'),
    ("day: Date?", "day: Date? lang: String @range(born, 1900..2100) @unique(lang)"),
    ("edge Cites: Paper -> Paper", "edge Cites: Paper -> Paper @card(1..2)"),
)
FILL: dict[str, object] = {"Paper.born": 1900, "Paper.lang": 'concat(doi, "-", doi)'}


@pytest.fixture
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark also does what is usually little enough for this process."""
    from omnigraph.spark import joins, worker_choice

    sizes = {"small_rows": 0, "small_ids": 0, "broadcast_keys": 0}
    monkeypatch.setattr(joins.SparkJoins.__init__, "__kwdefaults__", sizes)
    monkeypatch.setattr(worker_choice, "SMALL_ROWS", 0)


@pytest.mark.usefixtures("_large")
def test_both_engines_change_and_refuse_alike(graph: Graph, tmp_path: Path, spark: SparkSession) -> None:
    other = Graph.open(shutil.copytree(graph.uri, tmp_path / "other"))
    strict = (("note: String?", "note: String @unique(src)"), EDITS[1], EDITS[0])
    reports = []
    for one, engine in ((graph, "local"), (other, "spark")):
        options: dict[str, Any] = {"spark": spark} if engine == "spark" else {}
        with no_trace(one, SchemaViolationsError) as caught:
            one.apply_schema(edited(PAPERS, *strict), backfill=FILL | {"Paper.born": 1800}, engine=engine, **options)
        reports.append((caught.value.report.totals, sorted(map(str, caught.value.report.examples))))
        one.apply_schema(edited(PAPERS, *EDITS), backfill=FILL, engine=engine, **options)
    assert reports[0] == reports[1]
    assert reports[0][0] == {"@range violation on Paper.born": 1, "@unique violation on Cites.src": 1}
    assert everything(graph) == everything(other)
    for key in (PAPER, CITES):
        assert row_ids(graph, key) == row_ids(other, key)


def test_frames_and_exports_of_the_past_have_its_columns(graph: Graph, tmp_path: Path, spark: SparkSession) -> None:
    spark.dataSource.register(OmniGraphDataSource)
    old, rows = graph.commits()[0].commit_id, everything(graph)[PAPER]
    before = tmp_path / "before.jsonl"
    graph.export(before, engine="local")
    apply(graph, EDITS[0], ("day: Date?", ""), ("score: F32?", "score: F64?"), backfill={"Paper.born": 1})

    def frame(**options: str) -> Any:
        reader = spark.read.format("omnigraph").option("type", "Paper")
        return reader.options(**options).load(graph.uri)

    then, now = frame(snapshot=old), frame()
    assert {"year", "day"} < set(then.columns)
    assert {"born"} < set(now.columns) - {"year", "day"}
    years = {row["id"]: row["year"] for row in rows}
    assert {row["id"]: row["year"] for row in then.select("id", "year").collect()} == years
    born = {row["id"]: row["born"] for row in now.where("born > 2000").collect()}
    assert born == {name: year for name, year in years.items() if year and year > 2000}
    after = tmp_path / "after.jsonl"
    graph.export(after, snapshot=old, engine="spark", spark=spark)
    assert sorted(after.read_text().splitlines()) == sorted(before.read_text().splitlines())
    changed = graph.diff(old, "main", engine="spark", spark=spark)
    local = graph.diff(old, "main", engine="local")
    assert [item.to_json() for item in changed] == [item.to_json() for item in local]
    assert {item.id for item in local} == {row["id"] for row in rows}
