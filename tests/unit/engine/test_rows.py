from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.types import PropertyType, Scalar, ScalarType, VectorType
from omnigraph.engine.rows import Rows, concat_rows
from omnigraph.engine.tables.context import (
    counts_rows,
    is_hidden,
    live_after,
    needed_variables,
    rank_field,
    variable_names,
    variable_tables,
)
from omnigraph.lang.query import ir
from support.subtests import each_case

NAME = ("a", "name")
AGE = ("b", "age")


def bag(*ids: int, weights: list[int] | None = None) -> Rows:
    """Rows whose every part tells which row it belongs to."""
    place = np.array(ids, np.int64)
    return Rows(
        count=len(ids),
        variables={"a": place, "b": place + 100},
        columns={NAME: pa.array([f"n{i}" for i in ids], pa.utf8()), AGE: pa.array(ids, pa.int32())},
        weights=None if weights is None else np.array(weights, np.int64),
    )


def ids_of(rows: Rows) -> list[int]:
    """The rows by id; every part of a row has to agree."""
    ids: list[int] = rows.variables["a"].tolist()
    assert rows.count == len(ids)
    if "b" in rows.variables:
        assert rows.variables["b"].tolist() == [i + 100 for i in ids]
    for key, values in rows.columns.items():
        expected: list[Any] = [f"n{i}" for i in ids] if key == NAME else ids
        assert values.to_pylist() == expected
    return ids


def weights_of(rows: Rows) -> list[int] | None:
    return None if rows.weights is None else rows.weights.tolist()


def test_taking_follows_the_given_order_and_repeats() -> None:
    rows = bag(5, 6, 7, weights=[1, 2, 3]).take(np.array([2, 0, 2]))
    assert ids_of(rows) == [7, 5, 7]
    assert weights_of(rows) == [3, 1, 3]
    assert ids_of(bag(5, 6).take(np.zeros(0, np.int64))) == []


def test_keeping_follows_the_mask() -> None:
    rows = bag(5, 6, 7, weights=[1, 2, 3])
    some = rows.keep(np.array([True, False, True]))
    assert (ids_of(some), weights_of(some)) == ([5, 7], [1, 3])
    assert rows.keep(np.ones(3, np.bool_)) is rows, "nothing is copied when nothing goes"
    assert ids_of(rows.keep(np.zeros(3, np.bool_))) == []


@each_case(
    ("start", "stop", "expected"), [(0, 2, [1, 2]), (1, 3, [2, 3]), (2, 99, [3, 4]), (1, 1, []), (0, 4, [1, 2, 3, 4])]
)
def test_a_slice_has_the_rows_between_two_places(start: int, stop: int, expected) -> None:
    rows = bag(1, 2, 3, 4, weights=[10, 20, 30, 40]).slice(start, stop)
    assert ids_of(rows) == expected
    assert weights_of(rows) == [10 * i for i in expected]


def test_slices_of_slices_and_taking_from_them_stay_together() -> None:
    rows = bag(*range(10)).slice(2, 9).slice(1, 5)
    assert ids_of(rows) == [3, 4, 5, 6]
    assert ids_of(rows.take(np.array([3, 0]))) == [6, 3]


def test_dead_variables_go_with_their_columns() -> None:
    rows = bag(1, 2, weights=[3, 4]).only({"a"})
    assert set(rows.variables) == {"a"}
    assert set(rows.columns) == {NAME}
    assert (ids_of(rows), weights_of(rows)) == ([1, 2], [3, 4])
    assert rows.only({"a", "z"}) is rows
    nothing = rows.only(())
    assert (nothing.count, nothing.total) == (2, 7), "rows without variables are still rows"
    assert nothing.variables == {}
    assert nothing.columns == {}


def test_binding_and_attaching_leave_the_rows_before_alone() -> None:
    rows = Rows(count=2, variables={"a": np.array([1, 2])})
    bound = rows.bind("b", np.array([101, 102])).attach({NAME: pa.array(["n1", "n2"])})
    assert ids_of(bound) == [1, 2]
    assert set(rows.variables) == {"a"}
    assert rows.columns == {}
    assert set(bound.columns) == {NAME}


