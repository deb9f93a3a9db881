"""Columns of a table as Spark sees them: types, and batches in exactly those types.

Spark has no unsigned integers, no lists of fixed length and no date with a time of day: `U32` is a bigint, `U64` a
decimal of 20 digits, a vector an array, `DateTime` a timestamp in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as arrow
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from omnigraph.errors import InternalError
from omnigraph.storage.blob_cells import plain_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_U64_DIGITS = 20
_TYPES: tuple[tuple[Callable[[pa.DataType], bool], DataType], ...] = (
    (arrow.is_string, StringType()),
    (arrow.is_large_string, StringType()),
    (arrow.is_binary, BinaryType()),
    (arrow.is_large_binary, BinaryType()),
    (arrow.is_boolean, BooleanType()),
    (arrow.is_int32, IntegerType()),
    (arrow.is_int64, LongType()),
    (arrow.is_uint32, LongType()),
    (arrow.is_uint64, DecimalType(_U64_DIGITS, 0)),
    (arrow.is_float32, FloatType()),
    (arrow.is_float64, DoubleType()),
    (arrow.is_date32, DateType()),
    (arrow.is_date64, TimestampType()),
)


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a scan as Spark's types; names, order and nullability stay."""
    return StructType(
        [StructField(item.name, spark_type(item.type), item.nullable) for item in schema]
    )


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type that holds every value of a stored type."""
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return ArrayType(spark_type(kind.value_type), containsNull=True)
    for fits, found in _TYPES:
        if fits(kind):
            return found
    raise InternalError(f"a column of type {kind} has no Spark type")


def batch_schema(schema: StructType) -> pa.Schema:
    """The exact Arrow types in which Spark takes batches of these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def to_spark(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch of a scan in the types of `batch_schema`. No value changes; one that would not fit raises."""
    if not wanted.names:
        return batch  # made again of no columns, it would have no rows
    columns = [_convert(column, item) for column, item in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _convert(column: pa.Array[Any], wanted: pa.Field[Any]) -> pa.Array[Any]:
    if pa.types.is_large_binary(column.type):
        column = plain_bytes(column, wanted.name)
    if _leaf(column.type) == pa.date64():
        # Arrow takes a date64 for a whole day and would drop its time.
        for step in (pa.int64(), pa.timestamp("ms")):
            column = column.cast(_with_leaf(column.type, step))
    return column if column.type == wanted.type else column.cast(wanted.type)


def _leaf(kind: pa.DataType) -> pa.DataType:
    return _leaf(kind.value_type) if isinstance(kind, pa.ListType) else kind


def _with_leaf(kind: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    return pa.list_(_with_leaf(kind.value_type, leaf)) if isinstance(kind, pa.ListType) else leaf
