"""Types of expressions: what arithmetic gives, and the common type of values that stand side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from omnigraph.core.types import (
    FLOATS,
    INTEGERS,
    MOMENTS,
    NUMERICS,
    BaseType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    integer_range,
    scalar_of,
)
from omnigraph.core.values import to_f32
from omnigraph.lang.query.functions.arguments import (
    AS_MOMENT,
    AS_NUMBER,
    AS_TEXT,
    BOOL_AS_NUMBER,
    NUMBER,
    ONE_KIND_OF_MOMENT,
    TIME_BETWEEN,
    Argument,
    Fault,
    Misuse,
)

# ---- Types of operators


_STRING_TYPE: Final = ScalarType(Scalar.STRING)
_I64_TYPE: Final = ScalarType(Scalar.I64)
_F64_TYPE: Final = ScalarType(Scalar.F64)


#: The operators of arithmetic, `div(a, b)` included.
OPERATORS: Final = ("+", "-", "*", "/", "%", "div")


def arithmetic_type(operator: str, left: Argument, right: Argument) -> PropertyType:
    """The type of `left operator right`, and of `div(left, right)` for the operator `div`.

    Nullable where an operand is, where a divisor can be 0, and where floats can leave the finite numbers.

    Raises:
        Misuse: an operand is not a number.
    """
    for position, operand in enumerate((left, right)):
        if operand.is_null:
            raise Misuse("arithmetic with `null` is always null", position, fault=Fault.NULL)
    for position, operand in enumerate((left, right)):
        if operand.scalar not in NUMERICS:
            message = f"`{operator}` needs numbers, found {left.base} and {right.base}"
            raise Misuse(message, position, _arithmetic_hint(operator, left, right))
        if operator == "div" and operand.scalar in FLOATS:
            message = f"`div` needs integers, found {left.base} and {right.base}"
            raise Misuse(message, position, "`/` divides floats, and `i64(…)` cuts off the fraction")
    nullable = left.type.nullable or right.type.nullable
    is_integral = left.scalar in INTEGERS and right.scalar in INTEGERS
    divides = operator in ("/", "%", "div")
    divisor_known = _is_number_literal(right) and right.literal != 0
    can_fail = not divisor_known if divides else False
    if is_integral and operator != "/":
        return PropertyType(_I64_TYPE, nullable or can_fail)
    # A remainder is never larger than its operands, and a quotient of integers never as large as a float can be.
    stays_finite = operator == "%" or (operator == "/" and is_integral)
    return PropertyType(_F64_TYPE, nullable or can_fail or not stays_finite)


def negate_type(argument: Argument) -> PropertyType:
    """The type of `-argument`.

    Raises:
        Misuse: it is not a number.
    """
    if argument.is_null:
        raise Misuse("arithmetic with `null` is always null", 0, fault=Fault.NULL)
    if argument.scalar not in NUMERICS:
        raise Misuse(f"`-` needs a number, found {argument.base}", 0, NUMBER.hint(argument.base))
    return PropertyType(_F64_TYPE if argument.scalar in FLOATS else _I64_TYPE, argument.type.nullable)


def _arithmetic_hint(operator: str, left: Argument, right: Argument) -> str | None:
    scalars = {left.scalar, right.scalar}
    if Scalar.STRING in scalars and operator == "+":
        if scalars & NUMERICS:
            return f"`concat(…)` joins texts, `string(…)` writes a number as one; {AS_NUMBER}"
        return "`concat(…)` joins texts"
    if scalars == MOMENTS:
        return ONE_KIND_OF_MOMENT
    if scalars & MOMENTS and scalars & NUMERICS and operator in ("+", "-"):
        return "`add_days(d, n)` and `add_months(d, n)` move a moment"
    if operator == "-" and scalars <= MOMENTS:
        return TIME_BETWEEN
    if Scalar.BOOL in scalars:
        return BOOL_AS_NUMBER
    return AS_NUMBER if Scalar.STRING in scalars and scalars & NUMERICS else None


# ---- The type of values side by side


def common_type(arguments: Sequence[Argument]) -> PropertyType:
    """The one type of values that stand side by side: branches of `case`, arguments of `coalesce` and the like.

    Equal types keep theirs. Different integers meet as I64, integers and floats as F64; a number literal takes the
    type of what stands beside it, F32 included, where it fits. An enum beside a String is a String. `null` has every
    type and makes the result nullable.

    Raises:
        Misuse: there is no such type.
    """
    typed = [(position, item) for position, item in enumerate(arguments) if not item.is_null]
    if not typed:
        raise Misuse("nothing but `null` has no type", fault=Fault.NULL, hint="give one of the values a type")
    nullable = len(typed) < len(arguments) or any(item.type.nullable for _, item in typed)
    return PropertyType(_common_base(typed), nullable)


def _common_base(typed: Sequence[tuple[int, Argument]]) -> BaseType:
    first = typed[0][1].base
    if all(isinstance(item.base, ListType) for _, item in typed):
        return _common_list(typed)
    scalars = {item.scalar for _, item in typed}
    if scalars <= NUMERICS:
        return ScalarType(_common_number(typed))
    if all(item.base == first for _, item in typed):
        return first
    if scalars == {Scalar.STRING}:
        return _STRING_TYPE
    position, other = next((place, item) for place, item in typed if not _is_alike(item.base, first))
    message = f"{first} and {other.base} have no common type"
    raise Misuse(message, position, _mixed_hint(typed[0][1].base, other.base))


def _is_alike(left: BaseType, right: BaseType) -> bool:
    first, second = scalar_of(left), scalar_of(right)
    if first is None or second is None:
        return left == right
    return first is second or (first in NUMERICS and second in NUMERICS)


def _common_list(typed: Sequence[tuple[int, Argument]]) -> BaseType:
    """Lists meet as their items do; a literal is as good as its items, and an empty one fits every list."""
    items: list[tuple[int, Argument]] = []
    for position, argument in typed:
        assert isinstance(argument.base, ListType), "only lists are asked about"
        item = PropertyType(ScalarType(argument.base.item))
        if isinstance(argument.literal, tuple):
            items += [(position, Argument(item, part)) for part in argument.literal if part is not None]
        else:
            items.append((position, Argument(item)))
    if not items:
        return typed[0][1].base
    base = _common_base(items)
    assert isinstance(base, ScalarType), "items of lists are scalars"
    return ListType(base.scalar)


def _common_number(typed: Sequence[tuple[int, Argument]]) -> Scalar:
    literals = [(position, item) for position, item in typed if _is_number_literal(item)]
    scalars = {item.scalar for _, item in typed if not _is_number_literal(item)}
    if not scalars:
        scalars = {item.scalar for _, item in literals}
        # There is an integer that only U64 holds.
        scalars = {Scalar.U64} if scalars == {Scalar.I64, Scalar.U64} else scalars
    if scalars == {Scalar.F32}:
        is_narrow = all(math.isfinite(to_f32(_number(item))) for _, item in literals)
        return Scalar.F32 if is_narrow else Scalar.F64
    if scalars & FLOATS or any(isinstance(item.literal, float) for _, item in literals):
        return Scalar.F64
    values = [(position, int(_number(item))) for position, item in literals]
    (scalar,) = scalars if len(scalars) == 1 else {Scalar.I64}
    assert scalar is not None, "numbers are scalars"
    if all(_fits(value, scalar) for _, value in values):
        return scalar
    for position, value in values:
        if not _fits(value, Scalar.I64):
            raise Misuse(f"{value} does not fit I64, the type of different integers", position, fault=Fault.VALUE)
    return Scalar.I64


def _is_number_literal(argument: Argument) -> bool:
    return isinstance(argument.literal, int | float) and not isinstance(argument.literal, bool)


def _number(argument: Argument) -> int | float:
    assert isinstance(argument.literal, int | float), "only literal numbers are asked about"
    return argument.literal


def _fits(value: int, scalar: Scalar) -> bool:
    low, high = integer_range(scalar)
    return low <= value <= high


def _mixed_hint(left: BaseType, right: BaseType) -> str | None:
    """What to write instead of two types side by side that never meet."""
    scalars = {scalar_of(left), scalar_of(right)}
    if scalars == MOMENTS:
        return ONE_KIND_OF_MOMENT
    if Scalar.STRING in scalars:
        if scalars & NUMERICS:
            return "`string(…)` writes a number as a text, `i64(…)` and `f64(…)` read one from it"
        if scalars & MOMENTS:
            return f"`string(…)` writes a moment as a text, {AS_MOMENT}"
        return AS_TEXT if Scalar.BOOL in scalars else None
    return BOOL_AS_NUMBER if Scalar.BOOL in scalars and scalars & NUMERICS else None
