"""Words for error messages: near names and readable enumerations."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LISTED = 8
#: Beyond this many known names a near one is not looked for: comparing costs more than the hint is worth.
_COMPARED = 256
#: Longer names are neither compared nor shown: comparing takes the product of two lengths.
_LONGEST = 64


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known word, or lists the known ones when they are few.

    >>> did_you_mean("Papr", ["Paper", "Venue"])
    'did you mean `Paper`?'
    """
    names = _comparable(name, known)
    near = _nearest(name, names)
    if near is not None:
        return f"did you mean `{near}`?"
    if names and len(names) <= _LISTED:
        return f"known here: {', '.join(f'`{item}`' for item in names)}"
    return None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The nearest known word, where one is near.

    >>> nearest("Papr", ["Paper", "Venue"])
    'Paper'
    """
    return _nearest(name, _comparable(name, known))


def _comparable(name: str, known: Iterable[str]) -> list[str]:
    """The known words in order; none where comparing would cost too much."""
    distinct = set(islice(known, _COMPARED + 1))
    if (
        len(distinct) > _COMPARED
        or len(name) > _LONGEST
        or max(map(len, distinct), default=0) > _LONGEST
    ):
        return []
    return sorted(distinct)


def _nearest(name: str, names: list[str]) -> str | None:
    folded = {known_name.casefold(): known_name for known_name in reversed(names)}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def one_of(phrases: Iterable[str]) -> str:
    """An enumeration in plain English.

    >>> one_of(["a name", "`}`", "`@`"])
    'a name, `}` or `@`'
    """
    items = list(dict.fromkeys(phrases))
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} or {items[-1]}"
