"""Operators and functions over plain Python values: None is null, `OVERFLOW` an integer beyond 64 bits.

What overflowed has no value: in a match it makes unknown whatever is made of it, elsewhere it fails the query.
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import numpy as np

from support.oracle.graphs import f32
from support.oracle.queries import moment_of, moment_text

MIN_I64, MAX_I64 = -(2**63), 2**63 - 1


class UndeterminedError(Exception):
    """The language leaves open what a query gives for a world."""


class _Overflow:
    def __repr__(self) -> str:
        return "an integer overflow"


OVERFLOW: Final = _Overflow()


@dataclass(frozen=True, order=True, slots=True)
class Identity:
    """A node or an edge as a value: ids of different types are different things."""

    id: str
    type: str

    @property
    def place(self) -> str:
        """What it is ordered by."""
        return self.id


# ---- numbers that are not known to the last digit


@dataclass(frozen=True, slots=True)
class Approximate:
    """A float that an engine may compute in another order of operations."""

    value: float
    #: How far the true result may be away.
    slack: float

    @property
    def is_exact(self) -> bool:
        """Whether every order of operations gives `value` itself."""
        return self.slack == 0

    def accepts(self, found: object) -> bool:
        return type(found) is float and (found == self.value or abs(found - self.value) <= self.slack)


#: Relative to the sum of the magnitudes that were added.
TOLERANCE = 1e-9


def about(value: float | None) -> Approximate | None:
    """A float that depends on the library that computes it; null where it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return Approximate(value, abs(value) * TOLERANCE)


def plain(value: Any) -> Any:
    """The middle of what a value may be."""
    return value.value if isinstance(value, Approximate) else value


def _slack(value: Any) -> float:
    return value.slack if isinstance(value, Approximate) else 0.0


# ---- comparisons


def compare(left: Any, operator: str, right: Any) -> Any:
    """`left operator right`; None is unknown. Python compares integers and floats by their exact values."""
    if left is OVERFLOW or right is OVERFLOW:
        return OVERFLOW
    if left is None or right is None:
        return None
    _check_known(left, right)
    left, right = plain(left), plain(right)
    match operator:
        case "=":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
        case "contains" if isinstance(left, list):
            return is_member(right, left)
        case "contains":
            return right in left
        case "starts_with":
            return bool(left.startswith(right))
        case "ends_with":
            return bool(left.endswith(right))
        case "in":
            return is_member(left, right)
        case "not in":
            return opposite(is_member(left, right))
    raise ValueError(f"there is no operator {operator}")


def _check_known(left: Any, right: Any) -> None:
    slack = _slack(left) + _slack(right)
    if slack and abs(plain(left) - plain(right)) <= slack:
        raise UndeterminedError("two floats are too close to be compared")


def is_member(value: Any, items: Sequence[Any]) -> Any:
    """`value in items`."""
    if OVERFLOW in (value, *items):
        return OVERFLOW
    if any(item is not None and item == value for item in items):
        return True
    return None if any(item is None for item in items) else False


def opposite(truth: Any) -> Any:
    """`not truth`."""
    return truth if truth is None or truth is OVERFLOW else not truth


def joined(operator: str, left: Any, right: Any) -> Any:
    """`left and right`, or `left or right`."""
    decisive = operator == "or"
    if decisive in (left, right):
        return decisive
    if OVERFLOW in (left, right):
        return OVERFLOW
    return None if None in (left, right) else not decisive


# ---- arithmetic


def calculate(left: Any, operator: str, right: Any) -> Any:
    """`left operator right` of numbers, and `div`."""
    if OVERFLOW in (left, right):
        return OVERFLOW
    if left is None or right is None:
        return None
    if isinstance(left, Approximate) or isinstance(right, Approximate):
        return _approximately(left, operator, right)
    if isinstance(left, int) and isinstance(right, int) and operator != "/":
        return _whole(left, operator, right)
    left, right = float(left), float(right)
    try:
        return finite(_with_floats(left, operator, right))
    except OverflowError:
        return None


def _whole(left: int, operator: str, right: int) -> Any:
    if left > MAX_I64 or right > MAX_I64:
        return OVERFLOW
    match operator:
        case "+":
            found = left + right
        case "-":
            found = left - right
        case "*":
            found = left * right
        case "%" | "div" if right == 0:
            return None
        case "%":
            found = int(math.copysign(1, left)) * (abs(left) % abs(right))
        case "div":
            found = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case _:
            raise ValueError(f"there is no operator {operator}")
    return found if MIN_I64 <= found <= MAX_I64 else OVERFLOW


def _with_floats(left: float, operator: str, right: float) -> float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right if right else math.nan
        case "%":
            return math.fmod(left, right) if right else math.nan
    raise ValueError(f"there is no operator {operator}")


def _approximately(left: Any, operator: str, right: Any) -> Any:
    first, second = float(plain(left)), float(plain(right))
    if operator == "%" and (_slack(left) or _slack(right)):
        raise UndeterminedError("a remainder of a float that is not known to the last digit")
    if operator == "/" and abs(second) <= _slack(right):
        if second == 0 and _slack(right) == 0:
            return None
        raise UndeterminedError("a division by what may be zero")
    try:
        found = finite(_with_floats(first, operator, second))
    except OverflowError:
        found = None
    if found is None:
        return None
    match operator:
        case "+" | "-":
            slack = _slack(left) + _slack(right)
        case "*":
            slack = abs(first) * _slack(right) + abs(second) * _slack(left)
        case _:
            slack = (_slack(left) + abs(found) * _slack(right)) / (abs(second) - _slack(right))
    return Approximate(found, slack * 2)


