"""Ways to the nearest vectors, and what is known of an index: how many partitions give which recall. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil

import numpy as np

from omnigraph.engine.rows import FloatArray, IntArray, Numbers
from omnigraph.frozen import frozen

# ---- What was measured on an index


@frozen
class RecallCurve:
    """The recall of searches in an index, measured against exact ones: by how many were asked for, and by partitions.

    Recall at a *depth* is the share of that many nearest vectors that a search finds, on average.
    """

    #: Ascending.
    probes: IntArray
    #: Ascending.
    depths: IntArray
    #: A row per depth, a column per number of partitions.
    recalls: FloatArray
    #: The standard error of each recall.
    errors: FloatArray
    #: How many rows the type had.
    rows: int

    def choose(self, wanted: float, depth: int) -> tuple[int, float] | None:
        """The fewest partitions with a recall at a depth, and the recall that they have; None if none is known to.

        The recall has to be there without the standard error of its measurement.
        """
        row = int(np.searchsorted(self.depths, depth))
        if row == len(self.depths):
            return None
        is_enough = self.recalls[row] - self.errors[row] >= wanted
        if not is_enough.any():
            return None
        column = int(np.argmax(is_enough))
        return int(self.probes[column]), float(self.recalls[row, column])

    def pack(self) -> dict[str, Numbers]:
        """The arrays that are kept."""
        rows = np.array([self.rows])
        return {
            "probes": self.probes,
            "depths": self.depths,
            "recalls": self.recalls,
            "errors": self.errors,
            "rows": rows,
        }

    @staticmethod
    def unpack(arrays: Mapping[str, Numbers]) -> RecallCurve | None:
        """The curve in kept arrays; None when they are something else."""
        names = ("probes", "depths", "recalls", "errors", "rows")
        if any(name not in arrays for name in names):
            return None
        # Plain views: every access to a mapped array itself costs several function calls.
        probes, depths, recalls, errors, rows = (np.asarray(arrays[name]) for name in names)
        is_curve = (
            all(_ascends(item) for item in (probes, depths, rows))
            and len(rows) == 1
            and all(item.dtype == np.float64 for item in (recalls, errors))
            and recalls.shape == errors.shape == (len(depths), len(probes))
            and bool(((recalls >= 0) & (recalls <= 1) & (errors >= 0)).all())
        )
        return RecallCurve(probes, depths, recalls, errors, int(rows[0])) if is_curve else None


def _ascends(numbers: Numbers) -> bool:
    return (
        numbers.ndim == 1
        and numbers.dtype == np.int64
        and len(numbers) > 0
        and int(numbers[0]) > 0
        and bool((numbers[1:] > numbers[:-1]).all())
    )


# ---- The choice of a way


class VectorWay(StrEnum):
    """The ways; all but the index compare every vector that may be among the nearest."""

    #: Each row that is left is compared.
    EXACT = "exact scan"
    #: Storage compares all vectors that satisfy a filter, as it reads them.
    STREAM = "exact scan of the stored vectors"
    INDEX = "vector index"


@frozen(kw_only=True)
class VectorFacts:
    """What the choice depends on."""

    #: Rows of the type.
    rows: int
    #: Rows that pass the filter, or the traversal; None while it is not known.
    survivors: int | None
    dimension: int
    #: How many of the nearest are asked for; None for all.
    count: int | None
    wanted: float
    #: Of the index, if there is one.
    curve: RecallCurve | None
    #: Numbers that are compared one by one.
    exact_values: int


@frozen
class VectorChoice:
    """A way, with how much of an index it looks at, and the recall that is expected."""

    way: VectorWay
    probes: int | None = None
    recall: float = 1.0


_EXACT = VectorChoice(VectorWay.EXACT)
_STREAM = VectorChoice(VectorWay.STREAM)


def choose_way(facts: VectorFacts) -> VectorChoice | None:
    """The way to the nearest; None when it depends on how many rows pass the filter.

    What a filter leaves is compared row by row where that is little work. Otherwise the index answers, if it is known
    to reach the wanted recall: with a filter it has to find the nearest among more, as many as the filter drops.
    """
    survivors = facts.rows if facts.survivors is None else facts.survivors
    if survivors * facts.dimension <= facts.exact_values:
        return _EXACT
    if facts.survivors is None:
        return None
    is_filtered = survivors < facts.rows
    if facts.curve is not None and facts.count is not None and facts.wanted < 1:
        # What was deleted since it was measured is as good as dropped by a filter.
        depth = ceil(facts.count * max(facts.rows, facts.curve.rows) / max(survivors, 1))
        found = facts.curve.choose(facts.wanted, depth)
        if found is not None:
            return VectorChoice(VectorWay.INDEX, *found)
    return _EXACT if is_filtered else _STREAM