@each_case(
    ("weights", "factors", "ids", "expected"),
    [
        (None, np.array([2, 0, 1]), [1, 3], [2, 1]),
        ([5, 6, 7], np.array([2, 0, 1]), [1, 3], [10, 7]),
        (None, 4, [1, 2, 3], [4, 4, 4]),
        ([5, 6, 7], 2, [1, 2, 3], [10, 12, 14]),
        ([5, 6, 7], 0, [], []),
    ],
)
def test_multiplying_changes_what_rows_stand_for(weights, factors, ids, expected) -> None:
    rows = bag(1, 2, 3, weights=weights)
    more = rows.multiplied(factors)
    assert (ids_of(more), weights_of(more)) == (ids, expected)
    assert more.total == sum(expected)
    assert weights_of(rows) == weights, "the rows before are as they were"


def written(rows: Rows, batch_rows: int) -> list[Rows]:
    return [rows.written_out(start, batch_rows) for start in range(0, rows.total, batch_rows)]


@given(weights=st.none() | st.lists(st.integers(1, 5), max_size=8), batch_rows=st.integers(1, 7))
def test_batches_write_every_row_out_as_often_as_it_counts(weights, batch_rows: int) -> None:
    rows = bag(*range(6)) if weights is None else bag(*range(len(weights)), weights=weights)
    expected = [i for i in range(rows.count) for _ in range(weights[i] if weights else 1)]
    assert rows.total == len(expected)
    batches = list(written(rows, batch_rows))
    assert all(weights_of(batch) is None for batch in batches)
    assert all(0 < batch.count <= batch_rows for batch in batches)
    assert all(batch.count == batch_rows for batch in batches[:-1])
    assert [i for batch in batches for i in ids_of(batch)] == expected


def test_rows_that_stand_for_none_are_not_written() -> None:
    rows = bag(1, 2, 3, weights=[0, 2, 0])
    assert [ids_of(batch) for batch in written(rows, 10)] == [[2, 2]]


def test_rows_without_variables_are_counted_out() -> None:
    rows = Rows(count=1).multiplied(5)
    assert [batch.count for batch in written(rows, 2)] == [2, 2, 1]


def test_bags_are_put_together_in_their_order() -> None:
    rows = concat_rows([bag(1, 2), bag(), bag(3), bag(4, 5)])
    assert ids_of(rows) == [1, 2, 3, 4, 5]
    assert set(rows.columns) == {NAME, AGE}
    assert weights_of(rows) is None


def test_a_bag_without_weights_counts_one_each_beside_one_with() -> None:
    rows = concat_rows([bag(1, 2), bag(3, weights=[7])])
    assert (ids_of(rows), weights_of(rows), rows.total) == ([1, 2, 3], [1, 1, 7], 9)


def test_only_columns_that_every_bag_has_are_kept() -> None:
    narrow = Rows(count=1, variables=bag(9).variables, columns={AGE: pa.array([9], pa.int32())})
    rows = concat_rows([bag(1, 2), narrow])
    assert set(rows.columns) == {AGE}
    assert ids_of(rows) == [1, 2, 9]
    again = concat_rows([narrow, Rows(count=0), bag(1)])
    assert set(again.columns) == {AGE}


def test_one_bag_is_taken_as_it_is_and_none_is_empty() -> None:
    only = bag(1)
    assert concat_rows([bag(), only, bag()]) is only
    assert concat_rows([]).count == 0
    assert concat_rows(iter([bag(), bag()])).count == 0


def test_slices_are_put_together_with_their_own_values() -> None:
    rows = bag(*range(6))
    assert ids_of(concat_rows([rows.slice(4, 6), rows.slice(1, 3)])) == [4, 5, 1, 2]


# ---- How long each variable of a query is needed, on pipelines small enough to read


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
        ([scan("a"), expand("a", "b"), without(("a",), expand("a", "z"), where("z", "a"))], "b", ["a", "ab", "b"]),
        ([scan("a"), scan("b"), without(("a", "b"))], "", ["a", "ab", ""]),
    ],
)
def test_a_variable_lives_until_nothing_behind_asks_for_it(ops: list[ir.Op], needed: str, expected: list[str]) -> None:
    assert live_after(ops, frozenset(needed)) == [frozenset(names) for names in expected]


