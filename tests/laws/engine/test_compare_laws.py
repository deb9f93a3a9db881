"""Comparisons of columns and constants agree with Python's exact arithmetic, whatever the mix of types."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.types import BaseType, ListType, Scalar, ScalarType
from omnigraph.engine.predicates import Fixed, Side, Values, holds
from omnigraph.lang.query.ir import CompareOp
from support.compared_values import ORDERED, SCALARS, asked, held, is_true, partner, texts
from support.engine_tables import column


@st.composite
def sides(
    draw: st.DrawFn, base: BaseType, count: int, in_columns: Any, in_constants: Any
) -> tuple[Side, list[Any]]:
    """One side of a comparison with its value per row; columns may begin inside a longer array."""
    if draw(st.booleans()):
        value = draw(st.none() | in_constants)
        return Fixed(value, base), [value] * count
    before = draw(st.integers(0, 2))
    size = before + count
    found = draw(st.lists(st.none() | in_columns, min_size=size, max_size=size))
    return Values(column(base, found).slice(before), base), found[before:]


def check(op: CompareOp, left: tuple[Side, list[Any]], right: tuple[Side, list[Any]]) -> None:
    count = len(left[1])
    expected = [is_true(op, x, y) for x, y in zip(left[1], right[1], strict=True)]
    assert holds(op, left[0], right[0], count).tolist() == expected


@settings(max_examples=400)
@given(data=st.data(), count=st.integers(1, 8))
def test_scalars_compare_by_value(data: st.DataObject, count: int) -> None:
    first = data.draw(st.sampled_from(SCALARS))
    second = data.draw(partner(first))
    left = data.draw(sides(ScalarType(first), count, held(first), asked(first)))
    right = data.draw(sides(ScalarType(second), count, held(second), asked(second)))
    for op in ORDERED:
        check(op, left, right)


def lists_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.none() | items, max_size=4).map(tuple)


@settings(max_examples=300)
@given(data=st.data(), count=st.integers(1, 8))
def test_a_list_contains_what_equals_one_of_its_items(data: st.DataObject, count: int) -> None:
    item = data.draw(st.sampled_from(SCALARS))
    member = data.draw(partner(item))
    base = ListType(item)
    left = data.draw(sides(base, count, lists_of(held(item)), lists_of(asked(item))))
    right = data.draw(sides(ScalarType(member), count, held(member), asked(member)))
    check(CompareOp.CONTAINS, left, right)


@settings(max_examples=100)
@given(data=st.data(), count=st.integers(1, 8))
def test_parts_of_texts_are_found_literally(data: st.DataObject, count: int) -> None:
    base = ScalarType(Scalar.STRING)
    left = data.draw(sides(base, count, texts, texts))
    right = data.draw(sides(base, count, texts, texts))
    for op in (CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH):
        check(op, left, right)
