"""Distinct numbers, and the number of each among them, without hashing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.engine.rows import BoolArray, IntArray

# `np.unique` hashes: ten times slower than sorting, which in turn is ten times slower than marking, where numbers are
# dense enough.

#: Numbers below so many times their count are ranked in a table of all numbers instead of being sorted.
_TABLE_RATIO = 16
_TABLE_ROWS = 1 << 16
_MOST = 2**62


def sorted_distinct(numbers: IntArray) -> IntArray:
    """The distinct numbers, ascending."""
    if len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all()):
        return numbers
    low, high = int(numbers.min()), int(numbers.max())
    if high - low <= max(_TABLE_ROWS, _TABLE_RATIO * len(numbers)):
        is_there = np.zeros(high - low + 1, np.bool_)
        is_there[numbers - low] = True
        return np.flatnonzero(is_there) + low
    ordered = np.sort(numbers)
    return ordered[_begins(ordered)]


def distinct_numbers(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct numbers, ascending, and the place among them of every number."""
    if len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all()):
        return numbers, np.arange(len(numbers))
    low, high = int(numbers.min()), int(numbers.max())
    if high - low <= max(_TABLE_ROWS, _TABLE_RATIO * len(numbers)):
        shifted = numbers - low
        is_there = np.zeros(high - low + 1, np.bool_)
        is_there[shifted] = True
        found = np.flatnonzero(is_there)
        places = np.empty(len(is_there), np.int64)
        places[found] = np.arange(len(found))
        return found + low, places[shifted]
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    is_new = _begins(in_order)
    place_of = np.empty(len(numbers), np.int64)
    place_of[order] = np.cumsum(is_new) - 1
    return in_order[is_new], place_of


def first_of_equal(numbers: IntArray) -> IntArray:
    """The places of the first of equal numbers, ascending."""
    if len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all()):
        return np.arange(len(numbers))
    order = np.argsort(numbers, kind="stable")
    found: IntArray = np.sort(order[_begins(numbers[order])])
    return found


def combined_numbers(columns: Sequence[IntArray]) -> IntArray:
    """One number per row, below the number of rows, equal for rows that are equal in all columns."""
    _, combined = distinct_numbers(columns[0])
    for column in columns[1:]:
        found, places = distinct_numbers(column)
        # Both are below the number of rows, so the product fits.
        assert len(found) < _MOST // max(len(places), 1), "rows fit into memory"
        _, combined = distinct_numbers(combined * len(found) + places)
    return combined


def _begins(in_order: IntArray) -> BoolArray:
    is_new = np.ones(len(in_order), np.bool_)
    is_new[1:] = in_order[1:] != in_order[:-1]
    return is_new
