"""The merge truth table, and merge bases. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.commit.lineage import BaseStep, base_commits, base_steps
from omnigraph.commit.rows import GraphCommit
from omnigraph.errors import ConflictKind
from omnigraph.frozen import frozen

# ---- The merge truth table and its evaluation
#
# A row is a number: equal numbers are equal rows. The unit is the whole row.


#: There is no row of this id.
ABSENT: Final = -1
#: Bases that disagree among themselves: a row that equals neither side.
UNDECIDED: Final = -2


class Side(IntEnum):
    """One side, compared with the base. A row that the base lacks differs from it."""

    EQUAL = 0
    DIFFERS = 1
    ABSENT = 2


class Choice(IntEnum):
    """The row that the merged branch holds."""

    #: What the target has; nothing to write.
    KEEP = 0
    #: What the source has, which may be nothing.
    TAKE = 1
    DIVERGENT_INSERT = 2
    DIVERGENT_UPDATE = 3
    DELETE_VS_UPDATE = 4


CONFLICTS: Final = {
    Choice.DIVERGENT_INSERT: ConflictKind.DIVERGENT_INSERT,
    Choice.DIVERGENT_UPDATE: ConflictKind.DIVERGENT_UPDATE,
    Choice.DELETE_VS_UPDATE: ConflictKind.DELETE_VS_UPDATE,
}

#: (the base has the row, source, target) → choice, where source and target do not agree with each other.
TRUTH: Final = {
    (False, Side.DIFFERS, Side.ABSENT): Choice.TAKE,
    (False, Side.ABSENT, Side.DIFFERS): Choice.KEEP,
    (False, Side.DIFFERS, Side.DIFFERS): Choice.DIVERGENT_INSERT,
    (True, Side.DIFFERS, Side.EQUAL): Choice.TAKE,
    (True, Side.EQUAL, Side.DIFFERS): Choice.KEEP,
    (True, Side.DIFFERS, Side.DIFFERS): Choice.DIVERGENT_UPDATE,
    (True, Side.ABSENT, Side.EQUAL): Choice.TAKE,
    (True, Side.EQUAL, Side.ABSENT): Choice.KEEP,
    (True, Side.ABSENT, Side.DIFFERS): Choice.DELETE_VS_UPDATE,
    (True, Side.DIFFERS, Side.ABSENT): Choice.DELETE_VS_UPDATE,
}


def choose(base: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int8]:
    """The choice for every id. Sides that agree, on a row or on its absence, keep what they have.

    >>> choose(np.array([1, 1, ABSENT]), np.array([2, ABSENT, 3]), np.array([1, 4, 3])).tolist()
    [1, 4, 0]
    """
    has_base = (base != ABSENT).astype(np.intp)
    choices: NDArray[np.int8] = _TABLE[has_base, _compare(source, base), _compare(target, base)]
    choices[(source == target) & (source != UNDECIDED)] = Choice.KEEP
    return choices


def virtual_base(base: NDArray[np.int64], one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The agreement of two bases: their own merge, undecided where they conflict."""
    choices = choose(base, other, one)
    merged = np.where(choices == Choice.TAKE, other, one)
    return np.where(choices > Choice.TAKE, UNDECIDED, merged)


def _compare(rows: NDArray[np.int64], base: NDArray[np.int64]) -> NDArray[np.intp]:
    # What is undecided equals nothing, not even what else is undecided.
    is_equal = (rows == base) & (rows != UNDECIDED)
    sides = np.where(is_equal, Side.EQUAL, Side.DIFFERS)
    return np.where(rows == ABSENT, Side.ABSENT, sides).astype(np.intp)


def _lookup() -> NDArray[np.int8]:
    table = np.full((2, len(Side), len(Side)), Choice.KEEP, dtype=np.int8)
    for (has_base, source, target), choice in TRUTH.items():
        table[int(has_base), source, target] = choice
    return table


_TABLE = _lookup()


# ---- Merge bases
#
# Two branches that both took over a third one have two bases, and neither of them alone knows the work that is common
# through the other. Their own merge is the base then: a virtual one, decided id by id and never written down.


@frozen(slots=False)
class Base:
    """The base of a merge, and how it is put together."""

    steps: tuple[BaseStep, ...]

    @cached_property
    def commits(self) -> tuple[str, ...]:
        """Every commit that takes part, the best one first."""
        return base_commits(self.steps)


def find_base(commits: Mapping[str, GraphCommit], source: str, target: str) -> Base:
    """The base of a merge. The commits of one graph have a common beginning, so there is one."""
    return Base(tuple(base_steps(commits, source, target)))


def base_rows(base: Base, states: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows of a base, from those of every commit that takes part."""
    known: dict[object, NDArray[np.int64]] = {}
    for step in base.steps:
        rows = states[step.bases[0]]
        for commit_id, common in zip(step.bases[1:], step.common, strict=True):
            rows = virtual_base(known[common], rows, states[commit_id])
        known[step.pair] = rows
    return known[base.steps[-1].pair]
