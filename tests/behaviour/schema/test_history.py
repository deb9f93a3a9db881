"""The past of a graph whose schema changed: every commit is read with the schema that it had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import (
    BadRequestError,
    BranchesExistError,
    ChangeSchemaBoundaryError,
    CompilerError,
    HistoricalVersionReclaimedError,
    NotFoundError,
    SchemaViolationsError,
    StorageError,
    UnsupportedSchemaError,
)
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema.catalog import Catalog
from support.graphs import rows_of, run
from support.schema_changes import AT, CITES, PAPER, VENUE, apply, exported, files, load, no_trace, values

RENAME_VENUE = (("node Venue {", 'node Place @rename_from("Venue") {'), ("Paper -> Venue", "Paper -> Place"))


def told(changes: Any) -> list[tuple[str, str, str]]:
    """Type, id and operation of changes."""
    return sorted((item.type_name, item.id, str(item.op)) for item in changes)


def head(graph: Graph) -> str:
    return graph.commits()[0].commit_id


def diff(graph: Graph, one: str, other: str = "main", **options: Any) -> list[tuple[str, str, str]]:
    return told(graph.diff(one, other, engine="local", **options))


class TestDifferences:
    """A property that a state does not have counts as null; names and widths of columns are no values."""

    @pytest.mark.parametrize(
        "edits",
        [
            RENAME_VENUE,
            (("title: String? @index", 'name: String? @rename_from("title") @index'),),
            (("day: Date?", "day: Date? pages: I32? file: Blob?"),),
            (("year: I32?", "year: I64?"), ("score: F32?", "score: F64?")),
            (("weight: F32?", "weight: F32"),),
            (("enum(draft, final)?", "enum(draft, final, gone)?"),),
            (("city: String?", ""),),
        ],
        ids=["type", "property", "empty columns", "wider", "required", "enum", "drop of nulls"],
    )
    def test_what_changes_no_value_changes_no_row(self, graph: Graph, edits: Any) -> None:
        old = head(graph)
        apply(graph, *edits)
        new = head(graph)
        assert diff(graph, old, new) == diff(graph, new, old) == []
        run(graph, 'update Paper set { score: 9.5 } where doi = "p2"')
        run(graph, 'delete Paper where doi = "p6"')
        run(graph, 'insert Paper { doi: "new" }')
        expected = [("Paper", "new", "insert"), ("Paper", "p2", "update"), ("Paper", "p6", "delete")]
        assert diff(graph, old) == diff(graph, new) == expected

    def test_values_that_came_or_went_with_a_column_are_differences(self, graph: Graph) -> None:
        old = head(graph)
        apply(graph, ("day: Date?", "day: Date? pages: I32?"))
        run(graph, 'update Paper set { pages: 3 } where doi = "p2"')
        assert diff(graph, old) == [("Paper", "p2", "update")]
        middle = head(graph)
        apply(graph, ("note: String?", "note: String? since: I32"), backfill={"Cites.since": 1})
        every = [("Cites", row["id"], "update") for row in rows_of(graph, CITES)]
        assert diff(graph, middle) == diff(graph, "main", middle) == every
        last = head(graph)
        apply(graph, ("label: String?", ""))
        assert diff(graph, last) == [
            ("Paper", row["id"], "update") for row in rows_of(graph, PAPER) if row["id"] != "bare"
        ]

    def test_nulls_that_a_change_fills_are_differences(self, graph: Graph) -> None:
        old = head(graph)
        apply(graph, ("title: String? @index", "title: String @index"), backfill={"Paper.title": '"T"'})
        assert diff(graph, old) == [("Paper", "bare", "update")]

    def test_a_name_that_is_used_again_is_another_type(self, graph: Graph) -> None:
        old = head(graph)
        apply(graph, ("edge At: Paper -> Venue", ""))
        assert diff(graph, old) == [("At", "a1", "delete")]
        apply(graph, ("edge Cites", "edge At: Paper -> Venue\nedge Cites"))
        run(graph, 'insert At { from: "p1", to: "v1" }')
        (row,) = rows_of(graph, AT)
        changes = graph.diff(old, "main", engine="local").changes
        assert [(item.id, str(item.op)) for item in changes] == [("a1", "delete"), (row["id"], "insert")]

    def test_a_filter_may_name_a_type_as_either_state_does(self, graph: Graph) -> None:
        old = head(graph)
        apply(graph, *RENAME_VENUE, ("city: String?", ""))
        run(graph, 'insert Place { name: "v3" }')
        for name in ("Venue", "Place", "node:Venue"):
            assert diff(graph, old, types=[name]) == [("Place", "v3", "insert")]
        with pytest.raises(BadRequestError, match="there is no type 'Author'"):
            diff(graph, old, types=["Author"])


class TestChanges:
    def test_a_commit_that_changed_columns_with_data_is_a_boundary(self, graph: Graph) -> None:
        run(graph, 'insert Venue { name: "v3" }')
        before = head(graph)
        apply(graph, *RENAME_VENUE, ("name: String @key", "name: String @key size: I32?"))
        with pytest.raises(ChangeSchemaBoundaryError, match="Venue"):
            graph.changes(head(graph))
        with pytest.raises(ChangeSchemaBoundaryError):
            graph.feed(start=f"after:{before}")
        boundary = head(graph)
        run(graph, 'insert Place { name: "v4", size: 4 }')
        (change,) = graph.changes(head(graph)).changes
        assert change.type_name == "Place"
        assert change.after == {"properties": {"name": "v4", "size": 4, "city": None}}
        (earlier,) = graph.changes(before).changes
        assert (earlier.type_name, earlier.type_id) == ("Venue", change.type_id)
        assert earlier.after == {"properties": {"name": "v3", "city": None}}
        (block,) = graph.feed(start=f"after:{boundary}").blocks
        assert told(block.changes) == [("Place", "v4", "insert")]

    def test_a_drop_of_rows_is_a_boundary(self, graph: Graph) -> None:
        apply(graph, ("edge At: Paper -> Venue", ""))
        with pytest.raises(ChangeSchemaBoundaryError, match="At"):
            graph.changes(head(graph))

    def test_a_commit_without_a_change_of_data_is_an_empty_block(self, graph: Graph) -> None:
        apply(graph, *RENAME_VENUE, ("enum(draft, final)?", "enum(draft, final, gone)?"))
        assert graph.changes(head(graph)).changes == ()
        apply(graph, ("edge Cites", "node Author { name: String @key }\nedge Cites"))
        assert graph.changes(head(graph)).changes == ()
        apply(graph, ("node Author { name: String @key }", ""))
        assert graph.changes(head(graph)).changes == ()

    def test_a_feed_follows_a_type_through_its_names(self, graph: Graph) -> None:
        start = head(graph)
        run(graph, 'insert Venue { name: "v3" } insert Paper { doi: "x" }')
        apply(graph, *RENAME_VENUE)
        run(graph, 'insert Place { name: "v4" } insert Paper { doi: "y" }')
        page = graph.feed(start=f"after:{start}", types=["Place"])
        assert [told(block.changes) for block in page.blocks] == [
            [("Venue", "v3", "insert")],
            [],
            [("Place", "v4", "insert")],
        ]
        assert page.caught_up

    def test_the_log_tells_of_the_change(self, graph: Graph) -> None:
        receipt = apply(graph, ("city: String?", ""), actor="me")
        newest = graph.log()[0]
        assert (newest.kind, newest.actor, newest) == ("schema_apply", "me", receipt.commit)
        assert newest.schema_source == graph.schema


class TestSnapshots:
    def test_queries_of_the_past_speak_its_schema(self, graph: Graph) -> None:
        old = head(graph)
        apply(
            graph,
            ("title: String? @index", 'name: String? @rename_from("title") @index'),
            ("edge Cites: Paper", "edge Quotes: Paper"),
            ("note: String?", ""),
            ("weight: F32?", "weight: F64?"),
        )
        then: dict[str, Any] = {"snapshot": old}
        query = 'match {{ $p: Paper {{ doi: "p0" }} $p {edge} $q }} return {{ $q.{name} as name }}'
        assert values(graph, query.format(edge="cites", name="title"), **then) == [("On Heaps 2",), ("Trees",)]
        assert values(graph, query.format(edge="quotes", name="name")) == []
        with pytest.raises(CompilerError):
            values(graph, query.format(edge="quotes", name="name"), **then)
        found = 'match {{ $p: Paper search($p.{name}, "trees") }} return {{ $p.doi as doi }}'
        assert values(graph, found.format(name="title"), **then) == [("p1",)]
        assert values(graph, found.format(name="name")) == [("p1",)]
        none = "match { $p: Paper not { $p cites $q } } return { $p.doi as doi }"
        assert len(values(graph, none, **then)) == 6

    def test_entities_of_the_past_have_its_properties(self, graph: Graph) -> None:
        old = head(graph)
        apply(graph, *RENAME_VENUE, ("city: String?", "size: I32?"))
        assert graph.entity_at("node:Place", "v1") == {"id": "v1", "properties": {"name": "v1", "size": None}}
        assert graph.entity_at("node:Venue", "v1", snapshot=old) == {
            "id": "v1",
            "properties": {"name": "v1", "city": None},
        }
        for name, options in {"node:Venue": {}, "node:Place": {"snapshot": old}}.items():
            with pytest.raises(NotFoundError, match=name):
                graph.entity_at(name, "v1", **options)

    def test_a_name_that_is_used_again_begins_empty(self, graph: Graph) -> None:
        old, before = head(graph), exported(graph)
        location = graph.snapshot().pins[AT].location
        apply(graph, ("edge At: Paper -> Venue", ""))
        middle, between = head(graph), exported(graph)
        apply(graph, ("edge Cites", "edge At: Paper -> Venue\nedge Cites"))
        assert rows_of(graph, AT) == []
        run(graph, 'insert At { from: "p0", to: "v2" }')
        assert exported(graph, snapshot=old) == before
        assert exported(graph, snapshot=middle) == between
        assert [row["src"] for row in rows_of(graph, AT)] == ["p0"]
        assert [row["src"] for row in rows_of(Graph.open(graph.uri), AT)] == ["p0"]
        assert graph.snapshot().pins[AT].location != location

    def test_a_name_that_another_type_left_is_free(self, graph: Graph) -> None:
        old, before = head(graph), exported(graph)
        apply(graph, *RENAME_VENUE)
        apply(graph, ("node Place ", "node Venue { code: I64 @key }\nnode Place "))
        assert rows_of(graph, VENUE) == []
        assert [row["name"] for row in rows_of(graph, "node:Place")] == ["v1", "v2"]
        run(graph, 'insert Venue { code: 7 } insert At { from: "p0", to: "v2" }')
        assert exported(graph, snapshot=old) == before

    def test_a_type_may_get_its_old_name_back(self, graph: Graph) -> None:
        old, before = head(graph), exported(graph)
        apply(graph, *RENAME_VENUE)
        middle = head(graph)
        apply(
            graph,
            ('node Place @rename_from("Venue") {', 'node Venue @rename_from("Place") {'),
            ("Paper -> Place", "Paper -> Venue"),
        )
        assert exported(graph) == exported(graph, snapshot=old) == before
        assert graph.entity_at("node:Place", "v1", snapshot=middle) is not None
        assert diff(graph, old) == diff(graph, middle) == []
        run(graph, 'insert Venue { name: "v3" }')
        assert diff(graph, middle) == [("Venue", "v3", "insert")]

    def test_a_property_that_is_added_again_is_empty(self, graph: Graph) -> None:
        old, before = head(graph), exported(graph)
        apply(graph, ("label: String?", ""))
        apply(graph, ("interface Named { ", "interface Named { label: String? "))
        assert {row["label"] for row in rows_of(graph, PAPER)} == {None}
        assert exported(graph, snapshot=old) == before
        papers = [("Paper", row["id"], "update") for row in rows_of(graph, PAPER)]
        assert diff(graph, old) == [item for item in papers if item[1] != "bare"]


class TestDestroyed:
    def test_a_destroyed_property_takes_earlier_versions_along(self, graph: Graph) -> None:
        old = head(graph)
        rows = rows_of(graph, PAPER)
        apply(graph, ("    title: String? @index\n", ""), allow_data_loss=True)
        for row in rows:
            del row["title"]
        for handle in (graph, Graph.open(graph.uri)):
            assert rows_of(handle, PAPER) == rows
            with pytest.raises(HistoricalVersionReclaimedError, match="Paper"):
                values(handle, "match { $p: Paper } return { $p.title as t }", snapshot=old)
            with pytest.raises(HistoricalVersionReclaimedError):
                exported(handle, snapshot=old)
            with pytest.raises(HistoricalVersionReclaimedError):
                diff(handle, old)
        assert values(graph, "match { $v: Venue } return { $v.name as n }", snapshot=old) == [("v1",), ("v2",)]
        assert not any(b"On Heaps" in (path).read_bytes() for path in _paths(graph, PAPER))
        graph.ensure_indices()
        run(graph, 'update Paper set { year: 1 } where doi = "p0"')
        run(graph, 'insert Paper { doi: "new" }')
        assert len(rows_of(graph, PAPER)) == 8

    def test_a_destroyed_type_is_told_as_such(self, graph: Graph) -> None:
        old = head(graph)
        location = graph.snapshot().pins[AT].location
        apply(graph, ("edge At: Paper -> Venue", ""), allow_data_loss=True)
        assert [name for name in files(graph) if name.startswith(location)] == [f"{location}/_reclaimed"]
        for handle in (graph, Graph.open(graph.uri)):
            with pytest.raises(HistoricalVersionReclaimedError, match="At"):
                values(handle, "match { $p: Paper $p at $v } return { $v.name as n }", snapshot=old)
            with pytest.raises(HistoricalVersionReclaimedError, match="At"):
                handle.entity_at("edge:At", "a1", snapshot=old)
        apply(graph, ("edge Cites", "edge At: Paper -> Venue\nedge Cites"))
        run(graph, 'insert At { from: "p0", to: "v2" }')
        assert len(rows_of(graph, AT)) == 1
        with pytest.raises(HistoricalVersionReclaimedError):
            graph.entity_at("edge:At", "a1", snapshot=old)

    def test_a_type_that_is_missing_and_was_never_dropped_is_damage(self, graph: Graph) -> None:
        shutil.rmtree(Path(graph.uri) / graph.snapshot().pins[AT].location)
        with pytest.raises(StorageError) as caught:
            Graph.open(graph.uri).entity_at("edge:At", "a1")
        assert not isinstance(caught.value, HistoricalVersionReclaimedError)


class TestBranches:
    def test_branches_begin_at_the_new_schema_only(self, graph: Graph) -> None:
        old = head(graph)
        apply(graph, ("day: Date?", "day: Date? pages: I32?"))
        with pytest.raises(BadRequestError, match=f"commit {old} has an older schema than the graph"):
            graph.create_branch("early", old)
        graph.create_branch("work")
        run(graph, 'update Paper set { pages: 1 } where doi = "p0"', branch="work")
        run(graph, 'update Paper set { pages: 2 } where doi = "p1"')
        graph.merge("work")
        assert {row["id"]: row["pages"] for row in rows_of(graph, PAPER) if row["pages"]} == {"p0": 1, "p1": 2}


def _paths(graph: Graph, key: Any) -> list[Path]:
    folder = Path(graph.uri) / graph.snapshot().pins[key].location
    return [path for path in folder.rglob("*") if path.is_file()]


# ---- Changes that are refused: the message says what is wrong, and nothing of the attempt is left


TITLE, DAY = "title: String? @index", "day: Date?"


# ---- by the plan


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ((DAY, "day: Date? lang: String"), "[OG-MF-103] property `lang` is required"),
        (("year: I32?", "year: String?"), "[OG-MF-106] the type of `year` cannot change"),
        (("vec: Vector(3)?", "vec: Vector(4)?"), "[OG-MF-106]"),
        (("edge At: Paper -> Venue", "edge At: Venue -> Paper"), "the endpoints of an edge are fixed"),
        (("year: I32? @index", "year: I32?"), "@index(year) cannot be removed"),
        ((DAY, 'day: Date? @color("red")'), "other annotations are fixed"),
        (("interface Named { label: String? }", ""), "implements"),
    ],
)  # fmt: skip
def test_a_plan_that_is_not_supported_changes_nothing(graph: Graph, edit: tuple[str, str], message: str) -> None:
    error = CompilerError if message == "implements" else UnsupportedSchemaError
    with no_trace(graph, error, message):
        # What could be done is not done either.
        apply(graph, edit, ("city: String?", "city: String? size: I32?"))


def test_a_refused_plan_comes_with_the_error(graph: Graph) -> None:
    with no_trace(graph, UnsupportedSchemaError, "(and 1 more: `omnigraph schema plan` shows all)") as caught:
        apply(graph, ("year: I32?", "year: U32?"), ("score: F32?", "score: I32?"))
    assert [step["kind"] for step in caught.value.plan["steps"]] == ["unsupported_change"] * 2
    refusals = list(caught.value.refusals)
    assert caught.value.details() == {"plan": caught.value.plan, "refusals": refusals}
    assert caught.value.refusals[0].startswith("node:Paper.score: [OG-MF-106]")


def test_other_branches_stop_a_change(graph: Graph) -> None:
    graph.create_branch("work")
    graph.create_branch("more")
    with no_trace(graph, BranchesExistError, "merge or delete more, work first"):
        apply(graph, (DAY, "day: Date? pages: I32?"))
    assert apply(graph).applied is False
    assert graph.plan_schema(graph.schema.replace(DAY, "day: Date? pages: I32?")).supported
    for name in ("work", "more"):
        graph.delete_branch(name)
    assert apply(graph, (DAY, "day: Date? pages: I32?")).applied


def test_a_check_of_the_caller_sees_the_new_catalog_and_may_refuse_it(graph: Graph) -> None:
    seen: list[Catalog] = []

    def check(catalog: Catalog) -> None:
        seen.append(catalog)
        if "pages" in catalog.nodes["Paper"].properties:
            raise BadRequestError("a stored query would break")

    with no_trace(graph, BadRequestError, "a stored query would break"):
        apply(graph, (DAY, "day: Date? pages: I32"), backfill={"Paper.pages": 1}, validate=check)
    assert apply(graph, (DAY, "day: Date? leaves: I32?"), validate=check).applied
    assert [set(item.nodes) for item in seen] == [{"Paper", "Venue"}] * 2
    # Nothing changes, so there is nothing to check.
    assert apply(graph, validate=check).applied is False
    assert len(seen) == 2


# ---- by backfills


@pytest.mark.parametrize(
    ("backfill", "message"),
    [
        ({"Paper.lang": "en"}, 'Paper has no property `en`, and a text is written "en"'),
        ({"Paper.lang": 5}, "the backfill of Paper.lang is wrong"),
        ({"Paper.lang": "year"}, "year does not fit String"),
        ({"Paper.lang": '"x"', "node:Paper.lang": '"y"'}, "the backfill of Paper.lang is given twice"),
        ({"Paper.lang": '"x"', "Paper.title": '"y"'}, "the backfill of Paper.title has no use"),
        ({"Paper.lang": '"x"', "Nowhere.x": "1"}, "the backfill of Nowhere.x has no use"),
        ({"Paper.lang": '"x"', "lang": "1"}, "is not of the form Type.property"),
    ],
)
def test_a_wrong_backfill_changes_nothing(graph: Graph, backfill: dict[str, object], message: str) -> None:
    with no_trace(graph, BadRequestError, message):
        apply(graph, (DAY, "day: Date? lang: String"), backfill=backfill)


def test_a_backfill_that_is_null_for_some_rows_is_refused(graph: Graph) -> None:
    with no_trace(graph, SchemaViolationsError) as caught:
        apply(
            graph,
            (DAY, "day: Date? lang: String born: I64"),
            backfill={"Paper.lang": "lower(title)", "Paper.born": "year"},
        )
    assert caught.value.report.totals == {
        "[OG-MF-104] missing value for Paper.born": 1,
        "[OG-MF-104] missing value for Paper.lang": 1,
    }
    assert "missing value for Paper.lang of 'bare': it may not be null" in str(caught.value)


def test_a_new_nullable_property_may_stay_null_where_its_backfill_is(graph: Graph) -> None:
    apply(graph, (DAY, "day: Date? born: I64?"), backfill={"Paper.born": "year"})
    found = {row["born"] for row in rows_of(graph, PAPER)}
    assert {None, 2000} < found


# ---- by rows

#: A rule, the rows that stand against it (beside those that are there), the totals and one sentence of the report.
VIOLATIONS: dict[str, tuple[tuple[str, str], str, dict[str, int], str]] = {
    "null": (
        (TITLE, "title: String @index"),
        'insert Paper { doi: "q1" }',
        {"[OG-MF-104] missing value for Paper.title": 2},
        "missing value for Paper.title of 'bare': it may not be null",
    ),
    "null in a column with blobs": (
        ("body: Blob?", "body: Blob"),
        "",
        {"[OG-MF-104] missing value for Paper.body": 1},
        "missing value for Paper.body of 'bare': it may not be null",
    ),
    "unique": (
        (DAY, "day: Date? @unique(stage)"),
        "",
        {"@unique violation on Paper.stage": 4},
        "'final' belongs to 'p0' and to 'p2'",
    ),
    "card": (
        ("edge Cites: Paper -> Paper", "edge Cites: Paper -> Paper @card(2..)"),
        'insert Cites { from: "p4", to: "p1" }',
        {"@card violation on edge Cites": 1},
        "'p4' has 1 edges, allowed are 2..",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_rows_that_stand_against_a_rule_stop_the_change(graph: Graph, name: str) -> None:
    edit, statements, totals, sentence = VIOLATIONS[name]
    if statements:
        run(graph, statements)
    with no_trace(graph, SchemaViolationsError, sentence) as caught:
        apply(graph, edit)
    report = caught.value.report
    assert report.totals == totals
    assert caught.value.details() == {"report": report.to_json(), "refused": "schema_change"}


def test_rules_of_all_types_are_checked_before_any_is_refused(graph: Graph) -> None:
    with no_trace(graph, SchemaViolationsError, "the schema was not changed: 5 violations") as caught:
        apply(
            graph,
            (TITLE, "title: String? @index headline: String"),
            (DAY, "day: Date? @range(year, 2001..2004)"),
            ("city: String?", "city: String"),
            backfill={"Paper.headline": '"x"'},
        )
    assert caught.value.report.totals == {
        "@range violation on Paper.year": 3,
        "[OG-MF-104] missing value for Venue.city": 2,
    }


def test_totals_are_exact_and_examples_few(graph: Graph) -> None:
    load(graph, *({"type": "Venue", "data": {"name": f"w{n}"}} for n in range(150)))
    with no_trace(graph, SchemaViolationsError, "152 violations") as caught:
        apply(graph, ("city: String?", "city: String"))
    report = caught.value.report
    assert report.total == 152
    assert 0 < len(report.examples) <= 100
    assert {item.rule for item in report.examples} == {"[OG-MF-104] missing value for Venue.city"}


def test_rules_are_checked_on_the_values_that_rows_will_have(graph: Graph) -> None:
    """Renamed, widened and filled columns are checked as they will be."""
    edits = (
        ("year: I32? @index", 'born: I64 @index @rename_from("year")'),
        (DAY, "day: Date? @range(born, 1990..2010) lang: String @unique"),
    )
    with no_trace(graph, SchemaViolationsError, "1800 of 'bare' is outside 1990..2010") as caught:
        apply(graph, *edits, backfill={"Paper.born": 1800, "Paper.lang": "doi"})
    assert caught.value.report.totals == {"@range violation on Paper.born": 1}
    with no_trace(graph, SchemaViolationsError, "@unique violation on Paper.lang") as caught:
        apply(graph, *edits, backfill={"Paper.born": 1999, "Paper.lang": '"same"'})
    assert apply(graph, *edits, backfill={"Paper.born": 1999, "Paper.lang": "doi"}).applied
    with pytest.raises(BadRequestError, match=r"@unique violation on Paper\.lang"):
        run(graph, 'insert Paper { doi: "n", born: 2000, lang: "p0" }')


def test_a_check_of_rows_that_fails_leaves_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.graph import schema_changes

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(schema_changes, "check_rows", interrupted)
    with no_trace(graph, KeyboardInterrupt):  # type: ignore[arg-type]  # not an error of ours
        apply(graph, (DAY, "day: Date? lang: String @unique"), backfill={"Paper.lang": "doi"})
