"""Tables of a schema as Arrow, and the rows that are committed so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.targets import open_pin
from omnigraph.core.arrow import arrow_field
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.storage.datasets.filters import Filter, OneOf

if TYPE_CHECKING:
    from omnigraph.commit.rows import TablePin
    from omnigraph.core.ids import TableKey
    from omnigraph.core.values import StoredValue
    from omnigraph.storage.datasets.tables import Table, TableStore


# ---- Stored columns of a schema


TypeDef = NodeDef | EdgeDef

_BLOB = ScalarType(Scalar.BLOB)
_ID = pa.field("id", pa.utf8(), nullable=False)
_ENDS = (pa.field("src", pa.utf8(), nullable=False), pa.field("dst", pa.utf8(), nullable=False))


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


# ---- Reading committed rows


#: Keys per probe: larger sets are split, very large ones are found by scanning.
PROBE_CHUNK = 8_192
_SCAN_ABOVE = 8 * PROBE_CHUNK


class CommittedRows:
    """The tables of one snapshot. Remembers which of them were looked at: they are the read set of the write."""

    def __init__(self, store: TableStore, pins: Mapping[TableKey, TablePin]) -> None:
        self._store = store
        self._pins = pins
        self.read: set[TableKey] = set()

    def table(self, key: TableKey) -> Table:
        """The table at its pinned version."""
        self.read.add(key)
        pin = self._pins[key]
        return open_pin(self._store, pin)

    def is_empty(self, key: TableKey) -> bool:
        """Whether the table has no row; costs nothing."""
        self.read.add(key)
        return self._pins[key].row_count == 0

    def select(self, key: TableKey, columns: Sequence[str], filter_: Filter) -> pa.Table:
        """The rows that satisfy a filter."""
        return self.table(key).read(columns, filter_)

    def probe(self, key: TableKey, column: str, values: Collection[str], columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows whose text column holds one of the values, in pieces."""
        if not values or self.is_empty(key):
            return
        if len(values) > _SCAN_ABOVE:
            wanted = pa.array(sorted(values), pa.utf8())
            for batch in self.table(key).scan([*dict.fromkeys([*columns, column])]):
                found: Any = batch.filter(pc.is_in(batch.column(column), wanted))
                yield pa.Table.from_batches([found]).select(list(columns))
            return
        ordered = sorted(values)
        for begin in range(0, len(ordered), PROBE_CHUNK):
            chunk = ordered[begin : begin + PROBE_CHUNK]
            yield self.select(key, columns, OneOf(column, chunk))

    def existing_ids(self, key: TableKey, ids: Collection[str]) -> set[str]:
        """Those of the ids that exist."""
        return {value for rows in self.probe(key, "id", ids, ["id"]) for value in texts(rows["id"])}
