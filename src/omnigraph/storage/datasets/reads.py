"""Scans, point reads and nearest rows of tables and of rows in memory; parts of text columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.core.arrow import Array, pc
from omnigraph.core.ids import new_ulid
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.filters import ROW_ID, Filter, to_sql
from omnigraph.storage.datasets.opening import fragment_of
from omnigraph.storage.datasets.tables import Table

# ---- Reads by row id: scans, point reads and nearest neighbours
#
# A row id identifies a row of one dataset for its whole life; updates and compaction keep it. It is how everything
# above refers to rows until their values are needed.


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
            columns=[*columns, ROW_ID], filter=to_sql(filter_) if filter_ else None, limit=limit, batch_size=batch_rows
        ).to_batches()


def read_rows(table: Table, columns: Sequence[str] = (), filter_: Filter | None = None) -> pa.Table:
    """As `scan_rows`, as one table."""
    with translated(f"reading {table.path}"):
        return table._dataset.to_table(columns=[*columns, ROW_ID], filter=to_sql(filter_) if filter_ else None)


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
    no_more: bool = False,
) -> pa.Table:
    """Row ids and squared distances of the `count` nearest rows that satisfy a filter, nearest first.

    Exact without `probes`: all vectors are compared. With them at least so many partitions of the index are looked at,
    more until there are `count` rows unless there are to be `no_more`, and all rows that the index does not cover.
    """
    nearest: dict[str, object] = {"column": column, "q": pa.array(vector, pa.float32()), "k": count, "metric": "l2"}
    if probes is None:
        nearest["use_index"] = False
    else:
        nearest["nprobes" if no_more else "minimum_nprobes"] = probes
    with translated(f"searching {table.path}"):
        return table._dataset.to_table(
            columns=[ROW_ID, DISTANCE], nearest=nearest, filter=to_sql(filter_) if filter_ else None, prefilter=True
        )


# ---- Rows that exist only in memory, filtered with exactly the meaning that stored rows have


def select_rows(rows: pa.Table, filter_: Filter) -> pa.Table:
    """The rows of an Arrow table that satisfy a filter.

    The filter runs in Lance on a private in-memory dataset: one evaluator for pending and committed rows.
    """
    if rows.num_rows == 0:
        return rows
    with translated("filtering pending rows"):
        positions = pa.array(range(rows.num_rows), pa.int64())
        numbered = rows.append_column("__position", positions)
        found = _in_memory(numbered).to_table(columns=["__position"], filter=to_sql(filter_))
        return rows.take(found["__position"])


def scan_with_pending(table: Table, pending: pa.Table, filter_: Filter) -> pa.Table:
    """Committed rows and pending rows that satisfy a filter; a pending row shadows the committed one with its id."""
    committed = table.read(pending.column_names, filter_)
    shadowed = pc.is_in(committed["id"], pending["id"].combine_chunks())
    visible = committed.filter(pc.invert(shadowed)).cast(pending.schema)
    return pa.concat_tables([select_rows(pending, filter_), visible])


def text_pairs_match(texts: Array, parts: Array, function: Literal["contains", "starts_with", "ends_with"]) -> Array:
    """Per pair, whether the text contains the part, begins or ends with it; null when either is null."""
    with translated("comparing texts"):
        pairs = pa.table({"text": texts, "part": parts})
        found = _in_memory(pairs).to_table(columns={"holds": f"{function}(text, part)"})
        return found["holds"].combine_chunks()


def _in_memory(rows: pa.Table) -> lance.LanceDataset:
    """A private dataset that no file belongs to."""
    return lance.write_dataset(rows, f"memory://{new_ulid()}")


# ---- The parts of a text column: what they hold never changes, only which of their rows are alive does
#
# A fragment keeps the file of a column until the column itself is rewritten; deletions and updates only mark rows.
# What is computed from such a file is right for every version, branch and copy that reads the file.


#: Stands for the row id of a row that is deleted.
NO_ROW = -1


@frozen
class ColumnPart:
    """One column of one fragment."""

    fragment_id: int
    field_id: int
    #: The identity of the values: the file and the field in it.
    values: str
    #: The identity of the rows that are alive.
    rows: str
    #: How many rows the file has, deleted ones included.
    physical_rows: int


def column_parts(table: Table, column: str) -> list[ColumnPart]:
    """The parts of a column in the order of the fragments. Looks at metadata only."""
    dataset = table._dataset
    field_id = next(item.id() for item in dataset.lance_schema.fields() if item.name() == column)
    parts: list[ColumnPart] = []
    for fragment in table.fragments():
        metadata = fragment.metadata
        names = [file.path for file in metadata.files if field_id in file.fields]
        deletions = metadata.deletion_file
        state = "" if deletions is None else deletions.path(metadata.id)
        files = ",".join(file.path for file in metadata.files)
        parts.append(
            ColumnPart(
                fragment_id=metadata.id,
                field_id=field_id,
                values=f"{metadata.id}:{field_id}:{','.join(names)}",
                rows=f"{metadata.id}:{files}:{state}",
                physical_rows=int(metadata.physical_rows),
            )
        )
    return parts


def scan_column_part(table: Table, column: str, part: ColumnPart, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The values of a part in storage order, deleted rows included."""
    with translated(f"scanning {table.path}"):
        yield from _scanner(table, [column, ROW_ID], part, batch_rows).to_batches()


def part_row_ids(table: Table, part: ColumnPart) -> NDArray[np.int64]:
    """The row id of each row of a part in storage order, `NO_ROW` for deleted ones."""
    with translated(f"scanning {table.path}"):
        column = _scanner(table, [ROW_ID], part, None).to_table()[ROW_ID]
    return np.asarray(pc.fill_null(column.cast(pa.int64()), NO_ROW))


def _scanner(table: Table, columns: list[str], part: ColumnPart, batch_rows: int | None) -> lance.LanceScanner:
    dataset = table._dataset
    return dataset.scanner(
        columns=columns,
        fragments=[fragment_of(dataset, part.fragment_id)],
        include_deleted_rows=True,
        scan_in_order=True,
        batch_size=batch_rows,
    )
