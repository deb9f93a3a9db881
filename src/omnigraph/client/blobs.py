"""Blob cells of a remote graph: whole, in ranges, or what they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.api.protocol import OCTETS, SNAPSHOT_ID, TYPE_KEY
from omnigraph.api.results import BLOB_RANGE_BYTES, BlobCell, BlobInfo, BlobKind, BlobStream, check_range, external_blob
from omnigraph.client.connection import Connection, OpenRemoteGraph, target_members, target_of, understood
from omnigraph.commit.rows import MAIN
from omnigraph.errors import BadRequestError, BlobRangeError, UnexpectedAnswerError

if TYPE_CHECKING:
    import httpx

    from omnigraph.commit.targets import Target

_FOUND = 302
_PARTIAL = 206


class RemoteBlobs(OpenRemoteGraph):
    """Blob methods of a remote graph."""

    @override
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
        check_range(offset, length, limit=BLOB_RANGE_BYTES)
        target = target_of(branch, snapshot, version, as_of)
        cell = BlobCell(type_key=type_key, entity_id=entity_id, property=property_name)
        pieces = _Cell(self._connection, f"{self._path}/blob", cell).stream(target_members(target), offset, length)
        return b"".join(pieces)

    @override
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
        target = target_of(branch, snapshot, version, as_of)
        cell = BlobCell(type_key=type_key, entity_id=entity_id, property=property_name)
        return _Cell(self._connection, f"{self._path}/blob", cell).info(target)

    @override
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
    ) -> RemoteBlob:
        target = target_of(branch, snapshot, version, as_of)
        cell = BlobCell(type_key=type_key, entity_id=entity_id, property=property_name)
        found = _Cell(self._connection, f"{self._path}/blob", cell)
        return RemoteBlob(found, found.info(target))


class RemoteBlob(BlobStream):
    """One cell behind a server."""

    def __init__(self, cell: _Cell, info: BlobInfo) -> None:
        self._cell = cell
        self._info = info

    @override
    @property
    def info(self) -> BlobInfo:
        return self._info

    @override
    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        if begin == end:
            return iter(())
        return self._cell.stream({"snapshot": self.info.snapshot_id}, begin, end - begin)


class _Cell:
    """Requests about one cell."""

    def __init__(self, connection: Connection, path: str, cell: BlobCell) -> None:
        kind, _, name = cell.type_key.partition(":")
        if kind not in ("node", "edge") or not name:
            raise BadRequestError(f"{cell.type_key!r} names no type: write node:Name or edge:Name")
        self._connection = connection
        self._path = path
        self._cell = cell
        self._selector = {"entity": kind, "type": name, "id": cell.entity_id, "property": cell.property}

    def info(self, target: Target) -> BlobInfo:
        members = target_members(target)
        try:
            response = self._open("HEAD", members, {})
        except UnexpectedAnswerError:
            # A refusal of HEAD has no body that could tell the reason: the same question with one does.
            response = self._open("GET", members, {"Range": "bytes=0-0"})
        response.close()
        with understood("a blob"):
            headers = response.headers
            is_external = response.status_code == _FOUND
            return BlobInfo(
                cell=self._named(response),
                kind=BlobKind.EXTERNAL if is_external else BlobKind.MANAGED,
                size=None if is_external else _size(response),
                etag=None if is_external else headers["etag"],
                uri=headers["location"] if is_external else None,
                target=target,
                snapshot_id=headers[SNAPSHOT_ID],
            )

    def stream(self, members: dict[str, str | int | None], offset: int, length: int | None) -> Iterator[bytes]:
        """The bytes of a range; an invalid range is refused before the first piece."""
        headers = {}
        if offset or length is not None:
            end = "" if length is None else str(offset + length - 1)
            headers["Range"] = f"bytes={offset}-{end}"
        try:
            response = self._open("GET", members, headers)
        except BlobRangeError as error:
            if error.length == 0:
                return iter(())
            raise BlobRangeError(offset, offset + (length or 0), error.length) from None
        if response.status_code == _FOUND:
            response.close()
            raise external_blob(self._named(response), response.headers.get("location"))
        if headers and response.status_code != _PARTIAL:
            response.close()
            raise UnexpectedAnswerError("the server sent another range than it was asked for")
        return self._pieces(response)

    def _pieces(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from self._connection.pieces(response)
        finally:
            response.close()

    def _open(self, method: str, members: dict[str, str | int | None], headers: dict[str, str]) -> httpx.Response:
        return self._connection.open(
            method,
            self._path,
            params={**self._selector, **members},
            headers={"Accept": OCTETS, "Accept-Encoding": "identity", **headers},
            accepts_redirect=True,
        )

    def _named(self, response: httpx.Response) -> BlobCell:
        """The cell under the name that the schema has for its type."""
        return BlobCell(
            type_key=response.headers.get(TYPE_KEY, self._cell.type_key),
            entity_id=self._cell.entity_id,
            property=self._cell.property,
        )


def _size(response: httpx.Response) -> int:
    if response.status_code == _PARTIAL:
        return int(response.headers["content-range"].rpartition("/")[2])
    return int(response.headers["content-length"])
