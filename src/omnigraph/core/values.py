"""Values of a type: which ones fit, how they are stored and spelled inside ids; cells of blobs as values."""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final

from omnigraph.core.types import (
    FLOATS,
    INTEGERS,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    VectorType,
    integer_range,
)

# ---- Validation and spelling of values
#
# A *stored value* is the form that storage holds: `str`, `bool`, `int`, `float`, `bytes`; a `Date` is its epoch day
# and a `DateTime` its epoch millisecond, both `int`; lists and vectors are tuples; null is None. Every entry into the
# system (literals, parameters, load data) goes through `coerce_scalar` or `coerce_json`, so a value means the same
# everywhere. All refusals are `ValueError`s whose text completes the sentence "value … ".


StoredValue = str | bool | int | float | bytes | tuple["StoredValue", ...] | None

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DATE_TEXT: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME_TEXT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.(?P<fraction>\d{1,9}))?)?(?P<zone>Z|[+-]\d{2}:?[0-5]\d)?", re.ASCII
)
_DECIMAL_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
#: Types that are stored as whole numbers.
_WHOLE: Final = INTEGERS | {Scalar.DATE, Scalar.DATETIME}
#: Longer digit strings cannot be an integer of any type, and Python refuses to convert very long ones.
_MAX_INTEGER_DIGITS: Final = 40


def parse_date(text: str) -> int:
    """The epoch day of `YYYY-MM-DD`."""
    if not _DATE_TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not a date of the form YYYY-MM-DD")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError as cause:
        raise ValueError(f"{text!r} is not a day of the calendar") from cause


def parse_datetime(text: str) -> int:
    """The epoch millisecond of an ISO 8601 time; UTC without a zone, nothing finer than milliseconds."""
    shape = _DATETIME_TEXT.fullmatch(text)
    if not shape:
        raise ValueError(f"{text!r} is not a time of the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    fraction = shape["fraction"] or ""
    if fraction[3:].strip("0"):
        raise ValueError(too_fine_text(repr(text)))
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError) as cause:
        raise ValueError(f"{text!r} is not a time of the calendar") from cause


def too_fine_text(shown: str) -> str:
    """The refusal of a moment with more digits than are stored."""
    return f"{shown} is finer than milliseconds, the precision of DateTime"


def day_of(moment: datetime) -> int:
    """The epoch day of a moment at midnight, in UTC unless it has a zone of its own.

    Raises:
        ValueError: it has a time of day.
    """
    try:
        there = moment if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as problem:
        raise ValueError(f"{moment} is not a day of the calendar") from problem
    if getattr(moment, "nanosecond", 0) or there.time() != time.min:
        raise ValueError(f"{there} has a time of day (UTC), and a Date has none")
    return there.toordinal() - _EPOCH_DAY


def millisecond_of(moment: datetime) -> tuple[int, int]:
    """The epoch millisecond in which a moment lies, in UTC without a zone, and the nanoseconds that it is later."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    delta = aware - _EPOCH
    whole = delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
    return whole, moment.microsecond % 1000 * 1000 + getattr(moment, "nanosecond", 0)


def render_date(days: int) -> str:
    """`YYYY-MM-DD` of an epoch day; the bare number outside the years 1 to 9999."""
    try:
        return date.fromordinal(days + _EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        return str(days)


def render_datetime(milliseconds: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ` of an epoch millisecond; the bare number outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".rjust(24, "0")


def to_f32(value: float) -> float:
    """`value` rounded to 32-bit precision; infinite when it leaves the range."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def narrowed(base: BaseType, value: StoredValue) -> StoredValue:
    """A number, or a list of numbers, as it is compared with values of `base`: rounded to F32 where that is the type.

    What leaves the range of F32 becomes infinite, and so stays above or below every stored value.
    """
    match base, value:
        case ScalarType(Scalar.F32), int() | float():
            return to_f32(value)
        case ListType(Scalar.F32), tuple():
            return tuple(narrowed(ScalarType(Scalar.F32), part) for part in value)
    return value


