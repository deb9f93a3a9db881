"""Dates and moments of whole columns: days and milliseconds since 1970 in UTC, in the years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from omnigraph.core.arrow import Array, Datum, pa, pc
from omnigraph.core.types import BaseType, PropertyType, Scalar, ScalarType, scalar_of
from omnigraph.engine.rows import BoolArray, IntArray, Numbers
from omnigraph.engine.values.arithmetic import array_of, numbers_of

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: The days and milliseconds of the years 1 to 9999; what lies outside has no ISO text.
FIRST_DAY: Final = -719_162
LAST_DAY: Final = 2_932_896
FIRST_MILLISECOND: Final = FIRST_DAY * _DAY
LAST_MILLISECOND: Final = LAST_DAY * _DAY + _DAY - 1
#: More days or months than these leave the calendar from everywhere, and sums with them stay below 64 bits.
_FAR: Final = 1 << 32
#: 1970-01-01 is a Thursday.
_DAYS_AFTER_MONDAY: Final = 3


# ---- Days and the calendar


def civil_of(days: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The year, month and day of the month of days since 1970.

    Counted from the 1st of March of a year that 400 divides: then leap days end years, and eras are equal.
    """
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = np.where(from_march < 10, from_march + 3, from_march - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_of(year: IntArray, month: IntArray, day: IntArray) -> IntArray:
    """The days since 1970 of days of the calendar."""
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    of_year = (153 * np.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    return np.asarray(era * 146_097 + of_era - 719_468, np.int64)


def _month_days(year: IntArray, month: IntArray) -> IntArray:
    """How many days months have."""
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
    return np.asarray(lengths[month - 1] + ((month == 2) & is_leap), np.int64)


def _in_calendar(days: IntArray) -> BoolArray:
    return (days >= FIRST_DAY) & (days <= LAST_DAY)


def _parts(datum: Datum, base: BaseType) -> tuple[IntArray, IntArray, BoolArray]:
    """The days of moments, the milliseconds within them, and which are known."""
    values, known = numbers_of(datum)
    wide = values.astype(np.int64)
    if scalar_of(base) is Scalar.DATE:
        return wide, np.zeros(1, np.int64), known
    days = wide // _DAY
    return days, wide - days * _DAY, known


def _base_of(datum: Datum) -> BaseType:
    return ScalarType(Scalar.DATE if pa.types.is_date32(datum.type) else Scalar.DATETIME)


def _moment(days: IntArray, rest: Numbers, known: BoolArray, base: BaseType) -> Array:
    """Days, and milliseconds within them, as moments of a type."""
    if scalar_of(base) is Scalar.DATE:
        return array_of(days.astype(np.int32), known & (np.abs(days) < 2**31), base)
    return array_of(days * _DAY + rest, known, base)


# ---- Functions


_PARTS: Final[dict[str, Callable[[IntArray, IntArray], IntArray]]] = {
    "year": lambda days, _: civil_of(days)[0],
    "month": lambda days, _: civil_of(days)[1],
    "day": lambda days, _: civil_of(days)[2],
    "hour": lambda _, rest: rest // _HOUR,
    "minute": lambda _, rest: rest // _MINUTE % 60,
    "second": lambda _, rest: rest // _SECOND % 60,
}


def part(name: str, moment: Datum, result: PropertyType) -> Array:
    """The year, month, day, hour, minute or second, as `name` says."""
    days, rest, known = _parts(moment, _base_of(moment))
    return array_of(_PARTS[name](days, rest), known, result.base)


def converted(moment: Datum, result: PropertyType) -> Array:
    """The day of a moment, or the midnight of a day."""
    days, rest, known = _parts(moment, _base_of(moment))
    return _moment(days, rest, known, result.base)


def add_days(moment: Datum, number: Datum, result: PropertyType) -> Array:
    """The moment so many days later; null outside the calendar."""
    days, rest, known = _parts(moment, result.base)
    steps, steps_known = _steps(number)
    later = days + steps
    return _moment(_kept(later), rest, known & steps_known & _in_calendar(later), result.base)


def add_months(moment: Datum, number: Datum, result: PropertyType) -> Array:
    """The moment so many months later, clipped to the end of its month; null outside the calendar."""
    days, rest, known = _parts(moment, result.base)
    steps, steps_known = _steps(number)
    year, month, day = civil_of(days)
    months = year * 12 + month - 1 + steps
    later_year, later_month = months // 12, months % 12 + 1
    later = days_of(later_year, later_month, np.minimum(day, _month_days(later_year, later_month)))
    return _moment(_kept(later), rest, known & steps_known & _in_calendar(later), result.base)


def _steps(number: Datum) -> tuple[IntArray, BoolArray]:
    values, known = numbers_of(number)
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(_FAR))
    return np.clip(values.astype(np.int64), -_FAR, _FAR), known


def _kept(days: IntArray) -> IntArray:
    return np.clip(days, FIRST_DAY, LAST_DAY)


def days_between(start: Datum, end: Datum, result: PropertyType) -> Array:
    """The days from one day to another, or the whole days of 24 hours between two moments."""
    return _between(start, end, 1 if pa.types.is_date32(start.type) else _DAY, 1, result)


def seconds_between(start: Datum, end: Datum, result: PropertyType) -> Array:
    """The whole seconds between two moments or midnights."""
    is_day = pa.types.is_date32(start.type)
    return _between(start, end, 1 if is_day else _SECOND, _DAY // _SECOND if is_day else 1, result)


def _between(start: Datum, end: Datum, divisor: int, factor: int, result: PropertyType) -> Array:
    first, first_known = numbers_of(start)
    second, second_known = numbers_of(end)
    distance = second.astype(np.int64) - first.astype(np.int64)
    whole = np.sign(distance) * (np.abs(distance) // divisor) * factor
    return array_of(whole, first_known & second_known, result.base)


def truncate(moment: Datum, unit: str, result: PropertyType) -> Array:
    """The beginning of the unit that a moment lies in; weeks begin on Monday."""
    days, rest, known = _parts(moment, result.base)
    begin = np.zeros(1, np.int64)
    match unit:
        case "hour":
            begin = rest // _HOUR * _HOUR
        case "week":
            days = days - (days + _DAYS_AFTER_MONDAY) % 7
        case "month":
            days = days - civil_of(days)[2] + 1
        case "year":
            year = civil_of(days)[0]
            days = days_of(year, np.ones(1, np.int64), np.ones(1, np.int64))
    return _moment(days, begin, known, result.base)


# ---- Texts


_DATE_TEXT: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_DATETIME_TEXT: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?$"
)
#: What stands in for a text of another form, and the longest text that has it.
_ANY_DATE: Final = "1970-01-01"
_ANY_DATETIME: Final = "1970-01-01T00:00"
_LONGEST: Final = len("1970-01-01T00:00:00.000000000+00:00")


def parse_dates(texts: Array) -> Array:
    """The days that texts of the form `YYYY-MM-DD` name; null for every other text."""
    chars, _, known = _characters(texts, _DATE_TEXT, _ANY_DATE, len(_ANY_DATE))
    days, exist = _days_in(chars)
    array: Array = pa.array(days.astype(np.int32), mask=~(known & exist)).cast(pa.date32())
    return array


def parse_datetimes(texts: Array) -> Array:
    """The moments that ISO 8601 texts name, in UTC without a zone; null for every other text and for finer ones."""
    chars, ends, known = _characters(texts, _DATETIME_TEXT, _ANY_DATETIME, _LONGEST)
    days, exist = _days_in(chars)
    hour, minute = _digits(chars, 11, 13), _digits(chars, 14, 16)
    has_second = chars[:, 16] == ord(":")
    second = np.where(has_second, _digits(chars, 17, 19), 0)
    nanoseconds = np.where(has_second & (chars[:, 19] == ord(".")), _fraction(chars, 20), 0)
    offset, zone_exists = _zone(chars, ends)
    known = known & exist & zone_exists & (hour < 24) & (minute < 60) & (second < 60) & (nanoseconds % 1_000_000 == 0)
    clock = hour * _HOUR + (minute - offset) * _MINUTE + second * _SECOND + nanoseconds // 1_000_000
    array: Array = pa.array(days * _DAY + clock, mask=~known).cast(pa.date64())
    return array


def _characters(texts: Array, pattern: str, other: str, width: int) -> tuple[Numbers, IntArray, BoolArray]:
    """Texts as rows of so many ASCII characters, where they end, and which are of the form; the others are `other`."""
    has_form = pc.fill_null(pc.match_substring_regex(texts, pattern), False)
    kept = pc.if_else(has_form, texts, other)
    padded = pc.ascii_rpad(kept, width)
    chars = np.frombuffer(padded.buffers()[2] or b"", np.uint8, len(padded) * width).reshape(-1, width)
    ends = pc.binary_length(kept).to_numpy(zero_copy_only=False).astype(np.int64)
    return chars, ends, np.asarray(has_form.to_numpy(zero_copy_only=False), np.bool_)


def _digits(chars: Numbers, start: int, stop: int) -> IntArray:
    """The number of decimal digits between two columns."""
    value = np.zeros(len(chars), np.int64)
    for column in range(start, stop):
        value = value * 10 + chars[:, column] - ord("0")
    return value


def _fraction(chars: Numbers, start: int) -> IntArray:
    """The nanoseconds of up to nine digits."""
    value, goes_on = np.zeros(len(chars), np.int64), np.ones(len(chars), np.bool_)
    for column in range(start, start + 9):
        goes_on = goes_on & (chars[:, column] >= ord("0")) & (chars[:, column] <= ord("9"))
        value = value * 10 + np.where(goes_on, chars[:, column] - ord("0"), 0)
    return value


def _zone(chars: Numbers, ends: IntArray) -> tuple[IntArray, BoolArray]:
    """The minutes that a zone is ahead of UTC, 0 without one, and whether there is such a zone."""
    rows = np.arange(len(chars))

    def before_end(distance: int) -> Numbers:
        return np.asarray(chars[rows, ends - distance], np.int64)

    def digit(distance: int) -> Numbers:
        return before_end(distance) - ord("0")

    # A zone has a colon or it has none; no other text of the form has a sign there.
    has_colon = np.isin(before_end(6), (ord("+"), ord("-")))
    sign = np.where(has_colon, before_end(6), before_end(5))
    hours = np.where(has_colon, digit(5) * 10 + digit(4), digit(4) * 10 + digit(3))
    minutes = digit(2) * 10 + digit(1)
    has_zone = np.isin(sign, (ord("+"), ord("-")))
    ahead = np.where(sign == ord("-"), -1, 1) * (hours * 60 + minutes)
    return np.where(has_zone, ahead, 0), ~has_zone | ((hours < 24) & (minutes < 60))


def _days_in(chars: Numbers) -> tuple[IntArray, BoolArray]:
    """The days that rows of characters begin with, and which are in the calendar."""
    year, month, day = _digits(chars, 0, 4), _digits(chars, 5, 7), _digits(chars, 8, 10)
    exists = (year > 0) & (month > 0) & (month < 13) & (day > 0)
    month = np.where(exists, month, 1)
    return days_of(year, month, day), exists & (day <= _month_days(year, month))


def render_days(days: Array) -> Array:
    """`YYYY-MM-DD`; the bare number outside the calendar."""
    numbers = days.cast(pa.int32())
    return _rendered(numbers, _in_calendar_mask(numbers, FIRST_DAY, LAST_DAY), lambda kept: kept.cast(pa.date32()))


def render_milliseconds(moments: Array) -> Array:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`; the bare number outside the calendar."""
    numbers = moments.cast(pa.int64())
    within = _in_calendar_mask(numbers, FIRST_MILLISECOND, LAST_MILLISECOND)
    return _rendered(numbers, within, lambda kept: kept.view(pa.timestamp("ms")), iso=True)


def _in_calendar_mask(numbers: Array, low: int, high: int) -> Array:
    within: Array = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return within


def _rendered(numbers: Array, within: Array, moments: Callable[[Array], Array], *, iso: bool = False) -> Array:
    texts = moments(pc.if_else(within, numbers, pa.scalar(0, numbers.type))).cast(pa.utf8())
    if iso:
        texts = pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), "Z", "")
    shown: Array = pc.if_else(within, texts, numbers.cast(pa.utf8()))
    return shown
