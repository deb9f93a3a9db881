"""Untrusted text without power over a terminal: the one table of what is escaped.

A terminal obeys control characters: they move its cursor, colour it, set its title, or write into its input. Marks of
direction let a text look like another one. Both are shown as escapes instead, as JSON and Python spell them.
"""

from __future__ import annotations

import re

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: C0, DEL and C1; marks, embeddings, overrides and isolates of direction; separators of lines; halves of characters.
_CONTROL = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ANY = re.compile(f"[{_CONTROL}]")
_KEPT = re.compile(f"(?![\n\t])[{_CONTROL}]")


def printable(text: str) -> str:
    r"""A text of lines that may be printed: everything but ends of lines and tabs is escaped.

    >>> print(printable("red: \x1b[31m"))
    red: \x1b[31m
    """
    return _KEPT.sub(_escape, text)


def one_line(text: str) -> str:
    """A text that may be printed within a line: ends of lines and tabs are escaped as well."""
    return _ANY.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    sign = found[0]
    code = ord(sign)
    if code < 0x20:
        return _SHORT.get(sign, f"\\x{code:02x}")
    # This is how JSON writes it too, where smaller ones never stand as they are.
    return f"\\u{code:04x}"
