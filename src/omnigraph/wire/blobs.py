"""One blob cell as both kinds of graphs describe it: what it is, and which ranges of it can be read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, BlobRangeError, ResourceLimitError

if TYPE_CHECKING:
    from omnigraph.manifest.targets import Target

#: Largest range of a blob that one call reads, and what a stream of one has in memory.
BLOB_RANGE_BYTES = 4 * 1024 * 1024
#: Positions are unsigned numbers of 64 bits.
_LAST_POSITION = 2**64 - 1


class BlobKind(StrEnum):
    """Where the bytes of a blob are: in the graph, or behind an address that the graph only remembers."""

    MANAGED = "managed"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCell:
    """Which cell: a property of one entity."""

    type_key: str
    entity_id: str
    property: str

    def __str__(self) -> str:
        return f"{self.property} of {self.type_key} {self.entity_id!r}"

    def to_json(self) -> dict[str, object]:
        """The cell as a selector names it."""
        kind, _, name = self.type_key.partition(":")
        return {"entity": kind, "type": name, "id": self.entity_id, "property": self.property}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlace:
    """A cell, the target that was asked for, and the commit that it meant."""

    cell: BlobCell
    target: Target
    snapshot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """What is known about a cell without its bytes."""

    cell: BlobCell
    kind: BlobKind
    #: How many bytes a managed value has; None for an external one.
    size: int | None
    #: Strong tag of a managed value: never equal for different bytes. None for an external one.
    etag: str | None
    #: The address of an external value in its normal spelling; None for a managed one.
    uri: str | None
    #: What was asked for, and the commit that it meant.
    target: Target
    snapshot_id: str

    def to_json(self) -> dict[str, object]:
        """The document of `blob stat --json`."""
        body: dict[str, object] = {"selector": self.cell.to_json(), "kind": str(self.kind)}
        if self.kind is BlobKind.MANAGED:
            body |= {"size": self.size, "etag": self.etag}
        else:
            body["uri"] = self.uri
        target = self.target.to_json() | {"resolved_snapshot": self.snapshot_id}
        return body | {"target": target}


def external_blob(cell: BlobCell, uri: str | None) -> BadRequestError:
    """The refusal to read what the graph only refers to."""
    return BadRequestError(
        f"{cell} is only a reference, which is never followed; its bytes are at {uri}"
    )


# ---- ranges


def check_range(offset: int, length: int | None, *, limit: int | None = None) -> None:
    """Refuse what no value could satisfy, before anything is opened.

    Raises:
        BlobRangeError: the offset is negative.
        BadRequestError: the length is not positive, or the end is no position.
        ResourceLimitError: the length is above the limit.
    """
    if offset < 0:
        raise BlobRangeError(offset, offset + (length or 0), 0)
    if length is not None and length <= 0:
        raise BadRequestError(f"a blob range has at least 1 byte, not {length}")
    if offset + (length or 0) > _LAST_POSITION:
        raise BadRequestError(f"{offset} + {length or 0} is no position in a blob")
    if limit is not None and length is not None and length > limit:
        advice = "read several ranges, or stream the value with `open_blob`"
        raise ResourceLimitError("Blob read range bytes", limit, length, advice)


def clamped(offset: int, length: int | None, size: int) -> tuple[int, int]:
    """Begin and end of a range inside a value of some size.

    >>> clamped(2, 10, 5)
    (2, 5)

    Raises:
        BlobRangeError: the range begins behind a value that is not empty.
    """
    if size == 0:
        return 0, 0
    if offset >= size:
        raise BlobRangeError(offset, offset + (length or 0), size)
    return offset, size if length is None else min(size, offset + length)
