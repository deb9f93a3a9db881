"""Whole lines of a range of bytes: parts of a file meet without losing or repeating a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.records import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES = 8 * 1024 * 1024


def line_blocks(stream: Any, begin: int, end: int | None) -> Iterator[list[bytes]]:
    """Lists of lines that begin at or behind `begin` and before `end`; the stream stands one byte before `begin`.

    A line that is longer than any record may be is cut behind the allowed length, so that it is still too long. At
    most one long line is in memory: one that does not fit into a block comes alone.
    """
    line = _OpenLine(begin)
    if begin and not _skip_to_next_line(stream, line):
        return
    while block := line.take_rest() or stream.read(_BLOCK_BYTES):
        cut = block.find(b"\n")
        if cut < 0:
            line.add(block)
            continue
        if line.length:
            # The line that began in an earlier block ends here.
            if end is not None and line.begin >= end:
                return
            line.add(block[:cut])
            line.rest = block[cut + 1 :]
            del block
            yield [line.close()]
            continue
        cut = block.rfind(b"\n")
        lines, line.rest, length = block[:cut].split(b"\n"), block[cut + 1 :], cut + 1
        del block
        if end is not None and line.begin + length > end:
            kept = _beginning_before(lines, line.begin, end)
            if kept:
                yield kept
            return
        yield lines
        del lines
        line.begin += length
        # What follows has no line break: it begins the next line.
        line.add(line.take_rest())
    if line.length and (end is None or line.begin < end):
        yield [line.close()]


class _OpenLine:
    """The line whose end was not read yet, and the bytes behind it that were."""

    def __init__(self, begin: int) -> None:
        #: Where it begins in the file.
        self.begin = begin
        #: Its bytes so far, also those that are not kept.
        self.length = 0
        self.rest = b""
        self._kept: list[bytes] = []

    def add(self, more: bytes) -> None:
        """Go on with the line; what no record may have is counted, not kept."""
        room = MAX_LINE_BYTES + 1 - self.length
        if more and room > 0:
            self._kept.append(more[:room])
        self.length += len(more)

    def close(self) -> bytes:
        """The line without its break; the next one begins behind it."""
        whole = b"".join(self._kept)
        self._kept = []
        self.begin, self.length = self.begin + self.length + 1, 0
        return whole

    def take_rest(self) -> bytes:
        rest, self.rest = self.rest, b""
        return rest


def _skip_to_next_line(stream: Any, line: _OpenLine) -> bool:
    """Pass over the line that reaches into this part: it belongs to the one before. False at the end of the file."""
    position = line.begin - 1
    while block := stream.read(_BLOCK_BYTES):
        cut = block.find(b"\n")
        if cut >= 0:
            line.begin, line.rest = position + cut + 1, block[cut + 1 :]
            return True
        position += len(block)
    return False


def _beginning_before(lines: list[bytes], position: int, end: int) -> list[bytes]:
    """Those of the lines that begin before `end`."""
    kept = []
    for line in lines:
        if position >= end:
            break
        kept.append(line)
        position += len(line) + 1
    return kept
