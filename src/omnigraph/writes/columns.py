"""Tables of a schema in storage: their columns, and stored values as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.schema.catalog import EdgeDef, NodeDef
from omnigraph.types.arrow import arrow_field
from omnigraph.types.kinds import Scalar, ScalarType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from omnigraph.types.values import StoredValue

TypeDef = NodeDef | EdgeDef

_BLOB = ScalarType(Scalar.BLOB)
_ID = pa.field("id", pa.utf8(), nullable=False)
_ENDS = (
    pa.field("src", pa.utf8(), nullable=False),
    pa.field("dst", pa.utf8(), nullable=False),
)


def table_schema(definition: TypeDef) -> pa.Schema:
    """The columns of a type: `id`, for edges `src` and `dst`, then the properties."""
    ends = _ENDS if isinstance(definition, EdgeDef) else ()
    properties = [arrow_field(name, prop.type) for name, prop in definition.properties.items()]
    return pa.schema([_ID, *ends, *properties])


def blob_columns(definition: TypeDef) -> frozenset[str]:
    """The columns that hold blobs."""
    return frozenset(n for n, prop in definition.properties.items() if prop.type.base == _BLOB)


def rows_table(definition: TypeDef, rows: Sequence[Mapping[str, StoredValue]]) -> pa.Table:
    """Rows of stored values as an Arrow table; a column that a row lacks is null."""
    schema = table_schema(definition)
    arrays = [column_array(field, (row.get(field.name) for row in rows)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def column_array(field: pa.Field[Any], values: Iterable[StoredValue]) -> pa.Array[Any]:
    """Stored values as an array of a column's type."""
    items = list(values)
    if pa.types.is_date64(field.type):
        return pa.array(items, pa.int64()).cast(pa.date64())
    if pa.types.is_date32(field.type):
        return pa.array(items, pa.int32()).cast(pa.date32())
    if pa.types.is_list(field.type):
        item = field.type.value_type
        if pa.types.is_date64(item):
            return pa.array(items, pa.list_(pa.int64())).cast(field.type)
        if pa.types.is_date32(item):
            return pa.array(items, pa.list_(pa.int32())).cast(field.type)
    array: pa.Array[Any] = pa.array(items, field.type)
    return array


def texts(column: pa.ChunkedArray[Any]) -> list[str]:
    """The values of a text column that holds no null."""
    return [str(value) for value in column.to_pylist()]


def stored_values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """The values of a column in stored form: days and milliseconds instead of calendar objects."""
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).to_pylist()
    return column.to_pylist()
