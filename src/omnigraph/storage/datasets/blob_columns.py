"""Whole blob columns: rows of a scan with their cells, and cells on their way into files.

Lance's own reading of blobs as bytes would open external addresses and hold every value of a batch at once. So a scan
brings descriptors; bytes are then read in steps of bounded size, and addresses are never followed: storage keeps them
in a form that Lance cannot open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.core.arrow import Array, Batch, Column, Rows, Schema, pc
from omnigraph.core.values import ADDRESS_MARK, MARK, managed_bytes, managed_cell, reference_cell, reference_of
from omnigraph.errors import BadRequestError, BlobIntegrityError, without_credentials
from omnigraph.storage.datasets.filters import ROW_ADDRESS

#: How a cell leaves the system where one column holds bytes and addresses.
CELL_PARTS = pa.struct([pa.field("data", pa.binary()), pa.field("uri", pa.utf8())])
#: Bytes of blobs that one batch holds at most, but for a single row that has more.
CELL_BATCH_BYTES = 8 * 1024 * 1024
#: How an address is stored. Nothing ever lies there: a reader that does not know about addresses fails.
_STORED_ADDRESS = "memory:///omnigraph-external/"
#: The kind of descriptors that hold an address.
EXTERNAL_KIND = 3


def blob_names(schema: Schema) -> frozenset[str]:
    """The columns of a dataset that hold blobs."""
    is_blob = lance.blob.BlobType
    return frozenset(item.name for item in schema if isinstance(item.type, is_blob))


def stored_address(descriptor: dict[str, object]) -> str | None:
    """The address in a descriptor; None when it describes bytes.

    Raises:
        BlobIntegrityError: it is an address that this system never wrote.
    """
    if descriptor["kind"] != EXTERNAL_KIND:
        return None
    uri = str(descriptor["blob_uri"])
    if not uri.startswith(_STORED_ADDRESS) or descriptor["position"] or descriptor["size"]:
        raise BlobIntegrityError("it refers to a place in a form that no writer of this graph uses")
    return unquote(uri.removeprefix(_STORED_ADDRESS), errors="strict")


# ---- reading


def scan_cells(dataset: lance.LanceDataset, columns: Sequence[str] | None, **options: Any) -> Iterator[Batch]:
    """The batches of a scan; blob columns come as cells. `options` are those of Lance's scanner."""
    names, read = _columns(dataset, columns)
    return _batches(dataset, dataset.scanner(columns=read, **options).to_batches(), names)


def read_cells(dataset: lance.LanceDataset, columns: Sequence[str] | None, **options: Any) -> Rows:
    """As `scan_cells`, as one table."""
    names, read = _columns(dataset, columns)
    return _table(dataset, dataset.to_table(columns=read, **options), names)


def take_cells(dataset: lance.LanceDataset, row_ids: Sequence[int], columns: Sequence[str]) -> Rows:
    """Columns of the rows with these ids, in their order; ids that do not exist are left out."""
    names, read = _columns(dataset, columns)
    return _table(dataset, dataset._take_rows(list(row_ids), columns=read), names)


def scan_taken_cells(dataset: lance.LanceDataset, row_ids: Sequence[int], columns: Sequence[str]) -> Iterator[Batch]:
    """As `take_cells`, as a stream of batches."""
    names, read = _columns(dataset, columns)
    return _batches(dataset, dataset._take_rows(list(row_ids), columns=read).to_batches(), names)


