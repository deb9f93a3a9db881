"""Aggregates over groups against plain Python."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.arrow import stored_values
from omnigraph.core.types import Scalar, ScalarType, integer_range
from omnigraph.engine.results.grouping import averages, collected, deviations, medians, sums
from support.engine_tables import column

GROUPS = 4


def _integers(scalar: Scalar) -> st.SearchStrategy[int]:
    low, high = integer_range(scalar)
    return st.sampled_from([low, high, low + 1, high - 1]) | st.integers(low, high) | st.integers(0, 3)


_floats = st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324]) | st.floats(-1e6, 1e6)
_NUMBERS = {
    **{scalar: _integers(scalar) for scalar in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)},
    Scalar.F32: st.floats(-1e6, 1e6, width=32),
    Scalar.F64: _floats,
}
_ANY = _NUMBERS | {
    Scalar.STRING: st.text("ab𝔸", max_size=2),
    Scalar.BOOL: st.booleans(),
    Scalar.DATE: st.integers(-3, 3),
    Scalar.DATETIME: st.integers(-3, 3),
}
Rows = list[tuple[int, Any]]


@st.composite
def _rows(draw: st.DrawFn, kinds: dict[Scalar, st.SearchStrategy[Any]]) -> tuple[Scalar, Rows]:
    scalar = draw(st.sampled_from(sorted(kinds)))
    values = st.none() | kinds[scalar]
    return scalar, draw(st.lists(st.tuples(st.integers(0, GROUPS - 1), values), max_size=12))


def arguments(scalar: Scalar, rows: Rows) -> tuple[Any, pa.Array, int]:
    """The arguments of a function over groups; the column is a slice."""
    groups = np.array([group for group, _ in rows], np.int64)
    return groups, column(ScalarType(scalar), [None, *(value for _, value in rows)])[1:], GROUPS


def by_group(rows: Rows, function: Callable[[list[Any]], Any]) -> list[Any]:
    return [
        function([value for place, value in rows if place == group and value is not None]) for group in range(GROUPS)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _sum(values: list[Any]) -> float | None:
    if not values:
        return None
    return _finite(sum(values) + 0.0) if isinstance(values[0], float) else float(sum(values))


def same(found: list[Any], wanted: Iterable[Any], tolerance: float) -> bool:
    pairs = list(zip(found, wanted, strict=True))
    return all(
        mine == right or (None not in (mine, right) and math.isclose(mine, right, rel_tol=1e-9, abs_tol=tolerance))
        for mine, right in pairs
    )


@given(_rows(_NUMBERS))
def test_68_integers_are_added_exactly_and_rounded_once(given_: tuple[Scalar, Rows]) -> None:
    scalar, rows = given_
    found = sums(*arguments(scalar, rows)).to_pylist()

    wanted = by_group(rows, _sum)
    if scalar in (Scalar.F32, Scalar.F64):
        assert same(found, wanted, 1e-6)
    else:
        assert found == wanted


@given(_rows(_NUMBERS))
def test_68_an_average_is_the_sum_by_the_number_of_values(given_: tuple[Scalar, Rows]) -> None:
    scalar, rows = given_
    found = averages(*arguments(scalar, rows)).to_pylist()

    wanted = by_group(rows, lambda values: None if (total := _sum(values)) is None else total / len(values))
    assert same(found, wanted, 1e-6)


@given(_rows(_NUMBERS))
def test_68_a_deviation_is_that_of_a_sample(given_: tuple[Scalar, Rows]) -> None:
    scalar, rows = given_
    found = deviations(*arguments(scalar, rows)).to_pylist()

    def deviation(values: list[Any]) -> float | None:
        return statistics.stdev(map(Fraction, values)) if len(values) > 1 else None

    largest = max((abs(value) for _, value in rows if value is not None), default=0)
    assert same(found, by_group(rows, deviation), max(1e-6, largest * 1e-12))


@given(_rows(_NUMBERS))
def test_68_a_median_is_the_mean_of_the_middle_two(given_: tuple[Scalar, Rows]) -> None:
    scalar, rows = given_
    found = medians(*arguments(scalar, rows)).to_pylist()

    wanted = by_group(rows, lambda values: float(statistics.median(map(Fraction, values))) if values else None)
    assert same(found, wanted, 1e-12)


def _plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


@given(_rows(_ANY), st.booleans(), st.none() | st.integers(0, 3))
def test_69_a_list_is_ascending_without_nulls(
    given_: tuple[Scalar, Rows], is_distinct: bool, limit: int | None
) -> None:
    scalar, rows = given_
    found = collected(*arguments(scalar, rows), is_distinct=is_distinct, limit=limit)

    def listed(values: list[Any]) -> list[Any]:
        kept = map(_plain, set(values) if is_distinct else values)
        return sorted(kept)[:limit]

    assert found.type == pa.list_(column(ScalarType(scalar), []).type)
    assert [list(item) for item in stored_values(found)] == by_group(rows, listed)


@given(_rows(_ANY), st.randoms(use_true_random=False), st.booleans())
def test_69_a_list_has_the_order_that_it_is_given(given_: tuple[Scalar, Rows], random: Any, is_distinct: bool) -> None:
    scalar, rows = given_
    order = list(range(len(rows)))
    random.shuffle(order)
    found = collected(*arguments(scalar, rows), order=np.array(order, np.int64), is_distinct=is_distinct)

    moved = [rows[place] for place in order]
    wanted = by_group(moved, lambda values: list(dict.fromkeys(values)) if is_distinct else values)
    assert [list(item) for item in stored_values(found)] == wanted


@pytest.mark.parametrize("function", [sums, averages, deviations, medians])
def test_67_a_group_without_values_is_null(function: Callable[..., pa.Array]) -> None:
    groups, values = np.array([1, 1], np.int64), pa.array([None, None], pa.int64())

    assert function(groups, values, 2).to_pylist() == [None, None]
    assert function(groups[:0], values[:0], 0).to_pylist() == []


def test_68_large_sums_do_not_lose_small_ones() -> None:
    groups = np.zeros(5, np.int64)
    most = 2**63 - 1

    assert sums(groups, pa.array([most, most, 1, -most, -most]), 1).to_pylist() == [1.0]
    assert sums(groups, pa.array([2**64 - 1] * 5, pa.uint64()), 1).to_pylist() == [float(5 * (2**64 - 1))]


def test_28_what_is_not_finite_is_null() -> None:
    groups = np.zeros(2, np.int64)
    values = pa.array([1.7e308, 1.7e308])

    assert sums(groups, values, 1).to_pylist() == [None]
    assert averages(groups, values, 1).to_pylist() == [None]
    assert medians(groups, values, 1).to_pylist() == [1.7e308]
    assert same(medians(groups, pa.array([1.6e308, 1.7e308]), 1).to_pylist(), [1.65e308], 0)
