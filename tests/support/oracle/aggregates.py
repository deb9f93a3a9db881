"""Aggregates over rows: those of a group, and those that a block finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from support.oracle.queries import Aggregate, Expression, Sort
from support.oracle.values import OVERFLOW, TOLERANCE, Approximate, UndeterminedError, finite, plain


def aggregated(call: Aggregate, rows: Sequence[Any], value: Callable[[Expression, Any], Any]) -> Any:
    """The value of an aggregate over rows that are in the order of their ids."""
    if call.argument is None:
        return len(rows)
    if call.order:
        rows = in_order(rows, call.order, value)
    values = [value(call.argument, row) for row in rows]
    if OVERFLOW in values:
        return OVERFLOW
    values = [item for item in values if item is not None]
    _check_known(call, values)
    if call.distinct:
        values = distinct(values)
    return _made(call, values)


def _check_known(call: Aggregate, values: Sequence[Any]) -> None:
    is_choice = call.distinct or call.function not in ("count", "sum", "avg")
    if is_choice and any(isinstance(item, Approximate) and not item.is_exact for item in values):
        raise UndeterminedError("a choice among floats that are not known to the last digit")


def distinct(values: Sequence[Any]) -> list[Any]:
    """Equal values once."""
    return list({plain(item): plain(item) for item in values}.values())


def in_order(rows: Sequence[Any], keys: Sequence[Sort], value: Callable[[Expression, Any], Any]) -> list[Any]:
    """Rows in the order of keys; ties stay as they are."""
    found = list(rows)
    for key in reversed(keys):
        found = placed(found, [value(key.expression, row) for row in found], key)
    return found


def placed(rows: Sequence[Any], cells: Sequence[Any], key: Sort) -> list[Any]:
    """Rows in the order of one value each, of nodes and paths by their ids; ties stay as they are, also descending."""
    descending = key.direction == "desc"
    nulls_first = key.nulls == "first" if key.nulls else not descending
    pairs = list(zip(cells, rows, strict=True))
    nulls = [row for cell, row in pairs if cell is None]
    others = sorted((pair for pair in pairs if pair[0] is not None), key=lambda p: _key(p[0]), reverse=descending)
    sorted_rows = [row for _, row in others]
    return nulls + sorted_rows if nulls_first else sorted_rows + nulls


def _key(value: Any) -> Any:
    return getattr(value, "place", plain(value))


def _made(call: Aggregate, values: Sequence[Any]) -> Any:
    function = call.function
    if function == "count":
        return len(values)
    if function == "collect":
        found = [plain(item) for item in values]
        return (found if call.order else sorted(found))[: call.limit]
    if not values:
        return None
    match function:
        case "min":
            return plain(min(values, key=plain))
        case "max":
            return plain(max(values, key=plain))
        case "median":
            return _median(sorted(float(plain(item)) for item in values))
        case "stddev":
            return _deviation([float(plain(item)) for item in values])
    return _total(values, is_mean=function == "avg")


def _total(values: Sequence[Any], *, is_mean: bool) -> Approximate | None:
    """Integers are added exactly and rounded once; how floats are added is left to the engine."""
    numbers = [plain(item) for item in values]
    total = sum(map(Fraction, numbers))
    size = sum(abs(Fraction(number)) for number in numbers)
    is_whole = all(Fraction(number).denominator == 1 for number in numbers)
    is_exact = all(isinstance(number, int) for number in numbers) or (is_whole and size <= 2**53)
    count = len(numbers)
    try:
        found = finite(float(total) / count if is_mean else float(total))
    except OverflowError:
        return None
    if found is None:
        return None
    slack = 0.0 if is_exact else float(size) / (count if is_mean else 1) * TOLERANCE
    inherited = sum(item.slack for item in values if isinstance(item, Approximate))
    return Approximate(found, slack + inherited)


def _median(numbers: Sequence[float]) -> Approximate:
    low, high = numbers[(len(numbers) - 1) // 2], numbers[len(numbers) // 2]
    if low == high:
        return Approximate(low, 0.0)
    middle = low / 2 + high / 2
    return Approximate(middle, (abs(low) + abs(high)) * TOLERANCE)


def _deviation(numbers: Sequence[float]) -> Approximate | None:
    if len(numbers) < 2:
        return None
    if len(set(numbers)) == 1:
        return Approximate(0.0, abs(numbers[0]) * TOLERANCE)
    mean = sum(map(Fraction, numbers)) / len(numbers)
    variance = sum((Fraction(number) - mean) ** 2 for number in numbers) / (len(numbers) - 1)
    largest = max(map(abs, numbers))
    scaled = math.sqrt(variance / Fraction(largest) ** 2)
    return Approximate(scaled * largest, largest * TOLERANCE)
