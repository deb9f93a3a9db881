"""Batches of a scan in Spark's types: the ends of every range, nulls, slices; no JVM runs here."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from omnigraph.errors import InternalError
from omnigraph.spark.data_source import batch_schema, spark_schema, spark_type, to_spark


def converted(column: pa.Array) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    wanted = batch_schema(spark_schema(batch.schema))
    result = to_spark(batch, wanted)
    assert result.schema.equals(wanted)
    return result.column(0)


def test_unsigned_integers_keep_their_largest_values() -> None:
    assert converted(pa.array([0, 2**32 - 1, None], pa.uint32())).to_pylist() == [
        0,
        2**32 - 1,
        None,
    ]
    assert converted(pa.array([0, 2**64 - 1, None], pa.uint64())).to_pylist() == [
        Decimal(0),
        Decimal(2**64 - 1),
        None,
    ]
    lists = converted(pa.array([[2**64 - 1, None], None, []], pa.list_(pa.uint64())))
    assert lists.to_pylist() == [[Decimal(2**64 - 1), None], None, []]


def test_a_moment_keeps_its_time_of_day() -> None:
    milliseconds = pa.array([-1, 0, 1_777_638_896_789, None], pa.int64()).cast(pa.timestamp("ms"))
    stored = pa.array([-1, 0, 1_777_638_896_789, None], pa.int64()).view(pa.date64())
    assert converted(stored).cast(pa.timestamp("us")).cast(pa.timestamp("ms")) == milliseconds
    offsets = pa.array([0, 2, 2, 4], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, stored)
    result = converted(lists.slice(2))
    assert result.to_pylist()[0][0] == dt.datetime(2026, 5, 1, 12, 34, 56, 789000, dt.UTC)
    assert result.to_pylist()[0][1] is None


def test_a_vector_becomes_an_array_also_in_a_slice() -> None:
    vectors = pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.float32(), 2))
    assert converted(vectors).to_pylist() == [[1, 2], None, [3, 4], [5, 6]]
    assert converted(vectors.slice(1, 2)).to_pylist() == [None, [3, 4]]


def test_large_texts_and_bytes_become_plain() -> None:
    assert converted(pa.array(["a", None], pa.large_string())).to_pylist() == ["a", None]
    assert converted(pa.array([b"a", None], pa.large_binary())).to_pylist() == [b"a", None]


def test_a_type_that_no_table_has_is_an_error() -> None:
    with pytest.raises(InternalError, match="has no Spark type"):
        spark_type(pa.duration("s"))
