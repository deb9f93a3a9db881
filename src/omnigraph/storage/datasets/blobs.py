"""Single blob cells: what is known about one without reading it, and ranges of its bytes.

A cell is described by a small descriptor in its row. The bytes lie inside the data file, in a file that several values
share, or in a file of their own, depending on their size; files never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any

import numpy as np
import obstore
from obstore.store import LocalStore, from_url

from omnigraph.core.arrow import pc
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.errors import BlobIntegrityError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.blob_columns import EXTERNAL_KIND, stored_address
from omnigraph.storage.datasets.filters import ROW_ADDRESS, ROW_ID, Compare, Filter, to_sql
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location

_STRING = ScalarType(Scalar.STRING)
#: Kinds of descriptors whose bytes lie in a file beside the data file.
_IN_OWN_FOLDER = (1, 2)


@frozen(kw_only=True)
class StoredBlob:
    """A blob that is there, as its descriptor tells."""

    column: str
    row_id: int
    #: The address of a value that is not in the graph; it has no size and no place.
    uri: str | None = None
    size: int = 0
    #: Equal only for the same bytes at the same place of the same file. A compaction writes another file.
    place: str = ""
    #: The file beside the data file that holds the bytes, from the root of the dataset that owns it, and where the
    #: value ends in it; None when it lies inside the data file.
    _own_file: tuple[str, str, int] | None = field(default=None, repr=False)


def has_row(table: Table, entity_id: str) -> bool:
    """Whether a row with this id exists."""
    return table.count_rows(Compare("id", _STRING, "=", entity_id)) > 0


def find_blob(table: Table, column: str, entity_id: str) -> StoredBlob | None:
    """The blob in a column of the row with this id; None when there is no such row or its cell is null."""
    with translated(f"looking for a blob of {table.path}"):
        rows = table._dataset.to_table(
            columns=[column, ROW_ID, ROW_ADDRESS], filter=to_sql(Compare("id", _STRING, "=", entity_id))
        ).to_pylist()
        return _described(table, column, rows[0]) if rows else None


def _described(table: Table, column: str, row: dict[str, Any]) -> StoredBlob | None:
    descriptor = row[column]
    if descriptor is None:
        return None
    uri = stored_address(descriptor)
    if uri is not None:
        return StoredBlob(column=column, row_id=row[ROW_ID], uri=uri)
    file, base = _data_file(table, column, row[ROW_ADDRESS] >> 32)
    own_file = None
    if descriptor["kind"] in _IN_OWN_FOLDER:
        # Lance names them by the bits of their number, the lowest first.
        name = f"{descriptor['blob_id']:032b}"[::-1]
        end = descriptor["position"] + descriptor["size"]
        own_file = (base, f"data/{file.removesuffix('.lance')}/{name}.blob", end)
    return StoredBlob(
        column=column,
        row_id=row[ROW_ID],
        size=descriptor["size"],
        place=_place(file, column, row[ROW_ADDRESS], descriptor),
        _own_file=own_file,
    )


@frozen(kw_only=True)
class BlobFacts:
    """What an export has to know about the blobs of a table before it begins."""

    #: Columns in which a cell refers to an address.
    referring: frozenset[str] = frozenset()
    #: The address of the row with the most bytes in all of its blobs, and how many these are.
    largest_row: int = 0
    largest_bytes: int = 0


def look_at_blobs(table: Table, columns: Sequence[str]) -> BlobFacts:
    """Facts about some blob columns, from one scan of their descriptors."""
    referring: set[str] = set()
    largest_row, largest_bytes = 0, 0
    with translated(f"looking at the blobs of {table.path}"):
        for batch in table._dataset.scanner(columns=[*columns, ROW_ADDRESS]).to_batches():
            sizes = np.zeros(batch.num_rows, dtype=np.int64)
            for name in columns:
                cells = batch.column(name)
                valid = np.asarray(cells.is_valid())
                kinds, own = (np.asarray(pc.struct_field(cells, part)) for part in ("kind", "size"))
                sizes += np.where(valid, own, 0).astype(np.int64)
                if (valid & (kinds == EXTERNAL_KIND)).any():
                    referring.add(name)
            if len(sizes) and sizes.max() > largest_bytes:
                largest_bytes = int(sizes.max())
                largest_row = int(np.asarray(batch.column(ROW_ADDRESS))[sizes.argmax()])
    return BlobFacts(referring=frozenset(referring), largest_row=largest_row, largest_bytes=largest_bytes)


def blob_bytes(table: Table, columns: Sequence[str], filter_: Filter) -> int:
    """How many bytes the blobs of some rows have, without reading them."""
    total = 0
    with translated(f"measuring blobs of {table.path}"):
        batches = table._dataset.scanner(columns=list(columns), filter=to_sql(filter_)).to_batches()
        for batch in batches:
            for column in batch.columns:
                sizes = pc.struct_field(column, "size")
                valid = sizes.filter(column.is_valid())
                total += pc.sum(valid).as_py() or 0
    return total


def read_blob_range(table: Table, blob: StoredBlob, offset: int, length: int) -> bytes:
    """Bytes of a blob; only these are read from storage. The range must lie inside the value.

    Raises:
        BlobIntegrityError: the file of the value is missing or too short.
    """
    try:
        with translated(f"reading a blob of {table.path}"):
            request = (blob.row_id, offset, length)
            answers = table._dataset.read_blob_ranges(blob.column, [request], selector="ids")
            data = answers[0][2]
    except StorageError:
        _check_file(blob)
        raise
    if data is None or len(data) != length:
        found = "no value" if data is None else f"{len(data)} bytes"
        raise BlobIntegrityError(
            f"{blob.column} of {table.path} has {blob.size} bytes, and {found} came for a range of {length}"
        )
    return bytes(data)


def _data_file(table: Table, column: str, fragment_id: int) -> tuple[str, str]:
    """The data file that holds a column of a fragment, and the root of the dataset that owns it."""
    dataset = table._dataset
    fields = {item.name(): item.id() for item in dataset.lance_schema.fields()}
    fragment = dataset.get_fragment(fragment_id)
    for file in fragment.metadata.files if fragment is not None else ():
        if fields[column] in file.fields:
            base = dataset.uri if file.base_id is None else dataset.base_paths()[file.base_id].path
            return file.path, str(base)
    raise BlobIntegrityError(f"no file of {table.path} holds the column {column} of this row")


def _place(file: str, column: str, address: int, descriptor: dict[str, object]) -> str:
    where = (file, column, address & 0xFFFFFFFF, *sorted(descriptor.items()))
    return sha256(repr(where).encode()).hexdigest()


def _check_file(blob: StoredBlob) -> None:
    """Tell a damaged value from a storage that failed: by looking at its file, not at a message."""
    if blob._own_file is None:
        return
    base, name, end = blob._own_file
    location = parse_location(base)
    with translated(f"looking at {name}"):
        store = LocalStore(location.path) if location.is_local else from_url(location.uri)
        try:
            size = obstore.head(store, name)["size"]
        except FileNotFoundError as error:
            raise BlobIntegrityError(f"its file {name} is missing") from error
    if size < end:
        raise BlobIntegrityError(f"its file {name} has {size} bytes, and the value ends at {end}")
