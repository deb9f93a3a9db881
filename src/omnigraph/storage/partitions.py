"""A table in parts that tasks of other processes read: groups of fragments behind a plain address.

What travels to a task is an address and fragment ids; each task opens the dataset by itself at the same version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.errors import BadRequestError
from omnigraph.storage.blob_cells import scan_cells
from omnigraph.storage.failures import readable, translated
from omnigraph.storage.opening import open_dataset
from omnigraph.storage.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import lance

#: Neighbouring fragments are read by one task until it has so many rows.
GROUP_ROWS = 131_072
#: Rows of a batch; fewer where blobs make it large.
BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """One state of one dataset, as any process can open it. Picklable; never a Lance handle."""

    #: The dataset; a branch of one is a dataset of its own.
    uri: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentGroup:
    """Fragments that one task reads."""

    fragment_ids: tuple[int, ...]
    #: Rows without the deleted ones.
    row_count: int


def table_address(table: Table) -> TableAddress:
    """Where other processes find exactly this state of a table."""
    return TableAddress(uri=str(table._dataset.uri), version=table.version)


def open_address(address: TableAddress) -> Table:
    """The table at an address.

    A worker process outlives graphs, and a graph that is made again at the same place has the same addresses: neither
    the handle nor the caches of a session are kept.
    """
    with translated(f"opening version {address.version} of {address.uri}"):
        return Table(open_dataset(address.uri, address.version, shared=False), address.uri, None)


def scan_schema(table: Table, columns: Sequence[str] | None = None) -> pa.Schema:
    """The columns of the batches that `scan_fragments` gives: as the table has them, blobs as cells.

    Raises:
        BadRequestError: there is no such column.
    """
    fields = {
        item.name: item.with_type(pa.large_binary()) if item.name in table.blob_columns else item
        for item in table.schema
    }
    wanted = list(fields) if columns is None else list(columns)
    if unknown := [name for name in wanted if name not in fields]:
        raise BadRequestError(f"there is no column {unknown[0]!r}; columns are {', '.join(fields)}")
    return pa.schema([fields[name] for name in wanted])


def check_condition(table: Table, where: str) -> None:
    """Make sure that a condition fits the columns of a table; plans it and reads no data.

    Raises:
        BadRequestError: Lance does not understand it.
    """
    try:
        table._dataset.scanner(filter=where).explain_plan()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadRequestError(f"the condition {where!r} is wrong: {readable(error)}") from error


def list_fragment_groups(table: Table, group_rows: int = GROUP_ROWS) -> tuple[FragmentGroup, ...]:
    """All rows of a table in parts for tasks; empty for an empty table. Looks at metadata in memory only."""
    with translated(f"looking at the fragments of {table.path}"):
        fragments = [fragment.metadata for fragment in table._dataset.get_fragments()]
        return group_fragments(((item.id, item.num_rows) for item in fragments), group_rows)


def group_fragments(
    fragments: Iterable[tuple[int, int]], group_rows: int
) -> tuple[FragmentGroup, ...]:
    """Neighbours together until a group has `group_rows`; a larger fragment stays alone, an empty one is left out.

    >>> [group.fragment_ids for group in group_fragments([(0, 4), (1, 5), (2, 0), (3, 40), (4, 1)], 10)]
    [(0, 1), (3,), (4,)]
    """
    groups: list[FragmentGroup] = []
    ids: list[int] = []
    rows = 0
    for fragment_id, count in fragments:
        if count == 0:
            continue
        if ids and rows + count > group_rows:
            groups.append(FragmentGroup(fragment_ids=tuple(ids), row_count=rows))
            ids, rows = [], 0
        ids.append(fragment_id)
        rows += count
    if ids:
        groups.append(FragmentGroup(fragment_ids=tuple(ids), row_count=rows))
    return tuple(groups)


def scan_fragments(
    address: TableAddress,
    fragment_ids: Sequence[int],
    columns: Sequence[str],
    where: str | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    window: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of some fragments that satisfy a condition, as a stream of batches; blobs come as cells.

    Rows keep their order within a fragment, and fragments theirs.

    Args:
        address: the state of the dataset.
        fragment_ids: fragments of that state.
        columns: what the batches hold, in this order.
        where: a condition in the SQL of Lance.
        batch_rows: rows of a batch at most.
        window: how many of these rows are passed over, and how many are read then; without one all of them.

    Raises:
        StorageError: the version is gone or cannot be read.
    """
    options = {} if window is None else {"offset": window[0], "limit": window[1]}
    with translated(f"scanning version {address.version} of {address.uri}"):
        dataset = open_address(address)._dataset
        fragments = [fragment_of(dataset, number) for number in fragment_ids]
        yield from scan_cells(
            dataset,
            columns,
            filter=where,
            fragments=fragments,
            batch_size=batch_rows,
            scan_in_order=True,
            **options,
        )


def fragment_of(dataset: lance.LanceDataset, number: int) -> lance.LanceFragment:
    """A fragment by its id; a ValueError when the dataset has none."""
    found = dataset.get_fragment(number)
    if found is None:
        raise ValueError(f"there is no fragment {number}")
    return found