def test_every_variable_has_the_table_of_its_type() -> None:
    ops = [
        ir.NodeScan("a", "Author"),
        ir.Expand("a", "p", "Wrote", ir.Direction.OUT, "Paper", edge_variable="w"),
        where("p"),
        ir.Expand("p", "~1", "At", ir.Direction.IN, "Venue"),
    ]
    assert variable_tables(ops) == {"a": "node:Author", "p": "node:Paper", "w": "edge:Wrote", "~1": "node:Venue"}


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


def aggregate(function: ir.AggregateFunction, argument: ir.Expression) -> ir.Aggregate:
    return ir.Aggregate(function, argument, MAYBE)


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
        projections=tuple(ir.Projection(f"c{place}", item, TEXT) for place, item in enumerate(projections)),
        grouped=grouped,
        rank=rank,
        order=tuple(ir.OrderKey(key, descending=False) for key in order),
        limit=None,
    )


COUNT, SUM, MIN = (ir.AggregateFunction.COUNT, ir.AggregateFunction.SUM, ir.AggregateFunction.MIN)
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
        (read(ir.Constant("x", TEXT), order=(ir.ColumnRef("c0", TEXT),)), "abe"),
        # Groups are ordered by their own columns.
        (read(prop("a"), aggregate(COUNT, prop("b", type_=MAYBE)), order=(prop("a"),)), "ab"),
        (read(aggregate(SUM, prop("e")), order=(ir.ColumnRef("c0", TEXT),)), "e"),
        # Counting what is never null is counting rows.
        (read(aggregate(COUNT, ir.EntityRef("b", "Paper"))), ""),
        (read(aggregate(COUNT, prop("b"))), ""),
        (read(prop("a"), aggregate(COUNT, ir.EntityRef("b", "Paper"))), "a"),
        (read(aggregate(MIN, prop("b"))), "b"),
        (read(aggregate(COUNT, prop("b", type_=MAYBE))), "b"),
        # A rank asks for its entity and makes the order total.
        (read(ir.Constant("x", TEXT), rank=NEAREST), "abe"),
        # The window of a vector is cut in total order, also where what is left is grouped.
        (read(aggregate(COUNT, prop("a")), rank=NEAREST), "abe"),
        (read(aggregate(COUNT, prop("a")), rank=BM25), "a"),
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
    assert counts_rows(aggregate(function, argument)) is expected


def test_a_predicate_asks_for_the_variables_of_both_sides() -> None:
    both = ir.Comparison(prop("a"), ir.CompareOp.LT, prop("b"))
    assert list(ir.variables(both)) == ["a", "b"]
    one = ir.Comparison(ir.ParamRef("p", TEXT), ir.CompareOp.EQ, ir.EntityRef("c", "Paper"))
    assert list(ir.variables(one)) == ["c"]
    text = ir.TextMatch(ir.TextKind.SEARCH, prop("d"), ir.Constant("x", TEXT))
    assert list(ir.variables(text)) == ["d"]


def test_only_names_that_no_text_can_spell_are_hidden() -> None:
    assert is_hidden("~1")
    assert not is_hidden("a")
    assert not is_hidden("_a~")


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(1, 3)), max_size=20),
    st.sampled_from([(), ("a",), ("a", "b")]),
    st.booleans(),
)
def test_collapsed_rows_stand_for_the_same(drawn, names, is_weighted) -> None:
    columns = {name: np.array([row[place] for row in drawn], np.int64) for place, name in enumerate(("a", "b"))}
    weights = np.array([row[2] for row in drawn], np.int64) if is_weighted else None
    rows = Rows(count=len(drawn), variables={name: columns[name] for name in names}, weights=weights)
    found = rows.collapsed()
    assert found.count <= rows.count
    assert _totals(found, names) == _totals(rows, names)
    if drawn and not names:
        assert found.count == 1


def _totals(rows: Rows, names: tuple[str, ...]) -> Counter[tuple[int, ...]]:
    totals: Counter[tuple[int, ...]] = Counter()
    for row in range(rows.count):
        key = tuple(int(rows.variables[name][row]) for name in names)
        totals[key] += 1 if rows.weights is None else int(rows.weights[row])
    return totals


def test_rows_with_columns_are_not_collapsed() -> None:
    rows = bag(1, 1, 1, 1)
    assert rows.collapsed() is rows
