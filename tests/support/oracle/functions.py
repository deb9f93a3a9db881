"""What the functions and operators of single values mean, over plain values of Python, one row at a time.

Written from the reference of the language and sharing nothing with the kernels. A `Date` is a `date`, a `DateTime` an
aware `datetime`, a list a list, a vector a tuple; a number is an `int` or a `float` as its type is. Where the width
of a number decides, the names of the types of the arguments say it.
"""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

_LEAST, _MOST = -(2**63), 2**63 - 1


class IntegerOverflowError(Exception):
    """The result of integers does not fit I64."""


def call(name: str, values: Sequence[Any], types: Sequence[str]) -> Any:
    """The value of a function for arguments of types such as `I64` and `F32`."""
    if name in ("coalesce", "least", "greatest"):
        values = [_side_by_side(value, types) for value in values]
    if name == "coalesce":
        return next((value for value in values if value is not None), None)
    if any(value is None for value in values):
        return None
    if name == "string" and types[0] in ("F32", "F64"):
        return _spelled_float(values[0], is_narrow=types[0] == "F32")
    return _plain(_FUNCTIONS[name](*values))


def calculate(operator: str, left: Any, right: Any) -> Any:
    """`left operator right`, or `div(left, right)`.

    Raises:
        IntegerOverflowError: integers, or their result, do not fit I64.
    """
    if left is None or right is None:
        return None
    if operator in ("/", "%", "div") and right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float) or operator == "/":
        return _plain(_of_floats(operator, float(left), float(right)))
    return _within(_OF_INTEGERS[operator](_within(left), _within(right)))


def negate(value: Any) -> Any:
    """`-value`.

    Raises:
        IntegerOverflowError: an integer, or its negation, does not fit I64.
    """
    if value is None:
        return None
    return _plain(-value) if isinstance(value, float) else _within(-_within(value))


def _within(value: int) -> int:
    if not _LEAST <= value <= _MOST:
        raise IntegerOverflowError(value)
    return value


def _plain(value: Any) -> Any:
    """No result is infinite, no number at all, or -0.0."""
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else None
    return value


def _side_by_side(value: Any, types: Sequence[str]) -> Any:
    """A value in the common type: any float makes all floats, different integers are I64."""
    if value is None or isinstance(value, bool | str | date | list | tuple):
        return value
    if {"F32", "F64"} & set(types):
        return float(value)
    if len(set(types)) > 1 and not _LEAST <= value <= _MOST:
        return None
    return value


# ---- operators


def _of_floats(operator: str, left: float, right: float) -> float:
    try:
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right
            case "%":
                return math.fmod(left, right)
    except OverflowError:
        return math.inf
    raise AssertionError(operator)


def _quotient(left: int, right: int) -> int:
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


_OF_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "%": lambda left, right: left - right * _quotient(left, right),
    "div": _quotient,
}


# ---- text


def _is_white(char: str) -> bool:
    """Unicode's White_Space: what Python calls space without the four separators of ASCII."""
    return char.isspace() and char not in "\x1c\x1d\x1e\x1f"


def _trim(text: str) -> str:
    start, end = 0, len(text)
    while start < end and _is_white(text[start]):
        start += 1
    while end > start and _is_white(text[end - 1]):
        end -= 1
    return text[start:end]


def _substring(text: str, begin: int, number: int | None = None) -> str | None:
    if number is not None and number < 0:
        return None
    end = math.inf if number is None else begin + number
    return "".join(char for position, char in enumerate(text, 1) if begin <= position < end)


def _replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    found, rest = "", text
    while (place := rest.find(old)) >= 0:
        found, rest = found + rest[:place] + new, rest[place + len(old) :]
    return found + rest


def _split(text: str, separator: str) -> list[str] | None:
    if not separator:
        return None
    parts, rest = [], text
    while (place := rest.find(separator)) >= 0:
        parts.append(rest[:place])
        rest = rest[place + len(separator) :]
    return [*parts, rest]


# ---- numbers


def _round(value: Any, digits: int = 0) -> Any:
    """Exact: the kernel may differ beside a tie that the number only nearly is."""
    if isinstance(value, int):
        return value
    scaled = Fraction(value) * Fraction(10) ** digits
    whole = math.floor(abs(scaled) + Fraction(1, 2))
    try:
        return math.copysign(float(Fraction(whole) / Fraction(10) ** digits), value)
    except OverflowError:
        return value


