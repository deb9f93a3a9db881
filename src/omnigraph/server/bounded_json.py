"""Untrusted JSON: measured in its bytes before any value of it is built, then parsed.

The parser of the standard library is one call that keeps every other thread waiting, the event loop too, and makes an
object of every bracket: 32 MiB of `[],[],` take seconds and 800 MB. Here the bytes are looked at in pieces, each of
them in about a millisecond, and the look ends as soon as a bound is crossed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError, ResourceLimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSize:
    """What a JSON text holds."""

    length: int
    #: Values of all kinds, at every depth.
    values: int

    @property
    def memory_bytes(self) -> int:
        """What the parsed text takes at most, beside the text itself."""
        return self.length * _CHARACTER_BYTES + self.values * _VALUE_BYTES


def measure_json(
    body: bytes | bytearray, *, max_values: int, setting: str | None = None
) -> JsonSize:
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


def parse_json(body: bytes | bytearray) -> Any:
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


def check_characters(value: Any, depth: int = 0) -> None:
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
