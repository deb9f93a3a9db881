"""Reading the committed rows that a write is prepared against, at the versions of its snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.manifest.pins import open_pin
from omnigraph.storage.filters import OneOf
from omnigraph.writes.columns import texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from omnigraph.ids import TableKey
    from omnigraph.manifest.rows import TablePin
    from omnigraph.storage.filters import Filter
    from omnigraph.storage.tables import Table, TableStore

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

    def probe(
        self, key: TableKey, column: str, values: Collection[str], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
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
