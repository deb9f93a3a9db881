"""Bounded reachability: breadth first from many nodes at once, each with its own visited set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from omnigraph.engine.local.adjacency import offsets_of
from omnigraph.engine.local.neighbours import Neighbours, Reach, neighbours_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.engine.local.arrays import BoolArray, IntArray


#: Cells of one visited bitmap; a wider question is answered in parts.
_BITMAP_CELLS = 1 << 26
#: A set of keys is made distinct through a bitmap when it is at least this share of all keys.
_DENSE_SHARE = 1 / 64


def reach_within(
    neighbours: Neighbours, sources: IntArray, low: int, high: int, *, is_dense: bool
) -> Iterator[tuple[int, Reach]]:
    """What distinct nodes reach with `low` to `high` hops, for the sources in parts: first source, answer.

    A node is reached at its first, shortest reach. A source counts as visited, except that an edge from it to itself
    reaches it at hop 1.
    """
    part = max(1, _BITMAP_CELLS // neighbours.stride if is_dense else len(sources))
    for start in range(0, len(sources), part):
        yield start, _reach(neighbours, sources[start : start + part], low, high, is_dense=is_dense)


def _reach(
    neighbours: Neighbours, sources: IntArray, low: int, high: int, *, is_dense: bool
) -> Reach:
    stride, count = neighbours.stride, len(sources)
    numbers = neighbours.numbers(sources)
    start = np.arange(count) * stride + numbers
    visited: _Visited = _Bitmap(count * stride) if is_dense else _SortedKeys()
    visited.add(start)
    emitted: list[IntArray] = []
    frontier = start
    for hop in range(1, high + 1):
        owner, node = frontier // stride, frontier % stride
        places, step = neighbours.once(node)
        index, targets = neighbours_of(step, places)
        keys = owner[index] * stride + step.targets[targets].astype(np.int64)
        if hop == 1 and low == 1:
            own = keys[keys == frontier[index]]
            if len(own):
                emitted.append(own)
        frontier = visited.add_new(keys)
        if not len(frontier):
            break
        if hop >= low:
            emitted.append(frontier)
    keys = np.sort(np.concatenate(emitted)) if emitted else np.zeros(0, np.int64)
    owners, targets = keys // stride, keys % stride
    return Reach(offsets_of(owners, count), targets)


class _Visited(Protocol):
    """Which (source, node) keys were reached."""

    def add(self, keys: IntArray) -> None:
        """Mark keys."""
        ...

    def add_new(self, keys: IntArray) -> IntArray:
        """Mark keys; those that were not marked before, once each."""
        ...


class _Bitmap:
    """Visited keys as one truth value per possible key."""

    def __init__(self, cells: int) -> None:
        self._seen: BoolArray = np.zeros(cells, np.bool_)

    def add(self, keys: IntArray) -> None:
        self._seen[keys] = True

    def add_new(self, keys: IntArray) -> IntArray:
        new = keys[~self._seen[keys]]
        if len(new) < len(self._seen) * _DENSE_SHARE:
            new = np.unique(new)
        else:
            marks = np.zeros(len(self._seen), np.bool_)
            marks[new] = True
            new = np.flatnonzero(marks)
        self._seen[new] = True
        return new


class _SortedKeys:
    """Visited keys as a sorted array: for nodes whose numbers are not dense."""

    def __init__(self) -> None:
        self._seen: IntArray = np.zeros(0, np.int64)

    def add(self, keys: IntArray) -> None:
        self._seen = np.union1d(self._seen, keys)

    def add_new(self, keys: IntArray) -> IntArray:
        new = np.setdiff1d(keys, self._seen)
        self.add(new)
        return new