def coerce_scalar(scalar: Scalar, value: object) -> StoredValue:
    """The stored form of a JSON-like Python value for `scalar`.

    Integers fit a float type; a float fits an integer type only when it is integral; nothing is ever wrapped,
    truncated or guessed. Dates and times are ISO strings or Python's own, bytes of a blob are `bytes` or spelled as
    `base64:…`. A decimal number fits where the type has a value of the same digits.

    Raises:
        ValueError: the value does not fit.
    """
    if scalar in INTEGERS:
        return _coerce_integer(scalar, value)
    if scalar in FLOATS:
        return _coerce_float(scalar, value)
    match scalar:
        case Scalar.BOOL:
            if not isinstance(value, bool):
                raise ValueError(f"{_show(value)} is not a Bool")
            return value
        case Scalar.DATE:
            return _coerce_date(value)
        case Scalar.DATETIME:
            return _coerce_datetime(value)
        case Scalar.BLOB if isinstance(value, bytes):
            return spelled_bytes(value)
        case _:
            return _expect_text(scalar, value)


def coerce_json(type_: PropertyType, value: object) -> StoredValue:
    """The stored form of a JSON value for a whole property type: null, lists, vectors and enums included.

    Raises:
        ValueError: the value does not fit.
    """
    if value is None:
        if not type_.nullable:
            raise ValueError(f"null does not fit {type_}")
        return None
    match type_.base:
        case ScalarType(scalar):
            return coerce_scalar(scalar, value)
        case EnumType(values):
            text = _expect_text(Scalar.STRING, value)
            if text not in values:
                raise ValueError(f"{text!r} is not one of {', '.join(values)}")
            return text
        case ListType(item):
            if not isinstance(value, list | tuple):
                raise ValueError(f"{_show(value)} is not a list")
            return tuple(None if part is None else coerce_scalar(item, part) for part in value)
        case VectorType(dimension):
            return _coerce_vector(dimension, value)
        case RecordType() | RecordListType():
            raise ValueError("a record is not a stored value")


def canonical_spelling(base: BaseType, value: StoredValue) -> str:
    """The text of a stored value inside an id or a uniqueness tuple; equal values have equal spellings.

    Raises:
        ValueError: the type has no spelling (lists, vectors, blobs), or the value is not finite.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no spelling as an id")
    match base, value:
        case (EnumType(), str(text)) | (ScalarType(Scalar.STRING), str(text)):
            return text
        case ScalarType(Scalar.BOOL), bool(flag):
            return "true" if flag else "false"
        case ScalarType(Scalar.F32), float(number):
            return _positional(_shortest_f32(number))
        case ScalarType(Scalar.F64), float(number):
            return _positional(repr(number))
        case ScalarType(scalar), int(number) if scalar in _WHOLE and not isinstance(number, bool):
            return str(number)
    raise ValueError(f"{_show(value)} of type {base} has no spelling as an id")


def parse_spelling(base: BaseType, text: str) -> StoredValue:
    """The stored value of a canonical spelling: the inverse of `canonical_spelling`.

    Raises:
        ValueError: `text` is not the canonical spelling of a value of `base`.
    """
    value: StoredValue
    match base:
        case EnumType(values):
            value = text if text in values else None
        case ScalarType(Scalar.STRING):
            value = text
        case ScalarType(Scalar.BOOL):
            value = {"true": True, "false": False}.get(text)
        case ScalarType(scalar) if scalar in FLOATS:
            value = to_f32(float(text)) if scalar is Scalar.F32 else float(text)
        case ScalarType(scalar) if scalar in INTEGERS:
            value = _coerce_integer(scalar, parse_decimal_integer(text))
        case ScalarType(scalar) if scalar in _WHOLE:
            value = parse_decimal_integer(text)
        case _:
            value = None
    if value is None or canonical_spelling(base, value) != text:
        raise ValueError(f"{text!r} is not a canonical spelling of {base}")
    return value


def render_value(base: BaseType, value: StoredValue) -> str:
    """A stored value in the notation of the query language, for `explain` and messages."""
    match base, value:
        case _, None:
            return "null"
        case ScalarType(Scalar.DATE), int(days):
            return f'date("{render_date(days)}")'
        case ScalarType(Scalar.DATETIME), int(milliseconds):
            return f'datetime("{render_datetime(milliseconds)}")'
        case ScalarType(Scalar.F32), float(number) if math.isfinite(number):
            return _positional(_shortest_f32(number))
        case ListType(item), tuple(parts):
            return f"[{', '.join(render_value(ScalarType(item), part) for part in parts)}]"
        case VectorType(), tuple(parts):
            return f"[{', '.join(_positional(repr(part)) for part in parts)}]"
    return _show(value)


def quote(text: str) -> str:
    """A string literal of both languages for `text`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for raw, spelled in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        escaped = escaped.replace(raw, spelled)
    return f'"{escaped}"'


