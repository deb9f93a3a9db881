"""Neighbour lists, and work in parts that can be stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from omnigraph.core.budget import Budget
from omnigraph.engine.rows import BoolArray, IntArray, Numbers
from omnigraph.frozen import frozen

_Part = TypeVar("_Part")
_Made = TypeVar("_Made")

#: Steps of one part of a kernel's work: a few milliseconds of them.
PART_STEPS = 1 << 20
#: Arrays of one loop of numpy: larger ones are slower, because each takes fresh pages.
MORSEL = 1 << 17
#: Threads that work on one read.
_THREADS = min(4, os.cpu_count() or 1)


@frozen
class Lists:
    """The neighbours of nodes: node `n` has `targets[starts[n]:ends[n]]`, sorted, each once, all of them below `bound`.

    Lists may lie anywhere in `targets`, in any order.
    """

    starts: IntArray
    ends: IntArray
    targets: Numbers
    bound: int

    def sizes(self, numbers: IntArray) -> IntArray:
        """How many neighbours nodes have."""
        found: IntArray = self.ends[numbers] - self.starts[numbers]
        return found

    @property
    def mean(self) -> float:
        """The mean number of neighbours."""
        return len(self.targets) / max(len(self.starts), 1)


def run_starts(*columns: IntArray) -> IntArray:
    """The places at which a row differs from the one before it, the first one included."""
    first = columns[0]
    differs = np.ones(len(first), np.bool_)
    if len(first):
        differs[1:] = first[1:] != first[:-1]
        for other in columns[1:]:
            differs[1:] |= other[1:] != other[:-1]
    return np.flatnonzero(differs)


def parts_of(steps: IntArray, most: int) -> Iterator[tuple[int, int]]:
    """Rows in parts of about so many steps: begin and end of each; a row that takes more has a part of its own."""
    ends = np.cumsum(steps)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(most, total, most), side="left") + 1
    bounds = [0, *cuts.tolist(), len(steps)]
    yield from ((begin, end) for begin, end in pairwise(bounds) if begin < end)


def worked(budget: Budget, parts: Iterator[_Part], work: Callable[[_Part], _Made], steps: int) -> Iterator[_Made]:
    """What parts of some work come to, in order; of much work several parts are done at once.

    The work gives the interpreter back for most of its time, and has scratch of its own per part.
    """
    if steps <= 2 * PART_STEPS:
        for part in budget.steps(parts):
            yield work(part)
        return
    waiting: list[Callable[[], _Made]] = []
    for part in parts:
        waiting.append(partial(work, part))
        if len(waiting) == _THREADS:
            yield from budget.together(waiting)
            waiting = []
    yield from budget.together(waiting)


# ---- Membership


def are_in_lists(lists: Lists, nodes: IntArray, wanted: IntArray) -> BoolArray:
    """Per row, whether a number is among the neighbours of its node: a binary search of all rows at once."""
    if not len(lists.targets):
        return np.zeros(len(nodes), np.bool_)
    places = first_places(lists, nodes, wanted)
    is_inside: BoolArray = places < lists.ends[nodes]
    places[~is_inside] = 0
    is_inside &= lists.targets[places] == wanted
    return is_inside


def first_places(lists: Lists, nodes: IntArray, wanted: IntArray) -> IntArray:
    """Per row, the first place among the neighbours of its node at which no smaller number stands."""
    found = np.empty(len(nodes), np.int64)
    last = len(lists.targets) - 1
    for begin in range(0, len(nodes), MORSEL):
        some, sought = nodes[begin : begin + MORSEL], wanted[begin : begin + MORSEL]
        low = lists.starts[some]
        width = lists.ends[some] - low
        # Each round halves what is left of every list; `low` stays the first place of it.
        for _ in range(int(width.max(initial=0)).bit_length()):
            half = width >> 1
            is_behind = (lists.targets[np.minimum(low + half, last)] < sought) & (width > 0)
            low = np.where(is_behind, low + half + 1, low)
            width = np.where(is_behind, width - half - 1, half)
        found[begin : begin + MORSEL] = low
    return found
