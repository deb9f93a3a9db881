"""Aggregates that need all values of a group at once, of rows that stand for several, and distinct ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.engine.distinct import combined_numbers
from omnigraph.engine.results.grouping import averages, collected, deviations, medians, sums
from omnigraph.engine.results.projection import order_codes
from omnigraph.engine.rows import IntArray


def aggregate_all(
    function: str,
    groups: IntArray,
    values: Array,
    weights: IntArray | None,
    count: int,
    *,
    distinct: bool = False,
    identities: Array | None = None,
    order: Sequence[IntArray] = (),
    limit: int | None = None,
    allow: Callable[[int], None] = lambda _: None,
) -> Array:
    """One value per group of `count`; nulls are skipped. `allow` is asked before much is allocated.

    `groups` has the group of each value, `weights` how many equal rows each stands for. `order` are numbers that sort
    the values of `collect`, ascending by value without them; `limit` keeps the first of each group. Where values are
    shown that stand for something else, `identities` say which are the same.
    """
    if function in _WEIGHTED and not distinct:
        return _WEIGHTED[function](groups, values, count, weights)
    kept = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    places = np.flatnonzero(kept)
    codes = order_codes(values.take(pa.array(places)), descending=False)
    groups = groups[places]
    keys = [code[places] for code in order]
    if distinct:
        things = codes if identities is None else np.asarray(identities)[places]
        by_place = np.lexsort((*reversed(keys), things, groups))
        same = np.zeros(len(by_place), np.bool_)
        same[1:] = (groups[by_place][1:] == groups[by_place][:-1]) & (things[by_place][1:] == things[by_place][:-1])
        first = np.sort(by_place[~same])
    else:
        repeats = np.ones(len(places), np.int64) if weights is None else weights[places]
        if limit is not None:
            # The first of a group may all be one value, but never more than so many.
            repeats = np.minimum(repeats, limit)
        width = values.nbytes // max(len(values), 1) + (_ITEM_ARRAYS + len(keys)) * np.dtype(np.int64).itemsize
        allow(int(repeats.sum()) * width)
        first = np.repeat(np.arange(len(places)), repeats)
    places, groups, codes = places[first], groups[first], codes[first]
    keys = [code[first] for code in keys]
    kept_values = values.take(pa.array(places))
    match function:
        case "count":
            counts: Array = pa.array(np.bincount(groups, minlength=count).astype(np.int64))
            return counts
        case "collect":
            # Arrow sorts no records.
            is_ranked = bool(keys) or pa.types.is_struct(values.type)
            ranking = np.lexsort((codes, *reversed(keys))) if is_ranked else None
            return collected(groups, kept_values, count, order=ranking, limit=limit)
        case "min" | "max":
            return _extreme(groups, kept_values, codes, count, last=function == "max")
        case _:
            return _NUMBERS[function](groups, kept_values, count)


#: Numbers of each item while values are collected: its place, its group, its order and their permutations.
_ITEM_ARRAYS: Final = 8
#: Aggregates that take each value as often as it counts, without writing it out.
_WEIGHTED: Final = {"stddev": deviations, "median": medians}
_NUMBERS: Final = {"sum": sums, "avg": averages, "stddev": deviations, "median": medians}


def _extreme(groups: IntArray, values: Array, codes: IntArray, count: int, *, last: bool) -> Array:
    order = np.lexsort((-codes if last else codes, groups))
    sizes = np.bincount(groups, minlength=count)
    starts = np.cumsum(sizes) - sizes
    if not len(order):
        return _nulls(count, values.type)
    places = order[np.minimum(starts, len(order) - 1)]
    return values.take(pa.array(places, mask=sizes == 0))


def _nulls(count: int, type_: object) -> Array:
    column: Array = pa.nulls(count, type_)
    return column


# ---- Numbers of groups


def numbers_of(codes: Sequence[Array], first: IntArray) -> IntArray:
    """Per row, the number of its group; group `n` has the row `first[n]` as its first."""
    combined = combined_values(codes)
    number_of_code = np.zeros(int(combined.max()) + 1 if len(combined) else 0, np.int64)
    number_of_code[combined[first]] = np.arange(len(first))
    found: IntArray = number_of_code[combined]
    return found


def combined_values(codes: Sequence[Array]) -> IntArray:
    """One dense number per row, equal for rows that are equal in all columns, nulls included."""
    return combined_numbers([_numbers(column) for column in codes])


def _numbers(column: Array) -> IntArray:
    indices = pc.dictionary_encode(column, null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)
