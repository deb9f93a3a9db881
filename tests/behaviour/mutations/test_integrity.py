"""Every integrity rule: what it refuses, its stable words, and that a refusal leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.graph.graph import Graph
from support.graphs import ends_of, new_graph, refused, rows_of, run, run_typed

RULES = """
node Paper {
    doi: String @key
    year: I32?
    score: F64?
    big: I64?
    code: String?
    stage: enum(draft, final)?
    isbn: String? @unique
    number: I64? @unique
    ratio: F64? @unique
    small: F32? @unique
    day: Date? @unique
    at: DateTime? @unique
    room: String?
    slot: I32?
    @range(year, 1600..2100)
    @range(score, 0.0..1.0)
    @range(big, 0..9007199254740993)
    @check(code, "^[A-Z]{2}[0-9]+$")
    @unique(room, slot)
}
node Author { name: String @key }
edge Wrote: Author -> Paper {
    role: enum(first, last)?
    position: I32?
    @unique(src, dst)
}
edge Reviews: Paper -> Author @card(2..3)
edge Leads: Author -> Paper @card(0..1)
"""

BASE = """
    insert Paper { doi: "p1", year: 2000, isbn: "i1", number: 1, ratio: 0.5, small: 0.1,
        day: date("2020-01-01"), at: datetime("2020-01-01T00:00:00.001Z"), room: "a", slot: 1 }
    insert Paper { doi: "p2", year: 2001, isbn: "i2", number: 2, room: "a", slot: 2 }
    insert Paper { doi: "p3" }
    insert Author { name: "a1" } insert Author { name: "a2" }
    insert Author { name: "a3" } insert Author { name: "a4" }
    insert Wrote { from: "a1", to: "p1", role: "first" }
    insert Reviews { from: "p1", to: "a1" } insert Reviews { from: "p1", to: "a2" }
    insert Leads { from: "a1", to: "p1" }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, RULES)
    run(graph, BASE)
    return graph


REFUSED: list[tuple[str, str]] = [
    ('insert Paper { doi: "x", year: 1599 }', "@range violation on Paper.year"),
    ('insert Paper { doi: "x", year: 2101 }', "@range violation on Paper.year"),
    ('update Paper set { year: 1 } where doi = "p1"', "@range violation on Paper.year"),
    ('insert Paper { doi: "x", score: 1.0000001 }', "@range violation on Paper.score"),
    ('insert Paper { doi: "x", big: 9007199254740994 }', "@range violation on Paper.big"),
    ('insert Paper { doi: "x", code: "ab1" }', "@check violation on Paper.code"),
    ('insert Paper { doi: "x", code: "AB1\\n" }', "@check violation on Paper.code"),
    ('update Paper set { code: "" } where year > 0', "@check violation on Paper.code"),
    ('insert Paper { doi: "x", isbn: "i1" }', "@unique violation on Paper.isbn"),
    ('insert Paper { doi: "x", number: 1 }', "@unique violation on Paper.number"),
    ('insert Paper { doi: "x", ratio: 0.5 }', "@unique violation on Paper.ratio"),
    ('insert Paper { doi: "x", small: 0.1 }', "@unique violation on Paper.small"),
    ('insert Paper { doi: "x", day: date("2020-01-01") }', "@unique violation on Paper.day"),
    (
        'insert Paper { doi: "x", at: datetime("2020-01-01T01:00:00.001+01:00") }',
        "@unique violation on Paper.at",
    ),
    ('insert Paper { doi: "x", room: "a", slot: 1 }', "@unique violation on Paper.(room, slot)"),
    (
        'insert Paper { doi: "x", isbn: "n" } insert Paper { doi: "y", isbn: "n" }',
        "@unique violation on Paper.isbn",
    ),
    ('update Paper set { isbn: "n" } where year > 0', "@unique violation on Paper.isbn"),
    ('update Paper set { slot: 1 } where doi = "p2"', "@unique violation on Paper.(room, slot)"),
    ('insert Wrote { from: "a1", to: "p1" }', "@unique violation on Wrote.(src, dst)"),
    (
        'insert Wrote { from: "a2", to: "p1" } insert Wrote { from: "a2", to: "p1" }',
        "@unique violation on Wrote.(src, dst)",
    ),
    ('insert Wrote { from: "ghost", to: "p1" }', "src 'ghost' not found in Author"),
    ('insert Wrote { from: "a1", to: "ghost" }', "dst 'ghost' not found in Paper"),
    # Ids of the wrong type are no endpoints.
    ('insert Wrote { from: "p1", to: "a1" }', "not found in"),
    ('insert Wrote { from: "", to: "p1" }', "src '' not found in Author"),
    ('insert Leads { from: "a1", to: "p2" }', "@card violation on edge Leads"),
    (
        'insert Leads { from: "a2", to: "p1" } insert Leads { from: "a2", to: "p2" }',
        "@card violation on edge Leads",
    ),
    ('insert Reviews { from: "p2", to: "a1" }', "@card violation on edge Reviews"),
    (
        'insert Reviews { from: "p1", to: "a3" } insert Reviews { from: "p1", to: "a4" }',
        "@card violation on edge Reviews",
    ),
    ('delete Reviews where to = "a1"', "@card violation on edge Reviews"),
    ('delete Author where name = "a2"', "@card violation on edge Reviews"),
]


