"""What is known of the data of a snapshot when a read is planned: numbers alone, and where they come from.

Nothing is read for them. Row counts stand in the snapshot, degrees follow from traversal indexes that are in memory,
and values from columns that are. Large arrays are sampled at even distances, so that the same arrays always give the
same numbers. All of them are rounded: a commit of a few rows leaves most of them as they were, and with them the plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import floor, isfinite, log10

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.engine.rows import IntArray, plain_numbers
from omnigraph.frozen import frozen

#: Nodes up to which every degree is looked at; of more, as many at even distances.
_DEGREES = 1 << 16
#: Values of a column that are looked at.
_VALUES = 1 << 12
#: Parts of a histogram, each with the same number of values.
_BUCKETS = 16
_DIGITS = 3
_ROUGH_DIGITS = 2


@frozen
class Degrees:
    """How many edges of a type the nodes at one end have."""

    #: Nodes that have any.
    distinct: int
    mean: float
    p99: int
    most: int


@frozen
class EdgeStatistics:
    """The edges of a type; degrees are None where no traversal index is in memory that has them."""

    edges: int
    out: Degrees | None = None
    into: Degrees | None = None


@frozen
class PropertyStatistics:
    """The values of a property."""

    distinct: int
    #: The share of rows without a value.
    nulls: float = 0.0
    lowest: float | None = None
    highest: float | None = None
    #: Bounds between equal numbers of values, the lowest and the highest among them; empty for what is not ordered.
    bounds: tuple[float, ...] = ()

    def below(self, value: float) -> float | None:
        """The share of values below one; None without a histogram."""
        if len(self.bounds) < 2:
            return None
        places = np.linspace(0.0, 1.0, len(self.bounds))
        return float(np.interp(value, self.bounds, places))


@frozen(slots=False)
class Statistics:
    """The numbers that a plan follows from. Equal numbers give equal plans.

    Properties are named by the table of their type and their name. What is not there is not known.
    """

    nodes: tuple[tuple[str, int], ...] = ()
    edges: tuple[tuple[str, EdgeStatistics], ...] = ()
    properties: tuple[tuple[tuple[str, str], PropertyStatistics], ...] = ()

    @staticmethod
    def of(
        nodes: Mapping[str, int],
        edges: Mapping[str, EdgeStatistics] | None = None,
        properties: Mapping[tuple[str, str], PropertyStatistics] | None = None,
    ) -> Statistics:
        """Statistics by the names of types, and of types and properties."""
        return Statistics(
            tuple(sorted(nodes.items())),
            tuple(sorted((edges or {}).items(), key=lambda item: item[0])),
            tuple(sorted((properties or {}).items(), key=lambda item: item[0])),
        )

    @cached_property
    def node_rows(self) -> Mapping[str, int]:
        """The rows of each node type."""
        return dict(self.nodes)

    @cached_property
    def edge_types(self) -> Mapping[str, EdgeStatistics]:
        """The edges of each edge type."""
        return dict(self.edges)

    @cached_property
    def values(self) -> Mapping[tuple[str, str], PropertyStatistics]:
        """The values of each property that is known."""
        return dict(self.properties)


# ---- From arrays


def rounded(number: float, digits: int = _DIGITS) -> float:
    """A number with its first digits only."""
    if not number or not isfinite(number):
        return number
    return round(number, digits - 1 - floor(log10(abs(number))))


def rounded_count(count: int, digits: int = _DIGITS) -> int:
    """A count with its first digits only; small ones are exact."""
    return int(rounded(count, digits))


def degrees_of(offsets: IntArray) -> Degrees:
    """The degrees of nodes whose edges stand between offsets; of many nodes those of a sample."""
    count = len(offsets) - 1
    if count <= 0:
        return Degrees(0, 0.0, 0, 0)
    if count <= _DEGREES:
        degrees = np.diff(offsets)
    else:
        places = np.linspace(0, count - 1, _DEGREES).astype(np.int64)
        degrees = offsets[places + 1] - offsets[places]
    place = min(len(degrees) - 1, len(degrees) * 99 // 100)
    p99 = int(np.partition(degrees, place)[place])
    some = int(np.count_nonzero(degrees)) * count // len(degrees)
    return Degrees(
        rounded_count(some),
        rounded(int(offsets[-1] - offsets[0]) / count),
        rounded_count(p99, _ROUGH_DIGITS),
        rounded_count(int(degrees.max()), _ROUGH_DIGITS),
    )


def values_of(column: Array) -> PropertyStatistics | None:
    """The values of a column, estimated from a sample; None for lists, vectors and files."""
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return None
    total = len(column)
    if not total:
        return PropertyStatistics(0)
    sample = column
    if total > _VALUES:
        sample = column.take(pa.array(np.linspace(0, total - 1, _VALUES).astype(np.int64)))
    nulls = sample.null_count / len(sample)
    known = plain_numbers(sample.drop_null())
    if not len(known):
        return PropertyStatistics(0, 1.0)
    counts = np.asarray(pc.value_counts(known).field("counts").to_numpy(zero_copy_only=False))
    distinct = _estimated_distinct(counts, round(total * (1.0 - nulls)))
    bounds = _bounds(known)
    lowest, highest = (bounds[0], bounds[-1]) if bounds else (None, None)
    return PropertyStatistics(
        rounded_count(distinct, _ROUGH_DIGITS), rounded(nulls, _ROUGH_DIGITS), lowest, highest, bounds
    )


def _estimated_distinct(counts: IntArray, total: int) -> int:
    """How many distinct values all rows have, from how often each value stands in a sample.

    Values that were seen once say how many more there are (Haas and Stokes: the first-order jackknife).
    """
    seen, sampled = len(counts), int(counts.sum())
    if sampled >= total:
        return seen
    once = int(np.count_nonzero(counts == 1))
    left = sampled - once + once * sampled / total
    return min(total, round(seen * sampled / left)) if left > 0 else total


def _bounds(known: Array) -> tuple[float, ...]:
    if not (pa.types.is_integer(known.type) or pa.types.is_floating(known.type)):
        return ()
    numbers = np.asarray(known.to_numpy(zero_copy_only=False), np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return ()
    found = np.quantile(numbers, np.linspace(0.0, 1.0, _BUCKETS + 1))
    return tuple(rounded(float(bound)) for bound in found)
