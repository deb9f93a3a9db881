"""Bounded reachability: the nodes within some hops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from omnigraph.core.budget import Budget
from omnigraph.engine.operators.neighbours import Neighbours, Reach, bounded_parts, neighbours_of
from omnigraph.engine.rows import BoolArray, IntArray
from omnigraph.engine.tables.runs import offsets_of

#: Cells of one visited bitmap; a wider question is answered in parts.
_BITMAP_CELLS = 1 << 23
#: Edges that are followed at once.
_STEP_EDGES = 1 << 21
#: Nodes whose edges are read at once, where they are read from the edge table.
_STEP_NODES = 1 << 16
#: A set of keys is made distinct through a bitmap when it is at least this share of all keys.
_DENSE_SHARE = 1 / 64


def reach_within(
    neighbours: Neighbours, sources: IntArray, low: int, high: int, *, is_dense: bool, budget: Budget
) -> Iterator[tuple[int, Reach]]:
    """The nodes that distinct nodes reach with `low` to `high` hops, for the sources in parts: first source, answer.

    A node is reached at its first, shortest reach. A source counts as visited, except that an edge from it to itself
    reaches it at hop 1.
    """
    part = max(1, _BITMAP_CELLS // neighbours.stride if is_dense else len(sources))
    for start in range(0, len(sources), part):
        some = sources[start : start + part]
        yield start, _reach(neighbours, some, low, high, is_dense=is_dense, budget=budget)


def _reach(neighbours: Neighbours, sources: IntArray, low: int, high: int, *, is_dense: bool, budget: Budget) -> Reach:
    stride, count = neighbours.stride, len(sources)
    numbers = neighbours.numbers(sources)
    start = np.arange(count) * stride + numbers
    visited: _Visited = _Bitmap(count * stride, budget) if is_dense else _SortedKeys()
    emitted: _Visited = _Bitmap(count * stride, budget) if is_dense else _SortedKeys()
    visited.add(start)
    frontier = start
    for hop in range(1, high + 1):
        reached: list[IntArray] = []
        for keys, origin in _steps(neighbours, frontier, stride, budget):
            if hop == 1 and low == 1:
                own = keys[keys == origin]
                if len(own):
                    emitted.add(own)
            new = visited.add_new(keys)
            if len(new):
                reached.append(new)
                budget.allow(sum(item.nbytes for item in reached) * 2)
        if not reached:
            break
        frontier = reached[0] if len(reached) == 1 else np.concatenate(reached)
        if hop >= low:
            emitted.add(frontier)
    keys = emitted.all()
    owners, targets = keys // stride, keys % stride
    return Reach(offsets_of(owners, count), targets)


def _steps(
    neighbours: Neighbours, frontier: IntArray, stride: int, budget: Budget
) -> Iterator[tuple[IntArray, IntArray]]:
    """The keys that one hop leads to, and the keys that it starts at, in parts of a bounded number of edges."""
    for begin in budget.steps(range(0, len(frontier), _STEP_NODES)):
        part = frontier[begin : begin + _STEP_NODES]
        owner, node = part // stride, part % stride
        places, step = neighbours.once(node)
        for some in budget.steps(bounded_parts(step, places, _STEP_EDGES)):
            budget.allow(int(some.counts.sum()) * 8 * 6)
            index, targets = neighbours_of(some.reach, some.places)
            index += some.start
            keys = owner[index] * stride + step.targets[targets].astype(np.int64)
            yield keys, part[index]


class _Visited(Protocol):
    """The (source, node) keys that were reached."""

    def add(self, keys: IntArray) -> None:
        """Mark keys."""
        ...

    def add_new(self, keys: IntArray) -> IntArray:
        """Mark keys; those that were not marked before, once each."""
        ...

    def all(self) -> IntArray:
        """Every marked key, in order."""
        ...


class _Bitmap:
    """Visited keys as one truth value per possible key."""

    def __init__(self, cells: int, budget: Budget) -> None:
        # Beside it, one more is made to find what is new.
        budget.allow(cells * 2)
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

    def all(self) -> IntArray:
        return np.flatnonzero(self._seen)


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

    def all(self) -> IntArray:
        return self._seen
