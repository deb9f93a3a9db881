"""Comparisons one by one: numbers by value, text by code point, unknown never true."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.core.ids import TableKey
from omnigraph.core.types import BaseType, EnumType, ListType, Scalar, ScalarType, VectorType
from omnigraph.engine.results.projection import order_codes, sort_by_codes, total_order
from omnigraph.engine.rows import Rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.values.comparisons import Fixed, Side, Values, holds
from omnigraph.lang.query.ir import CompareOp
from support.compared_values import ASKED, HELD
from support.engine_tables import column
from support.examples import examples
from support.subtests import each_case

ORDERED = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
STRING = ScalarType(Scalar.STRING)
I64 = ScalarType(Scalar.I64)


def values(base: BaseType, *held: Any) -> Values:
    return Values(column(base, held), base)


def scalars(scalar: Scalar, *held: Any) -> Values:
    return values(ScalarType(scalar), *held)


def fixed(scalar: Scalar, value: Any) -> Fixed:
    return Fixed(value, ScalarType(scalar))


def true_for(op: CompareOp, left: Side, right: Side, count: int) -> list[bool]:
    found = holds(op, left, right, count)
    assert found.dtype == np.bool_
    assert found.shape == (count,)
    return found.tolist()


@each_case("op", ORDERED)
@each_case("right", HELD)
@each_case("left", HELD)
def test_columns_of_numbers_compare_by_exact_value(left: Scalar, right: Scalar, op: CompareOp) -> None:
    pairs: list[tuple[Any, Any]] = [(x, y) for x in HELD[left] for y in HELD[right]]
    pairs += [(None, HELD[right][0]), (HELD[left][0], None), (None, None)]
    found = true_for(op, scalars(left, *(x for x, _ in pairs)), scalars(right, *(y for _, y in pairs)), len(pairs))
    expected = [x is not None and y is not None and ORDERED[op](Fraction(x), Fraction(y)) for x, y in pairs]
    wrong = [pair for pair, got, want in zip(pairs, found, expected, strict=True) if got != want]
    assert wrong == []


@each_case("op", ORDERED)
@each_case("scalar", HELD)
def test_a_column_of_numbers_compares_with_a_constant_on_either_side(scalar: Scalar, op: CompareOp) -> None:
    held = [*HELD[scalar], None]
    wrong = []
    for asked_scalar, asked in ASKED:
        side = scalars(scalar, *held)
        constant = fixed(asked_scalar, asked)
        known = [x is not None for x in held]
        exact = [Fraction(x or 0) for x in held]
        right = [k and ORDERED[op](x, Fraction(asked)) for k, x in zip(known, exact, strict=True)]
        left = [k and ORDERED[op](Fraction(asked), x) for k, x in zip(known, exact, strict=True)]
        if true_for(op, side, constant, len(held)) != right:
            wrong.append(("column", op, asked))
        if true_for(op, constant, side, len(held)) != left:
            wrong.append((asked, op, "column"))
    assert wrong == []


@each_case("op", ORDERED)
@each_case(
    ("scalar", "held"),
    [
        (Scalar.BOOL, [False, True, None]),
        (Scalar.DATE, [-719_162, -1, 0, 1, 2_932_896, None]),
        (Scalar.DATETIME, [-62_135_596_800_000, -1, 0, 1, 253_402_300_799_999, None]),
        (Scalar.STRING, ["", "A", "Z", "a", "aa", "z", "é", "e\u0301", "\uffff", "🦉", "\x00", None]),
    ],
)
def test_other_kinds_compare_in_their_own_order(scalar: Scalar, held: list[Any], op: CompareOp) -> None:
    """Python orders strings by code point, as the language does; \uffff is before the owl only then."""
    pairs = [(x, y) for x in held for y in held]
    expected = [x is not None and y is not None and ORDERED[op](x, y) for x, y in pairs]
    both = true_for(op, scalars(scalar, *(x for x, _ in pairs)), scalars(scalar, *(y for _, y in pairs)), len(pairs))
    assert both == expected
    for value in held:
        wanted = [x is not None and value is not None and ORDERED[op](x, value) for x in held]
        side = scalars(scalar, *held)
        assert true_for(op, side, fixed(scalar, value), len(held)) == wanted
        mirrored = [x is not None and value is not None and ORDERED[op](value, x) for x in held]
        assert true_for(op, fixed(scalar, value), side, len(held)) == mirrored


def test_an_enum_compares_as_text() -> None:
    enum = EnumType(("draft", "final"))
    side = values(enum, "draft", "final", None)
    assert true_for(CompareOp.EQ, side, Fixed("final", STRING), 3) == [False, True, False]
    assert true_for(CompareOp.LT, Fixed("elm", STRING), side, 3) == [False, True, False]


@each_case("op", [*ORDERED, CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH])
def test_a_null_constant_makes_everything_unknown(op: CompareOp) -> None:
    side, null = scalars(Scalar.STRING, "a", "", None), fixed(Scalar.STRING, None)
    assert true_for(op, side, null, 3) == [False] * 3
    assert true_for(op, null, side, 3) == [False] * 3
    assert true_for(op, null, null, 2) == [False] * 2


@each_case("count", [0, 1, 3])
@each_case(
    ("op", "left", "right", "expected"),
    [
        (CompareOp.EQ, fixed(Scalar.I64, 2), fixed(Scalar.F64, 2.0), True),
        (CompareOp.EQ, fixed(Scalar.I64, 2), fixed(Scalar.F64, 2.7), False),
        (CompareOp.LT, fixed(Scalar.I64, 2**63 - 1), fixed(Scalar.F64, 2.0**63), True),
        (CompareOp.GE, fixed(Scalar.F64, 2.0**53), fixed(Scalar.I64, 2**53 + 1), False),
        (CompareOp.LT, fixed(Scalar.STRING, "a"), fixed(Scalar.STRING, "b"), True),
        (CompareOp.NE, fixed(Scalar.STRING, "a"), fixed(Scalar.STRING, "a"), False),
        (CompareOp.LT, fixed(Scalar.BOOL, False), fixed(Scalar.BOOL, True), True),
        (CompareOp.GT, fixed(Scalar.DATE, 5), fixed(Scalar.DATE, 4), True),
        (CompareOp.STRING_CONTAINS, fixed(Scalar.STRING, "a%c"), fixed(Scalar.STRING, "%"), True),
        (CompareOp.STRING_CONTAINS, fixed(Scalar.STRING, "abc"), fixed(Scalar.STRING, "%"), False),
        (CompareOp.STARTS_WITH, fixed(Scalar.STRING, "abc"), fixed(Scalar.STRING, "ab"), True),
        (CompareOp.STARTS_WITH, fixed(Scalar.STRING, "abc"), fixed(Scalar.STRING, "b"), False),
        (CompareOp.CONTAINS, Fixed((1, 2), ListType(Scalar.I64)), fixed(Scalar.F64, 2.0), True),
        (CompareOp.CONTAINS, Fixed((1, 2), ListType(Scalar.I64)), fixed(Scalar.F64, 2.5), False),
        (CompareOp.CONTAINS, Fixed((None, "a"), ListType(Scalar.STRING)), Fixed("a", STRING), True),
        (CompareOp.CONTAINS, Fixed((None,), ListType(Scalar.STRING)), Fixed("a", STRING), False),
        (CompareOp.CONTAINS, Fixed((), ListType(Scalar.STRING)), Fixed("a", STRING), False),
        (CompareOp.CONTAINS, Fixed((None,), ListType(Scalar.I64)), Fixed(None, I64), False),
    ],
)
def test_two_constants_have_one_answer_for_all_rows(
    op: CompareOp, left: Fixed, right: Fixed, expected: bool, count: int
) -> None:
    assert true_for(op, left, right, count) == [expected] * count


# ---- lists


NUMBERS = ListType(Scalar.I64)
LISTS = [(1, 2), None, (), (None,), (None, 3), (2,), (2, 2)]


@each_case(
    ("wanted", "expected"),
    [
        (fixed(Scalar.I64, 2), [0, 5, 6]),
        (fixed(Scalar.I64, 3), [4]),
        (fixed(Scalar.I64, 9), []),
        (fixed(Scalar.F64, 2.0), [0, 5, 6]),
        (fixed(Scalar.F64, 2.5), []),
        (fixed(Scalar.I64, None), []),
    ],
)
def test_a_list_column_has_the_members_it_has(wanted: Fixed, expected: list[int]) -> None:
    found = true_for(CompareOp.CONTAINS, values(NUMBERS, *LISTS), wanted, len(LISTS))
    assert [place for place, is_true in enumerate(found) if is_true] == expected


def test_a_list_column_is_asked_about_another_column_row_by_row() -> None:
    members = scalars(Scalar.I32, 2, 2, 2, None, 3, 3, 2)
    found = true_for(CompareOp.CONTAINS, values(NUMBERS, *LISTS), members, len(LISTS))
    assert [place for place, is_true in enumerate(found) if is_true] == [0, 4, 6]


def test_a_part_of_a_list_column_is_asked_about_its_own_rows() -> None:
    whole = values(NUMBERS, *LISTS).array
    part = Values(whole.slice(3, 3), NUMBERS)
    assert true_for(CompareOp.CONTAINS, part, fixed(Scalar.I64, 3), 3) == [False, True, False]
    members = Values(scalars(Scalar.I64, 0, 3, 3, 2).array.slice(1), I64)
    assert true_for(CompareOp.CONTAINS, part, members, 3) == [False, True, True]


@each_case(
    ("item", "member", "other"),
    [
        (Scalar.STRING, "a%", "a"),
        (Scalar.BOOL, True, False),
        (Scalar.DATE, -3, 3),
        (Scalar.DATETIME, 2**40, 2**40 + 1),
        (Scalar.I32, -(2**31), 2**31),
        (Scalar.U32, 2**32 - 1, -1),
        (Scalar.U64, 2**63 - 1, 2**63 - 2),
        (Scalar.F32, 0.10000000149011612, 0.1),
        (Scalar.F64, 0.1, 0.10000000149011612),
    ],
)
def test_lists_of_every_kind_have_members(item: Scalar, member: Any, other: Any) -> None:
    asked = {Scalar.I32: Scalar.I64, Scalar.U32: Scalar.I64, Scalar.F32: Scalar.F64}.get(item, item)
    side = values(ListType(item), (None, member), (), None, (member,))
    expected = [True, False, False, True]
    assert true_for(CompareOp.CONTAINS, side, fixed(asked, member), 4) == expected
    assert true_for(CompareOp.CONTAINS, side, fixed(asked, other), 4) == [False] * 4


@each_case(
    ("item", "listed", "scalar", "held", "expected"),
    [
        (Scalar.I64, (1, None, 3), Scalar.I32, [1, 2, 3, None], [1, 0, 1, 0]),
        (Scalar.I64, (-1, 2**63 - 1), Scalar.U64, [2**64 - 1, 2**63 - 1, 0], [0, 1, 0]),
        (Scalar.I64, (2**53 + 1,), Scalar.F64, [2.0**53, 2.0**53 + 2], [0, 0]),
        (Scalar.F64, (2.0**53, 0.5), Scalar.I64, [2**53, 2**53 + 1, 0, None], [1, 0, 0, 0]),
        (Scalar.F64, (2.0**63, 2.0**64), Scalar.U64, [2**63, 2**64 - 1, 2**63 - 1], [1, 0, 0]),
        (Scalar.F64, (0.1,), Scalar.F32, [0.10000000149011612], [0]),
        (Scalar.F64, (-0.0,), Scalar.F64, [0.0, -0.0, 1.0], [1, 1, 0]),
        (Scalar.BOOL, (True,), Scalar.BOOL, [True, False, None], [1, 0, 0]),
        (Scalar.DATE, (-1, 5), Scalar.DATE, [5, -1, 1, None], [1, 1, 0, 0]),
        (Scalar.DATETIME, (2**40,), Scalar.DATETIME, [2**40, 0], [1, 0]),
        (Scalar.STRING, ("a", None), Scalar.STRING, ["a", "A", "", None], [1, 0, 0, 0]),
        (Scalar.STRING, (None,), Scalar.STRING, ["a", None], [0, 0]),
        (Scalar.I64, (None,), Scalar.I64, [0, None], [0, 0]),
        (Scalar.I64, (0,), Scalar.U64, [0, None], [1, 0]),
        (Scalar.F64, (0.0,), Scalar.F64, [None, -0.0], [0, 1]),
        (Scalar.I64, (), Scalar.I64, [0, None], [0, 0]),
        (Scalar.STRING, (), Scalar.STRING, ["", None], [0, 0]),
    ],
)
def test_a_constant_list_has_the_values_of_a_column(
    item: Scalar, listed: tuple[Any, ...], scalar: Scalar, held: list[Any], expected: list[int]
) -> None:
    found = true_for(CompareOp.CONTAINS, Fixed(listed, ListType(item)), scalars(scalar, *held), len(held))
    assert found == [bool(flag) for flag in expected]


def test_a_null_list_constant_has_nothing() -> None:
    null = Fixed(None, NUMBERS)
    assert true_for(CompareOp.CONTAINS, null, scalars(Scalar.I64, 1, None), 2) == [False, False]


# ---- parts of texts


TEXTS = ["", "a", "%", "a%b", "axb", "_", "a\\%", "É🦉é", "b" * 40 + "a", None]


@each_case("part", ["", "a", "%", "_", "a%", "\\", "\\%", "🦉", "é", "e", ".", "[a]"])
@each_case("op", [CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH])
def test_a_part_of_a_text_is_taken_literally(op: CompareOp, part: str) -> None:
    at_start = op is CompareOp.STARTS_WITH
    expected = [text is not None and (text.startswith(part) if at_start else part in text) for text in TEXTS]
    side = scalars(Scalar.STRING, *TEXTS)
    assert true_for(op, side, fixed(Scalar.STRING, part), len(TEXTS)) == expected
    parts = scalars(Scalar.STRING, *[part] * len(TEXTS))
    assert true_for(op, side, parts, len(TEXTS)) == expected


@pytest.mark.parametrize("op", [CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH])
def test_a_constant_text_is_asked_for_the_parts_of_a_column(op: CompareOp) -> None:
    parts = scalars(Scalar.STRING, "a", "b", "", None, "a%b", "A")
    expected = [True, op is CompareOp.STRING_CONTAINS, True, False, True, False]
    assert true_for(op, fixed(Scalar.STRING, "a%b"), parts, 6) == expected


def test_no_rows_have_no_answers() -> None:
    none = Values(pa.array([], pa.utf8()), STRING)
    for op in CompareOp:
        if op is not CompareOp.CONTAINS:
            assert true_for(op, none, none, 0) == []
            assert true_for(op, none, Fixed("a", STRING), 0) == []
    assert true_for(CompareOp.CONTAINS, values(NUMBERS), fixed(Scalar.I64, 1), 0) == []
    assert true_for(CompareOp.CONTAINS, Fixed((1,), NUMBERS), scalars(Scalar.I64), 0) == []


# ---- Total order: keys first, then ids, and ids only where they decide something


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
    codes = order_codes(column(ScalarType(Scalar.F64), [0.0, None, -0.0, 1.0, None]), descending=False)
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
@examples(12, thorough=40)
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

        self.tables = dict.fromkeys(variables, TableKey("node:Paper"))

    def columns(self, variable: str, row_ids: np.ndarray, names: tuple[str, ...]) -> dict[str, pa.Array]:
        return {name: self._variables[variable].column(row_ids, name) for name in names}


def ordered(names: Names, variables: dict[str, list[int]], codes: list[list[int]], limit: int | None) -> list[int]:
    count = len(next(iter(variables.values())))
    rows = Rows(count=count, variables={name: np.array(ids, np.int64) for name, ids in variables.items()})
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
        st.tuples(st.none() | st.integers(0, 2), st.none() | st.integers(0, 2), *[st.integers(0, 3)] * 2), max_size=14
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
