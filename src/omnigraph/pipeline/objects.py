"""JSON values of a text one after the other: objects as old files have them, or the items of one list.

A text of any size is read in bounded memory: one value, and the block that it ends in.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.inputs import open_text
from omnigraph.pipeline.records import MAX_LINE_BYTES, BadRecordError, Complaint, not_utf8

if TYPE_CHECKING:
    import json
    from collections.abc import Iterator

    from omnigraph.pipeline.inputs import InputFile

_BLOCK_BYTES = 8 * 1024 * 1024
#: What may stand between objects. Possessive, as is the next one: neither goes back, whatever follows.
_BETWEEN = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+\n)*+")
_COMMENT_AT_END = re.compile(r"//[^\n]*+\Z")
_SPACE = re.compile(r"[ \t\n\r\ufeff]*+")


def read_objects(file: InputFile, decoder: json.JSONDecoder) -> Iterator[tuple[object, int]]:
    """The JSON values of a file with their lengths; the last one may be the error that ends the reading.

    Behind a broken value nothing can be told apart any more, so the reading ends there.
    """
    with open_text(file) as stream:
        text = _Text(stream)
        try:
            while True:
                text.skip(_BETWEEN)
                if text.is_at_end or _COMMENT_AT_END.match(text.known, text.position):
                    if not text.extend():
                        return
                    continue
                yield text.value(decoder)
        except BadRecordError as broken:
            yield broken, 0


def read_items(file: InputFile, decoder: json.JSONDecoder) -> Iterator[tuple[object, int]]:
    """The items of the list that a file holds, as `read_objects`."""
    with open_text(file) as stream:
        text = _Text(stream)
        try:
            text.expect("[")
            if text.expect("]", ",", is_first=True) == ",":
                while True:
                    text.next_character()
                    yield text.value(decoder)
                    if text.expect(",", "]") == "]":
                        break
            if text.next_character():
                raise _broken(f"Extra data at character {text.offset + 1:,}")
        except BadRecordError as broken:
            yield broken, 0


class _Text:
    """The part of a text that is in memory, and where the reading stands in it."""

    def __init__(self, stream: Any) -> None:
        self.known = ""
        self.position = 0
        #: Characters that were dropped before what is known.
        self._before = 0
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._is_complete = False
        self._bytes_read = 0

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self.known)

    @property
    def offset(self) -> int:
        """The position in the whole text."""
        return self._before + self.position

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Pass over what the pattern matches here, if anything."""
        found = pattern.match(self.known, self.position)
        assert found is not None, "the pattern matches nothing as well"
        self.position = found.end()

    def extend(self) -> bool:
        """Read on; False at the end of the text.

        Raises:
            BadRecordError: the value that began is too long, or the bytes are not a text.
        """
        if self._is_complete:
            return False
        if len(self.known) - self.position > MAX_LINE_BYTES:
            raise _broken(
                f"the value at character {self.offset + 1:,} has more than {MAX_LINE_BYTES:,} characters"
            )
        block = self._stream.read(_BLOCK_BYTES)
        self._is_complete = not block
        # The decoder keeps the bytes of a character that is not complete.
        before = self._bytes_read - len(self._decoder.getstate()[0])
        self._bytes_read += len(block)
        try:
            more = self._decoder.decode(block, final=self._is_complete)
        except UnicodeDecodeError as error:
            raise _broken(f"the text {not_utf8(error, before)}") from error
        del block
        self._before += self.position
        self.known, self.position = self.known[self.position :] + more, 0
        return True

    def value(self, decoder: json.JSONDecoder) -> tuple[object, int]:
        """The JSON value that begins here, with its length.

        Raises:
            BadRecordError: it is not one.
        """
        while True:
            try:
                body, end = decoder.raw_decode(self.known, self.position)
            except RecursionError as error:
                raise _broken("the values are nested too deeply") from error
            except ValueError as error:
                if not self.extend():
                    raise _broken(str(error)) from error
            else:
                # A number may go on in the next block.
                if end < len(self.known) or not isinstance(body, int | float) or not self.extend():
                    length, self.position = end - self.position, end
                    return body, length

    def next_character(self) -> str:
        """The next one that is not white space, which stays; nothing at the end."""
        while True:
            self.skip(_SPACE)
            if not self.is_at_end:
                return self.known[self.position]
            if not self.extend():
                return ""

    def expect(self, *wanted: str, is_first: bool = False) -> str:
        """Pass over the next character, which is one of these; before the first item a comma is understood.

        Raises:
            BadRecordError: it is another one.
        """
        found = self.next_character()
        if is_first and found != "]":
            return ","
        if found not in wanted or not found:
            names = " or ".join(f"'{name}'" for name in wanted)
            raise _broken(f"Expecting {names} at character {self.offset + 1:,}")
        self.position += 1
        return found


def _broken(message: str) -> BadRecordError:
    return BadRecordError(Complaint(rule="invalid JSON", message=message))
