"""Tables of a schema as Arrow, and the rows that are committed so far."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from omnigraph.commit.rows import TablePin
from omnigraph.commit.targets import open_pin
from omnigraph.core.arrow import Column, Rows, arrow_field, pc, stored_array
from omnigraph.core.ids import TableKey
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.core.values import StoredValue
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.storage.datasets.filters import Filter, OneOf
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


def rows_table(definition: TypeDef, rows: Sequence[Mapping[str, StoredValue]]) -> Rows:
    """Rows of stored values as an Arrow table; a column that a row lacks is null."""
    schema = table_schema(definition)
    arrays = [stored_array(field.type, (row.get(field.name) for row in rows)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def texts(column: Column) -> list[str]:
    """The values of a text column that holds no null."""
    return [str(value) for value in column.to_pylist()]


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

    def select(self, key: TableKey, columns: Sequence[str], filter_: Filter) -> Rows:
        """The rows that satisfy a filter."""
        return self.table(key).read(columns, filter_)

    def probe(self, key: TableKey, column: str, values: Collection[str], columns: Sequence[str]) -> Iterator[Rows]:
        """The rows whose text column holds one of the values, in pieces."""
        if not values or self.is_empty(key):
            return
        if len(values) > _SCAN_ABOVE:
            wanted = pa.array(sorted(values), pa.utf8())
            for batch in self.table(key).scan([*dict.fromkeys([*columns, column])]):
                found = batch.filter(pc.is_in(batch.column(column), wanted))
                yield pa.Table.from_batches([found]).select(list(columns))
            return
        ordered = sorted(values)
        for begin in range(0, len(ordered), PROBE_CHUNK):
            chunk = ordered[begin : begin + PROBE_CHUNK]
            yield self.select(key, columns, OneOf(column, chunk))

    def existing_ids(self, key: TableKey, ids: Collection[str]) -> set[str]:
        """Those of the ids that exist."""
        return {value for rows in self.probe(key, "id", ids, ["id"]) for value in texts(rows["id"])}
