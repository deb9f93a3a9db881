"""Comparisons of columns and fixed values in three-valued logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from omnigraph.core.arrow import Array, arrow_type, pc, repeated, stored_array
from omnigraph.core.types import FLOATS, NUMERICS, BaseType, ListType, Scalar, ScalarType, scalar_of
from omnigraph.core.values import StoredValue
from omnigraph.engine.rows import BoolArray, Numbers, plain_numbers
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import CompareOp
from omnigraph.storage.datasets.reads import text_pairs_match

# ---- Comparisons in three-valued logic
#
# Numbers compare by mathematical value, whatever their types; text by code point; everything else with its own kind.


_NUMBER_KERNELS = {
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.GT: np.greater,
    CompareOp.GE: np.greater_equal,
}
_TEXT_KERNELS = {
    CompareOp.EQ: pc.equal,
    CompareOp.NE: pc.not_equal,
    CompareOp.LT: pc.less,
    CompareOp.LE: pc.less_equal,
    CompareOp.GT: pc.greater,
    CompareOp.GE: pc.greater_equal,
}
_TEXT_PARTS = {
    CompareOp.STRING_CONTAINS: (pc.match_substring, str.__contains__),
    CompareOp.STARTS_WITH: (pc.starts_with, str.startswith),
    CompareOp.ENDS_WITH: (pc.ends_with, str.endswith),
}
#: The names of the same tests in storage.
_PAIR_TESTS: Mapping[CompareOp, Literal["contains", "starts_with", "ends_with"]] = {
    CompareOp.STRING_CONTAINS: "contains",
    CompareOp.STARTS_WITH: "starts_with",
    CompareOp.ENDS_WITH: "ends_with",
}
#: Kinds that are compared through the number they are stored as.
_AS_NUMBERS = NUMERICS | {Scalar.BOOL, Scalar.DATE, Scalar.DATETIME}
_MAX_I64 = 2**63 - 1
_TWO_TO_63 = float(2**63)


@frozen
class Values:
    """One side of a comparison: a column with a value per row."""

    array: Array
    base: BaseType


@frozen
class Fixed:
    """One side of a comparison: the same value for all rows."""

    value: StoredValue
    base: BaseType


Side = Values | Fixed


def as_array(side: Side, count: int) -> Array:
    """One side as a value per row."""
    if isinstance(side, Values):
        return side.array
    return repeated(stored_array(arrow_type(side.base), [side.value])[0], count)


def truth(op: CompareOp, left: Side, right: Side, count: int) -> Array:
    """Per row, whether `left op right` is true, false or unknown, which is null."""
    if _is_null(left) or _is_null(right):
        return pa.nulls(count, pa.bool_())
    found = holds(op, left, right, count)
    known = [_known(side) for side in (left, right)]
    if op is CompareOp.CONTAINS:
        known.append(_is_certain(left, right, found))
    unknown = np.zeros(count, np.bool_)
    for mask in known:
        if mask is not None:
            unknown = unknown | ~mask
    return pa.array(found, pa.bool_(), mask=unknown if unknown.any() else None)


def _known(side: Side) -> BoolArray | None:
    """Where a side is not null; None means everywhere."""
    if isinstance(side, Fixed) or not side.array.null_count:
        return None
    return np.asarray(side.array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _is_certain(list_: Side, value: Side, found: BoolArray) -> BoolArray | None:
    """Where a value was found, or could not hide behind a null of its list."""
    if isinstance(list_, Fixed):
        assert isinstance(list_.value, tuple), "a list is a tuple"
        return found if None in list_.value else None
    items = pc.list_flatten(list_.array)
    if not items.null_count:
        return None
    parents = np.asarray(pc.list_parent_indices(list_.array).to_numpy())
    holes = np.zeros(len(found), np.bool_)
    holes[parents[np.asarray(items.is_null().to_numpy(zero_copy_only=False), np.bool_)]] = True
    return found | ~holes


def holds(op: CompareOp, left: Side, right: Side, count: int) -> BoolArray:
    """Per row, whether `left op right` is true; unknown is not."""
    if _is_null(left) or _is_null(right):
        return np.zeros(count, np.bool_)
    if op is CompareOp.CONTAINS:
        return _contains(left, right, count)
    if op in _TEXT_PARTS:
        return _text_part(op, left, right, count)
    if scalar_of(left.base) in _AS_NUMBERS:
        return _numbers_hold(op, left, right, count)
    kernel = _TEXT_KERNELS[op]
    return _as_mask(kernel(_operand(left), _operand(right)), count)


def _is_null(side: Side) -> bool:
    return isinstance(side, Fixed) and side.value is None


def _operand(side: Side) -> object:
    return side.array if isinstance(side, Values) else side.value


def _as_mask(result: object, count: int) -> BoolArray:
    if isinstance(result, pa.Scalar):
        return np.full(count, bool(result.as_py()), np.bool_)
    return np.asarray(pc.fill_null(result, False).to_numpy(zero_copy_only=False), np.bool_)


# ---- numbers


def _numbers_hold(op: CompareOp, left: Side, right: Side, count: int) -> BoolArray:
    first, first_known = _numbers(left)
    second, second_known = _numbers(right)
    if first.dtype.kind == second.dtype.kind:
        found = _NUMBER_KERNELS[op](first, second)
    else:
        found = _NUMBER_KERNELS[op](sign_of(first, second), 0)
    for known in (first_known, second_known):
        if known is not None:
            found = found & known
    return np.broadcast_to(np.asarray(found, np.bool_), (count,))


def _numbers(side: Side) -> tuple[Numbers, BoolArray | None]:
    """The numbers of one side, and where they are known; None means everywhere."""
    if isinstance(side, Fixed):
        value = side.value
        assert isinstance(value, int | float), "numbers are compared with numbers"
        return fixed_number(value), None
    array = plain_numbers(side.array)
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False), None
    known = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    zero = pa.scalar(0, array.type)
    return pc.fill_null(array, zero).to_numpy(zero_copy_only=False), known


def fixed_number(value: int | float) -> Numbers:  # the two are told apart
    """One number, in the widest type that holds it exactly."""
    if isinstance(value, float):
        return np.asarray(value, np.float64)
    return np.asarray(value, np.uint64 if value > _MAX_I64 else np.int64)


def sign_of(left: Numbers, right: Numbers) -> Numbers:
    """-1, 0 or 1 per pair, exact for any mix of integers and floats."""
    left_float, right_float = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_float and not right_float:
        return -sign_of(right, left)
    if right_float and not left_float:
        return _sign_integer_float(left, right.astype(np.float64))
    if left_float:
        return _plain_sign(left.astype(np.float64), right.astype(np.float64))
    if (left.dtype == np.uint64) == (right.dtype == np.uint64):
        wide = left.dtype if left.dtype == np.uint64 else np.dtype(np.int64)
        return _plain_sign(left.astype(wide), right.astype(wide))
    if right.dtype == np.uint64:
        return -sign_of(right, left)
    signed = right.astype(np.int64)
    against = _plain_sign(left, np.maximum(signed, 0).astype(np.uint64))
    return np.where(signed < 0, 1, against)


def _plain_sign(left: Numbers, right: Numbers) -> Numbers:
    return (left > right).astype(np.int8) - (left < right).astype(np.int8)


def _sign_integer_float(left: Numbers, right: Numbers) -> Numbers:
    """An integer against a float: rounding keeps the order, so only equal roundings need a second, exact look."""
    sign = _plain_sign(left.astype(np.float64), right)
    beyond = right >= (2 * _TWO_TO_63 if left.dtype == np.uint64 else _TWO_TO_63)
    whole = np.where(beyond | (sign != 0), 0.0, right).astype(left.dtype)
    exact = np.where(beyond, -1, _plain_sign(left, whole))
    return np.where(sign == 0, exact, sign)


# ---- lists and text


def _contains(left: Side, right: Side, count: int) -> BoolArray:
    """Whether the list on the left has the value on the right."""
    assert isinstance(left.base, ListType), "the checker allows lists only"
    if isinstance(left, Fixed):
        return _in_constant(left, right, count)
    item_base = ScalarType(left.base.item)
    parents = np.asarray(pc.list_parent_indices(left.array).to_numpy())
    items = Values(pc.list_flatten(left.array), item_base)
    wanted: Side = right
    if isinstance(right, Values):
        wanted = Values(right.array.take(pa.array(parents)), right.base)
    found = np.zeros(count, np.bool_)
    found[parents[holds(CompareOp.EQ, items, wanted, len(parents))]] = True
    return found


def _in_constant(left: Fixed, right: Side, count: int) -> BoolArray:
    assert isinstance(left.value, tuple)
    assert isinstance(left.base, ListType)
    present = [item for item in left.value if item is not None]
    base = ScalarType(left.base.item)
    if isinstance(right, Fixed):
        one = pa.array([0], pa.int8())
        found = any(bool(holds(CompareOp.EQ, Fixed(item, base), right, len(one))[0]) for item in present)
        return np.full(count, found, np.bool_)
    if scalar_of(base) not in _AS_NUMBERS:
        return _as_mask(pc.is_in(right.array, pa.array(present, pa.utf8())), count)
    return _number_in(right, present, count, as_float=base.scalar in FLOATS)


def _number_in(column: Values, present: Sequence[StoredValue], count: int, *, as_float: bool) -> BoolArray:
    """Membership by value: the list is sorted once and each number is compared with its only candidate."""
    numbers, known = _numbers(column)
    if not present:
        return np.zeros(count, np.bool_)
    if numbers.dtype.kind == "f" or as_float:
        found = np.zeros(count, np.bool_)
        for item in set(present):
            assert isinstance(item, int | float)
            found |= sign_of(numbers, fixed_number(float(item) if as_float else item)) == 0
    else:
        wide = np.dtype(np.uint64 if numbers.dtype == np.uint64 else np.int64)
        limits = np.iinfo(wide)
        # What the type of the column cannot hold equals none of its values.
        wanted = {it for it in present if isinstance(it, int) and limits.min <= it <= limits.max}
        found = np.isin(numbers.astype(wide), np.array(sorted(wanted), wide))
    return found if known is None else found & known


def _text_part(op: CompareOp, left: Side, right: Side, count: int) -> BoolArray:
    kernel, test = _TEXT_PARTS[op]
    if isinstance(right, Fixed):
        assert isinstance(right.value, str), "text is compared with text"
        if isinstance(left, Fixed):
            assert isinstance(left.value, str), "text is compared with text"
            return np.full(count, test(left.value, right.value), np.bool_)
        return _as_mask(kernel(left.array, right.value), count)
    return _as_mask(text_pairs_match(as_array(left, count), right.array, _PAIR_TESTS[op]), count)
