"""Which rows two states of a dataset do not share, found without reading what they do share.

Files never change: fragments with the same files and the same deletion mark hold the same rows, on whatever branch
they are. What remains is narrowed by row lineage where one state follows from the other: a compaction writes every row
again and changes none. The answer may name a row that is equal in both states; it never leaves one out that differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.storage.blob_cells import scan_cells, scan_taken_cells, take_cells
from omnigraph.storage.failures import translated
from omnigraph.storage.fragments import fragment_sizes
from omnigraph.storage.opening import open_dataset
from omnigraph.storage.partitions import (
    BATCH_ROWS,
    TableAddress,
    open_address,
    table_address,
)
from omnigraph.storage.row_columns import ROW_ADDRESS, ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lance
    from numpy.typing import NDArray

    from omnigraph.storage.tables import Table

_UPDATED_AT = "_row_last_updated_at_version"
#: Rows that one filter names.
_PROBED_ROWS = 8_192


def _no_ids() -> NDArray[np.uint64]:
    return np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSet:
    """Some rows of one state of a dataset: whole fragments, and rows by their row ids. Picklable."""

    address: TableAddress
    fragments: tuple[int, ...] = ()
    row_ids: NDArray[np.uint64] = field(default_factory=_no_ids)
    #: Rows of the fragments.
    fragment_rows: int = 0

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return self.fragment_rows + len(self.row_ids)

    def parts(self, rows: int) -> list[RowSet]:
        """The same rows in sets of about so many, for tasks; a fragment stays whole."""
        sizes = fragment_sizes(open_address(self.address)) if self.fragments else {}
        found = [
            RowSet(address=self.address, fragments=(number,), fragment_rows=sizes[number])
            for number in self.fragments
        ]
        found += [
            RowSet(address=self.address, row_ids=self.row_ids[begin : begin + rows])
            for begin in range(0, len(self.row_ids), rows)
        ]
        return found


def differing_rows(old: Table, new: Table) -> tuple[RowSet, RowSet]:
    """Rows of the old state that may be gone or different, and rows of the new one that may be new or different."""
    with translated(f"comparing versions of {old.path}"):
        before, after = _fragments(old), _fragments(new)
        # The same data files with other deletion marks: only the rows that one of the marks hides differ.
        hidden_in_new, hidden_in_old = [], []
        for key, fragment in before.items():
            if key in after and _mark(fragment) != _mark(after[key]):
                here, there = _hidden((old, fragment), (new, after[key]))
                hidden_in_new.append(here)
                hidden_in_old.append(there)
        gone = [fragment for key, fragment in before.items() if key not in after]
        come = [fragment for key, fragment in after.items() if key not in before]
        if gone and come and follows(new, old):
            return _narrowed((old, gone), (new, come), hidden_in_new, hidden_in_old)
        if gone and come and follows(old, new):
            ahead, behind = _narrowed((new, come), (old, gone), hidden_in_old, hidden_in_new)
            return behind, ahead
        return (
            _row_set(old, gone, _joined(hidden_in_new)),
            _row_set(new, come, _joined(hidden_in_old)),
        )


def all_rows(table: Table) -> RowSet:
    """Every row of a state."""
    with translated(f"looking at the fragments of {table.path}"):
        return _row_set(table, table._dataset.get_fragments(), _no_ids())


def no_rows(table: Table) -> RowSet:
    """No row of a state."""
    return _row_set(table, [], _no_ids())


def _narrowed(
    before: tuple[Table, list[lance.LanceFragment]],
    after: tuple[Table, list[lance.LanceFragment]],
    hidden_in_new: list[NDArray[np.uint64]],
    hidden_in_old: list[NDArray[np.uint64]],
) -> tuple[RowSet, RowSet]:
    """Without rows that were only written again: they kept their row ids and when they were last updated."""
    (old, gone), (new, come) = before, after
    columns = [ROW_ID, _UPDATED_AT]
    written = new._dataset.scanner(columns=columns, fragments=come).to_table()
    ids = np.asarray(written[ROW_ID])
    changed = ids[np.asarray(written[_UPDATED_AT]) > old.version]
    old_ids = _joined([_row_ids(old, gone), *hidden_in_new])
    kept = np.setdiff1d(ids, changed, assume_unique=True)
    return (
        _row_set(old, [], np.setdiff1d(old_ids, kept, assume_unique=True)),
        _row_set(new, [], np.union1d(changed, _joined(hidden_in_old))),
    )


def follows(new: Table, old: Table) -> bool:
    """Whether one state was made from the other by versions on top of it, on its branch or on forks of it."""
    if new.path != old.path:
        return False
    branch, version = new.branch, new.version
    forks: dict[str, Any] | None = None
    while branch != old.branch:
        if branch is None:
            return False
        if forks is None:
            root = new._dataset if new.branch is None else _main_line(new)
            forks = dict(root.branches.list())
        origin = forks.get(branch)
        if origin is None:
            return False
        branch, version = origin["parent_branch"], int(origin["parent_version"])
    return old.version <= version


def _main_line(table: Table) -> lance.LanceDataset:
    uri = str(table._dataset.uri).removesuffix(f"/tree/{table.branch}")
    return open_dataset(uri)


# ---- reading


def scan_row_set(rows: RowSet, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a set as a stream of batches; blobs come as cells."""
    table = open_address(rows.address)
    dataset = table._dataset
    with translated(f"reading rows of {rows.address.uri}"):
        if rows.fragments:
            wanted = set(rows.fragments)
            fragments = [f for f in dataset.get_fragments() if f.fragment_id in wanted]
            yield from scan_cells(dataset, columns, fragments=fragments, batch_size=BATCH_ROWS)
        for begin in range(0, len(rows.row_ids), BATCH_ROWS):
            yield from scan_by_row_id(table, rows.row_ids[begin : begin + BATCH_ROWS], columns)