@pytest.mark.parametrize(("statements", "words"), REFUSED, ids=[item[0][:70] for item in REFUSED])
def test_a_violation_is_refused_and_leaves_no_trace(
    graph: Graph, statements: str, words: str
) -> None:
    with refused(graph, BadRequestError, words):
        run(graph, statements)
    result = run(graph, 'insert Paper { doi: "next", isbn: "next" }')
    assert result.commit.parent_id == graph.commits()[1].commit_id
    assert len(rows_of(graph, "node:Paper")) == 4


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ('insert Paper { doi: "x", stage: $v }', "other"),
        ('update Paper set { stage: $v } where doi = "p1"', "Draft"),
        ('insert Wrote { from: "a2", to: "p1", role: $v }', "middle"),
        ('insert Wrote { from: "a2", to: "p1", role: $v }', ""),
    ],
)
def test_an_enum_refuses_other_values_on_nodes_and_edges(
    graph: Graph, statement: str, value: str
) -> None:
    with refused(graph, BadRequestError, "invalid enum value"):
        run(graph, statement, v=value)
    assert run(graph, 'insert Paper { doi: "x", stage: "final" }').affected_nodes == 1


@pytest.mark.parametrize(
    "statements",
    [
        'insert Paper { doi: "x", year: 1600 } insert Paper { doi: "y", year: 2100 }',
        'insert Paper { doi: "x", score: 0 } insert Paper { doi: "y", score: 1 }',
        'insert Paper { doi: "x", big: 9007199254740993 }',
        'insert Paper { doi: "x", code: "AB12" }',
        # Null is exempt from every rule.
        'insert Paper { doi: "x" } insert Paper { doi: "y" }',
        'insert Paper { doi: "x", room: "a" } insert Paper { doi: "y", room: "a" }',
        'insert Paper { doi: "x", slot: 1 } insert Paper { doi: "y", slot: 1 }',
        # The same tuple split differently is another tuple.
        'insert Paper { doi: "x", room: "a1", slot: 1 }',
        # A row may keep its own value.
        'insert Paper { doi: "p1", isbn: "i1", number: 1 }',
        'update Paper set { isbn: "i1" } where doi = "p1"',
        # A value that is freed in the same query may be taken.
        'insert Paper { doi: "p1" } insert Paper { doi: "x", isbn: "i1", number: 1 }',
        'update Paper set { isbn: "new" } where doi = "p1" insert Paper { doi: "x", isbn: "i1" }',
        # Two rows may swap their values.
        'insert Paper { doi: "p1", isbn: "i2" } insert Paper { doi: "p2", isbn: "i1" }',
        # The opposite order of steps meets only the final image.
        'insert Paper { doi: "x", isbn: "i1" } update Paper set { isbn: "new" } where doi = "p1"',
        # Another pair, and both bounds of the cardinality.
        'insert Wrote { from: "a1", to: "p2" } insert Wrote { from: "a2", to: "p1" }',
        'insert Reviews { from: "p1", to: "a3" }',
        'insert Reviews { from: "p2", to: "a3" } insert Reviews { from: "p2", to: "a4" }',
        # A source without any edge is never held against the minimum.
        'delete Reviews where from = "p1"',
        # The source itself goes: its edges need not be counted.
        'delete Paper where doi = "p1"',
        'delete Leads where from = "a1"',
    ],
)
def test_what_the_rules_allow_is_written(graph: Graph, statements: str) -> None:
    assert run(graph, statements).commit is not None


