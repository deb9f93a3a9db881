"""Vectors in memory: the nearest of all rows or of some are those that 64 bits find, ties included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.core.budget import Budget
from omnigraph.engine.tables.vector_columns import VectorColumn, VectorPart, make_part
from omnigraph.errors import QueryTimeoutError
from omnigraph.storage.datasets.reads import NO_ROW
from support.subtests import each_case

DIMENSION = 6
RNG = np.random.default_rng(11)


def arrow(vectors: np.ndarray, missing: list[int] | None = None) -> pa.FixedSizeListArray:
    values = [None if number in (missing or ()) else row.tolist() for number, row in enumerate(vectors)]
    return pa.array(values, pa.list_(pa.float32(), vectors.shape[1]))


def part_of(vectors: np.ndarray, missing: list[int] | None = None) -> VectorPart:
    return make_part([arrow(vectors, missing)], vectors.shape[1])


def exact(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    return np.sqrt(((vectors.astype(np.float64) - query) ** 2).sum(axis=1))


def check_nearest(
    column: VectorColumn, vectors: np.ndarray, row_ids: np.ndarray, alive: np.ndarray, query: np.ndarray, count: int
) -> None:
    """All rows, and a random half of them, against a plain scan in 64 bits."""
    for some in (None, np.sort(RNG.choice(alive, max(1, len(alive) // 2), replace=False))):
        members = alive if some is None else some
        places = None if some is None else column.places(row_ids[some])
        found = column.nearest_places(query, count, places, Budget())
        distances = exact(vectors[members], query)
        last = np.sort(distances)[min(count, len(members)) - 1]
        wanted = set(row_ids[members[distances <= last]].tolist())
        assert wanted <= set(column.row_ids[found].tolist())
        at = {int(row_ids[number]): number for number in members}
        numbers = [at[int(row_id)] for row_id in column.row_ids[found]]
        assert np.array_equal(column.distances(query, found, Budget()), exact(vectors[numbers], query))


def normal(count: int) -> np.ndarray:
    return RNG.normal(size=(count, DIMENSION)).astype(np.float32)


def equal(count: int) -> np.ndarray:
    return np.repeat(normal(3), count // 3 + 1, axis=0)[:count]


def distant(count: int) -> np.ndarray:
    """Far from the origin and close together: 32 bits cannot tell them apart."""
    return (1e4 + 1e-2 * normal(count)).astype(np.float32)


def huge(count: int) -> np.ndarray:
    """Beyond what squares in 32 bits hold."""
    return normal(count) * np.float32(1e30)


@each_case("make", [normal, equal, distant, huge])
@each_case("count", [1, 10, 5000])
def test_the_nearest_are_those_of_a_plain_scan(make, count: int):
    vectors = make(5000)
    ids = np.arange(5000)
    column = VectorColumn([(part_of(vectors), ids)], DIMENSION)
    for query in (vectors[17].astype(np.float64), make(1)[0].astype(np.float64), np.zeros(DIMENSION)):
        check_nearest(column, vectors, ids, ids, query, count)


@each_case("spread", [1, 3, 1000])
def test_parts_of_any_size_deleted_rows_and_scattered_row_ids(spread: int):
    sizes = (4500, 10, 1, 4200, 300)
    vectors = normal(sum(sizes))
    ids = RNG.permutation(len(vectors)).astype(np.int64) * spread
    alive = np.ones(len(vectors), np.bool_)
    alive[RNG.choice(len(vectors), 900, replace=False)] = False
    parts, start = [], 0
    for size in sizes:
        stop = start + size
        parts.append((part_of(vectors[start:stop]), np.where(alive[start:stop], ids[start:stop], NO_ROW)))
        start = stop
    column = VectorColumn(parts, DIMENSION)
    check_nearest(column, vectors, ids, np.flatnonzero(alive), normal(1)[0].astype(np.float64), 25)


def test_rows_without_a_vector_are_never_near():
    vectors = normal(200)
    missing = list(range(0, 200, 3))
    present = np.array([number for number in range(200) if number % 3])
    column = VectorColumn([(part_of(vectors, missing), np.arange(200))], DIMENSION)
    query = vectors[3].astype(np.float64)
    for count in (None, 500, 20):
        found = column.nearest_places(query, count, None, Budget())
        assert set(found.tolist()) <= set(present.tolist())
    assert len(column.nearest_places(query, None, None, Budget())) == len(present)
    check_nearest(column, vectors, np.arange(200), present, query, 7)


def test_a_column_without_rows_or_vectors_finds_nothing():
    empty = VectorColumn([], DIMENSION)
    assert not len(empty.nearest_places(np.zeros(DIMENSION), 3, None, Budget()))
    nothing = VectorColumn([(part_of(normal(4), [0, 1, 2, 3]), np.arange(4))], DIMENSION)
    assert not len(nothing.nearest_places(np.zeros(DIMENSION), 3, None, Budget()))
    assert not len(nothing.nearest_places(np.zeros(DIMENSION), 3, np.array([1, 2]), Budget()))


def test_a_budget_that_is_used_up_stops_a_scan():
    vectors = normal(5000)
    column = VectorColumn([(part_of(vectors), np.arange(5000))], DIMENSION)
    budget = Budget(timeout_s=0.0)
    with pytest.raises(QueryTimeoutError):
        column.nearest_places(np.zeros(DIMENSION), 3, None, budget)


def test_parts_of_several_batches_are_one_array():
    vectors = normal(50)
    whole = make_part([arrow(vectors)], DIMENSION)
    cut = make_part([arrow(vectors[:20]), arrow(vectors[20:21]), arrow(vectors[21:])], DIMENSION)
    assert np.array_equal(whole.vectors, cut.vectors)
    assert np.array_equal(whole.norms, cut.norms)
    assert whole.largest == cut.largest