def _show(value: object) -> str:
    match value:
        case None:
            return "null"
        case str(text):
            return quote(text)
        case bool(flag):
            return "true" if flag else "false"
        case float(number):
            return _positional(repr(number)) if math.isfinite(number) else str(number)
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case datetime() as moment:
            return f"the time {moment}"
        case date() as day:
            return f"the date {day}"
        case Decimal() as number:
            return f"the decimal {number}"
        case bytes():
            return "a bytes value"
        case int(number) if abs(number) >= 10**_MAX_INTEGER_DIGITS:
            return f"a number of more than {_MAX_INTEGER_DIGITS} digits"
    return str(value)


def _expect_text(scalar: Scalar, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_show(value)} is not a {scalar}")
    try:
        value.encode()
    except UnicodeEncodeError as cause:
        raise ValueError("the text holds half a surrogate pair, not a character") from cause
    return value


def _coerce_date(value: object) -> int:
    if isinstance(value, datetime):
        return day_of(value)
    if isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    return parse_date(_expect_text(Scalar.DATE, value))


def _coerce_datetime(value: object) -> int:
    if not isinstance(value, datetime):
        return parse_datetime(_expect_text(Scalar.DATETIME, value))
    whole, finer = millisecond_of(value)
    if finer:
        raise ValueError(too_fine_text(str(value)))
    return whole