def test_negative_zero_and_zero_are_one_value_for_uniqueness(graph: Graph) -> None:
    run_typed(graph, "$v: F64", 'insert Paper { doi: "zero", ratio: $v }', v=-0.0)
    with refused(graph, BadRequestError, "@unique violation on Paper.ratio"):
        run_typed(graph, "$v: F64", 'insert Paper { doi: "again", ratio: $v }', v=0.0)


def test_the_largest_and_smallest_integers_are_unique_values_too(graph: Graph) -> None:
    for number, value in enumerate((-(2**63), 2**63 - 1)):
        run(graph, "insert Paper { doi: $d, number: $v }", d=f"n{number}", v=value)
        with refused(graph, BadRequestError, "@unique violation on Paper.number"):
            run(graph, 'insert Paper { doi: "again", number: $v }', v=value)


def test_an_update_of_many_rows_with_a_unique_number_is_judged(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node N { k: I64 @key u: I64 @unique f: F64? @unique m: I32? }")
    for begin in (0, 400, 800):
        rows = (f"insert N {{ k: {k}, u: {k}, f: {k}.5 }}" for k in range(begin, begin + 400))
        run(graph, " ".join(rows))
    assert run(graph, "update N set { m: 1 } where k >= 0").affected_nodes == 1200
    with refused(graph, BadRequestError, "@unique violation on N.u"):
        run(graph, "insert N { k: 5000, u: 1100 }")


def test_a_deleted_value_is_free_in_the_next_query(graph: Graph) -> None:
    run(graph, 'delete Paper where doi = "p1"')
    assert run(graph, 'insert Paper { doi: "x", isbn: "i1" }').affected_nodes == 1


def test_an_edge_may_not_point_to_a_node_that_was_deleted(graph: Graph) -> None:
    run(graph, 'delete Paper where doi = "p3"')
    with refused(graph, BadRequestError, "not found in Paper"):
        run(graph, 'insert Wrote { from: "a1", to: "p3" }')


def test_a_pair_may_be_linked_again_after_its_edge_was_deleted(graph: Graph) -> None:
    run(graph, 'delete Wrote where from = "a1"')
    run(graph, 'insert Wrote { from: "a1", to: "p1" }')
    assert ends_of(graph, "edge:Wrote") == [("a1", "p1")]


def test_a_null_endpoint_is_refused(graph: Graph) -> None:
    with refused(graph, BadRequestError):
        run_typed(graph, "$v: String?", 'insert Wrote { from: $v, to: "p1" }', v=None)


def test_a_null_for_a_required_property_is_refused(graph: Graph) -> None:
    with refused(graph, BadRequestError, "null"):
        run_typed(graph, "$v: String?", "insert Paper { doi: $v }", v=None)


@pytest.mark.parametrize("value", [None, "i9"])
def test_many_rows_may_hold_null_in_a_unique_column(graph: Graph, value: Any) -> None:
    for name in ("x", "y"):
        statement = "insert Paper { doi: $d, isbn: $v }"
        if value is not None and name == "y":
            with refused(graph, BadRequestError, "@unique violation on Paper.isbn"):
                run_typed(graph, "$d: String, $v: String?", statement, d=name, v=value)
        else:
            run_typed(graph, "$d: String, $v: String?", statement, d=name, v=value)
