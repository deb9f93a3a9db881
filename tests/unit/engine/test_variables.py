"""How long each variable of a query is needed, on pipelines small enough to read."""

from __future__ import annotations

from omnigraph.core.types import PropertyType, Scalar, ScalarType, VectorType
from omnigraph.engine.context import (
    counts_rows,
    is_hidden,
    live_after,
    needed_variables,
    predicate_variables,
    rank_field,
    variable_names,
    variable_tables,
)
from omnigraph.lang.query import ir
from support.subtests import each_case

TEXT = PropertyType(ScalarType(Scalar.STRING))
MAYBE = PropertyType(ScalarType(Scalar.STRING), nullable=True)
VECTOR = PropertyType(VectorType(2))


def prop(variable: str, name: str = "name", type_: PropertyType = TEXT) -> ir.PropertyRef:
    return ir.PropertyRef(variable, name, type_)


def scan(variable: str) -> ir.NodeScan:
    return ir.NodeScan(variable, "Paper")


def expand(source: str, target: str, edge: str | None = None) -> ir.Expand:
    return ir.Expand(source, target, "Cites", ir.Direction.OUT, "Paper", edge_variable=edge)


def where(*variables: str) -> ir.Filter:
    """A filter that asks for these variables."""
    if len(variables) == 1:
        right: ir.Operand = ir.Constant("x", TEXT)
        return ir.Filter(ir.Comparison(prop(variables[0]), ir.CompareOp.EQ, right))
    left, right = (ir.EntityRef(name, "Paper") for name in variables)
    return ir.Filter(ir.Comparison(left, ir.CompareOp.EQ, right))


def without(outer: tuple[str, ...], *ops: ir.Op) -> ir.AntiJoin:
    return ir.AntiJoin(outer, ops)


@each_case(
    ("ops", "needed", "expected"),
    [
        ([], "", []),
        ([scan("a")], "a", ["a"]),
        ([scan("a")], "", [""]),
        # A source lives until it is expanded, and longer when the result asks for it.
        ([scan("a"), expand("a", "b")], "b", ["a", "b"]),
        ([scan("a"), expand("a", "b")], "ab", ["a", "ab"]),
        ([scan("a"), expand("a", "b")], "", ["a", ""]),
        ([scan("a"), expand("a", "b"), expand("b", "c")], "c", ["a", "b", "c"]),
        ([scan("a"), expand("a", "b"), expand("a", "c")], "c", ["a", "a", "c"]),
        # An edge variable is introduced together with its target.
        ([scan("a"), expand("a", "b", "e")], "e", ["a", "e"]),
        ([scan("a"), expand("a", "b", "e"), where("e")], "b", ["a", "be", "b"]),
        # A filter keeps its variables alive up to itself.
        ([scan("a"), expand("a", "b"), where("a", "b")], "", ["a", "ab", ""]),
        ([scan("a"), scan("b"), where("a"), where("b")], "b", ["a", "ab", "b", "b"]),
        # A negation asks for its outer variables only; what it binds inside is nobody's business.
        ([scan("a"), without(("a",), expand("a", "z"))], "", ["a", ""]),
        (
            [scan("a"), expand("a", "b"), without(("a",), expand("a", "z"), where("z", "a"))],
            "b",
            ["a", "ab", "b"],
        ),
        ([scan("a"), scan("b"), without(("a", "b"))], "", ["a", "ab", ""]),
    ],
)
def test_a_variable_lives_until_nothing_behind_asks_for_it(
    ops: list[ir.Op], needed: str, expected: list[str]
) -> None:
    assert live_after(ops, needed) == [frozenset(names) for names in expected]


def test_every_variable_has_the_table_of_its_type() -> None:
    ops = [
        ir.NodeScan("a", "Author"),
        ir.Expand("a", "p", "Wrote", ir.Direction.OUT, "Paper", edge_variable="w"),
        where("p"),
        ir.Expand("p", "~1", "At", ir.Direction.IN, "Venue"),
    ]
    assert variable_tables(ops) == {
        "a": "node:Author",
        "p": "node:Paper",
        "w": "edge:Wrote",
        "~1": "node:Venue",
    }


def test_a_negation_has_variables_of_its_own() -> None:
    """A name inside says nothing about the same name outside."""
    inner = ir.Expand("p", "v", "At", ir.Direction.OUT, "Venue", edge_variable="t")
    ops = [
        ir.NodeScan("p", "Paper"),
        without(("p",), inner, without(("v",), ir.NodeScan("deep", "Topic"))),
        ir.NodeScan("v", "Volume"),
    ]
    assert variable_tables(ops) == {"p": "node:Paper", "v": "node:Volume"}


def test_the_names_of_a_pipeline_leave_negations_out() -> None:
    ops = [scan("a"), expand("a", "b", "e"), where("a"), without(("a",), scan("z"))]
    assert list(variable_names(ops)) == ["a", "b", "e"]


