"""Rows that two states do not share, named or in parts for tasks, and what moved a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import lance
import numpy as np
import pyarrow as pa
from lance import LanceOperation
from numpy.typing import NDArray

from omnigraph.core.budget import work_steps
from omnigraph.errors import InternalError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.answers import AnswerFolder, read_answer
from omnigraph.storage.datasets.blob_columns import scan_cells, scan_taken_cells, take_cells
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ADDRESS, ROW_ID, UPDATED_AT
from omnigraph.storage.datasets.fragments import INLINE_ROWS, KeptIds
from omnigraph.storage.datasets.opening import fragment_of, open_dataset
from omnigraph.storage.datasets.partitions import BATCH_ROWS, TableAddress, open_address, table_address
from omnigraph.storage.datasets.tables import Table

# ---- Which rows two states of a dataset do not share, found without reading what they do share
#
# Files never change: fragments with the same files and the same deletion mark hold the same rows, on whatever branch
# they are. What remains is narrowed by row lineage where one state follows from the other: a compaction writes every
# row again and changes none. The answer may name a row that is equal in both states; it never leaves one out that
# differs.


Fragments: TypeAlias = tuple[lance.LanceFragment, ...]
#: Rows that one filter names.
_PROBED_ROWS = 8_192
#: So many rows may be looked at to find one that has to be named.
_LOOKED_AT_PER_HELD = 8
#: How many row ids may be left out between those of rows that exist: more take too much space in a bitmap.
_ROW_IDS_PER_ROW = 4
_FEW_ROW_IDS = 1 << 20


def _no_ids() -> NDArray[np.uint64]:
    return np.empty(0, dtype=np.uint64)


@frozen(kw_only=True)
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

    def resolved(self) -> RowSet:
        """The set itself: it names all of its rows."""
        return self


@frozen(kw_only=True)
class Differing:
    """Fragments of two states that may not hold the same rows, as far as their metadata tells."""

    old: Table
    new: Table
    #: Fragments of one state whose files the other one does not have.
    gone: Fragments
    come: Fragments
    #: The same data files with other deletion marks, of the old and of the new state: rows that one mark hides differ.
    marked: tuple[tuple[lance.LanceFragment, lance.LanceFragment], ...]

    @property
    def ahead(self) -> Table | None:
        """The state that follows from the other one, where that tells rows apart that were only written again."""
        if not (self.gone and self.come):
            return None
        if follows(self.new, self.old):
            return self.new
        return self.old if follows(self.old, self.new) else None


def compare_fragments(old: Table, new: Table) -> Differing:
    """What the metadata of two states tells about their differences; reads no data."""
    with translated(f"comparing versions of {old.path}"):
        before, after = _fragments(old), _fragments(new)
        return Differing(
            old=old,
            new=new,
            gone=tuple(fragment for key, fragment in before.items() if key not in after),
            come=tuple(fragment for key, fragment in after.items() if key not in before),
            marked=tuple(
                (fragment, after[key])
                for key, fragment in before.items()
                if key in after and _mark(fragment) != _mark(after[key])
            ),
        )


def differing_rows(old: Table, new: Table, limit: int) -> tuple[RowSet, RowSet] | None:
    """Rows of the old state that may be gone or different, and rows of the new one that may be new or different.

    None when more than `limit` rows have to be named by their row ids, or far more have to be looked at: that is
    work for tasks, which get a `RowPart` each.
    """
    differing = compare_fragments(old, new)
    with translated(f"comparing versions of {old.path}"):
        hidden_in_new, hidden_in_old = [], []
        for before, after in differing.marked:
            here, there = hidden_rows((old, before), (new, after))
            hidden_in_new.append(here)
            hidden_in_old.append(there)
            limit -= len(here) + len(there)
            if limit < 0:
                return None
        gone, come = list(differing.gone), list(differing.come)
        ahead = differing.ahead
        if ahead is new:
            return _narrowed((old, gone), (new, come), hidden_in_new, hidden_in_old, limit)
        if ahead is old:
            found = _narrowed((new, come), (old, gone), hidden_in_old, hidden_in_new, limit)
            return None if found is None else (found[1], found[0])
        return (_row_set(old, gone, _joined(hidden_in_new)), _row_set(new, come, _joined(hidden_in_old)))


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
    limit: int,
) -> tuple[RowSet, RowSet] | None:
    """Without rows that were only written again: they kept their row ids and when they were last updated."""
    (old, gone), (new, come) = before, after
    looked_at = sum(fragment.count_rows() for fragment in [*gone, *come])
    if looked_at > limit * _LOOKED_AT_PER_HELD:
        return None
    kept = _RowIdSet(most=_ROW_IDS_PER_ROW * looked_at + _FEW_ROW_IDS)
    changed: list[NDArray[np.uint64]] = []
    for ids, updated_at in _lineage(new, come):
        is_changed = updated_at > old.version
        changed.append(ids[is_changed])
        limit -= len(changed[-1])
        if limit < 0:
            return None
        kept.add(ids[~is_changed])
    lost: list[NDArray[np.uint64]] = []
    for ids in [*(ids for ids, _ in _lineage(old, gone)), *hidden_in_new]:
        lost.append(ids[~kept.has(ids)])
        limit -= len(lost[-1])
        if limit < 0:
            return None
    return (
        _row_set(old, [], _distinct(_joined(lost))),
        _row_set(new, [], _distinct(_joined([*changed, *hidden_in_old]))),
    )


class _RowIdSet:
    """Row ids, most of them as a bitmap: they are given out one after the other, so that few numbers are left out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._low = np.zeros(0, dtype=bool)
        #: Those that are too large for the bitmap.
        self._high: list[NDArray[np.uint64]] = []

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Add some."""
        is_low = ids < self._most
        if not is_low.all():
            self._high.append(ids[~is_low])
            ids = ids[is_low]
        size = int(ids.max()) + 1 if len(ids) else 0
        if size > len(self._low):
            more = min(self._most, max(size, 2 * len(self._low))) - len(self._low)
            self._low = np.concatenate([self._low, np.zeros(more, dtype=bool)])
        self._low[ids] = True

    def has(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of some are in the set."""
        is_low = ids < len(self._low)
        found = np.zeros(len(ids), dtype=bool)
        found[is_low] = self._low[ids[is_low]]
        if self._high:
            self._high = [np.sort(_joined(self._high))]
            found |= np.isin(ids, self._high[0])
        return found


