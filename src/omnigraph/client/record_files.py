"""Files of graph records as one body, and the way back from its lines to theirs."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from json import JSONDecoder

from omnigraph.errors import BadRecord, InputFileError, LoadKeyConflictError, LoadRejectedError, LoadReport, OmniError
from omnigraph.pipeline.sources.inputs import InputFile, find_files, open_bytes, open_text, readable
from omnigraph.pipeline.sources.jsonl import read_objects
from omnigraph.pipeline.sources.parts import GRAPH_ENDINGS, refuse_tables
from omnigraph.pipeline.sources.records import BadRecordError

#: What the server calls the body in its reports.
BODY_NAME = "<records>"
#: Why bad records of a load over HTTP go nowhere.
NO_QUARANTINE = "its reports name 100 records of each rule, and a quarantine holds all of them before the commit"
_LINE_OF_BODY = re.compile(re.escape(BODY_NAME) + r":(\d+)")
_BLOCK_BYTES = 256 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class RecordFiles:
    """The files that a path, a directory or a pattern names. Read once, from the first to the last."""

    def __init__(self, source: str | os.PathLike[str], *, are_lines: bool) -> None:
        self._source = os.fspath(source)
        self._files = find_files(self._source, GRAPH_ENDINGS)
        refuse_tables(self._files)
        #: Whether records are lines; in old files they are objects between any white space.
        self._are_lines = are_lines
        #: How many lines of the body come before each file.
        self._before: list[int] = []

    @cached_property
    def size(self) -> int | None:
        """The number of bytes the body has; None where only reading all of it tells: packed files, pipes.

        Raises:
            InputFileError: a file is gone.
        """
        sizes = [_plain_size(file) for file in self._files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def body(self) -> Iterator[bytes]:
        """All files, unpacked, one after the other; exactly `size` bytes where that is known.

        The last block goes out when everything was read: a server never gets a complete body of files that changed.

        Raises:
            InputFileError: a file is gone or damaged, or changed meanwhile.
        """
        size, count, held = self.size, 0, b""
        for block in self._blocks():
            count += len(block)
            if size is not None and count > size:
                raise self._changed()
            if held:
                yield held
            held = block
        if size is not None and count != size:
            raise self._changed()
        if held:
            yield held

    def _changed(self) -> InputFileError:
        return InputFileError(
            self._files[0].path if len(self._files) == 1 else self._source,
            "it changed while it was read; nothing was loaded, try again",
        )

    def _blocks(self) -> Iterator[bytes]:
        lines = 0
        for file in self._files:
            self._before.append(lines)
            end = b"\n"
            for block in _blocks(file):
                lines += block.count(b"\n")
                end = block
                yield block
            if not end.endswith(b"\n"):
                lines += 1
                yield b"\n"

    def renamed(self, error: OmniError) -> OmniError:
        """A failure about the body, in terms of the files."""
        if isinstance(error, InputFileError) and error.path == BODY_NAME:
            return InputFileError(self._files[0].path, error.reason)
        if not isinstance(error, LoadRejectedError | LoadKeyConflictError):
            return error
        report = self.placed(error.report)
        if isinstance(error, LoadRejectedError):
            return LoadRejectedError(report)
        return LoadKeyConflictError(error.entity_kind, error.type_name, error.entity_id or "", report)

    def placed(self, report: LoadReport) -> LoadReport:
        """A report about the body, in terms of the files."""
        if not self._are_lines:
            self._before = _objects_before(self._files)
        return replace(report, examples=tuple(map(self._placed, report.examples)))

    def _placed(self, record: BadRecord) -> BadRecord:
        message = _LINE_OF_BODY.sub(self._place_in_text, record.message)
        if record.source != BODY_NAME or record.line is None:
            return replace(record, message=message)
        path, line = self._place(record.line)
        return replace(record, source=path, line=line, message=message)

    def _place_in_text(self, found: re.Match[str]) -> str:
        path, line = self._place(int(found[1]))
        return f"{path}:{line}"

    def _place(self, line: int) -> tuple[str, int]:
        number = max(bisect_right(self._before, line - 1) - 1, 0)
        return self._files[number].path, line - self._before[number]


def _blocks(file: InputFile) -> Iterator[bytes]:
    with readable(file), open_text(file) as stream:
        block = stream.read(_BLOCK_BYTES).removeprefix(_BYTE_ORDER_MARK)
        while block:
            yield block
            block = stream.read(_BLOCK_BYTES)


def _plain_size(file: InputFile) -> int | None:
    """The number of bytes of the body that a file becomes: without its mark, and with the end of its last line."""
    # The size of anything but a regular file is 0 as well.
    if file.compression is not None or file.size == 0:
        return None
    with readable(file), open_bytes(file) as stream:
        mark = len(_BYTE_ORDER_MARK) if stream.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
        if file.size == mark:
            return 0
        stream.seek(file.size - 1)
        ends_open = bool(stream.read(1) != b"\n")
        return file.size - mark + ends_open


def _objects_before(files: list[InputFile]) -> list[int]:
    """The number of records before each file; only reports need it."""
    before, count = [], 0
    for file in files:
        before.append(count)
        with readable(file):
            found = read_objects(file, JSONDecoder())
            count += sum(not isinstance(item, BadRecordError) for item, _ in found)
    return before
