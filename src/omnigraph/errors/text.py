"""Text for people: sizes, and untrusted text that has no power over a terminal."""

from __future__ import annotations

import re

# ---- Escaping of untrusted text
#
# A terminal obeys control characters: they move its cursor, colour it, set its title, or write into its input. Marks
# of direction let a text look like another one. Both are shown as escapes instead, as JSON and Python spell them.


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


# ---- Sizes as people read them


_STEP = 1024
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """A number of bytes with the unit that fits.

    >>> size_text(1536), size_text(64 * 1024 * 1024)
    ('1.5 KiB', '64 MiB')
    """
    if size_bytes < _STEP:
        return f"{size_bytes} B"
    size, power = size_bytes / _STEP, 0
    while size >= _STEP and power < len(_UNITS) - 1:
        size, power = size / _STEP, power + 1
    return f"{f'{size:.1f}'.removesuffix('.0')} {_UNITS[power]}"


def compared_sizes(one: int, other: int) -> tuple[str, str]:
    """Two sizes that differ, as texts that differ: exact where their units would hide it.

    >>> compared_sizes(3 * 1024 * 1024, 1024), compared_sizes(1025, 1024)
    (('3 MiB', '1 KiB'), ('1,025 bytes', '1,024 bytes'))
    """
    texts = size_text(one), size_text(other)
    return texts if texts[0] != texts[1] else (f"{one:,} bytes", f"{other:,} bytes")
