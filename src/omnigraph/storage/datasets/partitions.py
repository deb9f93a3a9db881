"""Tables in parts for tasks: addresses of tables, groups of fragments, and their scans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import lance
import pyarrow as pa

from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import readable, translated
from omnigraph.storage.datasets.blob_columns import scan_cells
from omnigraph.storage.datasets.opening import fragment_of, open_dataset
from omnigraph.storage.datasets.tables import Table

# ---- A table in parts that tasks of other processes read: groups of fragments behind a plain address
#
# What travels to a task is an address and fragment ids; each task opens the dataset by itself at the same version.


#: Rows up to which neighbouring fragments are read by one task.
GROUP_ROWS = 131_072
#: Rows of a batch; fewer where blobs make it large.
BATCH_ROWS = 65_536


@frozen(kw_only=True)
class TableAddress:
    """One state of one dataset, as any process can open it. Picklable; never a Lance handle."""

    #: The dataset; a branch of one is a dataset of its own.
    uri: str
    version: int


@frozen(kw_only=True)
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
    return group_fragments(table_extent(table).fragments, group_rows)


def group_fragments(fragments: Iterable[tuple[int, int]], group_rows: int) -> tuple[FragmentGroup, ...]:
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
            dataset, columns, filter=where, fragments=fragments, batch_size=batch_rows, scan_in_order=True, **options
        )


# ---- Scans of groups of fragments whose batches have a bounded size, whatever the rows hold


#: How large the batches of a scan are meant to be.
BATCH_BYTES = 8 * 1024 * 1024
#: What a scan reads ahead of its consumer. Lance's own bound is 2 GiB, which a slow consumer lets it fill.
READ_AHEAD_BYTES = 32 * 1024 * 1024


def scan_group(address: TableAddress, fragment_ids: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some fragments as a stream of batches, in storage order; blob columns come as cells.

    Raises:
        StorageError: the version is gone or cannot be read.
    """
    with translated(f"scanning version {address.version} of {address.uri}"):
        # As `scan_fragments`: a worker may outlive the graph, so it keeps neither a handle nor the caches of a session.
        dataset = open_dataset(address.uri, address.version, shared=False)
        fragments = [fragment_of(dataset, number) for number in fragment_ids]
        if not fragments:
            return
        yield from _scan(dataset, columns, {"fragments": fragments}, None)


def stored_bytes(table: Table) -> int:
    """About how many bytes the rows of a table take on disk; blobs that lie in files of their own do not count."""
    return table_extent(table).stored_bytes


# ---- A table in parts of about equal work for tasks of other processes, and the scans of such parts
#
# Without a condition a part is a span of rows, whatever fragments they lie in: Lance finds a position without reading
# what is before it. With a condition a part is a group of whole fragments.


#: What a part holds: about a tenth of a second of work, against some milliseconds that a task takes to start.
PART_BYTES = 48 * 1024 * 1024
#: From this many parts on they become larger instead of more, up to the second size.
MANY_PARTS = 256
LARGE_PART_BYTES = 256 * 1024 * 1024
#: What a row costs beside its bytes, as bytes.
_ROW_BYTES = 32

#: Bytes that are assumed for a value whose size nothing tells: a text or list, and a blob.
_VARIABLE_BYTES = 20
_BLOB_BYTES = 16 * 1024
#: From this share of matching rows on, reading columns whole is faster than picking values of the matching rows.
_MANY_MATCHES = 1 / 16
_BITS = 8


@frozen(kw_only=True)
class TableExtent:
    """How much a table holds, as its metadata says."""

    #: Id and rows of every fragment, in storage order; deleted rows do not count.
    fragments: tuple[tuple[int, int], ...]
    #: Bytes of the data files, compressed and without blobs in files of their own; 0 when nothing says.
    stored_bytes: int

    @property
    def row_count(self) -> int:
        """All rows."""
        return sum(rows for _, rows in self.fragments)


@frozen(kw_only=True)
class RowSpan:
    """Neighbouring rows, by position in storage order; `end` is not in it."""

    begin: int
    end: int


Part: TypeAlias = RowSpan | FragmentGroup


def table_extent(table: Table) -> TableExtent:
    """How much a table holds. Looks at metadata in memory only."""
    with translated(f"looking at the fragments of {table.path}"):
        found = [fragment.metadata for fragment in table._dataset.get_fragments()]
        return TableExtent(
            fragments=tuple((item.id, item.num_rows) for item in found),
            stored_bytes=sum(file.file_size_bytes or 0 for item in found for file in item.files),
        )


