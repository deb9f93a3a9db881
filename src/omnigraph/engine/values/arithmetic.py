"""Arithmetic of whole columns: exact in 64 bits, three-valued, and with the rows at which integers overflow.

Integers are computed as I64 and floats as F64. No row raises: what overflows is null in the result and true in a
mask beside it, because only the caller knows whether the row counts. What is not a finite number is null.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from omnigraph.core.arrow import Array, Datum, arrow_type, pa, pc, repeated
from omnigraph.core.types import FLOATS, BaseType, PropertyType, scalar_of
from omnigraph.engine.rows import BoolArray, FloatArray, IntArray, Numbers, plain_numbers

_LEAST, _MOST = -(2**63), 2**63 - 1
#: The product of two numbers as floats is at most this far, relatively, from the exact one.
_NEAR = 2.0**-50


def calculate(operator: str, left: Datum, right: Datum, result: PropertyType) -> tuple[Datum, Datum | None]:
    """`left operator right`, or `div(left, right)`, and where integers overflow; None where they nowhere do.

    A null operand or a divisor of 0 gives null and never overflows.
    """
    is_fixed = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    first, first_known = numbers_of(left)
    second, second_known = numbers_of(right)
    known = first_known & second_known
    if operator in ("/", "%", "div"):
        known = known & (second != 0)
    if scalar_of(result.base) in FLOATS:
        values = _calculated_floats(operator, first.astype(np.float64), second.astype(np.float64))
        return _datum(array_of(values, known, result.base), is_fixed=is_fixed), None
    integers, overflows = _calculated_integers(operator, first, second)
    return _checked(integers, known, overflows, result.base, is_fixed=is_fixed)


def negate(value: Datum, result: PropertyType) -> tuple[Datum, Datum | None]:
    """`-value`, and where integers overflow; None where they nowhere do."""
    is_fixed = isinstance(value, pa.Scalar)
    numbers, known = numbers_of(value)
    if scalar_of(result.base) in FLOATS:
        return _datum(array_of(-numbers.astype(np.float64), known, result.base), is_fixed=is_fixed), None
    signed, beyond = _signed(numbers)
    return _checked(-signed, known, beyond | (signed == _LEAST), result.base, is_fixed=is_fixed)


def _checked(
    values: IntArray, known: BoolArray, overflows: BoolArray, base: BaseType, *, is_fixed: bool
) -> tuple[Datum, Datum | None]:
    found = known & overflows
    if not found.any():
        return _datum(array_of(values, known, base), is_fixed=is_fixed), None
    mask = pa.array(np.broadcast_to(found, np.broadcast_shapes(found.shape, values.shape)))
    array = array_of(values, known & ~overflows, base)
    return _datum(array, is_fixed=is_fixed), _datum(mask, is_fixed=is_fixed)


# ---- Between Arrow and numpy


def as_array(datum: Datum, count: int) -> Array:
    """One value per row: a scalar `count` times."""
    return repeated(datum, count) if isinstance(datum, pa.Scalar) else cast("Array", datum)


def numbers_of(datum: Datum) -> tuple[Numbers, BoolArray]:
    """The numbers that values are stored as, and which are known; one of each for a scalar and where all are."""
    array = plain_numbers(as_array(datum, 1))
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False), np.ones(1, np.bool_)
    known = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return pc.fill_null(array, pa.scalar(0, array.type)).to_numpy(zero_copy_only=False), known


def array_of(values: Numbers, known: BoolArray, base: BaseType) -> Array:
    """The known numbers as values of a type, the others and what is not finite as null; -0.0 as 0.0."""
    if values.dtype.kind == "f":
        known = known & np.isfinite(values)
        values = values + 0.0
    shape = np.broadcast_shapes(values.shape, known.shape)
    values, known = np.broadcast_to(values, shape), np.broadcast_to(known, shape)
    array = pa.array(values, mask=None if known.all() else ~known)
    type_ = arrow_type(base)
    return cast("Array", array if array.type == type_ else array.cast(type_))


def _datum(array: Array, *, is_fixed: bool) -> Datum:
    return cast("Datum", array[0] if is_fixed else array)


# ---- Floats and integers


def _calculated_floats(operator: str, first: FloatArray, second: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        match operator:
            case "+":
                return first + second
            case "-":
                return first - second
            case "*":
                return first * second
            case "/":
                return first / second
            case "%":
                return np.asarray(np.fmod(first, second), np.float64)
    raise AssertionError(f"{operator!r} is not an operator of floats")


def _calculated_integers(operator: str, first: Numbers, second: Numbers) -> tuple[IntArray, BoolArray]:
    """The results modulo 2^64, and where they or an operand are beyond I64; anything beside a divisor of 0."""
    left, left_beyond = _signed(first)
    right, right_beyond = _signed(second)
    beyond = left_beyond | right_beyond
    with np.errstate(all="ignore"):
        match operator:
            case "+":
                values = left + right
                return values, beyond | (((left ^ values) & (right ^ values)) < 0)
            case "-":
                values = left - right
                return values, beyond | (((left ^ right) & (left ^ values)) < 0)
            case "*":
                return left * right, beyond | _product_overflows(left, right)
            case "%":
                # The remainder of the least number by -1 is a trap of some processors.
                return np.fmod(left, np.where((right == 0) | (right == -1), 1, right)), beyond
            case "div":
                divisor = np.where(right == 0, 1, right)
                overflows = (left == _LEAST) & (divisor == -1)
                whole = np.where(overflows, 0, left)
                values = whole // divisor
                # Numpy rounds down.
                values += (values < 0) & (values * divisor != whole)
                return values, beyond | overflows
    raise AssertionError(f"{operator!r} is not an operator of integers")


def _signed(numbers: Numbers) -> tuple[IntArray, BoolArray]:
    """Integers as I64, and where they are beyond it."""
    beyond = numbers > _MOST if numbers.dtype == np.uint64 else np.zeros(1, np.bool_)
    return numbers.astype(np.int64), np.asarray(beyond, np.bool_)


def _product_overflows(left: IntArray, right: IntArray) -> BoolArray:
    """Where a product is beyond I64: floats tell, and of the few that are near its ends exact integers."""
    size = np.abs(left.astype(np.float64) * right.astype(np.float64))
    limit = 2.0**63
    found = np.asarray(size > limit, np.bool_)
    unclear = np.flatnonzero(np.abs(size - limit) <= limit * _NEAR)
    if len(unclear):
        first, second = np.broadcast_to(left, found.shape), np.broadcast_to(right, found.shape)
        products = [int(first[place]) * int(second[place]) for place in unclear]
        found[unclear] = [not _LEAST <= product <= _MOST for product in products]
    return found
