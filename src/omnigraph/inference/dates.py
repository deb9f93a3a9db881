"""Dates and times in texts: the few formats that read all of them.

Which number is the day and which is the month is told by a number above 12. Where no text of a column has one, other
columns of the input decide, and without them the column stays a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.inference.column_texts import Notation, Texts, null_texts_of_values
from omnigraph.inference.names import word_set
from omnigraph.pipeline.shape.values import date_format, read_moments

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DAY_FIRST = ("%d/%m/%Y", "%d-%m-%Y", "%d/%m/%y", "%d-%m-%y")
_MONTH_FIRST = ("%m/%d/%Y", "%m-%d-%Y", "%m/%d/%y", "%m-%d-%y")
_DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y", "%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%d-%b-%y"),
    *("%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%d. %B %Y", "%Y-%b-%d"),
)
_TIMES = (
    "%H:%M:%S",
    "%H:%M",
    "%I:%M %p",
    "%I:%M:%S %p",
    "%H:%M:%S.%f",
    "%H:%M:%S%z",
    "%H:%M:%S.%f%z",
    "%H:%M:%S %z",
    "%H:%M:%S UTC",
)
_COMPACT = "%Y%m%d"
#: Times of ISO 8601, which need no format.
_ISO_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?$"
)
_ISO_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
#: A text that may be a date, for a quick look.
_DATE_LIKE = r"^[0-9A-Za-z][0-9A-Za-z ./:,+-]*[0-9]{2}(?:[Zz]| UTC| ?[APap][Mm])?$"
_DATE_WORDS = word_set("date day dob birthday birthdate born datum since until")
#: Texts that are compared with every format, and the most formats that one column mixes.
_COMPARED, _MIXED = 500, 3


def moments(texts: Texts) -> Notation | None:
    """The dates or times that all texts stand for; None where they are something else, or not sure."""
    if texts.all_match(_ISO_DAY):
        return Notation(base=ScalarType(Scalar.DATE), seen=_bounds_seen("days", texts))
    if texts.all_match(_ISO_TIME):
        return _iso_times(texts)
    if texts.all_match("^[0-9]{8}$"):
        is_date = not _DATE_WORDS.isdisjoint(texts.words) and texts.all_match("^(?:19|20)")
        return _formatted(texts, [_COMPACT], None) if is_date else None
    if not (texts.all_match(_DATE_LIKE) and texts.any_match(r"[^0-9]")):
        return None
    found = {}
    for order, first in (("day", _DAY_FIRST), ("month", _MONTH_FIRST)):
        formats = _covering(texts, first)
        if formats is not None:
            found[order] = formats
    if not found:
        return None
    if len(found) == 1:
        ((order, formats),) = found.items()
        is_told = not set(formats).isdisjoint((*_DAY_FIRST, *_MONTH_FIRST))
        return _formatted(texts, formats, order if is_told else None)
    if found["day"] == found["month"]:
        return _formatted(texts, found["day"], None)
    # Both orders give days of the calendar.
    return None if texts.order is None else _formatted(texts, found[texts.order], texts.order)


def is_ambiguous(texts: Texts) -> bool:
    """Whether texts are dates in which day and month could be exchanged."""
    texts = texts.without(null_texts_of_values(texts))
    # Other notations may stand beside those that are not sure.
    if not (texts.all_match(_DATE_LIKE) and texts.any_match("^[0-9]{1,2}[/-]")):
        return False
    day, month = (_covering(texts, first) for first in (_DAY_FIRST, _MONTH_FIRST))
    return day is not None and month is not None and day != month


def _covering(texts: Texts, first: Sequence[str]) -> list[str] | None:
    """A few formats that together read every text; those that read most come first."""
    has_times = texts.any_match(":")
    days = [*first, *_DAYS]
    known = (
        [*days, *(f"{day}{gap}{time}" for day, gap, time in product(days, (" ", "T"), _TIMES))] if has_times else days
    )
    left = texts.distinct[:_COMPARED]
    chosen: list[str] = []
    while len(left):
        best, is_read = max(((text, _is_read(text, left)) for text in known), key=lambda item: int(item[1].sum()))
        if not is_read.any() or len(chosen) == _MIXED:
            return None
        chosen.append(best)
        left = left.filter(pa.array(~is_read))
    is_read = read_moments(tuple(map(date_format, chosen)), texts.distinct).is_read
    return chosen if is_read.all() else None


def _is_read(text: str, texts: Array) -> NDArray[np.bool_]:
    return read_moments((date_format(text),), texts).is_read


def _iso_times(texts: Texts) -> Notation:
    forms = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
    for form in forms:
        found = read_moments((date_format(form),), texts.distinct)
        if found.is_read.all() and not found.has_time.any():
            return Notation(
                base=ScalarType(Scalar.DATE),
                steps={"date_format": form},
                seen=_bounds_seen("days", texts) + ", all at midnight",
            )
    return Notation(base=ScalarType(Scalar.DATETIME), seen=_bounds_seen("times", texts))


def _formatted(texts: Texts, formats: list[str], order: str | None) -> Notation | None:
    found = read_moments(tuple(map(date_format, formats)), texts.distinct)
    if not found.is_read.all():
        return None
    has_zone = any("%z" in text for text in formats)
    has_time = bool(found.has_time.any()) or has_zone
    given = formats if len(formats) > 1 else formats[0]
    first = min(found.days.tolist()), max(found.days.tolist())
    days = pa.array(first, pa.int32()).cast(pa.date32()).to_pylist()
    notes = [f"{'times' if has_time else 'days'} {days[0]} to {days[1]}", f"written as {' or '.join(formats)}"]
    if order is not None and not _tells(texts, formats):
        notes.append(f"the {order} comes first, as in other dates here")
    return Notation(
        base=ScalarType(Scalar.DATETIME if has_time else Scalar.DATE),
        steps={"date_format": given},
        seen=", ".join(notes),
        order=order,
    )


def _tells(texts: Texts, formats: Sequence[str]) -> bool:
    """Whether the texts cannot be read with day and month exchanged."""
    swap = dict(zip((*_DAY_FIRST, *_MONTH_FIRST), (*_MONTH_FIRST, *_DAY_FIRST), strict=True))
    other = []
    for text in formats:
        day, gap, time = text.partition(" ") if " " in text else text.partition("T")
        other.append(swap.get(day, day) + gap + time)
    return not read_moments(tuple(map(date_format, other)), texts.distinct).is_read.all()


def _bounds_seen(what: str, texts: Texts) -> str:
    bounds = pc.min_max(texts.distinct).as_py()
    return f"{what} {bounds['min'][:10]} to {bounds['max'][:10]}"
