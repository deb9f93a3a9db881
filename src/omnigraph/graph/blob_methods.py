"""The blob half of the façade: single cells, whole, in ranges, or what they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph.graph.opened import OpenGraph
from omnigraph.manifest.pins import reading_pins
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.targets import Target, resolve_target

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.graph.blobs import BlobReader
    from omnigraph.wire.blobs import BlobInfo


class BlobMethods(OpenGraph):
    """What an open graph does with blobs."""

    def read_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        offset: int = 0,
        length: int | None = None,
    ) -> bytes:
        """The bytes of one blob cell, or a range of them; only these are read from storage.

        An end behind the value is moved to it. Without a length everything behind the offset comes, whatever its
        size; `open_blob` gives it in pieces.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> root = tempfile.mkdtemp() + "/papers.omni"
        >>> graph = Graph.init(root, "node Paper { doi: String @key  scan: Blob? }")
        >>> add = 'query add() { insert Paper { doi: "10.1", scan: "base64:SGVsbG8=" } }'
        >>> receipt = graph.mutate(add)
        >>> graph.read_blob("node:Paper", "10.1", "scan", offset=1, length=3)
        b'ell'

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BlobRangeError: the range begins behind the value.
            BadRequestError: the range is malformed, the property is no Blob, or the value is external.
            ResourceLimitError: the range is larger than one call reads.
            BlobIntegrityError: the stored value is damaged.
        """
        from omnigraph.wire.blobs import BLOB_RANGE_BYTES, check_range

        check_range(offset, length, limit=BLOB_RANGE_BYTES)
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        with self._reading():
            blob = self._open_blob(type_key, entity_id, property_name, target)
            return blob.read(offset, length)

    def stat_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> BlobInfo:
        """What one blob cell is: its size and strong tag, or the address of an external value.

        Reads one range at most. The tag is never equal for different bytes; up to `BLOB_RANGE_BYTES` it follows from
        the bytes alone, above it changes also when the value is written again or its file is compacted.

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BadRequestError: the property is no Blob.
        """
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        with self._reading():
            return self._open_blob(type_key, entity_id, property_name, target).info

    def open_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> BlobReader:
        """One blob cell for several reads: `info`, `size`, `read(offset, length)`, and `chunks()` in bounded memory.

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BadRequestError: the property is no Blob.
        """
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        return self._open_blob(type_key, entity_id, property_name, target)

    def _open_blob(
        self, type_key: str, entity_id: str, property_name: str, target: Target
    ) -> BlobReader:
        from omnigraph.graph.blobs import find_property, find_type, open_cell
        from omnigraph.wire.blobs import BlobCell, CellPlace

        snapshot = resolve_target(self._environment.manifest, self._state(), target)
        definition = find_type(self._schema_of(snapshot.schema_hash).catalog, type_key)
        find_property(definition, property_name)
        key = definition.table_key
        cell = BlobCell(type_key=key, entity_id=entity_id, property=property_name)
        place = CellPlace(cell=cell, target=target, snapshot_id=snapshot.commit_id)
        pin = snapshot.pins[key]
        reading = partial(reading_pins, self._environment.tables, [pin])
        return open_cell(self._open(pin), place, reading)
