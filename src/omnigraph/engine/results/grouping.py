"""Aggregates over groups that Arrow has no exact kernel for: sums of integers, deviations, medians and lists.

A row belongs to the group whose number it has. Nulls are skipped; a group without values has an empty list and null
for everything else. What is not a finite number is null.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.engine.distinct import first_of_equal
from omnigraph.engine.rows import BoolArray, FloatArray, IntArray, Numbers
from omnigraph.engine.values.arithmetic import array_of, numbers_of

#: Halves of 64-bit integers: sums of fewer than 2^31 rows of them do not overflow.
_HALF_BITS: Final = 32
_LOW_HALF: Final = (1 << _HALF_BITS) - 1
_F64: Final = ScalarType(Scalar.F64)


def sums(groups: IntArray, values: Array, count: int) -> Array:
    """The sum of each group as F64: integers are added exactly and rounded once."""
    places, numbers = _known(groups, values)
    return _floats(_totals(places, numbers, count), _sizes(places, count) > 0)


def averages(groups: IntArray, values: Array, count: int) -> Array:
    """The sum of each group by its number of values, as F64."""
    places, numbers = _known(groups, values)
    sizes = _sizes(places, count)
    return _floats(_totals(places, numbers, count) / np.maximum(sizes, 1), sizes > 0)


def deviations(groups: IntArray, values: Array, count: int, weights: IntArray | None = None) -> Array:
    """The standard deviation of each group as a sample, as F64; null below two values.

    `weights` are how many equal values each stands for.
    """
    places, numbers = _known(groups, values)
    totals: FloatArray
    if weights is None:
        sizes, shares = _sizes(places, count), np.ones(1)
        totals = _totals(places, numbers, count)
    else:
        # A deviation is no exact number anyway: floats are good enough for its mean.
        shares = weights[_valid(values)].astype(np.float64)
        sizes = _heights(places, shares, count)
        totals = np.bincount(places, numbers.astype(np.float64) * shares, count).astype(np.float64)
    means = totals / np.maximum(sizes, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = numbers.astype(np.float64) - means[places]
        squares, scale = np.bincount(places, np.square(distances) * shares, count), np.ones(count)
        if not np.isfinite(squares).all():
            # The square of a distance may be beyond floats where the distance is not.
            np.maximum.at(scale, places, np.abs(distances))
            squares = np.bincount(places, np.square(distances / scale[places]) * shares, count)
        return _floats(np.sqrt(squares / np.maximum(sizes - 1, 1)) * scale, sizes > 1)


def medians(groups: IntArray, values: Array, count: int, weights: IntArray | None = None) -> Array:
    """The middle value of each group as F64; of an even number of values the mean of the middle two.

    `weights` are how many equal values each stands for.
    """
    places, numbers = _known(groups, values)
    order = np.lexsort((numbers, places))
    ordered = np.append(numbers[order], numbers.dtype.type(0))
    repeats = np.ones(len(numbers), np.int64) if weights is None else weights[_valid(values)]
    ends = np.cumsum(repeats[order])
    last = np.searchsorted(places[order], np.arange(count), side="right")
    tops = np.append(0, ends)[last]
    sizes = np.diff(tops, prepend=0)
    starts = tops - sizes
    low, high = (
        ordered[np.searchsorted(ends, starts + middle, side="right")]
        for middle in (np.maximum(sizes - 1, 0) // 2, sizes // 2)
    )
    every = np.arange(count)
    means = _totals(np.append(every, every), np.append(low, high), count) / 2
    # The sum of two floats may be beyond them, but not that of their halves.
    means = np.where(np.isfinite(means), means, low / 2 + high / 2)
    return _floats(means, sizes > 0)


def collected(
    groups: IntArray,
    values: Array,
    count: int,
    *,
    order: IntArray | None = None,
    is_distinct: bool = False,
    limit: int | None = None,
) -> Array:
    """The values of each group as a list, ascending, or in the order of the rows that `order` lists.

    Of equal values `is_distinct` keeps the first, and `limit` cuts off what is behind so many. -0.0 is 0.0.
    """
    items = pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
    if order is None:
        order = np.asarray(pc.sort_indices(items).to_numpy(zero_copy_only=False), np.int64)
    rows = order[np.asarray(items.is_valid().to_numpy(zero_copy_only=False), np.bool_)[order]]
    # The sort is stable: inside a group the rows stay in their order.
    rows = rows[np.argsort(groups[rows], kind="stable")]
    if is_distinct:
        rows = rows[_is_first(groups[rows], items.take(pa.array(rows)))]
    if limit is not None:
        sizes = _sizes(groups[rows], count)
        starts = np.cumsum(sizes) - sizes
        rows = rows[np.arange(len(rows)) - starts[groups[rows]] < limit]
    ends = np.append(0, np.cumsum(_sizes(groups[rows], count)))
    type_ = pa.list_(pa.field("item", values.type))
    lists: Array = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items.take(pa.array(rows)), type=type_)
    return lists


def _is_first(groups: IntArray, items: Array) -> BoolArray:
    """Which rows have a value that no earlier row of their group has."""
    codes = np.asarray(items.dictionary_encode().indices.to_numpy(zero_copy_only=False), np.int64)
    found = np.zeros(len(groups), np.bool_)
    found[first_of_equal(groups * (codes.max(initial=0) + 1) + codes)] = True
    return found


# ---- Numbers of groups


def _known(groups: IntArray, values: Array) -> tuple[IntArray, Numbers]:
    """The numbers that are not null, and their groups."""
    numbers, known = numbers_of(values)
    return (groups, numbers) if known.all() else (groups[known], numbers[known])


def _valid(values: Array) -> BoolArray:
    """Which values are not null."""
    valid: BoolArray = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return valid


def _heights(groups: IntArray, shares: FloatArray, count: int) -> IntArray:
    return np.bincount(groups, shares, count).astype(np.int64)


def _sizes(groups: IntArray, count: int) -> IntArray:
    return np.bincount(groups, minlength=count).astype(np.int64)


def _totals(groups: IntArray, numbers: Numbers, count: int) -> FloatArray:
    """The sum of each group; 0 for an empty one."""
    if numbers.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.bincount(groups, numbers.astype(np.float64), count).astype(np.float64)
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    wide = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
    np.add.at(low, groups, (wide & wide.dtype.type(_LOW_HALF)).astype(np.int64))
    np.add.at(high, groups, (wide >> wide.dtype.type(_HALF_BITS)).astype(np.int64))
    high, low = high + (low >> _HALF_BITS), low & _LOW_HALF
    fits = (high >= -(1 << 31)) & (high < 1 << 31)
    totals = np.where(fits, (high << _HALF_BITS) | low, 0).astype(np.float64)
    for group in np.flatnonzero(~fits):
        totals[group] = float((int(high[group]) << _HALF_BITS) + int(low[group]))
    return totals


def _floats(values: FloatArray, known: BoolArray) -> Array:
    return array_of(values, known, _F64)