def take_by_row_id(table: Table, row_ids: NDArray[np.uint64], columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ids, in their order; ids that do not exist are left out. Blobs come as cells."""
    with translated(f"reading rows of {table.path}"):
        found: pa.Table = take_cells(table._dataset, row_ids.tolist(), columns)
        return found


def scan_by_row_id(
    table: Table, row_ids: NDArray[np.uint64], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The same rows as a stream of batches whose blobs have a bounded size together."""
    with translated(f"reading rows of {table.path}"):
        yield from scan_taken_cells(table._dataset, row_ids.tolist(), columns)


# ---- deletion marks


def _hidden(
    old: tuple[Table, lance.LanceFragment], new: tuple[Table, lance.LanceFragment]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Rows of the old fragment that the new mark hides, and rows of the new one that the old mark hides."""
    before, after = _marked_offsets(*old), _marked_offsets(*new)
    if before is not None and after is not None:
        fresh, undone = np.setdiff1d(after, before), np.setdiff1d(before, after)
        if len(fresh) + len(undone) <= _PROBED_ROWS:
            return _row_ids_at(*old, fresh), _row_ids_at(*new, undone)
    here, there = _row_ids(old[0], [old[1]]), _row_ids(new[0], [new[1]])
    return (
        np.setdiff1d(here, there, assume_unique=True),
        np.setdiff1d(there, here, assume_unique=True),
    )


def _marked_offsets(table: Table, fragment: lance.LanceFragment) -> NDArray[np.uint32] | None:
    """The rows that the mark of a fragment hides; None when the file that lists them cannot simply be read."""
    mark = fragment.metadata.deletion_file
    if mark is None:
        return np.empty(0, dtype=np.uint32)
    base = table._dataset.uri
    if mark.base_id is not None:
        base = table._dataset.base_paths()[mark.base_id].path
    file = Path(base) / mark.path(fragment.fragment_id)
    if mark.file_type != "array" or not file.is_file():
        return None
    with pa.memory_map(str(file)) as source:
        offsets = pa.ipc.open_file(source).read_all()["row_id"]
        # Arrow believes the lengths in a file until it is asked to check them.
        offsets.validate(full=True)
        return np.array(offsets, dtype=np.uint32)


def _row_ids_at(
    table: Table, fragment: lance.LanceFragment, offsets: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    if not len(offsets):
        return _no_ids()
    first = fragment.fragment_id << 32
    wanted = ", ".join(str(first | offset) for offset in offsets.tolist())
    found = table._dataset.scanner(
        columns=[ROW_ID], filter=f"{ROW_ADDRESS} IN ({wanted})", fragments=[fragment]
    ).to_table()
    return np.asarray(found[ROW_ID], dtype=np.uint64)


# ---- fragments


def _fragments(table: Table) -> dict[str, lance.LanceFragment]:
    """The fragments of a state by the files that hold their rows; names of files are unique in a graph."""
    found = {}
    for fragment in table._dataset.get_fragments():
        names = [file.path for file in fragment.metadata.files]
        found["\n".join(names)] = fragment
    return found


def _mark(fragment: lance.LanceFragment) -> str | None:
    mark = fragment.metadata.deletion_file
    return None if mark is None else str(mark.path(fragment.fragment_id))


def _row_ids(table: Table, fragments: list[lance.LanceFragment]) -> NDArray[np.uint64]:
    found = table._dataset.scanner(columns=[ROW_ID], fragments=fragments).to_table()
    return np.asarray(found[ROW_ID], dtype=np.uint64)


def _row_set(
    table: Table, fragments: list[lance.LanceFragment], row_ids: NDArray[np.uint64]
) -> RowSet:
    return RowSet(
        address=table_address(table),
        fragments=tuple(fragment.fragment_id for fragment in fragments),
        fragment_rows=sum(fragment.count_rows() for fragment in fragments),
        row_ids=row_ids,
    )


def _joined(arrays: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.concatenate(arrays).astype(np.uint64) if arrays else _no_ids()
