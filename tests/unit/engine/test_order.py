"""Total order: keys first, then ids, and ids only where they decide something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.core.types import ListType, Scalar, ScalarType, VectorType
from omnigraph.engine.context import Context
from omnigraph.engine.projection import order_codes, sort_by_codes, total_order
from omnigraph.engine.rows import Rows
from support.engine_tables import column
from support.subtests import each_case

#: Values in ascending order, null first.
ASCENDING: dict[Scalar, list[Any]] = {
    Scalar.STRING: [None, "", "A", "Z", "a", "aa", "é", "\uffff", "🦉"],
    Scalar.BOOL: [None, False, True],
    Scalar.I32: [None, -(2**31), -1, 0, 7],
    Scalar.I64: [None, -(2**63), 2**53, 2**53 + 1, 2**63 - 1],
    Scalar.U32: [None, 0, 2**31, 2**32 - 1],
    Scalar.U64: [None, 0, 2**63 - 1, 2**63, 2**64 - 1],
    Scalar.F32: [None, -1.5, -0.0, 0.5],
    Scalar.F64: [None, -1e300, -0.5, 0.0, 5e-324, 0.1, 1e300],
    Scalar.DATE: [None, -719_162, -1, 0, 5],
    Scalar.DATETIME: [None, -62_135_596_800_000, -1, 0, 2**40],
}


@each_case("descending", [False, True])
@each_case("scalar", ASCENDING)
def test_null_is_first_ascending_and_last_descending(scalar: Scalar, descending: bool) -> None:
    values = ASCENDING[scalar]
    shuffled = [*values[1::2], *values[::2], *values[1::2]]
    codes = order_codes(column(ScalarType(scalar), shuffled), descending=descending)
    found = [shuffled[place] for place in sort_by_codes([codes], len(shuffled))]
    place_of = {repr(value): place for place, value in enumerate(values)}
    expected = sorted(shuffled, key=lambda value: place_of[repr(value)] * (-1 if descending else 1))
    assert found == expected


def test_equal_values_have_equal_codes_and_both_zeros_are_one() -> None:
    codes = order_codes(
        column(ScalarType(Scalar.F64), [0.0, None, -0.0, 1.0, None]), descending=False
    )
    assert codes[0] == codes[2]
    assert codes[1] == codes[4]
    assert len(set(codes.tolist())) == 3


_texts = st.text("aN\\,:", max_size=3)
_items: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: _texts,
    Scalar.BOOL: st.booleans(),
    Scalar.I64: st.sampled_from([-1, 0, 1, 2**53, 2**53 + 1]),
    Scalar.U64: st.sampled_from([0, 2**63, 2**64 - 1]),
    Scalar.F32: st.sampled_from([-0.0, 0.0, 0.5, 16777216.0]),
    Scalar.F64: st.sampled_from([-0.0, 0.0, 0.1, 0.1 + 2**-56, 5e-324, 1e300]),
    Scalar.DATE: st.integers(-1, 1),
    Scalar.DATETIME: st.sampled_from([0, 1, 86_400_000]),
}


@pytest.mark.parametrize("scalar", _items)
@settings(max_examples=40)
@given(data=st.data())
def test_lists_have_equal_codes_exactly_when_they_are_equal(scalar, data) -> None:
    items = st.lists(st.none() | _items[scalar], max_size=3).map(tuple)
    values = data.draw(st.lists(st.none() | items, min_size=1, max_size=8))
    codes = order_codes(column(ListType(scalar), values), descending=False).tolist()
    for value, code in zip(values, codes, strict=True):
        same = [other == code for other in codes]
        assert same == [other == value for other in values]


def test_vectors_have_equal_codes_exactly_when_they_are_equal() -> None:
    values = [(0.0, 1.0), None, (-0.0, 1.0), (1.0, 0.0), (0.0, 1.0), None]
    codes = order_codes(column(VectorType(2), values), descending=True).tolist()
    assert codes[0] == codes[2] == codes[4]
    assert codes[1] == codes[5]
    assert len(set(codes)) == 3


def test_no_values_have_no_codes() -> None:
    for scalar in ASCENDING:
        assert order_codes(column(ScalarType(scalar), []), descending=True).tolist() == []


def test_earlier_codes_weigh_more_and_equal_rows_stay_in_place() -> None:
    first, second = np.array([2, 1, 2, 1, 2]), np.array([0, 5, -3, 5, 0])
    assert sort_by_codes([first, second], 5).tolist() == [1, 3, 2, 0, 4]
    assert sort_by_codes([first], 5).tolist() == [1, 3, 0, 2, 4]
    assert sort_by_codes([], 3).tolist() == [0, 1, 2]


class Ids:
    """Stands in for stored entities: ids of row numbers, and a note of every row that was asked for."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.asked: list[int] = []

    def column(self, row_ids: np.ndarray, name: str) -> pa.Array:
        assert name == "id"
        self.asked += row_ids.tolist()
        return pa.array([self.ids[row_id] for row_id in row_ids], pa.utf8())


