"""Ranges and preconditions of HTTP, for values with strong tags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)
_WEAK = "W/"


def fails_if_match(headers: Mapping[str, str], etag: str) -> bool:
    """Whether `If-Match` names other values only; weak tags never match here."""
    given = headers.get("if-match")
    return given is not None and given.strip() != "*" and etag not in _tags(given)


def is_not_modified(headers: Mapping[str, str], etag: str) -> bool:
    """Whether `If-None-Match` names this value; weak tags match too."""
    given = headers.get("if-none-match")
    if given is None:
        return False
    return given.strip() == "*" or etag in [tag.removeprefix(_WEAK) for tag in _tags(given)]


def may_use_range(headers: Mapping[str, str], etag: str) -> bool:
    """Whether a range still belongs to this value: there is no `If-Range`, or it names its strong tag."""
    given = headers.get("if-range")
    return given is None or given.strip() == etag


def read_range(headers: Mapping[str, str], size: int) -> tuple[int, int] | None:
    """Begin and end of the one range that is asked for; None when there is none, or several, or nonsense.

    >>> read_range({"range": "bytes=-3"}, 10)
    (7, 10)

    A range that begins behind the value is returned as it is: the caller refuses it.
    """
    match = _RANGE.fullmatch(headers.get("range", "").strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        last = int(match[2])
        return (size, size) if last == 0 else (max(0, size - last), size)
    begin = int(match[1])
    end = size if match[2] == "" else min(int(match[2]) + 1, size)
    if match[2] != "" and int(match[2]) < begin:
        return None
    return begin, end


def _tags(text: str) -> list[str]:
    return [tag.strip() for tag in text.split(",")]