def _whole(function: Callable[[float], int]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) else float(function(value))


def _tried(function: Callable[..., float]) -> Callable[..., float | None]:
    def computed(*values: Any) -> float | None:
        try:
            result = function(*map(float, values))
        except (ValueError, OverflowError, ZeroDivisionError):
            return None
        return result if isinstance(result, float) else None

    return computed


def _abs(value: Any) -> Any:
    return None if value == _LEAST and isinstance(value, int) else abs(value)


# ---- moments


def _like(moment: date, day: date) -> date:
    """A day with the time of day of a moment."""
    return datetime.combine(day, moment.timetz()) if isinstance(moment, datetime) else day


def _day(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _add_days(moment: date, number: int) -> date | None:
    try:
        return moment + timedelta(days=number)
    except OverflowError:
        return None


def _add_months(moment: date, number: int) -> date | None:
    months = moment.year * 12 + moment.month - 1 + number
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        return None
    return _like(moment, date(year, month, min(moment.day, monthrange(year, month)[1])))


def _between(start: date, end: date, step: timedelta) -> int:
    distance = end - start
    return abs(distance) // step * (-1 if distance < timedelta(0) else 1)


def _truncate(moment: date, unit: str) -> date:
    day = _day(moment)
    match unit:
        case "hour":
            assert isinstance(moment, datetime)
            return moment.replace(minute=0, second=0, microsecond=0)
        case "week":
            day -= timedelta(days=day.weekday())
        case "month":
            day = day.replace(day=1)
        case "year":
            day = day.replace(month=1, day=1)
    return datetime.combine(day, time.min, UTC) if isinstance(moment, datetime) else day


# ---- casts


def _string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z".rjust(24, "0")
        case date():
            return value.isoformat()
    return str(value)


def _spelled_float(value: float | None, *, is_narrow: bool) -> str | None:
    if value is None:
        return None
    if value == 0:
        return "0"
    if is_narrow:
        return np.format_float_positional(np.float32(value), unique=True, trim="-")
    text = f"{Decimal(repr(value)):f}"
    return text.removesuffix(".0")


def _i64(value: Any) -> int | None:
    if isinstance(value, str):
        if not re.fullmatch("[+-]?[0-9]+", value):
            return None
        value = int(value)
    whole = math.trunc(value)
    return whole if _LEAST <= whole <= _MOST else None


def _f64(value: Any) -> float | None:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", value):
        return None
    return float(value)


# ---- lists and vectors


def _element(items: list[Any], position: int) -> Any:
    return items[position - 1] if 1 <= position <= len(items) else None


def _cosine(first: Sequence[float], second: Sequence[float]) -> float | None:
    lengths = math.hypot(*first) * math.hypot(*second)
    return math.fsum(a * b for a, b in zip(first, second, strict=True)) / lengths if lengths else None


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lower": lambda text: "".join(map(str.lower, text)),
    "upper": lambda text: "".join(map(str.upper, text)),
    "trim": _trim,
    "length": len,
    "substring": _substring,
    "concat": lambda *texts: "".join(texts),
    "replace": _replace,
    "split": _split,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "contains": lambda text, part: text.find(part) >= 0,
    "starts_with": lambda text, part: text[: len(part)] == part,
    "ends_with": lambda text, part: text[len(text) - len(part) :] == part if len(part) <= len(text) else False,
    "abs": _abs,
    "round": _round,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "sqrt": _tried(math.sqrt),
    "pow": _tried(math.pow),
    "ln": _tried(math.log),
    "exp": _tried(math.exp),
    "least": lambda *values: min(values),
    "greatest": lambda *values: max(values),
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "date": _day,
    "datetime": lambda m: m if isinstance(m, datetime) else datetime.combine(m, time.min, UTC),
    "add_days": _add_days,
    "add_months": _add_months,
    "days_between": lambda start, end: _between(start, end, timedelta(days=1)),
    "seconds_between": lambda start, end: _between(start, end, timedelta(seconds=1)),
    "truncate": _truncate,
    "size": len,
    "element": _element,
    "string": _string,
    "i64": _i64,
    "f64": _f64,
    "l2": math.dist,
    "cosine": _cosine,
}
