"""Digests are equal exactly when all typed values of two rows are."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_type
from omnigraph.core.types import EnumType, ListType, Scalar, ScalarType, VectorType
from omnigraph.pipeline.compare import DIGEST, row_digests
from support.subtests import each_case

TEXT, NUMBER = pa.utf8(), pa.int64()
TEXTS = pa.list_(TEXT)
#: Arrow stores every NaN as it comes; these two have different bits.
QUIET, OTHER = struct.unpack("<dd", struct.pack("<QQ", 0x7FF8 << 48, 0xFFF8 << 48 | 1))


def batch(**columns: tuple[pa.DataType, list[Any]]) -> pa.RecordBatch:
    arrays = {name: pa.array(values, type_) for name, (type_, values) in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def digests(type_: pa.DataType, values: list[Any]) -> list[bytes]:
    found = row_digests(batch(x=(type_, values)), ["x"])
    assert found.type == DIGEST
    return found.to_pylist()


def assert_all_differ(found: list[bytes]) -> None:
    for (one, first), (other, second) in combinations(enumerate(found), 2):
        assert first != second, f"rows {one} and {other}"


# ---- what differs

DIFFERENT = [
    pytest.param(TEXT, [None, "", " ", "a", "A", "\u00e1", "a\u0301", "\0", "\0\0"], id="texts"),
    pytest.param(pa.large_binary(), [None, b"", b"\0", b"\0\0", b"\1"], id="bytes"),
    pytest.param(
        TEXTS,
        [None, [], [None], [""], ["", ""], ["a"], ["a", "b"], ["b", "a"], ["ab"], ["a", None]],
        id="lists of texts",
    ),
    pytest.param(TEXTS, [["a,b"], ["a", "b"], ["a,", "b"], ['a","b']], id="joined texts"),
    pytest.param(
        pa.list_(NUMBER),
        [None, [], [0], [None], [0, 0], [0, None], [None, 0], [1, 2], [2, 1]],
        id="lists of numbers",
    ),
    pytest.param(
        pa.list_(pa.float32(), 2),
        [None, [0, 0], [0, None], [None, 0], [0, 1], [1, 0]],
        id="vectors",
    ),
    pytest.param(pa.bool_(), [None, False, True], id="truth"),
    pytest.param(pa.float64(), [None, 0.0, math.nan, math.inf, -math.inf, 5e-324], id="floats"),
    pytest.param(pa.uint64(), [None, 0, 1, 2**64 - 1], id="large numbers"),
    pytest.param(NUMBER, [None, 0, -1, 2**63 - 1, -(2**63)], id="signed numbers"),
    pytest.param(pa.date32(), [None, date(1970, 1, 1), date(1969, 12, 31)], id="days"),
    pytest.param(
        pa.date64(),
        [None, datetime(1970, 1, 1), datetime(1970, 1, 2), datetime(1969, 12, 31)],
        id="moments",
    ),
]


@each_case(("type_", "values"), DIFFERENT)
def test_different_values_have_different_digests(type_: pa.DataType, values: list[Any]) -> None:
    assert_all_differ(digests(type_, values))


@each_case(("type_", "values"), DIFFERENT)
def test_equal_values_have_equal_digests(type_: pa.DataType, values: list[Any]) -> None:
    """Wherever they stand, and whatever stands beside them."""
    alone = [digests(type_, [value])[0] for value in values]
    assert digests(type_, values) == alone
    assert digests(type_, values[::-1]) == alone[::-1]


def test_a_moment_is_compared_to_the_millisecond() -> None:
    moments = pa.array([0, 1, 86_400_000], pa.int64()).cast(pa.timestamp("ms")).cast(pa.int64())
    column = pa.Array.from_buffers(pa.date64(), 3, moments.buffers())
    found = row_digests(pa.RecordBatch.from_arrays([column], names=["x"]), ["x"])
    assert_all_differ(found.to_pylist())


@pytest.mark.parametrize("type_", [pa.float64(), pa.list_(pa.float64()), pa.list_(pa.float64(), 1)])
def test_a_nan_equals_every_nan(type_: pa.DataType) -> None:
    assert struct.pack("<d", QUIET) != struct.pack("<d", OTHER)
    values = [QUIET, OTHER] if type_ == pa.float64() else [[QUIET], [OTHER]]
    first, second = digests(type_, values)
    assert first == second


# ---- columns


def test_values_do_not_move_between_columns() -> None:
    rows = batch(x=(TEXT, ["ab", "a", "", None]), y=(TEXT, ["", "b", "ab", "ab"]))
    assert_all_differ(row_digests(rows, ["x", "y"]).to_pylist())


def test_the_order_in_which_columns_are_stored_is_irrelevant() -> None:
    one = batch(x=(TEXT, ["a"]), y=(NUMBER, [1]))
    other = batch(y=(NUMBER, [1]), x=(TEXT, ["a"]))
    assert row_digests(one, ["x", "y"]) == row_digests(other, ["x", "y"])


def test_columns_that_nobody_asks_for_do_not_count() -> None:
    one = batch(x=(TEXT, ["a"]), _rowid=(NUMBER, [1]))
    other = batch(x=(TEXT, ["a"]), _rowid=(NUMBER, [2]))
    assert row_digests(one, ["x"]) == row_digests(other, ["x"])
    assert row_digests(one, ["x", "_rowid"]) != row_digests(other, ["x", "_rowid"])


@each_case("type_", [TEXT, NUMBER, TEXTS, pa.list_(pa.float32(), 2), pa.bool_()])
def test_a_missing_column_is_null(type_: pa.DataType) -> None:
    with_nulls = batch(x=(TEXT, ["a", "b"]), y=(type_, [None, None]), z=(NUMBER, [1, 2]))
    without = batch(x=(TEXT, ["a", "b"]), z=(NUMBER, [1, 2]))
    names = ["x", "y", "z"]
    assert row_digests(with_nulls, names) == row_digests(without, names)


def test_no_rows_have_no_digests() -> None:
    for type_ in (TEXT, NUMBER, TEXTS, pa.list_(pa.float32(), 2), pa.bool_()):
        assert digests(type_, []) == []


# ---- every stored type

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(max_size=3),
    Scalar.BLOB: st.binary(max_size=3),
    Scalar.BOOL: st.booleans(),
    Scalar.I32: st.integers(-(2**31), 2**31 - 1),
    Scalar.I64: st.integers(-(2**63), 2**63 - 1),
    Scalar.U32: st.integers(0, 2**32 - 1),
    Scalar.U64: st.integers(0, 2**64 - 1),
    Scalar.F32: st.floats(width=32),
    Scalar.F64: st.floats(),
    Scalar.DATE: st.dates(),
    Scalar.DATETIME: st.dates(date(1700, 1, 1), date(2200, 1, 1)).map(
        lambda day: datetime(day.year, day.month, day.day)
    ),
}
SCALARS = [ScalarType(scalar) for scalar in Scalar]
TYPES: list[Any] = [
    *SCALARS,
    EnumType(("draft", "final")),
    *(ListType(scalar) for scalar in Scalar if scalar is not Scalar.BLOB),
    VectorType(3),
]


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    match type_:
        case ScalarType(scalar):
            found: st.SearchStrategy[Any] = VALUES[scalar]
        case EnumType(names):
            found = st.sampled_from(names)
        case ListType(item):
            found = st.lists(st.none() | VALUES[item], max_size=3)
        case VectorType(dimension):
            items = st.none() | VALUES[Scalar.F32]
            found = st.lists(items, min_size=dimension, max_size=dimension)
    return st.none() | found


def exact(value: Any) -> Any:
    """A value that equals another one exactly when a user could not tell them apart."""
    if isinstance(value, list):
        return tuple(map(exact, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_digests_are_equal_exactly_when_the_values_are(type_: Any, data: st.DataObject) -> None:
    # Few values, so that equal rows are not rare.
    pool = data.draw(st.lists(values_of(type_), min_size=1, max_size=4))
    values = data.draw(st.lists(st.sampled_from(pool), min_size=2, max_size=8))
    stored = pa.array(values, arrow_type(type_))
    found = row_digests(pa.RecordBatch.from_arrays([stored], names=["x"]), ["x"]).to_pylist()
    for one, other in combinations(range(len(values)), 2):
        is_equal = exact(values[one]) == exact(values[other])
        assert (found[one] == found[other]) is is_equal, (values[one], values[other])


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_a_slice_has_the_digests_of_its_rows(type_: Any, data: st.DataObject) -> None:
    """Arrow hands out slices that share buffers with rows before and behind them."""
    values = data.draw(st.lists(values_of(type_), min_size=1, max_size=6))
    stored = pa.array(values, arrow_type(type_))
    rows = pa.RecordBatch.from_arrays([stored], names=["x"])
    begin = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - begin))
    expected = row_digests(rows, ["x"]).to_pylist()[begin : begin + length]
    assert row_digests(rows.slice(begin, length), ["x"]).to_pylist() == expected
    chunked = pa.Table.from_batches([rows.slice(begin, length), rows.slice(0, begin)])
    combined = expected + row_digests(rows, ["x"]).to_pylist()[:begin]
    assert row_digests(chunked, ["x"]).to_pylist() == combined


def test_every_stored_type_is_tested() -> None:
    assert set(VALUES) == set(Scalar)