def _lineage(
    table: Table, fragments: list[lance.LanceFragment]
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Row ids of some fragments, and the versions that updated these rows last."""
    if not fragments:
        return
    scanner = table._dataset.scanner(columns=[ROW_ID, UPDATED_AT], fragments=fragments, batch_size=BATCH_ROWS)
    for batch in work_steps(scanner.to_batches()):
        columns = batch.column(ROW_ID), batch.column(UPDATED_AT)
        yield np.asarray(columns[0]), np.asarray(columns[1])


def follows(new: Table, old: Table) -> bool:
    """Whether one state was made from the other by versions on top of it, on its branch or on forks of it."""
    if new.path != old.path:
        return False
    branch, version = new.branch, new.version
    forks = None
    while branch != old.branch:
        if branch is None:
            return False
        if forks is None:
            root = new._dataset if new.branch is None else _main_line(new)
            forks = root.branches.list()
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
            batches = scan_cells(dataset, columns, fragments=fragments, batch_size=BATCH_ROWS)
            yield from work_steps(batches)
        for begin in work_steps(range(0, len(rows.row_ids), BATCH_ROWS)):
            yield from scan_by_row_id(table, rows.row_ids[begin : begin + BATCH_ROWS], columns)


def take_by_row_id(table: Table, row_ids: NDArray[np.uint64], columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ids, in their order; ids that do not exist are left out. Blobs come as cells."""
    with translated(f"reading rows of {table.path}"):
        found: pa.Table = take_cells(table._dataset, row_ids.tolist(), columns)
        return found


def kept_ids(table: Table, row_ids: NDArray[np.uint64]) -> KeptIds:
    """The ids of rows of a table for rows that replace them; looks up what many of them need."""
    if len(row_ids) <= INLINE_ROWS:
        return KeptIds(row_ids, np.zeros(len(row_ids), np.uint64))
    # With their addresses: Lance fails to take versions of rows in no order without them.
    found = take_by_row_id(table, row_ids, [ROW_ADDRESS, CREATED_AT])
    if found.num_rows != len(row_ids):
        raise InternalError(f"{len(row_ids) - found.num_rows} rows of {table.path} are gone")
    return KeptIds(row_ids, np.asarray(found[CREATED_AT], dtype=np.uint64))


def scan_by_row_id(table: Table, row_ids: NDArray[np.uint64], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same rows as a stream of batches whose blobs have a bounded size together."""
    with translated(f"reading rows of {table.path}"):
        yield from scan_taken_cells(table._dataset, row_ids.tolist(), columns)


# ---- deletion marks


def hidden_rows(
    old: tuple[Table, lance.LanceFragment], new: tuple[Table, lance.LanceFragment]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Rows of the old fragment that the new mark hides, and rows of the new one that the old mark hides."""
    before, after = _marked_offsets(*old), _marked_offsets(*new)
    if before is not None and after is not None:
        fresh = np.setdiff1d(after, before, assume_unique=True)
        undone = np.setdiff1d(before, after, assume_unique=True)
        if len(fresh) + len(undone) <= _PROBED_ROWS:
            return _row_ids_at(*old, fresh), _row_ids_at(*new, undone)
    here, there = row_ids_of(old[0], [old[1]]), row_ids_of(new[0], [new[1]])
    return (np.setdiff1d(here, there, assume_unique=True), np.setdiff1d(there, here, assume_unique=True))


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


def _row_ids_at(table: Table, fragment: lance.LanceFragment, offsets: NDArray[np.uint32]) -> NDArray[np.uint64]:
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


def row_ids_of(table: Table, fragments: list[lance.LanceFragment]) -> NDArray[np.uint64]:
    """The row ids of all rows of some fragments."""
    found = table._dataset.scanner(columns=[ROW_ID], fragments=fragments).to_table()
    return np.asarray(found[ROW_ID], dtype=np.uint64)


def _row_set(table: Table, fragments: list[lance.LanceFragment], row_ids: NDArray[np.uint64]) -> RowSet:
    return RowSet(
        address=table_address(table),
        fragments=tuple(fragment.fragment_id for fragment in fragments),
        fragment_rows=sum(fragment.count_rows() for fragment in fragments),
        row_ids=row_ids,
    )


def _distinct(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Row ids in their order, each once. `numpy.unique` hashes them, which takes thirty times as long."""
    ordered = np.sort(ids)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ids) else ids


def _joined(arrays: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.concatenate(arrays).astype(np.uint64) if arrays else _no_ids()


# ---- Rows in parts for tasks, also where nothing but a task should find out which rows these are
#
# Naming rows by their row ids takes memory for every one of them. A part says how its rows are found; the task that
# reads them resolves it.


#: A file that lists row ids.
ROW_LIST = pa.schema([("row", pa.int64())])


@frozen(kw_only=True)
class HiddenRows:
    """Rows of a fragment that the mark of another state hides, of the same data files."""

    address: TableAddress
    fragment: int
    other: TableAddress
    other_fragment: int
    #: At most.
    row_count: int

    def resolved(self) -> RowSet:
        """The rows by their row ids."""
        here, there = open_address(self.address), open_address(self.other)
        with translated(f"comparing versions of {self.address.uri}"):
            found, _ = hidden_rows(
                (here, fragment_of(here._dataset, self.fragment)),
                (there, fragment_of(there._dataset, self.other_fragment)),
            )
        return RowSet(address=self.address, row_ids=found)


@frozen(kw_only=True)
class LineageRows:
    """Rows of a fragment that were last updated after a version, or those that were not."""

    address: TableAddress
    fragment: int
    version: int
    is_updated: bool
    #: At most.
    row_count: int

    def resolved(self) -> RowSet:
        """The rows by their row ids, or the fragment where it has no others."""
        table = open_address(self.address)
        fragment = fragment_of(table._dataset, self.fragment)
        compare = ">" if self.is_updated else "<="
        with translated(f"comparing versions of {self.address.uri}"):
            found = table._dataset.scanner(
                columns=[ROW_ID], filter=f"{UPDATED_AT} {compare} {self.version}", fragments=[fragment]
            ).to_table()
            if found.num_rows == fragment.count_rows():
                return _whole(self.address, fragment)
        return RowSet(address=self.address, row_ids=np.asarray(found[ROW_ID], dtype=np.uint64))


@frozen(kw_only=True)
class ListedRows:
    """Rows whose row ids are a batch of a file."""

    address: TableAddress
    folder: AnswerFolder
    name: str
    batch: int
    row_count: int

    def resolved(self) -> RowSet:
        """The rows by their row ids."""
        (batch,) = read_answer(self.folder, self.name, self.batch, self.batch + 1)
        column = batch.column(0)
        return RowSet(address=self.address, row_ids=np.asarray(column).astype(np.uint64))


#: What tasks read. `resolved` gives a set that names fragments and row ids.
RowPart: TypeAlias = RowSet | HiddenRows | LineageRows | ListedRows


def whole_parts(table: Table, fragments: Fragments) -> list[RowPart]:
    """Every row of some fragments; a part for each of them."""
    address = table_address(table)
    return [_whole(address, fragment) for fragment in fragments]


def hidden_parts(differing: Differing, *, of_new: bool) -> list[RowPart]:
    """Rows of one state that a mark of the other one hides."""
    pairs = [(old, new) if not of_new else (new, old) for old, new in differing.marked]
    here, there = differing.old, differing.new
    if of_new:
        here, there = there, here
    return [
        HiddenRows(
            address=table_address(here),
            fragment=one.fragment_id,
            other=table_address(there),
            other_fragment=other.fragment_id,
            row_count=one.count_rows(),
        )
        for one, other in pairs
    ]


def lineage_parts(table: Table, fragments: Fragments, version: int, *, is_updated: bool) -> list[RowPart]:
    """Rows of some fragments that were last updated after a version, or those that were not."""
    address = table_address(table)
    return [
        LineageRows(
            address=address,
            fragment=fragment.fragment_id,
            version=version,
            is_updated=is_updated,
            row_count=fragment.count_rows(),
        )
        for fragment in fragments
    ]


def scan_row_ids(rows: RowSet) -> Iterator[NDArray[np.uint64]]:
    """The row ids of a set, in pieces."""
    if rows.fragments:
        table = open_address(rows.address)
        with translated(f"reading rows of {rows.address.uri}"):
            for number in rows.fragments:
                yield row_ids_of(table, [fragment_of(table._dataset, number)])
    if len(rows.row_ids):
        yield rows.row_ids


def sample_rows(rows: RowSet, count: int) -> RowSet:
    """Some of the rows of a set, every time the same; about `count`, at least one where there is one."""
    if rows.row_count <= count:
        return rows
    table = open_address(rows.address)
    random = np.random.default_rng(rows.row_count)
    ids = rows.row_ids
    if rows.fragments:
        with translated(f"reading rows of {rows.address.uri}"):
            fragments = [fragment_of(table._dataset, number) for number in rows.fragments]
            ids = np.concatenate([row_ids_of(table, fragments), ids])
    chosen = np.sort(random.choice(len(ids), max(1, count), replace=False))
    return RowSet(address=rows.address, row_ids=ids[chosen])


def _whole(address: TableAddress, fragment: lance.LanceFragment) -> RowSet:
    return RowSet(address=address, fragments=(fragment.fragment_id,), fragment_rows=fragment.count_rows())


# ---- What moved a dataset without the manifest, by its transactions and its rows


class Movement(StrEnum):
    """What one version did to a dataset."""

    #: Fragments or indexes changed, as in a compaction; the rows are checked on their own.
    LAYOUT = "layout"
    OTHER = "other"
    #: The version, or the record of what made it, is gone.
    UNKNOWN = "unknown"


def movements(head: Table, after: int) -> list[Movement]:
    """What every version after a certain one did, up to the version of `head`."""
    return [_movement(head, version) for version in range(after + 1, head.version + 1)]


def _movement(head: Table, version: int) -> Movement:
    try:
        with translated(f"reading the history of {head.path}"):
            transaction = head._dataset.read_transaction(version)
    except TypeError:
        # Lance cannot show a compaction that rewrote an index, and nothing else fails like this.
        return Movement.LAYOUT
    except StorageError:
        return Movement.UNKNOWN
    if transaction is None:
        return Movement.UNKNOWN
    operation = transaction.operation
    # Lance has no name for the first half of a compaction, which reserves numbers of fragments.
    is_reservation = type(operation) is LanceOperation.BaseOperation
    is_layout = isinstance(operation, LanceOperation.Rewrite | LanceOperation.CreateIndex)
    return Movement.LAYOUT if is_reservation or is_layout else Movement.OTHER


def has_same_rows(old: Table, new: Table) -> bool:
    """Whether no row differs between two states of a dataset, by row ids and row versions."""
    with translated(f"comparing versions of {old.path}"):
        named = differing_rows(old, new, limit=old.row_count + new.row_count)
        assert named is not None, "no state has more rows to name"
        return not any(rows.row_count for rows in named)
