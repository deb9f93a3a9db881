"""Untrusted JSON, measured before it is built; bodies of loads around one long text."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen

# ---- Limits and parsing of untrusted JSON
#
# The parser of the standard library is one call that keeps every other thread waiting, the event loop too, and makes
# an object of every bracket: 32 MiB of `[],[],` take seconds and 800 MB. Here the bytes are looked at in pieces, each
# of them in about a millisecond, and the look ends as soon as a bound is crossed.


#: Bytes that are looked at in one step: other threads wait for about a millisecond.
WINDOW_BYTES = 64 * 1024
#: Deepest nesting of lists and objects.
MAX_DEPTH = 100
#: What a character takes at most: one outside the Basic Multilingual Plane makes all of its text that wide.
_CHARACTER_BYTES = 4
#: What a value takes beside its text: measured 70 bytes for an empty list, 170 for an object of one member.
_VALUE_BYTES = 200
#: A member is a name and a value, which are four quotes when both are texts.
_QUOTES_PER_VALUE = 4
_OPENING = (ord("["), ord("{"))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_RESOURCE = "http_request_values"
_TOO_DEEP = "the body is nested too deeply"


@frozen(kw_only=True)
class JsonSize:
    """The size of a JSON text."""

    length: int
    #: Values of all kinds, at every depth.
    values: int

    @property
    def memory_bytes(self) -> int:
        """The maximal memory of the parsed text, beside the text itself."""
        return self.length * _CHARACTER_BYTES + self.values * _VALUE_BYTES


def measure_json(body: bytes | bytearray, *, max_values: int, setting: str | None = None) -> JsonSize:
    """Count the values of a JSON text; a text that is not JSON is counted too, and refused when it is parsed.

    Raises:
        ResourceLimitError: it holds more values than `max_values`, which `setting` changes.
        BadRequestError: it is nested too deeply.
    """
    values, quotes, depth = 1, 0, 0
    is_text = False
    for window in masked_windows(body, 0, len(body)):
        parts = window.split(b'"')
        # Every second part is outside of the texts; which ones depends on where the window began.
        outside = b"".join(parts[1 if is_text else 0 :: 2])
        quotes += len(parts) - 1
        is_text ^= len(parts) % 2 == 0
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        counted = max(values, quotes // _QUOTES_PER_VALUE)
        if counted > max_values:
            advice = "send less at once"
            if setting is not None:
                advice += f", or raise {setting} on the server"
            raise ResourceLimitError(_RESOURCE, max_values, counted, advice)
        for sign in outside.translate(None, _NO_BRACKETS):
            depth += 1 if sign in _OPENING else -1
            if depth > MAX_DEPTH:
                raise BadRequestError(_TOO_DEEP)
    return JsonSize(length=len(body), values=values)


def masked_windows(body: bytes | bytearray, begin: int, end: int) -> Iterator[bytes]:
    """Pieces of a JSON text in order, without escaped quotes and backslashes: a quote begins or ends a text.

    Pieces have the length of what they stand for, and none ends within an escaped quote or backslash.
    """
    while begin < end:
        window = bytes(body[begin : min(end, begin + WINDOW_BYTES)])
        backslashes = len(window) - len(window.rstrip(b"\\"))
        if backslashes % 2 and len(window) > 1:
            window = window[:-1]
        begin += len(window)
        yield window.replace(rb"\\", b"~~").replace(rb"\"", b"~~")


def parse_json(body: bytes | bytearray) -> object:
    """A measured text as it is written down: no NaN, no lone surrogates.

    Raises:
        BadRequestError: it is something else.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadRequestError("the body is not UTF-8") from error
    except RecursionError as error:
        raise BadRequestError(_TOO_DEEP) from error
    except ValueError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    # Half of a character can only be written as an escape: without one there is nothing to look for.
    if rb"\ud" in body or rb"\uD" in body:
        check_characters(value)
    return value


def check_characters(value: object, depth: int = 0) -> None:
    """Refuse texts that UTF-8 cannot carry, at every depth of a value.

    Raises:
        BadRequestError: there is one, or the value is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise BadRequestError(_TOO_DEEP)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRequestError("a text holds half of a character (a lone surrogate)") from error
    elif isinstance(value, dict):
        for name, item in value.items():
            check_characters(name, depth + 1)
            check_characters(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_characters(item, depth + 1)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


# ---- The JSON body of a load
#
# The text is decoded piece by piece into the file that the load reads.


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
        """The offset at which a piece may end: outside of escapes, and of characters of several bytes."""
        if begin + WINDOW_BYTES >= self._end:
            return self._end
        window = next(masked_windows(self._body, begin, self._end))
        last_escape = window.rfind(b"\\", len(window) - _LONGEST_ESCAPE)
        end = begin + (len(window) if last_escape < 0 else last_escape)
        while end > begin + _LONGEST_ESCAPE and self._body[end] & 0xC0 == 0x80:
            end -= 1
        return end


def split_envelope(body: bytes | bytearray, member: str) -> tuple[object, LongText | None]:
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
    """The offsets of the texts of a body, without their quotes.

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
