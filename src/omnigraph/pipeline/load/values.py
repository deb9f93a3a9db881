"""One value of load data → its stored form. The meaning of all input: columns are only a faster way to it.

Beyond the values of parameters, load data takes integers for dates (epoch days) and times (epoch milliseconds), and
sources with types of their own bring Python dates, times, decimals and bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType, integer_range
from omnigraph.core.values import (
    MANAGED,
    StoredValue,
    coerce_json,
    coerce_scalar,
    managed_cell,
    parse_datetime,
    parse_decimal_integer,
    spelled_cell,
)

#: A time with digits behind its milliseconds.
_FINER_TEXT = re.compile(r"(?P<whole>.+[.][0-9]{3})(?P<finer>[0-9]{1,6})(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII)
_NANOSECONDS = 1_000_000
_FLOAT = re.compile(r"-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        case Scalar.DATE, date():
            return value.toordinal() - _EPOCH_DAY
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
    """The day of a moment at midnight, in UTC unless it has a zone of its own."""
    finer = getattr(moment, "nanosecond", 0)
    try:
        there = moment if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as problem:
        raise ValueError(f"{moment} is not a day of the calendar") from problem
    if finer or there.time() != time.min:
        raise ValueError(
            f"{there} has a time of day (UTC), and a Date has none; give days, as `.dt.date` of pandas and `to_date` "
            "of Spark make them, or make the property a DateTime"
        )
    return there.toordinal() - _EPOCH_DAY


def _moment_value(moment: datetime, timestamps: Timestamps | None) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    finer = moment.microsecond % 1000 * 1000 + getattr(moment, "nanosecond", 0)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    whole = delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
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
    text = f"{shown} is finer than milliseconds, the precision of DateTime"
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
