from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows import Rows, concat_rows
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
    ("start", "stop", "expected"),
    [(0, 2, [1, 2]), (1, 3, [2, 3]), (2, 99, [3, 4]), (1, 1, []), (0, 4, [1, 2, 3, 4])],
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


@given(
    weights=st.none() | st.lists(st.integers(1, 5), max_size=8),
    batch_rows=st.integers(1, 7),
)
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
