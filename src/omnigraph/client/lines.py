"""Streams of JSON lines: written to a sink or a file that appears when it is complete, and counted on the way."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import UnexpectedAnswerError
from omnigraph.wire.exports import STDOUT, ExportTarget, line_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Write = Callable[[bytes], object]

_TYPE = re.compile(rb'^\{"(type|edge)":"([^"]+)"', re.MULTILINE)
_KINDS = {b"type": "node", b"edge": "edge"}


class LineCount:
    """How many entities of which types have passed."""

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
        self.entities.update(
            f"{_KINDS[kind]}:{name.decode()}" for kind, name in _TYPE.findall(block)
        )
        return block

    def of_kind(self, kind: str, known: Iterable[str]) -> dict[str, int]:
        """Entities per type of one kind, also of known types without any, in the order of their names."""
        keys = sorted({*known, *self.entities})
        pairs = (key.partition(":") for key in keys)
        return {name: self.entities[f"{k}:{name}"] for k, _, name in pairs if k == kind}


@contextmanager
def opened_target(target: ExportTarget, graph_uri: str) -> Iterator[tuple[str, Write]]:
    """The name of a target, and how it takes lines. A path appears when all went well, or not at all.

    Raises:
        BadRequestError: the path is in use, or not one that an export can go to; or it is no stream.
    """
    if not isinstance(target, str | os.PathLike) or os.fspath(target) == STDOUT:
        yield STDOUT, line_writer(target)
        return
    from omnigraph.pipeline.export_target import local_target, staging

    path = local_target(target, graph_uri)
    with staging(path) as place:
        with open(place.result, "wb") as file:
            yield str(path), file.write
        place.publish(durable=True)


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
