"""Answers that stream: lines of exports, and blob cells."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.api.operation import OCTETS, SNAPSHOT_ID, TYPE_KEY
from omnigraph.api.results import (
    STDOUT,
    BlobCell,
    BlobInfo,
    BlobKind,
    BlobStream,
    ExportTarget,
    external_blob,
    line_writer,
)
from omnigraph.client.connection import Connection, understood
from omnigraph.errors import BadRequestError, BlobRangeError, UnexpectedAnswerError

if TYPE_CHECKING:
    import httpx

    from omnigraph.commit.read_target import Target

# ---- Streams of JSON lines


_TYPE = re.compile(rb'^\{"(type|edge)":"([^"]+)"', re.MULTILINE)
_KINDS = {b"type": "node", b"edge": "edge"}


class LineCount:
    """Counts of the entities that passed, by type."""

    def __init__(self) -> None:
        self.entities: Counter[str] = Counter()

    def whole_lines(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes, cut behind lines.

        Raises:
            UnexpectedAnswerError: the last line is not complete.
        """
        # Joined once per line: one with a large blob comes in thousands of pieces.
        begun: list[bytes] = []
        for piece in pieces:
            end, newline, rest = piece.rpartition(b"\n")
            if newline:
                yield self._counted(b"".join((*begun, end, newline)))
                begun.clear()
            begun.append(rest)
        if any(begun):
            raise UnexpectedAnswerError("the last line of the server is not complete: ask again")

    def _counted(self, block: bytes) -> bytes:
        self.entities.update(f"{_KINDS[kind]}:{name.decode()}" for kind, name in _TYPE.findall(block))
        return block

    def of_kind(self, kind: str, known: Iterable[str]) -> dict[str, int]:
        """Entities per type of one kind, also of known types without any, in the order of their names."""
        keys = sorted({*known, *self.entities})
        pairs = (key.partition(":") for key in keys)
        return {name: self.entities[f"{k}:{name}"] for k, _, name in pairs if k == kind}


@contextmanager
def opened_target(target: ExportTarget, graph_uri: str) -> Iterator[tuple[str, Callable[[bytes], object]]]:
    """The name of a target, and how it takes lines. A path appears when all went well, or not at all.

    Raises:
        BadRequestError: the path is in use, or not one that an export can go to; or the sink is not a stream.
    """
    if not isinstance(target, str | os.PathLike) or os.fspath(target) == STDOUT:
        yield STDOUT, line_writer(target)
        return
    from omnigraph.pipeline.export.files import export_target, staging

    found = export_target(target, graph_uri)
    with staging(found) as place:
        with open(place.result, "wb") as file:
            yield found.uri, file.write
        place.publish([place.result], durable=True)


def held_back(blocks: Iterable[bytes], last: list[bytes]) -> Iterator[bytes]:
    """All lines but the last one, which is put into `last`."""
    line = b""
    for block in blocks:
        body, _, tail = block.removesuffix(b"\n").rpartition(b"\n")
        before = line + (body + b"\n" if body else b"")
        if before:
            yield before
        line = tail + b"\n"
    last.append(line)


# ---- Blob cells


_FOUND = 302
_PARTIAL = 206


class RemoteBlob(BlobStream):
    """One cell behind a server."""

    def __init__(self, cell: RemoteCell, info: BlobInfo) -> None:
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


class RemoteCell:
    """Requests about one cell."""

    def __init__(self, connection: Connection, path: str, cell: BlobCell) -> None:
        kind, _, name = cell.type_key.partition(":")
        if kind not in ("node", "edge") or not name:
            raise BadRequestError(f"{cell.type_key!r} names no type: write node:Name or edge:Name")
        self._connection = connection
        self._path = path
        self._cell = cell
        self._selector = {"entity": kind, "type": name, "id": cell.entity_id, "property": cell.property}

    def info(self, target: Target, members: dict[str, str | int | None]) -> BlobInfo:
        """Describe the cell at a target, which requests carry as `members`."""
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
