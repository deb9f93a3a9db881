"""Bounds, distinct numbers and dense groups against plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.core.types import BaseType, ListType, Scalar, ScalarType
from omnigraph.engine.distinct import combined_numbers, distinct_numbers, first_of_equal
from omnigraph.engine.results import bounds
from omnigraph.engine.results.bounds import Key, Way, candidates, comparable, compared
from omnigraph.engine.results.dense_groups import DenseGroups, is_exact, joined_runs
from omnigraph.engine.results.projection import order_codes
from omnigraph.frozen import frozen
from support.engine_tables import column

_FEW = st.integers(0, 3)
_VALUES: dict[BaseType, st.SearchStrategy[Any]] = {
    ScalarType(Scalar.BOOL): st.booleans(),
    ScalarType(Scalar.I32): st.integers(-(2**31), 2**31 - 1) | _FEW,
    ScalarType(Scalar.I64): st.integers(-(2**63), 2**63 - 1) | _FEW,
    ScalarType(Scalar.U64): st.integers(0, 2**64 - 1) | _FEW,
    ScalarType(Scalar.F32): st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan]),
    ScalarType(Scalar.F64): st.floats() | st.sampled_from([0.0, -0.0, 1.0, math.nan]),
    ScalarType(Scalar.STRING): st.text("ab𝔸,\\", max_size=2),
    ScalarType(Scalar.DATE): st.integers(-3, 3),
    ScalarType(Scalar.DATETIME): st.integers(-3, 3),
    ListType(Scalar.I64): st.lists(_FEW, max_size=2),
}
_BASES = st.sampled_from(sorted(_VALUES, key=str))
_WAYS = st.builds(Way, st.booleans(), st.none() | st.booleans())


@st.composite
def _columns(draw: st.DrawFn, count: int) -> pa.Array:
    base = draw(_BASES)
    values = draw(st.lists(st.none() | _VALUES[base], min_size=count, max_size=count))
    # A slice, as batches of a scan are.
    return column(base, [None, *values])[1:]


@st.composite
def _orders(draw: st.DrawFn) -> tuple[int, list[tuple[Way, pa.Array]]]:
    count = draw(st.integers(0, 40))
    return count, [(draw(_WAYS), draw(_columns(count))) for _ in range(draw(st.integers(1, 3)))]


def _codes(way: Way, values: pa.Array) -> np.ndarray:
    return order_codes(values, descending=way.descending, nulls_first=way.nulls_first)


def _nothing() -> None:
    """Never stops."""


@pytest.fixture(autouse=True, scope="module")
def _small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_FEW_ROWS", 0)
        patch.setattr(bounds, "_SAMPLE_ROWS", 4)
        patch.setattr(bounds, "_SPARE", 2)
        yield


@given(_orders(), st.integers(1, 8))
def test_the_first_rows_are_among_the_candidates(order: tuple[int, list[tuple[Way, pa.Array]]], wanted: int) -> None:
    count, columns = order
    keys = [Key(way, partial(_at, values)) for way, values in columns]
    found = candidates(count, keys, wanted, _nothing)

    kept = set(range(count)) if found is None else set(found.tolist())
    codes = list(zip(*(_codes(way, values).tolist() for way, values in columns), strict=True))
    ranked = sorted(codes)[:wanted]
    assert {place for place, code in enumerate(codes) if ranked and code <= ranked[-1]} <= kept
    assert found is None or (len(kept) == len(found) and (found[1:] > found[:-1]).all())


def _at(values: pa.Array, places: np.ndarray | None) -> pa.Array:
    return values if places is None else values.take(pa.array(places))


def test_candidates_are_few_among_many() -> None:
    numbers = np.random.default_rng(1).permutation(1000)
    ties = pa.array(np.zeros(1000, np.int64))
    keys = [Key(Way(), partial(_at, ties)), Key(Way(descending=True), partial(_at, pa.array(numbers)))]

    found = candidates(1000, keys, 3, _nothing)

    assert found is not None
    assert len(found) < 700
    assert {997, 998, 999} <= set(numbers[found].tolist())


@given(st.data(), _WAYS)
def test_values_compare_as_they_are_ordered(data: st.DataObject, way: Way) -> None:
    count = data.draw(st.integers(1, 12))
    values = data.draw(_columns(count))
    codes = _codes(way, values)
    plain = comparable(values)
    for place in range(count):
        before, same = compared(plain, way, plain[place])
        assert before.tolist() == (codes < codes[place]).tolist()
        assert same.tolist() == (codes == codes[place]).tolist()


# ---- Distinct numbers


_NUMBERS = st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62), max_size=20) | st.lists(_FEW, max_size=20)


@given(_NUMBERS)
def test_numbers_are_the_distinct_ones_at_their_places(numbers: list[int]) -> None:
    found, places = distinct_numbers(np.array(numbers, np.int64))

    assert found.tolist() == sorted(set(numbers))
    assert found[places].tolist() == numbers
    first = first_of_equal(np.array(numbers, np.int64))
    assert first.tolist() == [place for place, number in enumerate(numbers) if number not in numbers[:place]]


@given(st.lists(st.tuples(_FEW, _FEW, st.integers(-(2**40), 2**40)), max_size=20))
def test_rows_have_one_number_where_all_columns_are_equal(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[place] for row in rows], np.int64) for place in range(3)]
    numbers = combined_numbers(columns).tolist()

    assert set(numbers) == set(range(len(set(rows))))
    assert len({*zip(numbers, rows, strict=True)}) == len(set(rows))


# ---- Dense groups and runs


GROUPS = 5


@frozen
class _Measure:
    name: str
    kind: str
    argument: object | None


_MEASURES = [_Measure("rows", "count", None), *(_Measure(kind, kind, "x") for kind in ("count", "sum", "min", "max"))]
_ADDED = {
    **{scalar: st.integers(0, 100) for scalar in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)},
    Scalar.F32: st.floats(-100, 100, width=32),
    Scalar.F64: st.floats(-100, 100) | st.sampled_from([math.inf, -0.0]),
}
Batch = list[tuple[int, Any, int]]


@st.composite
def _batches(draw: st.DrawFn) -> tuple[Scalar, list[Batch]]:
    scalar = draw(st.sampled_from(sorted(_ADDED)))
    row = st.tuples(st.integers(0, GROUPS - 1), st.none() | _ADDED[scalar], st.integers(1, 3))
    return scalar, draw(st.lists(st.lists(row, max_size=8), max_size=3))


def _expected(batches: list[Batch]) -> dict[int, dict[str, Any]]:
    by_group: dict[int, list[Any]] = defaultdict(list)
    for batch in batches:
        for group, value, weight in batch:
            by_group[group] += [value] * weight
    found = {}
    for group, values in by_group.items():
        known = [value for value in values if value is not None]
        found[group] = {
            "rows": len(values),
            "count": len(known),
            "sum": math.fsum(known) if known else None,
            "min": min(known, default=None),
            "max": max(known, default=None),
        }
    return found


def _check(dense: DenseGroups, base: BaseType, batches: list[Batch]) -> None:
    filled = dense.filled()
    type_ = column(base, []).type
    made = {item.name: dense.column(item, filled, type_) for item in _MEASURES}
    assert made["min"].type == made["max"].type == type_
    expected = _expected(batches)
    assert filled.tolist() == sorted(expected)
    for place, group in enumerate(filled.tolist()):
        for name, values in made.items():
            found, wanted = values[place].as_py(), expected[group][name]
            assert found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12), name


@given(_batches(), st.booleans(), st.booleans())
def test_dense_groups_measure_what_is_in_them(
    given_: tuple[Scalar, list[Batch]], is_weighted: bool, is_narrow: bool
) -> None:
    scalar, batches = given_
    base = ScalarType(scalar)
    dense = DenseGroups(_MEASURES, GROUPS)
    if not is_weighted:
        batches = [[(group, value, 1) for group, value, _ in batch] for batch in batches]
    for batch in batches:
        groups = np.array([group for group, *_ in batch], np.uint8 if is_narrow else np.int64)
        weights = np.array([weight for *_, weight in batch], np.int64) if is_weighted else None
        values = column(base, [value for _, value, _ in batch])
        assert all(is_exact(item.kind, values, weights) for item in _MEASURES)
        dense.add(groups, weights, {item.name: values for item in _MEASURES if item.argument})
    _check(dense, base, batches)


@given(_batches(), st.randoms(use_true_random=False))
def test_runs_measure_the_same(given_: tuple[Scalar, list[Batch]], random: Any) -> None:
    scalar, batches = given_
    base = ScalarType(scalar)
    dense = DenseGroups(_MEASURES, GROUPS)
    batches = [[(group, value, 1) for group, value, _ in batch] for batch in batches]
    for batch in batches:
        runs: list[list[int]] = []
        for group, *_ in batch:
            if not runs or runs[-1][0] != group:
                runs += [[random.randrange(GROUPS), 0]] if random.random() < 0.3 else []
                runs.append([group, 0])
            runs[-1][1] += 1
        groups, lengths = (np.array([run[place] for run in runs], np.int64) for place in (0, 1))
        values = column(base, [value for _, value, _ in batch])
        dense.add_runs(groups, lengths, {item.name: values for item in _MEASURES if item.argument})
    _check(dense, base, batches)


@given(st.lists(st.tuples(_FEW, _FEW, st.none() | st.integers(-5, 5)), min_size=1, max_size=12), st.booleans())
def test_rows_in_order_are_joined_without_hashing(rows: list[tuple[int, int, int | None]], is_sorted: bool) -> None:
    rows = sorted(rows, key=lambda row: row[:2]) if is_sorted else rows
    measured = pa.array([value for *_, value in rows], pa.int64())
    table = pa.table(
        {
            "a": pa.array([one for one, *_ in rows], pa.int64()),
            "b": pa.array([other for _, other, _ in rows], pa.int64()),
            "rows": pa.array([1] * len(rows), pa.int64()),
            "sum": measured.cast(pa.float64()),
            "min": measured,
            "max": measured,
        }
    )
    measures = [item for item in _MEASURES if item.kind != "count" or item.argument is None]
    found = joined_runs(table, ["a", "b"], measures)

    in_order = all(one[:2] <= other[:2] for one, other in pairwise(rows))
    assert (found is not None) == in_order
    assume(found is not None)
    expected = {}
    for *key, value in rows:
        count, known = expected.get(tuple(key), (0, []))
        expected[tuple(key)] = count + 1, [*known, *([] if value is None else [value])]
    assert found.to_pylist() == [
        {"a": a, "b": b, "rows": count, **{name: make(known) if known else None for name, make in _MADE.items()}}
        for (a, b), (count, known) in expected.items()
    ]


_MADE: dict[str, Callable[[list[int]], float]] = {"sum": lambda known: float(sum(known)), "min": min, "max": max}


def test_what_is_not_exact_here_is_refused() -> None:
    values = pa.array([1.0, math.nan])
    assert is_exact("sum", values, None)
    assert not is_exact("min", values, None)
    assert not is_exact("max", pa.array(["a"]), None)
    assert not is_exact("sum", pa.nulls(2), None)
    assert is_exact("count", pa.array(["a"]), None)
    assert not is_exact("count", values, np.array([2**53, 1]))
