"""Rows of a state in parts for tasks, also where nothing but a task should find out which rows these are.

`row_changes` names rows by their row ids, which takes memory for every one of them. A part says how its rows are found;
the task that reads them resolves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.core.arrow import pa
from omnigraph.storage._failures import translated
from omnigraph.storage.answers import AnswerFolder, read_answer
from omnigraph.storage.datasets.filters import ROW_ID, UPDATED_AT
from omnigraph.storage.datasets.opening import fragment_of
from omnigraph.storage.datasets.partitions import TableAddress, open_address, table_address
from omnigraph.storage.datasets.row_changes import Differing, Fragments, RowSet, hidden_rows, row_ids_of
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    import lance
    from numpy.typing import NDArray


#: A file that lists row ids.
ROW_LIST = pa.schema([("row", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
