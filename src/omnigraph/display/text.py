"""Values as short texts for people."""

from __future__ import annotations

import json
import unicodedata

#: Longest text of a value in a table or a picture; longer ones end with an ellipsis and their length.
SHOWN_LENGTH = 120
#: Items of a list that are shown.
SHOWN_ITEMS = 6


class Shown(str):
    """A text that is as short as it has to be already."""

    __slots__ = ()


def value_text(value: object) -> str:
    """A JSON value as people read it: text bare, everything else in JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def short_text(value: object, length: int = SHOWN_LENGTH) -> str:
    """The same in a bounded length, whatever the size of the value.

    >>> short_text("a" * 1000, 10)
    'aaaaaaaaaa… (1,000 characters)'
    >>> short_text([0.5] * 1536)
    '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … 1,530 more]'
    """
    if isinstance(value, Shown):
        return value
    if isinstance(value, list) and len(value) > SHOWN_ITEMS:
        some = ", ".join(short_text(_quoted(item), length) for item in value[:SHOWN_ITEMS])
        return f"[{some}, … {len(value) - SHOWN_ITEMS:,} more]"
    if isinstance(value, list):
        return f"[{', '.join(short_text(_quoted(item), length) for item in value)}]"
    text = value_text(value)
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def _quoted(item: object) -> object:
    """An item of a list as JSON spells it; a long text is cut before, so that nothing large is made of it."""
    if not isinstance(item, str):
        return item
    return json.dumps(item, ensure_ascii=False) if len(item) <= SHOWN_LENGTH else f'"{item}"'


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things: `1 row`, `1,200 rows`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def cells_of(text: str) -> int:
    """How many cells of a terminal a text covers."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def fitted(text: str, cells: int) -> str:
    """A text of so many cells; what does not fit is an ellipsis."""
    if cells_of(text) <= cells:
        return text
    kept, used = [], 1
    for character in text:
        used += _cells(character)
        if used > cells:
            break
        kept.append(character)
    return f"{''.join(kept)}…"
