"""Backfills over batches of rows: nulls, and every type of value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import SchemaViolationsError
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema.backfill import Call, Constant, Expression, PropertyValue
from omnigraph.pipeline.rewrite import evaluate
from support.graphs import rows_of, run
from support.schema_changes import PAPER, apply, no_trace, row_ids

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
def test_functions_of_texts_mean_what_python_means(
    rows: list[tuple[str | None, str | None]], last: str
) -> None:
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
        graph,
        ("title: String? @index", "headline: String @index"),
        backfill={"Paper.headline": "coalesce(title, doi)"},
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
    assert caught.value.report.totals == {
        "@range violation on Paper.year": 2,
        "@unique violation on Paper.title": 1,
    }
    assert apply(graph, *required, backfill={"Paper.title": "doi", "Paper.year": 1999}).applied
