"""Changes that are refused: the message says what is wrong, and nothing of the attempt is left."""

from __future__ import annotations

import pytest

from omnigraph.errors import (
    BadRequestError,
    BranchesExistError,
    CompilerError,
    SchemaViolationsError,
    UnsupportedSchemaError,
)
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema.catalog import Catalog
from support.graphs import rows_of, run
from support.schema_changes import PAPER, apply, load, no_trace

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
def test_a_plan_that_is_not_supported_changes_nothing(
    graph: Graph, edit: tuple[str, str], message: str
) -> None:
    error = CompilerError if message == "implements" else UnsupportedSchemaError
    with no_trace(graph, error, message):
        # What could be done is not done either.
        apply(graph, edit, ("city: String?", "city: String? size: I32?"))


def test_a_refused_plan_comes_with_the_error(graph: Graph) -> None:
    with no_trace(
        graph, UnsupportedSchemaError, "(and 1 more: `omnigraph schema plan` shows all)"
    ) as caught:
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
        (
            {"Paper.lang": '"x"', "node:Paper.lang": '"y"'},
            "the backfill of Paper.lang is given twice",
        ),
        ({"Paper.lang": '"x"', "Paper.title": '"y"'}, "the backfill of Paper.title has no use"),
        ({"Paper.lang": '"x"', "Nowhere.x": "1"}, "the backfill of Nowhere.x has no use"),
        ({"Paper.lang": '"x"', "lang": "1"}, "is not of the form Type.property"),
    ],
)
def test_a_wrong_backfill_changes_nothing(
    graph: Graph, backfill: dict[str, object], message: str
) -> None:
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
    "range": (
        (DAY, "day: Date? @range(year, 2001..2004)"),
        "",
        {"@range violation on Paper.year": 3},
        "2000 of 'p0' is outside 2001..2004",
    ),
    "check": (
        (DAY, 'day: Date? @check(title, "^On")'),
        "",
        {"@check violation on Paper.title": 1},
        "'Trees' of 'p1' does not match",
    ),
    "unique": (
        (DAY, "day: Date? @unique(stage)"),
        "",
        {"@unique violation on Paper.stage": 4},
        "'final' belongs to 'p0' and to 'p2'",
    ),
    "unique over two": (
        (DAY, "day: Date? @unique(title, year)"),
        'insert Paper { doi: "q1", title: "Trees", year: 2001 } insert Paper { doi: "q2", title: "Trees" }',
        {"@unique violation on Paper.(title, year)": 1},
        "belongs to 'p1' and to 'q1'",
    ),
    "unique over the ends of an edge": (
        ("note: String?", "note: String? @unique(src, dst)"),
        'insert Cites { from: "p0", to: "p1" }',
        {"@unique violation on Cites.(src, dst)": 1},
        "'(p0, p1)' belongs to",
    ),
    "card": (
        ("edge Cites: Paper -> Paper", "edge Cites: Paper -> Paper @card(2..)"),
        'insert Cites { from: "p4", to: "p1" }',
        {"@card violation on edge Cites": 1},
        "'p4' has 1 edges, allowed are 2..",
    ),
    "card above": (
        ("edge Cites: Paper -> Paper", "edge Cites: Paper -> Paper @card(0..1)"),
        "",
        {"@card violation on edge Cites": 1},
        "'p0' has 2 edges, allowed are 0..1",
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
    with no_trace(
        graph, SchemaViolationsError, "the schema was not changed: 5 violations"
    ) as caught:
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


def test_a_check_of_rows_that_fails_leaves_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.graph import schema_changes

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(schema_changes, "check_rows", interrupted)
    with no_trace(graph, KeyboardInterrupt):  # type: ignore[arg-type]  # not an error of ours
        apply(
            graph,
            (DAY, "day: Date? lang: String @unique"),
            backfill={"Paper.lang": "doi"},
        )
