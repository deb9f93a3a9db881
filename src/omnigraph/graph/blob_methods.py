"""The blob half of the façade: single cells, whole or in ranges."""

from __future__ import annotations

from omnigraph.errors import NotFoundError
from omnigraph.graph.opened import OpenGraph
from omnigraph.ids import TableKey
from omnigraph.manifest import MAIN


class BlobMethods(OpenGraph):
    """What an open graph does with blobs."""

    def read_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = MAIN,
        offset: int = 0,
        length: int | None = None,
    ) -> bytes:
        """The bytes of one blob cell, or a range of them.

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BlobRangeError: the range begins behind the value.
            BadRequestError: the range is empty or larger than one call reads.
        """
        from omnigraph.graph.blobs import BlobCell, read_cell

        pin = self.snapshot(branch).pins.get(TableKey(type_key))
        if pin is None:
            raise NotFoundError(f"there is no type {type_key}")
        cell = BlobCell(type_key=type_key, entity_id=entity_id, property=property_name)
        return read_cell(self._open(pin), cell, offset, length)