class Names:
    """Stands in for a running query: where the ids of each variable are."""

    def __init__(self, **variables: Ids) -> None:
        self._variables = variables
        self.budget = Budget()

    def entities(self, variable: str) -> Ids:
        return self._variables[variable]


def ordered(
    names: Names, variables: dict[str, list[int]], codes: list[list[int]], limit: int | None
) -> list[int]:
    count = len(next(iter(variables.values())))
    rows = Rows(
        count=count,
        variables={name: np.array(ids, np.int64) for name, ids in variables.items()},
    )
    context: Context = names  # type: ignore[assignment]  # all that ordering asks of it
    arrays = [np.array(code, np.int64) for code in codes]
    return total_order(context, rows, arrays, limit).tolist()


def test_ids_break_ties_and_only_tied_rows_are_read() -> None:
    ids = Ids(["z", "y", "x", "w", "v"])
    assert ordered(Names(a=ids), {"a": [0, 1, 2, 3, 4]}, [[5, 1, 3, 3, 0]], None) == [4, 1, 3, 2, 0]
    assert sorted(ids.asked) == [2, 3]


def test_without_ties_no_id_is_read() -> None:
    ids = Ids([])
    assert ordered(Names(a=ids), {"a": [0, 1, 2]}, [[3, 1, 2]], None) == [1, 2, 0]
    assert ids.asked == []


@each_case(
    ("limit", "expected", "asked"),
    [
        (0, [], []),
        (1, [5], []),
        # Two tied rows compete for the last place.
        (2, [5, 1], [0, 1]),
        (3, [5, 1, 0], [0, 1]),
        # The run of three is cut in its middle: all of it has to be known.
        (4, [5, 1, 0, 4], [0, 1, 2, 3, 4]),
        (99, [5, 1, 0, 4, 3, 2], [0, 1, 2, 3, 4]),
    ],
)
def test_ties_behind_the_limit_are_not_looked_at(limit, expected, asked) -> None:
    ids = Ids(["f", "e", "d", "c", "b", "a"])
    found = ordered(Names(a=ids), {"a": [0, 1, 2, 3, 4, 5]}, [[1, 1, 2, 2, 2, 0]], limit)
    assert found == expected
    assert sorted(ids.asked) == asked


def test_variables_break_ties_in_the_order_of_their_names() -> None:
    names = Names(b=Ids(["x", "y"]), a=Ids(["p", "q"]))
    assert ordered(names, {"b": [0, 0, 1], "a": [1, 0, 0]}, [[7, 7, 7]], None) == [1, 2, 0]
    assert ordered(names, {"b": [0, 0, 1], "a": [1, 0, 0]}, [], None) == [1, 2, 0]


def test_hidden_variables_break_no_ties() -> None:
    names = Names(a=Ids(["p", "p"]))
    assert ordered(names, {"~1": [9, 8], "a": [0, 1]}, [[7, 7]], None) == [0, 1]
    assert ordered(Names(), {"~1": [9, 8]}, [[7, 7]], None) == [0, 1]


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(0, 2), st.none() | st.integers(0, 2), *[st.integers(0, 3)] * 2
        ),
        max_size=14,
    ),
    descending=st.tuples(st.booleans(), st.booleans()),
    limit=st.none() | st.integers(0, 16),
)
def test_rows_come_as_python_sorts_them(rows, descending, limit) -> None:
    """Row numbers run against ids, so an order by row number would show."""
    ids = {"a": ["d", "c", "b", "a"], "b": ["é", "z", "B", ""]}

    def key(row: Any) -> tuple[Any, ...]:
        keys = [-1 if value is None else value for value in row[:2]]
        signed = [-k if down else k for k, down in zip(keys, descending, strict=True)]
        return (*signed, ids["a"][row[2]], ids["b"][row[3]])

    codes = [
        order_codes(pa.array([row[place] for row in rows], pa.int32()), descending=down).tolist()
        for place, down in enumerate(descending)
    ]
    names = Names(a=Ids(ids["a"]), b=Ids(ids["b"]))
    variables = {"b": [row[3] for row in rows], "a": [row[2] for row in rows]}
    found = ordered(names, variables, codes, limit)
    assert len(set(found)) == len(found)
    assert [key(rows[place]) for place in found] == sorted(map(key, rows))[:limit]
