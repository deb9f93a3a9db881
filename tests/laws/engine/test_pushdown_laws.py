"""What storage filters and what the engine compares keep the same rows, and the right ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.types import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    scalar_of,
)
from omnigraph.core.values import StoredValue
from omnigraph.engine.entities import row_id_array
from omnigraph.engine.predicates import keep_true
from omnigraph.engine.pushdown import push_down
from omnigraph.engine.rows import Rows
from omnigraph.engine.wanted_indexes import WantedIndex, index_spec
from omnigraph.lang.query.ir import (
    CompareOp,
    Comparison,
    Constant,
    Operand,
    ParamRef,
    Predicate,
    PropertyRef,
)
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage.datasets.indexes import stage_indices
from omnigraph.storage.datasets.reads import read_rows, scan_rows
from omnigraph.storage.datasets.staged import commit_staged
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.compared_numbers import ASKED, HELD
from support.compared_values import ORDERED, SCALARS, asked, held, is_true, partner, texts
from support.engine_tables import append, column, new_context, stored
from support.subtests import each_case

ENUM = EnumType(("A", "a", "it's", "é"))
PLAIN: list[BaseType] = [*(ScalarType(scalar) for scalar in SCALARS), ENUM]
LISTS: list[BaseType] = [ListType(scalar) for scalar in SCALARS]
NAME = "camelCase"
#: Questions per table: making a table costs more than asking about it.
ROUNDS = 8


@dataclass(frozen=True)
class Question:
    """A predicate, the values of its parameters, and what it means for one value of the column."""

    predicate: Predicate
    values: dict[str, StoredValue]
    op: CompareOp
    operand: Any
    is_mirrored: bool

    def holds(self, value: Any) -> bool:
        if self.is_mirrored:
            return is_true(self.op, self.operand, value)
        return is_true(self.op, value, self.operand)


def column_values(base: BaseType) -> st.SearchStrategy[Any]:
    match base:
        case EnumType(names):
            return st.sampled_from(names)
        case ListType(item):
            return st.lists(st.none() | held(item), max_size=3).map(tuple)
        case ScalarType(scalar):
            return held(scalar)
    raise TypeError(base)


@st.composite
def questions(draw: st.DrawFn, base: BaseType, number: int) -> Question:
    """Any comparison of a column with a literal or parameter that the checker allows."""
    scalar = base.item if isinstance(base, ListType) else scalar_of(base)
    assert scalar is not None
    other = draw(partner(scalar))
    base_of_operand: BaseType = ScalarType(other)
    operand_values = texts if scalar_of(base) is Scalar.STRING else asked(other)
    is_mirrored = draw(st.booleans())
    if isinstance(base, ListType):
        op, is_mirrored = CompareOp.CONTAINS, False
    elif is_mirrored and draw(st.booleans()):
        op, base_of_operand = CompareOp.CONTAINS, ListType(other)
        operand_values = st.lists(st.none() | operand_values, max_size=4).map(tuple)
    else:
        ops = list(ORDERED)
        if scalar is Scalar.STRING:
            ops += [CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH]
        op = draw(st.sampled_from(ops))
    type_ = PropertyType(base_of_operand, nullable=True)
    name, values = f"p{number}", {}
    if draw(st.booleans()):
        value = draw(operand_values)
        operand: Operand = Constant(value, type_)
    else:
        value = draw(st.none() | operand_values)
        operand, values = ParamRef(name, type_), {name: value}
    field = PropertyRef("n", NAME, PropertyType(base, nullable=True))
    left, right = (operand, field) if is_mirrored else (field, operand)
    return Question(Comparison(left, op, right), values, op, value, is_mirrored)


@contextmanager
def table_of(
    base: BaseType, values: list[Any], covered: int | None
) -> Iterator[tuple[GraphLocation, Table]]:
    """A table with one row per value; the first `covered` rows are in an index of the column."""
    folder = tempfile.mkdtemp(prefix="pushdown-")
    try:
        type_ = column(base, []).type
        schema = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field(NAME, type_)])
        ids = pa.array([str(place) for place in range(len(values))], pa.utf8())
        rows = pa.table([ids, column(base, values)], schema=schema)
        location = parse_location(folder)
        if covered is None:
            yield location, stored(location, "nodes/x", rows)
            return
        table = stored(location, "nodes/x", rows.slice(0, covered))
        spec = index_spec(WantedIndex(column=NAME, kind=IndexKind.BTREE), covered)
        assert spec is not None
        staged = stage_indices(table, [spec])
        assert staged is not None
        table = commit_staged(staged)
        if covered < len(values):
            table = append(table, rows.slice(covered))
        yield location, table
    finally:
        shutil.rmtree(folder)


def ids_of(table: Table, row_ids: np.ndarray) -> list[str]:
    rows = read_rows(table, ("id",))
    by_row = dict(zip(row_id_array(rows).tolist(), rows["id"].to_pylist(), strict=True))
    return sorted(by_row[row_id] for row_id in row_ids.tolist())


def check(
    location: GraphLocation, table: Table, held_values: list[Any], asked_of: list[Question]
) -> None:
    """Storage and engine keep the rows for which every predicate is true."""
    values = {name: value for item in asked_of for name, value in item.values.items()}
    predicates = [item.predicate for item in asked_of]
    context = new_context(location, {"node:X": table}, {"n": "node:X"}, values)
    expected = sorted(
        str(place)
        for place, value in enumerate(held_values)
        if all(item.holds(value) for item in asked_of)
    )

    everything = Rows(count=table.row_count, variables={"n": row_id_array(read_rows(table)).copy()})
    in_memory = keep_true(context, everything, predicates)
    assert ids_of(table, in_memory.variables["n"]) == expected, "the engine compares"

    pushed = push_down(predicates, values)
    found = [row_id_array(batch) for batch in scan_rows(table, (), pushed.filter)]
    row_ids = np.concatenate([*found, np.zeros(0, np.int64)])
    rows = Rows(count=len(row_ids), variables={"n": row_ids})
    kept = keep_true(context, rows, pushed.rest)
    assert ids_of(table, kept.variables["n"]) == expected, f"storage filters {pushed.filter}"
    if not pushed.rest and pushed.filter is not None:
        assert table.count_rows(pushed.filter) == len(expected)


def ask(data: st.DataObject, base: BaseType, *, is_indexed: bool) -> None:
    values = data.draw(
        st.lists(st.none() | column_values(base), min_size=2, max_size=10), label="column"
    )
    covered = data.draw(st.integers(1, len(values)), label="covered") if is_indexed else None
    with table_of(base, values, covered) as (location, table):
        for _ in range(ROUNDS):
            count = data.draw(st.sampled_from([1, 1, 2]))
            asked_of = [data.draw(questions(base, number)) for number in range(count)]
            check(location, table, values, asked_of)


@pytest.mark.parametrize("base", [*PLAIN, *LISTS], ids=str)
@settings(max_examples=5)
@given(data=st.data())
def test_storage_and_engine_keep_the_same_rows(base: BaseType, data: st.DataObject) -> None:
    ask(data, base, is_indexed=False)


@pytest.mark.parametrize("base", PLAIN, ids=str)
@settings(max_examples=4)
@given(data=st.data())
def test_an_index_over_some_of_the_rows_changes_nothing(
    base: BaseType, data: st.DataObject
) -> None:
    ask(data, base, is_indexed=True)


@each_case("scalar", HELD)
def test_storage_compares_numbers_beside_the_limits_of_other_types(scalar: Scalar) -> None:
    base = ScalarType(scalar)
    values = [*HELD[scalar], None]
    field = PropertyRef("n", NAME, PropertyType(base, nullable=True))
    wrong = []
    with table_of(base, values, None) as (_, table):
        for asked_scalar, value in ASKED:
            operand = Constant(value, PropertyType(ScalarType(asked_scalar)))
            for op in ORDERED:
                pushed = push_down([Comparison(field, op, operand)], {})
                assert pushed.filter is not None
                found = sorted(read_rows(table, ("id",), pushed.filter)["id"].to_pylist())
                expected = sorted(
                    str(place) for place, held_ in enumerate(values) if is_true(op, held_, value)
                )
                if found != expected:
                    wrong.append((op, value, found, expected))
    assert wrong == []
