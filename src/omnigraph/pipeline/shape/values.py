"""One value of load data → its stored form. The meaning of all input: columns are only a faster way to it.

Beyond the values of parameters, load data takes integers for dates (epoch days) and times (epoch milliseconds), and
sources with types of their own bring Python dates, times, decimals and bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType, integer_range
from omnigraph.core.values import (
    MANAGED,
    StoredValue,
    coerce_json,
    coerce_scalar,
    day_of,
    managed_cell,
    millisecond_of,
    parse_datetime,
    parse_decimal_integer,
    spelled_cell,
    too_fine_text,
)
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Integers: TypeAlias = "NDArray[np.int64]"
#: A time with digits behind its milliseconds.
_FINER_TEXT = re.compile(r"(?P<whole>.+[.][0-9]{3})(?P<finer>[0-9]{1,6})(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII)
_NANOSECONDS = 1_000_000
_FLOAT = re.compile(r"-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_DAYS = integer_range(Scalar.I32)
_MILLISECONDS = integer_range(Scalar.I64)


class Timestamps(StrEnum):
    """The rule for moments finer than a millisecond, the precision of `DateTime`."""

    #: It is a bad record.
    REFUSE = "refuse"
    #: It becomes the nearest millisecond; half a millisecond goes up, to the later one.
    ROUND = "round"
    #: Its finer digits are dropped: it becomes the millisecond in which it lies.
    TRUNCATE = "truncate"


@frozen(kw_only=True)
class Reading:
    """How the values of a source are read."""

    #: Whether the source has no types, so that texts stand for values of any type.
    is_text: bool = False
    #: None, as for graph records: finer moments are refused, and a mapping could not accept them.
    timestamps: Timestamps | None = None
    tolerance: Tolerance | None = None


AS_IS = Reading()


@dataclass(slots=True)
class Tolerance:
    """Stores what does not fit as null, and counts it: how the compatible grammar reads the values of records."""

    #: Values and items of lists that became null.
    nulled: int = 0


def load_value(type_: PropertyType, value: object, reading: Reading = AS_IS) -> StoredValue:
    """The stored form of a value for a property. Null has to be judged by the caller.

    With tolerance a value of a wrong JSON type becomes null where null is allowed, and a bad item of a list a null
    item.

    Raises:
        ValueError: the value does not fit; the text completes a sentence that begins with "value …".
    """
    if value is None:
        return None
    tolerance = reading.tolerance
    try:
        return _load(type_, value, reading)
    except ValueError:
        if tolerance is None or not type_.nullable or not _has_wrong_json_type(type_, value):
            raise
        tolerance.nulled += 1
        return None


def _load(type_: PropertyType, value: object, reading: Reading) -> StoredValue:
    match type_.base:
        case ScalarType(Scalar.BLOB):
            return _blob(value)
        case ScalarType(scalar):
            return _scalar(scalar, value, reading.timestamps)
        case ListType(item):
            return _list(item, value, reading)
        case EnumType() if not isinstance(value, str):
            raise ValueError(f"{_kind(value)} is not a String, as the enum needs")
        case EnumType():
            # Membership is a rule of the schema and judged with the others.
            return coerce_scalar(Scalar.STRING, value)
        case _:
            return coerce_json(type_, _plain(value))


def _scalar(scalar: Scalar, value: object, timestamps: Timestamps | None) -> StoredValue:
    match scalar, value:
        case Scalar.DATE, bool() | float():
            raise ValueError(f"{_kind(value)} is not a Date")
        case Scalar.DATE, int(days):
            return _bounded(days, _DAYS, "days since 1970 of a Date")
        case Scalar.DATE, datetime():
            return _day(value)
        case Scalar.DATETIME, bool() | float():
            raise ValueError(f"{_kind(value)} is not a DateTime")
        case Scalar.DATETIME, int(milliseconds):
            return _bounded(milliseconds, _MILLISECONDS, "milliseconds since 1970 of a DateTime")
        case Scalar.DATETIME, datetime():
            return _moment_value(value, timestamps)
        case Scalar.DATETIME, str(text) if timestamps is not None:
            return _moment_text(text, timestamps)
    return coerce_scalar(scalar, _plain(value))


def _bounded(number: int, bounds: tuple[int, int], what: str) -> int:
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{number} is out of range for the {what}")
    return number


def _day(moment: datetime) -> int:
    try:
        return day_of(moment)
    except ValueError as problem:
        raise ValueError(
            f"{problem}; give days, as `.dt.date` of pandas and `to_date` of Spark make them, or make the property a "
            "DateTime"
        ) from problem


def _moment_value(moment: datetime, timestamps: Timestamps | None) -> int:
    whole, finer = millisecond_of(moment)
    if finer and timestamps not in (Timestamps.ROUND, Timestamps.TRUNCATE):
        raise ValueError(too_fine(str(moment), timestamps))
    return whole + (timestamps is Timestamps.ROUND and 2 * finer >= _NANOSECONDS)


def _moment_text(text: str, timestamps: Timestamps) -> int:
    found = _FINER_TEXT.fullmatch(text)
    if found is None or not found["finer"].strip("0"):
        return parse_datetime(text)
    if timestamps is Timestamps.REFUSE:
        raise ValueError(too_fine(repr(text), timestamps))
    try:
        whole = parse_datetime(found["whole"] + (found["zone"] or ""))
    except ValueError as problem:
        raise ValueError(f"{text!r} is not a time of the calendar") from problem
    return whole + (timestamps is Timestamps.ROUND and found["finer"] >= "5")


def too_fine(shown: str, timestamps: Timestamps | None) -> str:
    """The violation text of a moment that is finer than a millisecond."""
    text = too_fine_text(shown)
    if timestamps is None:
        return text
    return f"{text}; `timestamps: round` or `timestamps: truncate` in the mapping accepts it"


def _list(item: Scalar, value: object, reading: Reading) -> StoredValue:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_kind(value)} is not a list")
    items: list[StoredValue] = []
    for number, part in enumerate(value, start=1):
        try:
            if part is None:
                raise ValueError("null is not allowed inside a list")
            items.append(_scalar(item, part, reading.timestamps))
        except ValueError as problem:
            if reading.tolerance is None:
                raise ValueError(f"item {number}: {problem}") from problem
            reading.tolerance.nulled += part is not None
            items.append(None)
    return tuple(items)


def _blob(value: object) -> bytes:
    if isinstance(value, bytes):
        return managed_cell(value)
    if not isinstance(value, str):
        raise ValueError(f"{_kind(value)} is not a Blob")
    if not value.startswith(MANAGED):
        raise ValueError("an external blob is not allowed for this graph: give its bytes as `base64:…`")
    return spelled_cell(value)


def _plain(value: object) -> object:
    """Types that columns bring and JSON does not have."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _has_wrong_json_type(type_: PropertyType, value: object) -> bool:
    """Whether a value is not even of the JSON type that the property has."""
    expected: type | tuple[type, ...]
    match type_.base:
        case ListType() | VectorType():
            expected = list
        case ScalarType(Scalar.BOOL):
            expected = bool
        case ScalarType(scalar) if scalar in (Scalar.STRING, Scalar.BLOB):
            expected = str
        case ScalarType(Scalar.DATE | Scalar.DATETIME):
            expected = (str, int)
        case ScalarType():
            expected = (int, float)
        case _:
            expected = str
    is_bool = isinstance(value, bool)
    return not isinstance(value, expected) or (is_bool and expected is not bool)


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str(text):
            return json.dumps(text[:80], ensure_ascii=False)
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case bytes():
            return "binary data"
    return str(value)