def negative(value: Any) -> Any:
    """`-value`."""
    match value:
        case Approximate(middle, slack):
            return Approximate(-middle, slack)
        case float():
            return -value
        case int():
            return calculate(0, "-", value)
    return value


def finite(value: float | None) -> float | None:
    """The float, or null where it is none."""
    return value if value is not None and math.isfinite(value) else None


# ---- functions


_FIRST_DAY, _LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
_DAY = timedelta(days=1)


def _substring(text: str, first: int, count: int | None = None) -> str | None:
    if count is not None and count < 0:
        return None
    end = len(text) + 1 if count is None else first + count
    return "".join(sign for place, sign in enumerate(text, 1) if first <= place < end)


def _rounded(value: Any, digits: int = 0) -> Any:
    if isinstance(value, int):
        return value
    with localcontext(prec=400):
        return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def _toward(whole: Callable[[float], int]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) else float(whole(value))


def _absolute(value: Any) -> Any:
    return None if value == MIN_I64 and isinstance(value, int) else abs(value)


def _simple(change: Callable[[str], str]) -> Callable[[str], str]:
    """Case character by character: a change to several characters is none."""
    return lambda text: "".join(new if len(new := change(sign)) == 1 else sign for sign in text)


def _moved(moment: Any, days: int) -> Any:
    try:
        return moment + timedelta(days=days)
    except OverflowError:
        return None


def _months_later(moment: Any, months: int) -> Any:
    number = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(number, 12)
    if not 1 <= year <= 9999:
        return None
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


def _cut(number: timedelta, unit: timedelta) -> int:
    """Whole units, towards zero."""
    found = abs(number) // unit
    return found if number >= timedelta(0) else -found


def _truncated(moment: Any, unit: str) -> Any:
    if isinstance(moment, datetime):
        moment = moment.replace(minute=0, second=0, microsecond=0)
        moment = moment if unit == "hour" else moment.replace(hour=0)
    match unit:
        case "week":
            return _moved(moment, -moment.weekday())
        case "month":
            return moment.replace(day=1)
        case "year":
            return moment.replace(month=1, day=1)
    return moment


def _day_of(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII) else None
    except ValueError:
        return None


def _moment_of(value: Any) -> Any:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z"
    try:
        return moment_of(value) if re.fullmatch(form, value, re.ASCII) else None
    except ValueError:
        return None


def _whole_number(value: Any) -> int | None:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]+", value):
            return None
        value = int(value)
    value = int(value)
    return value if MIN_I64 <= value <= MAX_I64 else None


def _float_number(value: Any) -> float | None:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", value):
        return None
    return finite(float(value))


def spelled(value: Any, type_: str) -> str:
    """`string(value)` of a type."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            number = np.float32(value) if type_ == "F32" else np.float64(value)
            return np.format_float_positional(number + 0, unique=True, trim="-")
        case date():
            return moment_text(value)
    return str(value)


def _at(items: list[Any], place: int) -> Any:
    return items[place - 1] if 1 <= place <= len(items) else None


def _distance(left: list[float], right: list[float]) -> Approximate | None:
    return about(math.dist(left, right))


def _cosine(left: list[float], right: list[float]) -> Approximate | None:
    lengths = math.hypot(*left) * math.hypot(*right)
    if not lengths:
        return None
    found = math.fsum(a * b for a, b in zip(left, right, strict=True)) / lengths
    return Approximate(found, TOLERANCE)


def _power(left: float, right: float) -> Approximate | None:
    try:
        found = math.pow(left, right)
    except (OverflowError, ValueError):
        return None
    return about(found)


def _exponential(value: float) -> Approximate | None:
    try:
        return about(math.exp(value))
    except OverflowError:
        return None


#: Functions of single values that are never null; what they give for null is null.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "lower": _simple(str.lower),
    "upper": _simple(str.upper),
    "trim": str.strip,
    "length": len,
    "substring": _substring,
    "concat": lambda *texts: "".join(texts),
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "split": lambda text, separator: text.split(separator) if separator else None,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "contains": lambda text, part: part in text,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "abs": _absolute,
    "round": _rounded,
    "floor": _toward(math.floor),
    "ceil": _toward(math.ceil),
    "sqrt": lambda value: math.sqrt(value) if value >= 0 else None,
    "pow": lambda left, right: _power(float(left), float(right)),
    "ln": lambda value: about(math.log(value)) if value > 0 else None,
    "exp": lambda value: _exponential(float(value)),
    "div": lambda left, right: calculate(left, "div", right),
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "date": _day_of,
    "datetime": _moment_of,
    "add_days": _moved,
    "add_months": _months_later,
    "days_between": lambda left, right: _cut(right - left, _DAY),
    "seconds_between": lambda left, right: _cut(right - left, timedelta(seconds=1)),
    "truncate": _truncated,
    "size": len,
    "element": _at,
    "i64": _whole_number,
    "f64": _float_number,
    "l2": _distance,
    "cosine": _cosine,
}


def converted(value: Any, type_: str) -> Any:
    """A value in the common type of several."""
    if value is None or value is OVERFLOW or isinstance(value, Approximate):
        return value
    match type_:
        case "F64":
            return float(value)
        case "F32":
            return f32(value)
        case "I64" if value > MAX_I64:
            return None
        case "[F64]":
            return [None if part is None else float(part) for part in value]
    return value
