"""The JSON body of a load: a few short members around one long text, which never exists in memory as a whole.

The text is decoded piece by piece into the file that the load reads.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError
from omnigraph.server.bounded_json import (
    WINDOW_BYTES,
    check_characters,
    masked_windows,
    measure_json,
    parse_json,
)
from omnigraph.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

#: More members than the body of a load has, and few enough to look at every text of it.
ENVELOPE_VALUES = 64
#: Texts up to this length are parsed with the rest.
_SHORT_BYTES = WINDOW_BYTES
#: Everything beside the long text, which is parsed at once.
_MAX_REST_BYTES = 1024 * 1024
#: An escaped character outside the Basic Multilingual Plane: two escapes of six bytes.
_LONGEST_ESCAPE = 12
_ESCAPE_BYTES = 6


class LongText:
    """A text inside a JSON body, still encoded."""

    def __init__(self, body: bytes | bytearray, begin: int, end: int) -> None:
        self._body = body
        self._begin = begin
        self._end = end

    def pieces(self) -> Iterator[str]:
        """The text, decoded piece by piece.

        Raises:
            BadRequestError: it is not a text of JSON.
        """
        begin = self._begin
        while begin < self._end:
            end = self._cut(begin)
            text = _decoded(self._body[begin:end])
            if end < self._end and "\ud800" <= text[-1:] <= "\udbff":
                # The second half of this character is in the next piece.
                text, end = text[:-1], end - _ESCAPE_BYTES
            check_characters(text)
            yield text
            begin = end

    def _cut(self, begin: int) -> int:
        """Where a piece may end: outside of escapes, and of characters of several bytes."""
        if begin + WINDOW_BYTES >= self._end:
            return self._end
        window = next(masked_windows(self._body, begin, self._end))
        last_escape = window.rfind(b"\\", len(window) - _LONGEST_ESCAPE)
        end = begin + (len(window) if last_escape < 0 else last_escape)
        while end > begin + _LONGEST_ESCAPE and self._body[end] & 0xC0 == 0x80:
            end -= 1
        return end


def split_envelope(body: bytes | bytearray, member: str) -> tuple[Any, LongText | None]:
    """The document of a body, and the long text of one of its members, which is empty there; None if it is short.

    Raises:
        ResourceLimitError: there are more values than a load has.
        BadRequestError: it is not JSON, or another text than that of the member is long.
    """
    measure_json(body, max_values=ENVELOPE_VALUES)
    spans = [span for span in _texts(body) if span[1] - span[0] > _SHORT_BYTES]
    begin, end = spans[0] if spans else (0, 0)
    if len(spans) > 1 or len(body) - (end - begin) > _MAX_REST_BYTES:
        raise _other_text_is_long(member)
    if not spans:
        return parse_json(body), None
    # A name that no client can guess marks the place of the text.
    mark = secrets.token_hex(16)
    document = parse_json(b"".join((body[:begin], mark.encode(), body[end:])))
    if not isinstance(document, dict) or document.get(member) != mark:
        raise _other_text_is_long(member)
    return document | {member: ""}, LongText(body, begin, end)


def _other_text_is_long(member: str) -> BadRequestError:
    return BadRequestError(f"only `{member}` may be longer than {size_text(_SHORT_BYTES)}")


def _texts(body: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Where the texts of a body begin and end, without their quotes.

    Raises:
        BadRequestError: one does not end.
    """
    offset, begin = 0, None
    for window in masked_windows(body, 0, len(body)):
        place = window.find(b'"')
        while place >= 0:
            if begin is None:
                begin = offset + place + 1
            else:
                yield begin, offset + place
                begin = None
            place = window.find(b'"', place + 1)
        offset += len(window)
    if begin is not None:
        raise BadRequestError("the body is not JSON: a text of it does not end")


def _decoded(piece: bytes | bytearray) -> str:
    try:
        text = json.loads(b'"' + piece + b'"')
    except UnicodeDecodeError as error:
        raise BadRequestError("the body is not UTF-8") from error
    except ValueError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    assert isinstance(text, str), "the text has no quote inside"
    return text
