"""The interpreter of value rules: which values of a column violate a rule. Columns in, a mask out.

Mutations and tasks of a load use the same functions, so a rule means the same in both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa
import pyarrow.compute as _compute

from omnigraph.writes.rules import EnumValues, Pattern, Range

if TYPE_CHECKING:
    from omnigraph.writes.rules import ValueRule

#: The published stubs of pyarrow describe older functions.
pc: Any = _compute


def violations(rule: ValueRule, column: Any) -> Any:
    """A mask of the values that violate a rule; null is exempt."""
    match rule:
        case EnumValues(values=values):
            good = pc.is_in(column, pa.array(values, pa.utf8()))
        case Range(low=low, high=high):
            good = _in_range(column, low, high)
        case Pattern(pattern=pattern):
            good = pc.match_substring_regex(column, pattern)
        case _:
            assert_never(rule)
    return pc.and_(pc.invert(pc.fill_null(good, False)), pc.is_valid(column))


def rule_name(rule: ValueRule) -> str:
    """The stable name of a rule, as messages and reports begin with it."""
    match rule:
        case EnumValues():
            return f"invalid enum value for {rule.type_name}.{rule.property}"
        case Range():
            return f"@range violation on {rule.type_name}.{rule.property}"
        case Pattern():
            return f"@check violation on {rule.type_name}.{rule.property}"
        case _:
            assert_never(rule)


def complaint(rule: ValueRule) -> str:
    """What is wrong with a value that violates a rule: the end of a sentence that begins with the value."""
    match rule:
        case EnumValues(values=values):
            return f"is not one of {', '.join(values)}"
        case Range(low=low, high=high):
            return f"is outside {'' if low is None else low}..{'' if high is None else high}"
        case Pattern(pattern=pattern):
            return f"does not match {pattern}"
        case _:
            assert_never(rule)


def _in_range(column: Any, low: float | None, high: float | None) -> Any:
    """Exact comparison: a bound is never rounded to the type of the column, it is moved to the next value of it."""
    is_integer = pa.types.is_integer(column.type)
    if not is_integer:
        column = column.cast(pa.float64())
    good: Any = pa.scalar(True)
    for bound, compare, move, is_low in (
        (low, pc.greater_equal, _lowest, True),
        (high, pc.less_equal, _highest, False),
    ):
        if bound is None:
            continue
        limit = move(bound, is_integer)
        if is_integer:
            good = pc.and_(good, _compare_integers(column, compare, int(limit), is_low))
        else:
            good = pc.and_(good, compare(column, pa.scalar(limit, pa.float64())))
    return good


def _compare_integers(column: Any, compare: Any, limit: int, is_low: bool) -> Any:
    unsigned = pa.types.is_unsigned_integer(column.type)
    low, high = (0, 2**column.type.bit_width - 1) if unsigned else (-(2**63), 2**63 - 1)
    if not unsigned:
        column = column.cast(pa.int64())
    if limit < low or limit > high:
        # A bound outside of the type: everything satisfies it, or nothing does.
        return pa.scalar((limit < low) == is_low)
    return compare(column, pa.scalar(limit, column.type))


def _lowest(bound: float, is_integer: bool) -> float:
    """The smallest value of the type that is at least the bound."""
    if is_integer:
        return math.ceil(bound)
    number = _nearest_float(bound)
    return math.nextafter(number, math.inf) if number < bound else number


def _highest(bound: float, is_integer: bool) -> float:
    """The largest value of the type that is at most the bound."""
    if is_integer:
        return math.floor(bound)
    number = _nearest_float(bound)
    return math.nextafter(number, -math.inf) if number > bound else number


def _nearest_float(bound: float) -> float:
    try:
        return float(bound)
    except OverflowError:
        return math.copysign(math.inf, bound)
