"""Rows that may differ between two states, as parts for tasks, where they are too many to be named one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow

from omnigraph.pipeline.buckets import BUCKET, Exchange
from omnigraph.pipeline.exchange import run_exchange
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.storage.fragments import fragment_sizes
from omnigraph.storage.partitions import open_address, table_address
from omnigraph.storage.row_changes import RowSet, compare_fragments
from omnigraph.storage.row_parts import (
    ROW_LIST,
    ListedRows,
    hidden_parts,
    lineage_parts,
    scan_row_ids,
    whole_parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from omnigraph.pipeline.scratch import Scratch
    from omnigraph.pipeline.worker_set import LoadEngine
    from omnigraph.pipeline.workers import Message
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.row_changes import Fragments
    from omnigraph.storage.row_parts import RowPart
    from omnigraph.storage.tables import Table

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

#: Rows that one task reads, unless a fragment has more.
TASK_ROWS = 200_000
#: Row ids that one task tells apart.
_BUCKET_ROWS = 4_000_000
#: Neighbouring row ids stay together: their rows usually lie beside each other.
_NEIGHBOUR_BITS = 16
_LOST, _KEPT = range(2)
_ROW_IDS = pa.schema([(BUCKET, pa.int32()), ("side", pa.int32()), ("row", pa.int64())])


def listed_parts(rows: RowSet, folder: AnswerFolder) -> list[RowPart]:
    """The rows of a set for tasks: row ids travel in a file, because there may be many."""
    sizes = fragment_sizes(open_address(rows.address)) if rows.fragments else {}
    found: list[RowPart] = [
        RowSet(address=rows.address, fragments=(number,), fragment_rows=sizes[number])
        for number in rows.fragments
    ]
    if len(rows.row_ids):
        found += _listed(rows.address, folder, attempt_name("rows", 0), rows.row_ids)
    return found


def find_parts(
    old: Table, new: Table, engine: LoadEngine, scratch: Scratch
) -> tuple[list[RowPart], list[RowPart]]:
    """As `row_changes.differing_rows`, for any number of rows."""
    differing = compare_fragments(old, new)
    hidden = [hidden_parts(differing, of_new=of_new) for of_new in (False, True)]
    ahead = differing.ahead
    if ahead is None:
        return (
            whole_parts(old, differing.gone) + hidden[0],
            whole_parts(new, differing.come) + hidden[1],
        )
    sides = [
        _Side(table=old, fragments=differing.gone, hidden=hidden[0]),
        _Side(table=new, fragments=differing.come, hidden=hidden[1]),
    ]
    before, after = sides if ahead is new else sides[::-1]
    lost = _lost_rows(before, after, engine, scratch)
    version = before.table.version
    fresh = lineage_parts(after.table, after.fragments, version, is_updated=True) + after.hidden
    return (lost, fresh) if ahead is new else (fresh, lost)


@dataclass(frozen=True, slots=True)
class _Side:
    table: Table
    fragments: Fragments
    #: Rows that a mark of the other side hides.
    hidden: list[RowPart]


def _lost_rows(before: _Side, after: _Side, engine: LoadEngine, scratch: Scratch) -> list[RowPart]:
    """Rows of the earlier state without those that were only written again: these kept their row ids."""
    lost = whole_parts(before.table, before.fragments) + before.hidden
    version = before.table.version
    kept = lineage_parts(after.table, after.fragments, version, is_updated=False)
    rows = sum(part.row_count for part in [*lost, *kept])
    buckets = max(engine.workers.parallelism, rows // _BUCKET_ROWS + 1)
    folder = scratch.folder(engine.workers)
    exchange = Exchange(
        stage="find changed rows",
        items=[(_LOST, part) for part in lost] + [(_KEPT, part) for part in kept],
        read=_ReadRowIds(buckets),
        schema=_ROW_IDS,
        buckets=buckets,
        handle=_KeepLost(folder),
    )
    address = table_address(before.table)
    return [
        ListedRows(
            address=address, folder=folder, name=answer["name"], batch=number, row_count=count
        )
        for answer in run_exchange(exchange, engine.workers, folder)
        for number, count in enumerate(answer["counts"])
    ]


@dataclass(frozen=True, slots=True)
class _ReadRowIds:
    buckets: int

    def __call__(self, item: tuple[int, RowPart]) -> Iterator[Any]:
        side, part = item
        for ids in scan_row_ids(part.resolved()):
            columns = [
                pa.array(((ids >> np.uint64(_NEIGHBOUR_BITS)) % self.buckets).astype(np.int32)),
                pa.repeat(pa.scalar(side, pa.int32()), len(ids)),
                pa.array(ids.astype(np.int64)),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_ROW_IDS)


@dataclass(frozen=True, slots=True)
class _KeepLost:
    folder: AnswerFolder

    def __call__(self, bucket: int, rows: Any) -> Message:
        side, ids = rows["side"].to_numpy(), rows["row"].to_numpy()
        left = np.setdiff1d(ids[side == _LOST], ids[side == _KEPT], assume_unique=True)
        name = attempt_name("lost", bucket)
        counts = _write_rows(self.folder, name, np.sort(left))
        return {"name": name, "counts": counts, "rows": len(ids)}


def _listed(
    address: TableAddress, folder: AnswerFolder, name: str, row_ids: NDArray[np.uint64]
) -> list[ListedRows]:
    return [
        ListedRows(address=address, folder=folder, name=name, batch=number, row_count=count)
        for number, count in enumerate(_write_rows(folder, name, row_ids.astype(np.int64)))
    ]


def _write_rows(folder: AnswerFolder, name: str, row_ids: NDArray[np.int64]) -> list[int]:
    """Write row ids, as many to a batch as one task reads; the sizes of the batches."""
    pieces = [row_ids[begin : begin + TASK_ROWS] for begin in range(0, len(row_ids), TASK_ROWS)]
    if pieces:
        batches = (pa.RecordBatch.from_arrays([pa.array(p)], schema=ROW_LIST) for p in pieces)
        write_answer(folder, name, ROW_LIST, batches)
    return [len(piece) for piece in pieces]