def _columns(dataset: lance.LanceDataset, columns: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The columns of a result, and those that are read for it: cells are found by the addresses of their rows."""
    names = list(dataset.schema.names if columns is None else columns)
    has_blobs = not blob_names(dataset.schema).isdisjoint(names)
    return names, list(dict.fromkeys([*names, ROW_ADDRESS])) if has_blobs else names


def _batches(dataset: lance.LanceDataset, batches: Iterable[Batch], names: list[str]) -> Iterator[Batch]:
    if blob_names(dataset.schema).isdisjoint(names):
        yield from batches
        return
    for batch in batches:
        yield from with_cells(dataset, batch, names)


def with_cells(dataset: lance.LanceDataset, batch: Batch, columns: Sequence[str]) -> Iterator[Batch]:
    """A batch of descriptors as batches of cells; each holds bytes up to `CELL_BATCH_BYTES`, or one row."""
    blobs = blob_names(dataset.schema).intersection(columns)
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in blobs:
        column = batch.column(name)
        own = pc.fill_null(pc.struct_field(column, "size"), 0)
        sizes += np.where(np.asarray(column.is_valid()), np.asarray(own), 0).astype(np.int64)
    for begin, end in _steps(sizes, CELL_BATCH_BYTES):
        yield _filled(dataset, batch.slice(begin, end - begin), columns, blobs)


def _steps(sizes: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Neighbouring rows together while their bytes stay within the limit; a larger row alone.

    >>> list(_steps(np.array([1, 1, 9, 1]), 2))
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield begin, end
        begin = end


def _table(dataset: lance.LanceDataset, found: Rows, names: list[str]) -> Rows:
    blobs = blob_names(dataset.schema).intersection(names)
    if not blobs:
        return found
    fields = [pa.field(name, pa.large_binary()) if name in blobs else found.schema.field(name) for name in names]
    return pa.Table.from_batches(list(_batches(dataset, found.to_batches(), names)), pa.schema(fields))


def _filled(dataset: lance.LanceDataset, batch: Batch, columns: Sequence[str], blobs: frozenset[str]) -> Batch:
    addresses = np.asarray(batch.column(ROW_ADDRESS))
    arrays, fields = [], []
    for name in columns:
        array = batch.column(name)
        if name in blobs:
            array = _cells(dataset, name, array, addresses)
            fields.append(pa.field(name, pa.large_binary()))
        else:
            fields.append(batch.schema.field(name))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _cells(dataset: lance.LanceDataset, name: str, descriptors: Array, addresses: NDArray[np.uint64]) -> Array:
    valid = np.asarray(descriptors.is_valid())
    kinds = np.asarray(pc.fill_null(pc.struct_field(descriptors, "kind"), 0))
    cells: list[bytes | None] = [None] * len(descriptors)
    for place in np.flatnonzero(valid & (kinds == EXTERNAL_KIND)).tolist():
        uri = stored_address(descriptors[place].as_py())
        cells[place] = None if uri is None else reference_cell(uri)
    managed = np.flatnonzero(valid & (kinds != EXTERNAL_KIND))
    if len(managed):
        wanted = addresses[managed].tolist()
        found = dataset.read_blobs(name, addresses=wanted, preserve_order=True)
        for place, (_, data) in zip(managed.tolist(), found, strict=True):
            if data is None:
                raise BlobIntegrityError(f"a descriptor of {name} tells of a value, and there is none")
            cells[place] = managed_cell(data)
    return pa.array(cells, pa.large_binary())


# ---- leaving the system


def plain_bytes(column: Array, owner: str) -> Array:
    """A column of cells as the bytes that they hold, for readers that know nothing but bytes.

    Raises:
        BadRequestError: a cell refers to an address and holds no bytes.
    """
    if not pc.any(pc.starts_with(column, MARK), min_count=0).as_py():
        return column
    cells = column.to_pylist()
    found = next((uri for cell in cells if cell is not None and (uri := reference_of(cell))), None)
    if found is not None:
        raise BadRequestError(
            f"{owner} holds references to external blobs, such as {without_credentials(found)}, and no bytes of "
            "them: leave the column out, or export as JSON lines"
        )
    plain: Array = pa.array([None if cell is None else managed_bytes(cell) for cell in cells], column.type)
    return plain


def cell_parts(column: Array) -> Array:
    """A column of cells as a struct of `data` and `uri`, of which one is set; null where the cell is."""
    cells = column.to_pylist()
    uris = [None if cell is None else reference_of(cell) for cell in cells]
    data = [
        managed_bytes(cell) if cell is not None and uri is None else None for cell, uri in zip(cells, uris, strict=True)
    ]
    return pa.StructArray.from_arrays(
        [pa.array(data, pa.binary()), pa.array(uris, pa.utf8())], fields=list(CELL_PARTS), mask=column.is_null()
    )


# ---- writing


def encoded_columns(rows: Rows | Batch, schema: Schema) -> list[Column]:
    """The columns of a table or batch as a dataset of this schema stores them; blob columns are cells before."""
    columns = []
    for item in schema:
        column = rows.column(item.name)
        if isinstance(item.type, lance.blob.BlobType):
            column = encoded_cells(column)
        elif column.type != item.type:
            column = column.cast(item.type)
        columns.append(column)
    return columns


def encoded_cells(column: Column) -> Array:
    """A column of cells in Lance's blob encoding; bytes are not copied where no cell has a mark."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pc.any(pc.starts_with(column, MARK), min_count=0).as_py():
        cells = column.to_pylist()
        return lance.blob_array([None if cell is None else _encoded(cell) for cell in cells])
    kind: Any = lance.blob.BlobType()
    parts = [column if part.name == "data" else pa.nulls(len(column), part.type) for part in kind.storage_type]
    storage = pa.StructArray.from_arrays(parts, fields=list(kind.storage_type), mask=column.is_null())
    return pa.ExtensionArray.from_storage(kind, storage)


def has_references(rows: Rows | Batch, blobs: frozenset[str]) -> bool:
    """Whether any cell of these columns refers to an address."""
    return any(pc.any(pc.starts_with(rows.column(name), ADDRESS_MARK), min_count=0).as_py() for name in blobs)


def _encoded(cell: bytes) -> bytes | lance.blob.Blob:
    uri = reference_of(cell)
    if uri is None:
        return managed_bytes(cell)
    return lance.blob.Blob.from_uri(_STORED_ADDRESS + quote(uri, safe=""))
