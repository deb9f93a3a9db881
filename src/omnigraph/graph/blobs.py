"""Reading one blob cell, or a range of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, BlobRangeError, NotFoundError
from omnigraph.storage import Compare
from omnigraph.types import Scalar, ScalarType

if TYPE_CHECKING:
    from omnigraph.storage import Table

#: Largest range of a blob that one call reads.
BLOB_RANGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCell:
    """Which cell: a property of one entity."""

    type_key: str
    entity_id: str
    property: str


def read_cell(table: Table, cell: BlobCell, offset: int, length: int | None) -> bytes:
    """The bytes of a cell from an offset on.

    Raises:
        NotFoundError: no such entity or property, or the cell is null.
        BlobRangeError: the range begins behind the value.
        BadRequestError: the range is empty or larger than one call reads.
    """
    if length is not None and not 0 < length <= BLOB_RANGE_BYTES:
        raise BadRequestError(f"a blob range has 1 to {BLOB_RANGE_BYTES} bytes")
    if cell.property not in table.blob_columns:
        raise NotFoundError(f"{cell.type_key} has no Blob property {cell.property}")
    where = Compare("id", ScalarType(Scalar.STRING), "=", cell.entity_id)
    cells = table.read([cell.property], where)[cell.property].to_pylist()
    value = cells[0] if cells else None
    if value is None:
        raise NotFoundError(f"{cell.type_key} {cell.entity_id!r} has no {cell.property}")
    if offset < 0 or (offset >= len(value) and value):
        raise BlobRangeError(offset, offset + (length or len(value)), len(value))
    end = len(value) if length is None else offset + length
    return bytes(value[offset:end])