def _coerce_integer(scalar: Scalar, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # A large exponent alone would make a number of as many digits.
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < _MAX_INTEGER_DIGITS and value % 1 == 0:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{_show(value)} is not an integer, as {scalar} needs")
    low, high = integer_range(scalar)
    if not low <= value <= high:
        raise ValueError(f"{_show(value)} is out of range for {scalar} ({low} to {high})")
    return value


def _coerce_float(scalar: Scalar, value: object) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise ValueError(f"{_show(value)} is not a number, as {scalar} needs")
    try:
        number = float(value)
    except (OverflowError, ValueError):  # too large, or a signalling NaN
        number = math.inf
    # Judged after rounding: a value just above the largest F32 that rounds down to it still fits.
    stored = to_f32(number) if scalar is Scalar.F32 else number
    if not math.isfinite(stored):
        raise ValueError(f"{_show(value)} is not a finite {scalar}")
    if isinstance(value, Decimal):
        digits = _shortest_f32(stored) if scalar is Scalar.F32 else repr(stored)
        if Decimal(digits) != value:
            raise ValueError(f"{_show(value)} has more digits than {scalar} holds, {digits}: give a float")
    return stored


def _coerce_vector(dimension: int, value: object) -> tuple[StoredValue, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_show(value)} is not a list of {dimension} numbers")
    if len(value) != dimension:
        raise ValueError(f"a vector of {len(value)} numbers does not fit Vector({dimension})")
    return tuple(_coerce_float(Scalar.F32, part) for part in value)


def parse_decimal_integer(text: str) -> int:
    """The integer of a decimal digit string, as parameters may carry 64-bit numbers.

    Raises:
        ValueError: `text` is not a decimal integer.
    """
    if len(text) > _MAX_INTEGER_DIGITS or not _DECIMAL_INTEGER.fullmatch(text):
        raise ValueError(f"{quote(text)} is not a decimal integer")
    return int(text)


def _shortest_f32(number: float) -> str:
    """The fewest digits that read back as the same 32-bit float; of several such numbers the nearest."""
    exact = Decimal(number)
    for digits in range(1, 10):
        # At a power of two the gap below is narrower: the nearest candidate may fail where the other one holds.
        candidates = [Context(prec=digits, rounding=rounding).plus(exact) for rounding in (ROUND_FLOOR, ROUND_CEILING)]
        good = [item for item in candidates if to_f32(float(item)) == number]
        if good:
            return str(min(good, key=lambda item: abs(item - exact)))
    return repr(number)


def _positional(text: str) -> str:
    number = Decimal(text)
    if number == 0:
        return "0"
    plain = f"{number:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


# ---- Blob cells
#
# Rows travel as Arrow tables in which a Blob column is binary. A cell that holds bytes is these bytes; a cell that
# only refers to bytes elsewhere is a mark followed by the address. Bytes that happen to begin with the mark get it
# once more in front, so the two can never be taken for each other. Storage does not see the mark: there both have
# descriptors of their own.
#
# Code that takes bytes in from outside calls `managed_cell`; code that returns them checks `reference_of` first.


#: Chosen at random; 16 bytes that hardly a file begins with.
MARK = bytes.fromhex("d6c14f0e9a3b4e5d8f27b1605ac97e34")
_BYTES = MARK + b"b"
#: What the text of bytes begins with.
MANAGED = "base64:"
#: Characters that are decoded at a time, a multiple of four.
_STEP = 1 << 20
#: What a cell that refers to an address begins with.
ADDRESS_MARK = MARK + b"a"


def managed_cell(data: bytes) -> bytes:
    """The cell that holds these bytes."""
    return _BYTES + data if data.startswith(MARK) else data


def reference_cell(uri: str) -> bytes:
    """The cell that refers to an address."""
    return ADDRESS_MARK + uri.encode()


def reference_of(cell: bytes) -> str | None:
    """The address that a cell refers to; None when it holds bytes.

    >>> reference_of(reference_cell("s3://scans/1.png"))
    's3://scans/1.png'
    >>> reference_of(managed_cell(b"s3://scans/1.png")) is None
    True
    """
    return cell[len(ADDRESS_MARK) :].decode() if cell.startswith(ADDRESS_MARK) else None


def managed_bytes(cell: bytes) -> bytes:
    """The bytes that a cell holds.

    >>> managed_bytes(managed_cell(MARK + b"!")) == MARK + b"!"
    True
    """
    return cell[len(_BYTES) :] if cell.startswith(_BYTES) else cell


def spelled_cell(text: str) -> bytes:
    """The cell that holds the bytes which a text of the form `base64:…` spells.

    >>> spelled_cell("base64:SGVsbG8=")
    b'Hello'

    Raises:
        ValueError: they are not spelled right.
    """
    from base64 import b64decode
    from binascii import Error

    begin = len(MANAGED) if text.startswith(MANAGED) else 0
    padding = text.find("=", begin)
    try:
        if 0 <= padding < len(text) - 2:
            raise Error("padding stands in the middle")
        # Piece by piece: a whole text would be copied twice before it is decoded.
        steps = range(begin, len(text), _STEP)
        pieces = [b64decode(text[step : step + _STEP], validate=True) for step in steps]
    except Error as problem:
        raise ValueError(f"the text behind `{MANAGED}` is not base64: {problem}") from problem
    return managed_cell(b"".join(pieces))


def spelled_bytes(data: bytes) -> str:
    """Bytes as a text of the form `base64:…`."""
    from base64 import b64encode

    return f"{MANAGED}{b64encode(data).decode('ascii')}"


def blob_text(cell: bytes) -> str:
    """A cell as JSON spells it: an address as it is, bytes as `base64:…`. A load reads it back."""
    uri = reference_of(cell)
    return spelled_bytes(managed_bytes(cell)) if uri is None else uri