# ---- text without types


def text_value(type_: PropertyType, text: str) -> object:
    """Parse a text of an untyped source (CSV) as a value of the kind that the property takes.

    Raises:
        ValueError: the text is not a notation of such a value.
    """
    match type_.base:
        case ScalarType(Scalar.BOOL):
            if text not in ("true", "false"):
                raise ValueError(f"{text!r} is not true or false")
            return text == "true"
        case ScalarType(Scalar.DATE | Scalar.DATETIME) if text.lstrip("-").isdecimal():
            return parse_decimal_integer(text)
        case ScalarType(scalar) if scalar in (Scalar.F32, Scalar.F64):
            if not _FLOAT.fullmatch(text):
                raise ValueError(f"{text!r} is not a number")
            return float(text)
        case ScalarType(scalar) if scalar in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64):
            try:
                return parse_decimal_integer(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a whole number") from None
        case ListType() | VectorType():
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as problem:
                raise ValueError(f"{text[:80]!r} is not a JSON list") from problem
        case _:
            return text


# ---- Dates and times in a custom format
#
# The directives are a part of those of `strptime`, with one meaning on every platform. A format takes the whole text.
# A number has one or two digits, and exactly two where another number follows or precedes without anything in
# between.


_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_SHORT_MONTHS = tuple(name[:3] for name in _MONTHS)
_NAMES = "(?i:{})"
#: What a directive takes, apart from the numbers of one or two digits.
_PATTERNS = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "f": "[0-9]{1,9}",
    "b": _NAMES.format("|".join(_SHORT_MONTHS)),
    "B": _NAMES.format("|".join(_MONTHS)),
    "p": "(?i:am|pm)",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
_DIRECTIVES = tuple("YymbBdHIMSfpz")
_NUMBERS = tuple("YyfmdHIMS")
#: Directives that stand for the same part of a moment: at most one of them may appear.
_PARTS = ("Yy", "mbB", "d", "HI", "M", "S", "f", "p", "z")
_TOKEN = re.compile(r"%(.?)|([^%]+)", re.DOTALL)
#: A year of two digits from here on is one of the last century, as POSIX has it.
_FIRST_SHORT_YEAR = 69
_DAY_SECONDS = 86_400
#: So many equal texts on average make it worth to look for them.
_REPEATED = 2


@frozen(kw_only=True)
class DateFormat:
    """A notation of dates or times; made by `date_format`."""

    text: str
    #: In the syntax of RE2; groups are called like their directives.
    pattern: str
    directives: frozenset[str]

    @property
    def has_zone(self) -> bool:
        """Whether texts say how far they are from UTC."""
        return "z" in self.directives


@dataclass(slots=True, kw_only=True)
class ReadMoments:
    """Parsed texts. The seconds and nanoseconds of a text without a moment mean nothing."""

    is_read: NDArray[np.bool_]
    #: Since 1970, in UTC.
    seconds: _Integers
    nanoseconds: _Integers

    @property
    def days(self) -> _Integers:
        """Days since 1970."""
        return self.seconds // _DAY_SECONDS

    @property
    def has_time(self) -> NDArray[np.bool_]:
        """A mask of the moments that are not the beginning of a day."""
        return np.logical_or(self.seconds % _DAY_SECONDS, self.nanoseconds)


def date_format(text: str) -> DateFormat:
    """The notation that a format describes.

    Raises:
        ValueError: it is not a format; the text says why.
    """
    tokens = [(found[1], found[2]) for found in _TOKEN.finditer(text)]
    pattern, seen = "", []
    for number, (directive, literal) in enumerate(tokens):
        if directive is None or directive == "%":
            pattern += re.escape(literal or "%")
            continue
        if directive not in _DIRECTIVES:
            known = " ".join(f"%{name}" for name in _DIRECTIVES)
            raise ValueError(f"`%{directive}` is not a directive; known are {known} and %%")
        beside = [tokens[place][0] for place in (number - 1, number + 1) if 0 <= place < len(tokens)]
        is_tight = any(item in _NUMBERS for item in beside)
        width = "[0-9]{2}" if is_tight else "[0-9]{1,2}"
        pattern += f"(?P<{directive}>{_PATTERNS.get(directive, width)})"
        seen.append(directive)
    _check_parts(seen)
    return DateFormat(text=text, pattern=f"^(?:{pattern})$", directives=frozenset(seen))


def _check_parts(seen: list[str]) -> None:
    for part in _PARTS:
        if sum(seen.count(name) for name in part) > 1:
            raise ValueError(f"it has more than one of {', '.join(f'%{name}' for name in part)}")
    for what, part in (("year", "Yy"), ("month", "mbB"), ("day", "d")):
        if not set(part) & set(seen):
            raise ValueError(f"it has no {what} ({', '.join(f'%{name}' for name in part)})")
    if ("I" in seen) != ("p" in seen):
        raise ValueError("%I (hours up to 12) and %p (AM or PM) belong together")
    for finer, coarser in (("f", "S"), ("S", "M")):
        if finer in seen and coarser not in seen:
            raise ValueError(f"it has %{finer} without %{coarser}")
    if "M" in seen and not set("HI") & set(seen):
        raise ValueError("it has %M without %H")


def read_moments(formats: tuple[DateFormat, ...], texts: Array) -> ReadMoments:
    """Parse a column of texts: of several formats the first that gives a moment of the calendar counts."""
    distinct = texts.dictionary_encode()
    if not 0 < _REPEATED * len(distinct.dictionary) <= len(texts):
        return _read_all(formats, texts)
    # Days repeat: each one is read once.
    known = _read_all(formats, distinct.dictionary)
    places = distinct.indices.fill_null(0).to_numpy(zero_copy_only=False)
    is_valid = distinct.is_valid().to_numpy(zero_copy_only=False)
    return ReadMoments(
        is_read=known.is_read[places] & is_valid, seconds=known.seconds[places], nanoseconds=known.nanoseconds[places]
    )


def _read_all(formats: tuple[DateFormat, ...], texts: Array) -> ReadMoments:
    count = len(texts)
    found = ReadMoments(
        is_read=np.zeros(count, dtype=bool),
        seconds=np.zeros(count, dtype=np.int64),
        nanoseconds=np.zeros(count, dtype=np.int64),
    )
    left = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    for item in formats:
        if not len(left):
            break
        some = texts if len(left) == count else texts.take(pa.array(left))
        is_read, seconds, nanoseconds = _read(item, some)
        places = left[is_read]
        found.is_read[places] = True
        found.seconds[places] = seconds[is_read]
        found.nanoseconds[places] = nanoseconds[is_read]
        left = left[~is_read]
    return found


def _read(item: DateFormat, texts: Array) -> tuple[NDArray[np.bool_], _Integers, _Integers]:
    parts = pc.extract_regex(texts, item.pattern)
    matched = parts.is_valid().to_numpy(zero_copy_only=False)

    def number(name: str) -> _Integers:
        if name not in item.directives:
            return np.zeros(len(texts), dtype=np.int64)
        # What did not match has empty parts.
        digits = pc.if_else(parts.is_valid(), parts.field(name), "0")
        values: _Integers = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return values

    def place(name: str, words: tuple[str, ...]) -> _Integers:
        """The place of each word, and -1 for another one: RE2 takes U+017F for an `s` and U+212A for a `k`."""
        index = pc.index_in(pc.utf8_lower(parts.field(name)), pa.array(words))
        values: _Integers = index.fill_null(-1).cast(pa.int64()).to_numpy()
        return values

    year = number("Y")
    if "y" in item.directives:
        short = number("y")
        year = short + np.where(short >= _FIRST_SHORT_YEAR, 1900, 2000)
    month = number("m")
    for name, words in (("b", _SHORT_MONTHS), ("B", _MONTHS)):
        if name in item.directives:
            month = place(name, words) + 1
    day, minute, second = number("d"), number("M"), number("S")
    hour, is_hour = number("H"), number("H") <= 23
    if "I" in item.directives:
        half = number("I")
        noon = place("p", ("am", "pm"))
        hour = half % 12 + 12 * noon
        is_hour = (half >= 1) & (half <= 12) & (noon >= 0)
    days, is_day = _days(year, month, day)
    offset, is_offset = _offsets(item, parts)
    seconds = days * _DAY_SECONDS + hour * 3600 + minute * 60 + second - offset
    is_read = matched & is_day & is_hour & (minute <= 59) & (second <= 59) & is_offset
    return is_read, seconds, _nanoseconds(item, parts)


def _days(year: _Integers, month: _Integers, day: _Integers) -> tuple[_Integers, NDArray[np.bool_]]:
    """Days since 1970, and which of them are in the calendar of the years 1 to 9999."""
    is_month = (month >= 1) & (month <= 12) & (year >= 1)
    months = ((year - 1970) * 12 + np.where(is_month, month, 1) - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    return first + day - 1, is_month & (day >= 1) & (day <= length)


def _offsets(item: DateFormat, parts: Array) -> tuple[_Integers | int, NDArray[np.bool_] | bool]:
    """Seconds before UTC."""
    if not item.has_zone:
        return 0, True
    texts = pc.replace_substring(pc.struct_field(parts, "z"), ":", "")
    is_given = pc.fill_null(pc.equal(pc.utf8_length(texts), 5), False)
    plain = pc.if_else(is_given, texts, "+0000")
    hours, minutes = (pc.utf8_slice_codeunits(plain, begin, begin + 2).cast(pa.int64()).to_numpy() for begin in (1, 3))
    sign = np.where(pc.starts_with(plain, "-").to_numpy(zero_copy_only=False), -1, 1)
    return sign * (hours * 3600 + minutes * 60), (hours <= 23) & (minutes <= 59)


def _nanoseconds(item: DateFormat, parts: Array) -> _Integers:
    if "f" not in item.directives:
        return np.zeros(len(parts), dtype=np.int64)
    digits = pc.if_else(parts.is_valid(), pc.struct_field(parts, "f"), "0")
    values: _Integers = pc.utf8_rpad(digits, 9, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values
