"""One value of load data → its stored form. The meaning of all input: columns are only a faster way to it.

Beyond the values of parameters, load data takes integers for dates (epoch days) and times (epoch milliseconds), and
sources with types of their own bring Python dates, times, decimals and bytes.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal

from omnigraph.types import (
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    StoredValue,
    VectorType,
    coerce_json,
    coerce_scalar,
    integer_range,
)
from omnigraph.types.blob_cells import MANAGED, managed_cell, spelled_cell
from omnigraph.types.values import parse_decimal_integer

_FLOAT = re.compile(r"-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAYS = integer_range(Scalar.I32)
_MILLISECONDS = integer_range(Scalar.I64)


def load_value(type_: PropertyType, value: object, *, is_strict: bool = True) -> StoredValue:
    """The stored form of a value for a property. Null has to be judged by the caller.

    Without `is_strict` a value of a wrong JSON type becomes null where null is allowed, and a bad item of a list a
    null item.

    Raises:
        ValueError: the value does not fit; the text completes a sentence that begins with "value …".
    """
    if value is None:
        return None
    try:
        return _load(type_, value, is_strict=is_strict)
    except ValueError:
        if not is_strict and type_.nullable and _has_wrong_json_type(type_, value):
            return None
        raise


def _load(type_: PropertyType, value: object, *, is_strict: bool) -> StoredValue:
    match type_.base:
        case ScalarType(Scalar.BLOB):
            return _blob(value)
        case ScalarType(scalar):
            return _scalar(scalar, value)
        case ListType(item):
            return _list(item, value, is_strict=is_strict)
        case EnumType() if not isinstance(value, str):
            raise ValueError(f"{_kind(value)} is not a String, as the enum needs")
        case EnumType():
            # Membership is a rule of the schema and judged with the others.
            return coerce_scalar(Scalar.STRING, value)
        case _:
            return coerce_json(type_, _plain(value))


def _scalar(scalar: Scalar, value: object) -> StoredValue:
    match scalar, value:
        case Scalar.DATE, bool() | float():
            raise ValueError(f"{_kind(value)} is not a Date")
        case Scalar.DATE, int(days):
            return _bounded(days, _DAYS, "days since 1970 of a Date")
        case Scalar.DATE, datetime():
            raise ValueError("a moment is not a Date")
        case Scalar.DATE, date():
            return value.toordinal() - _EPOCH_DAY
        case Scalar.DATETIME, bool() | float():
            raise ValueError(f"{_kind(value)} is not a DateTime")
        case Scalar.DATETIME, int(milliseconds):
            return _bounded(milliseconds, _MILLISECONDS, "milliseconds since 1970 of a DateTime")
        case Scalar.DATETIME, datetime():
            return _moment(value)
    return coerce_scalar(scalar, _plain(value))


def _bounded(number: int, bounds: tuple[int, int], what: str) -> int:
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{number} is out of range for the {what}")
    return number


def _moment(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment.microsecond % 1000 or getattr(moment, "nanosecond", 0):
        raise ValueError(f"{moment} is finer than milliseconds, the precision of DateTime")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    delta = moment - epoch
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000


def _list(item: Scalar, value: object, *, is_strict: bool) -> StoredValue:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_kind(value)} is not a list")
    items: list[StoredValue] = []
    for number, part in enumerate(value, start=1):
        try:
            if part is None:
                raise ValueError("null is not allowed inside a list")
            items.append(_scalar(item, part))
        except ValueError as problem:
            if is_strict:
                raise ValueError(f"item {number}: {problem}") from problem
            items.append(None)
    return tuple(items)


def _blob(value: object) -> bytes:
    if isinstance(value, bytes):
        return managed_cell(value)
    if not isinstance(value, str):
        raise ValueError(f"{_kind(value)} is not a Blob")
    if not value.startswith(MANAGED):
        raise ValueError(
            "an external blob is not allowed for this graph: give its bytes as `base64:…`"
        )
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
    """What a text of an untyped source (CSV) says, as a value of the kind that the property takes.

    Raises:
        ValueError: the text is no notation of such a value.
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
