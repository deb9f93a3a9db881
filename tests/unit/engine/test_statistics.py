"""Statistics from arrays: degrees, distinct values, histograms, and numbers that small commits leave as they are."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.plan import statistics
from omnigraph.engine.plan.statistics import (
    PropertyStatistics,
    Statistics,
    degrees_of,
    rounded,
    rounded_count,
    values_of,
)
from support.subtests import each_case


def offsets(*degrees: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(degrees)])


def test_degrees_of_a_few_nodes() -> None:
    found = degrees_of(offsets(0, 1, 2, 0, 7))
    assert (found.distinct, found.mean, found.most) == (3, 2.0, 7)
    assert found.p99 == 7


def test_degrees_without_nodes() -> None:
    assert degrees_of(np.array([0])).distinct == 0


def test_degrees_of_many_nodes_come_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_DEGREES", 100)
    found = degrees_of(offsets(*[2] * 900, *[0] * 100))
    assert found.distinct == pytest.approx(900, rel=0.05)
    assert found.mean == 1.8
    assert found.most == 2


def test_few_values_are_counted_exactly() -> None:
    found = values_of(pa.array([1, 2, 2, None, 5]))
    assert found is not None
    assert (found.distinct, found.nulls, found.lowest, found.highest) == (3, 0.2, 1.0, 5.0)


@each_case("distinct", [2, 50, 3000, 100_000])
def test_distinct_values_of_a_large_column(distinct: int) -> None:
    column = pa.array(np.random.default_rng(1).integers(0, distinct, 200_000))
    found = values_of(column)
    assert found is not None
    actual = len(column.unique())
    assert actual / 2 <= found.distinct <= actual * 2


def test_a_column_without_repeats_has_as_many_values_as_rows() -> None:
    found = values_of(pa.array([f"name {number}" for number in range(50_000)]))
    assert found is not None
    assert found.distinct == 50_000
    assert found.bounds == ()


@each_case("column", [pa.array([[1], [2]]), pa.array([b"x"]), pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))])
def test_what_has_no_order_and_no_equality_is_not_looked_at(column: pa.Array) -> None:
    assert values_of(column) is None


@each_case(
    "column",
    [
        pa.array([], pa.int64()),
        pa.array([None, None], pa.utf8()),
        pa.array([float("nan"), 1.0]),
        pa.array([True, False, None]),
        pa.array([datetime.date(2020, 1, 1), None]),
        pa.array([2**63], pa.uint64()),
    ],
)
def test_columns_of_every_kind_are_looked_at(column: pa.Array) -> None:
    found = values_of(column)
    assert found is not None
    assert 0.0 <= found.nulls <= 1.0
    assert found.distinct <= len(column)


def test_shares_below_a_value_follow_the_histogram() -> None:
    known = values_of(pa.array(np.arange(1000)))
    assert known is not None
    assert known.below(-5.0) == 0.0
    assert known.below(250.0) == pytest.approx(0.25, abs=0.01)
    assert known.below(5000.0) == 1.0
    assert PropertyStatistics(7).below(1.0) is None


def test_a_small_commit_leaves_the_numbers_as_they_are() -> None:
    assert rounded_count(20_000) == rounded_count(20_001)
    assert [rounded_count(count) for count in (0, 7, 999)] == [0, 7, 999]
    assert rounded(0.123456) == 0.123
    assert Statistics.of({"A": rounded_count(20_000)}) == Statistics.of({"A": rounded_count(20_001)})


def test_equal_arrays_give_equal_statistics() -> None:
    column = pa.array(np.random.default_rng(2).normal(size=50_000))
    assert values_of(column) == values_of(column)