def column_bytes(schema: pa.Schema, extent: TableExtent) -> dict[str, int]:
    """About how many bytes a value of each column takes in memory; `schema` has all columns of the table.

    Sizes of fixed-size types are known. Texts and lists share what their files hold beyond those.
    """
    known = {item.name: _value_bytes(item.type) for item in schema}
    variable = sum(size is None for size in known.values())
    fixed = sum(_value_bytes(item.type) or 0 for item in schema if not _is_blob(item.type))
    rest = extent.stored_bytes // max(1, extent.row_count) - fixed
    share = max(_VARIABLE_BYTES, rest // max(1, variable))
    return {name: share if size is None else size for name, size in known.items()}


def plan_parts(extent: TableExtent, row_bytes: int, *, whole_fragments: bool) -> tuple[Part, ...]:
    """All rows of a table in parts; none for an empty table.

    Args:
        extent: what the table holds.
        row_bytes: about how many bytes of a row are read.
        whole_fragments: cut between fragments only, as scans with a condition need it.
    """
    rows = extent.row_count
    count = part_count(rows, row_bytes)
    if not rows:
        return ()
    if whole_fragments:
        return group_fragments(extent.fragments, -(-rows // count))
    ends = [number * rows // count for number in range(count + 1)]
    return tuple(RowSpan(begin=begin, end=end) for begin, end in pairwise(ends))


def part_count(rows: int, row_bytes: int) -> int:
    """The number of parts in which rows are read. Up to `MANY_PARTS` a power of two, so that cores finish together.

    >>> [part_count(rows, 50) for rows in (0, 1_000, 1_000_000, 3_000_000, 1_000_000_000)]
    [1, 1, 2, 8, 306]
    """
    size = rows * (_ROW_BYTES + row_bytes)
    count = max(1, -(-size // PART_BYTES))
    if count > MANY_PARTS:
        return min(rows, max(MANY_PARTS, -(-size // LARGE_PART_BYTES)))
    return int(min(max(1, rows), 1 << (count - 1).bit_length()))


def scan_part(
    address: TableAddress, part: Part, columns: Sequence[str], where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a part as a stream of batches of bounded size, in storage order; blobs come as cells.

    Without columns nothing but the condition is read, and the batches hold only their number of rows.

    Args:
        address: the state of the dataset.
        part: rows of that state; a span when there is no condition.
        columns: what the batches hold, in this order.
        where: a condition in the SQL of Lance.

    Raises:
        StorageError: the version is gone or cannot be read.
    """
    with translated(f"scanning version {address.version} of {address.uri}"):
        if isinstance(part, RowSpan) and not columns:
            yield from _bare_rows(part.end - part.begin)
            return
        # A worker may outlive the graph: it keeps neither a handle nor the caches of a session.
        dataset = open_dataset(address.uri, address.version, shared=False)
        if isinstance(part, RowSpan):
            span = {"offset": part.begin, "limit": part.end - part.begin}
            yield from _scan(dataset, columns, span)
            return
        fragments = [fragment_of(dataset, number) for number in part.fragment_ids]
        options: dict[str, Any] = {"fragments": fragments, "filter": where}
        if where is None:
            yield from _scan(dataset, columns, options)
            return
        matches = int(dataset.scanner(columns=[], **options).count_rows())
        if not columns:
            yield from _bare_rows(matches)
        elif matches:
            if matches >= part.row_count * _MANY_MATCHES:
                options["late_materialization"] = False
            yield from _scan(dataset, columns, options)


def _scan(
    dataset: lance.LanceDataset,
    columns: Sequence[str],
    options: Mapping[str, object],
    batch_rows: int | None = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    return scan_cells(
        dataset,
        columns,
        scan_in_order=True,
        batch_size=batch_rows,
        batch_size_bytes=BATCH_BYTES,
        # Tasks run side by side: one that reads far ahead only takes the memory of the others.
        batch_readahead=2,
        fragment_readahead=1,
        io_buffer_size=READ_AHEAD_BYTES,
        **options,
    )


def _bare_rows(rows: int) -> Iterable[pa.RecordBatch]:
    """Batches without columns that have this number of rows together."""
    for begin in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - begin)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], names=["none"]).select([])


def _is_blob(kind: pa.DataType) -> bool:
    return pa.types.is_large_binary(kind)


def _value_bytes(kind: pa.DataType) -> int | None:
    """The size of every value of a type, of a blob an assumed one; None when values differ."""
    if _is_blob(kind):
        return _BLOB_BYTES
    if isinstance(kind, pa.FixedSizeListType):
        inner = _value_bytes(kind.value_type)
        return None if inner is None else inner * kind.list_size
    try:
        return max(1, kind.bit_width // _BITS)
    except ValueError:
        return None
