"""Reads by row id: scans, point reads and nearest neighbours.

A row id identifies a row of one dataset for its whole life; updates and compaction keep it. It is how everything above
refers to rows until their values are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.storage.failures import translated
from omnigraph.storage.filters import Filter, to_sql
from omnigraph.storage.row_columns import ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.storage.tables import Table

DISTANCE = "_distance"


def scan_rows(
    table: Table,
    columns: Sequence[str] = (),
    filter_: Filter | None = None,
    *,
    limit: int | None = None,
    batch_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Row ids with some columns, as a stream of batches in no particular order."""
    with translated(f"scanning {table.path}"):
        yield from table._dataset.scanner(
            columns=[*columns, ROW_ID],
            filter=to_sql(filter_) if filter_ else None,
            limit=limit,
            batch_size=batch_rows,
        ).to_batches()


def read_rows(
    table: Table,
    columns: Sequence[str] = (),
    filter_: Filter | None = None,
    *,
    limit: int | None = None,
) -> pa.Table:
    """As `scan_rows`, as one table."""
    with translated(f"reading {table.path}"):
        return table._dataset.to_table(
            columns=[*columns, ROW_ID], filter=to_sql(filter_) if filter_ else None, limit=limit
        )


def take_rows(table: Table, row_ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ids, in their order. Every id has to exist."""
    with translated(f"reading rows of {table.path}"):
        found = table._dataset._take_rows(list(row_ids), columns=list(columns))
        if found.num_rows != len(row_ids):
            raise RuntimeError(f"{len(row_ids) - found.num_rows} rows do not exist")
        return found


def nearest_rows(
    table: Table,
    column: str,
    vector: Sequence[float],
    count: int,
    filter_: Filter | None = None,
    *,
    probes: int | None = None,
) -> pa.Table:
    """Row ids and squared distances of the `count` nearest rows that satisfy a filter, nearest first.

    Exact without an index. With one, at least `probes` partitions of it are looked at, and more until there are
    `count` rows.
    """
    nearest: dict[str, object] = {
        "column": column,
        "q": pa.array(vector, pa.float32()),
        "k": count,
        "metric": "l2",
    }
    if probes is not None:
        nearest["minimum_nprobes"] = probes
    with translated(f"searching {table.path}"):
        return table._dataset.to_table(
            columns=[ROW_ID, DISTANCE],
            nearest=nearest,
            filter=to_sql(filter_) if filter_ else None,
            prefilter=True,
        )