def read(
    *projections: ir.Operand | ir.Aggregate | ir.Rank,
    order: tuple[ir.PropertyRef | ir.ColumnRef, ...] = (),
    rank: ir.Rank | None = None,
    grouped: bool | None = None,
) -> ir.ReadIR:
    """A query over a, b, an edge e and the hidden ~h."""
    if grouped is None:
        grouped = any(isinstance(item, ir.Aggregate) for item in projections)
    return ir.ReadIR(
        name="q",
        params=(),
        pipeline=(scan("a"), expand("a", "b", "e"), expand("b", "~h"), without(("a",), scan("z"))),
        projections=tuple(
            ir.Projection(f"c{place}", item, TEXT) for place, item in enumerate(projections)
        ),
        grouped=grouped,
        rank=rank,
        order=tuple(ir.OrderKey(key, descending=False) for key in order),
        limit=None,
    )


COUNT, SUM, MIN = (
    ir.AggregateFunction.COUNT,
    ir.AggregateFunction.SUM,
    ir.AggregateFunction.MIN,
)
NEAREST = ir.Nearest(prop("b", "vector", VECTOR), ir.Constant((0.0, 1.0), VECTOR))
BM25 = ir.Bm25(prop("a"), ir.Constant("word", TEXT))


@each_case(
    ("query", "expected"),
    [
        (read(prop("a")), "a"),
        (read(ir.EntityRef("b", "Paper"), prop("e")), "be"),
        (read(ir.Constant("x", TEXT), ir.ParamRef("p", TEXT)), ""),
        # An order is total, so ids of every named variable are asked for; hidden ones and those of negations are not.
        (read(prop("a"), order=(prop("a"),)), "abe"),
        (read(ir.Constant("x", TEXT), order=(ir.ColumnRef("c0"),)), "abe"),
        # Groups are ordered by their own columns.
        (read(prop("a"), ir.Aggregate(COUNT, prop("b", type_=MAYBE)), order=(prop("a"),)), "ab"),
        (read(ir.Aggregate(SUM, prop("e")), order=(ir.ColumnRef("c0"),)), "e"),
        # Counting what is never null is counting rows.
        (read(ir.Aggregate(COUNT, ir.EntityRef("b", "Paper"))), ""),
        (read(ir.Aggregate(COUNT, prop("b"))), ""),
        (read(prop("a"), ir.Aggregate(COUNT, ir.EntityRef("b", "Paper"))), "a"),
        (read(ir.Aggregate(MIN, prop("b"))), "b"),
        (read(ir.Aggregate(COUNT, prop("b", type_=MAYBE))), "b"),
        # A rank asks for its entity and makes the order total.
        (read(ir.Constant("x", TEXT), rank=NEAREST), "abe"),
        (read(ir.Aggregate(COUNT, prop("a")), rank=NEAREST), "b"),
        (read(ir.Aggregate(COUNT, prop("a")), rank=BM25), "a"),
    ],
)
def test_the_result_asks_for_what_it_is_made_from(query: ir.ReadIR, expected: str) -> None:
    assert needed_variables(query) == frozenset(expected)


def test_a_fused_ranking_ranks_the_entities_of_its_first_arm() -> None:
    k = ir.Constant(60, TEXT)
    assert rank_field(NEAREST) == NEAREST.field
    assert rank_field(ir.Rrf(NEAREST, BM25, k)) == NEAREST.field
    assert rank_field(ir.Rrf(BM25, NEAREST, k)) == BM25.field


@each_case(
    ("function", "argument", "expected"),
    [
        (COUNT, ir.EntityRef("a", "Paper"), True),
        (COUNT, prop("a"), True),
        (COUNT, prop("a", type_=MAYBE), False),
        (COUNT, ir.ParamRef("p", MAYBE), False),
        (SUM, prop("a"), False),
        (MIN, ir.EntityRef("a", "Paper"), False),
    ],
)
def test_a_count_of_what_is_never_null_counts_rows(function, argument, expected: bool) -> None:
    assert counts_rows(ir.Aggregate(function, argument)) is expected


def test_a_predicate_asks_for_the_variables_of_both_sides() -> None:
    both = ir.Comparison(prop("a"), ir.CompareOp.LT, prop("b"))
    assert list(predicate_variables(both)) == ["a", "b"]
    one = ir.Comparison(ir.ParamRef("p", TEXT), ir.CompareOp.EQ, ir.EntityRef("c", "Paper"))
    assert list(predicate_variables(one)) == ["c"]
    text = ir.TextMatch(ir.TextKind.SEARCH, prop("d"), ir.Constant("x", TEXT))
    assert list(predicate_variables(text)) == ["d"]


def test_only_names_that_no_text_can_spell_are_hidden() -> None:
    assert is_hidden("~1")
    assert not is_hidden("a")
    assert not is_hidden("_a~")
