"""String literals, which both languages spell alike."""

from __future__ import annotations

import re

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class EscapeFailure(Exception):
    """A string literal holds an escape that the languages do not have; never leaves the parsers."""

    def __init__(self, offset: int, escape: str) -> None:
        super().__init__(escape)
        self.offset = offset
        self.escape = escape


def unescape(literal: str, offset: int) -> str:
    """The value of a quoted literal that begins at `offset` of its source.

    Raises:
        EscapeFailure: at the first unknown escape.
    """
    body = literal[1:-1]
    if "\\" not in body:
        return body

    def replace(match: re.Match[str]) -> str:
        try:
            return _ESCAPES[match[1]]
        except KeyError:
            raise EscapeFailure(offset + 1 + match.start(), match[0]) from None

    return _ESCAPE.sub(replace, body)
