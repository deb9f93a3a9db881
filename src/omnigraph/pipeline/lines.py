"""Whole lines of a range of bytes: parts of a file meet without losing or repeating a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.records import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES = 8 * 1024 * 1024


def line_blocks(stream: Any, begin: int, end: int | None) -> Iterator[list[bytes]]:
    """Lists of lines that begin at or behind `begin` and before `end`; the stream stands one byte before `begin`.

    A line that is longer than any record may be is cut behind the allowed length, so that it is still too long.
    """
    rest = stream.read(_BLOCK_BYTES)
    position = 0
    if begin:
        # The line that reaches into this part belongs to the one before.
        skipped = begin - 1
        while (cut := rest.find(b"\n")) < 0 and rest:
            skipped += len(rest)
            rest = stream.read(_BLOCK_BYTES)
        rest, position = rest[cut + 1 :], skipped + cut + 1
        rest = rest or stream.read(_BLOCK_BYTES)
    dropped = 0
    while rest:
        if end is not None and position >= end:
            return
        cut = rest.rfind(b"\n")
        more = stream.read(_BLOCK_BYTES)
        if cut < 0 and more:
            if len(rest) > MAX_LINE_BYTES:
                # Keep one byte too many, and drop what comes before the next line.
                dropped += len(rest) - MAX_LINE_BYTES - 1
                rest = rest[: MAX_LINE_BYTES + 1]
                newline = more.find(b"\n")
                dropped += len(more) if newline < 0 else newline
                more = more[newline:] if newline >= 0 else b""
                if not more:
                    more, passed = _next_line(stream)
                    dropped += passed
            rest += more
            continue
        is_last = not more
        whole, tail = (rest, b"") if is_last else (rest[: cut + 1], rest[cut + 1 :])
        lines = whole.split(b"\n")
        if whole.endswith(b"\n"):
            lines.pop()
        if end is not None and position + len(whole) + dropped > end:
            kept = _beginning_before(lines, position, end, dropped)
            if kept:
                yield kept
            return
        if lines:
            yield lines
        position += len(whole) + dropped
        dropped = 0
        rest = tail + more


def _next_line(stream: Any) -> tuple[bytes, int]:
    """The stream from its next line break on, and how many bytes were passed over."""
    passed = 0
    while more := stream.read(_BLOCK_BYTES):
        newline = more.find(b"\n")
        if newline >= 0:
            return bytes(more[newline:]), passed + newline
        passed += len(more)
    return b"\n", passed


def _beginning_before(lines: list[bytes], position: int, end: int, dropped: int) -> list[bytes]:
    """Those of the lines that begin before `end`; `dropped` bytes of the first one are not here."""
    kept = []
    for line in lines:
        if position >= end:
            break
        kept.append(line)
        position += len(line) + 1 + dropped
        dropped = 0
    return kept
