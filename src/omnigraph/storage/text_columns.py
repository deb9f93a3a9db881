"""The parts of a text column: what they hold never changes, only which of their rows are alive does.

A fragment keeps the file of a column until the column itself is rewritten; deletions and updates only mark rows. What
is computed from such a file is right for every version, branch and copy that reads the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.errors import InternalError
from omnigraph.storage.failures import translated
from omnigraph.storage.row_columns import ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from omnigraph.storage.tables import Table

#: Stands for the row id of a row that is deleted.
NO_ROW = -1


@dataclass(frozen=True, slots=True)
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
    for fragment in dataset.get_fragments():
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


def scan_part(
    table: Table, column: str, part: ColumnPart, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """The values of a part in storage order, deleted rows included."""
    with translated(f"scanning {table.path}"):
        yield from _scanner(table, [column, ROW_ID], part, batch_rows).to_batches()


def part_row_ids(table: Table, part: ColumnPart) -> npt.NDArray[np.int64]:
    """The row id of each row of a part in storage order, `NO_ROW` for deleted ones."""
    with translated(f"scanning {table.path}"):
        column: Any = _scanner(table, [ROW_ID], part, None).to_table()[ROW_ID]
    filled = column.cast("int64").fill_null(NO_ROW)
    return np.asarray(filled.to_numpy())


def _scanner(table: Table, columns: list[str], part: ColumnPart, batch_rows: int | None) -> Any:
    dataset = table._dataset
    fragment = dataset.get_fragment(part.fragment_id)
    if fragment is None:
        raise InternalError(f"{table.path} has no fragment {part.fragment_id}")
    return dataset.scanner(
        columns=columns,
        fragments=[fragment],
        include_deleted_rows=True,
        scan_in_order=True,
        batch_size=batch_rows,
    )
