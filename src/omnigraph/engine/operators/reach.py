"""Bounded reachability: the nodes within some hops, as lists, as counts per source, or as weights per node."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Protocol

import numpy as np

from omnigraph.core.budget import Budget
from omnigraph.engine.distinct import sorted_distinct
from omnigraph.engine.kernels import machine_code
from omnigraph.engine.kernels.compiled import Loop, machine_loop
from omnigraph.engine.kernels.lists import PART_STEPS, Lists, worked
from omnigraph.engine.operators.neighbours import AdjacentNeighbours, Neighbours, Reach, bounded_parts, neighbours_of
from omnigraph.engine.rows import BoolArray, IntArray
from omnigraph.frozen import frozen

# A node is reached at its first, shortest reach. A source counts as visited, except that an edge from it to itself
# reaches it at hop 1.

#: Cells of one visited bitmap; a wider question is answered in parts.
_BITMAP_CELLS = 1 << 23
#: Edges that are followed at once.
_STEP_EDGES = 1 << 19
#: Nodes whose edges are read at once, where they are read from the edge table.
_STEP_NODES = 1 << 16
#: Nodes that are written out at once.
_WRITTEN_NODES = 1 << 21
#: Sources that are searched at once by a thread.
_LEAST_SOURCES = 16
#: Sources times edges of a search that takes well below 100 ms, whatever it reaches.
_SURELY_SHORT = 1 << 23

_NONE: BoolArray = np.zeros(0, np.bool_)
_NO_NUMBERS: IntArray = np.zeros(0, np.int64)


@frozen
class Question:
    """Which nodes are reached with `low` to `high` hops from sources, which are distinct numbers."""

    neighbours: Neighbours
    sources: IntArray
    low: int
    high: int

    def expected_nodes(self) -> int:
        """About how many nodes are reached by all sources together."""
        if not isinstance(self.neighbours, AdjacentNeighbours):
            return len(self.sources)
        mean = self.neighbours.mean
        walked = mean ** min(self.high, 32) if mean > 1 else mean * self.high
        return int(len(self.sources) * min(walked, float(self.neighbours.stride)))


def reach_within(question: Question, budget: Budget) -> Iterator[tuple[int, Reach]]:
    """The nodes that each source reaches, for the sources in parts: the first source, and the answer."""
    neighbours = question.neighbours
    if not isinstance(neighbours, AdjacentNeighbours):
        yield 0, _reach(question, question.sources, _SortedKeys(), budget)
        return
    loop = _machine(neighbours, question.expected_nodes())
    if loop is not None:
        yield from _listed(loop, question, neighbours.lists, budget)
        return
    part = max(1, _BITMAP_CELLS // neighbours.stride)
    for start in range(0, len(question.sources), part):
        some = question.sources[start : start + part]
        yield start, _reach(question, some, _Bitmap(len(some) * neighbours.stride, budget), budget)


def reach_counts(question: Question, allowed: BoolArray | None, budget: Budget) -> IntArray:
    """How many nodes each source reaches; with `allowed`, of those that it is true for."""
    counts = [found for found, _ in _sums(question, None, allowed, budget)]
    return np.concatenate([_NO_NUMBERS, *counts])


def reach_totals(question: Question, weights: IntArray, allowed: BoolArray | None, budget: Budget) -> IntArray:
    """Per number of a node the weights of all sources that reach it, added up; 0 for nodes that are not allowed."""
    totals = np.zeros(question.neighbours.stride, np.int64)
    for _, found in _sums(question, weights, allowed, budget):
        totals += found
    return totals


def _sums(
    question: Question, weights: IntArray | None, allowed: BoolArray | None, budget: Budget
) -> Iterator[tuple[IntArray, IntArray]]:
    """Counts per source, or totals per node, of the sources in parts."""
    neighbours = question.neighbours
    assert isinstance(neighbours, AdjacentNeighbours), "nodes are counted by their dense numbers"
    steps, count = question.expected_nodes(), len(question.sources)
    loop = _machine(neighbours, steps)
    if loop is None:
        for start, reach in reach_within(question, budget):
            counted = len(reach.starts)
            targets = reach.targets.astype(np.int64)
            owners = np.repeat(np.arange(counted), reach.ends - reach.starts)
            if allowed is not None:
                kept = allowed[targets]
                targets, owners = targets[kept], owners[kept]
            if weights is None:
                yield np.bincount(owners, minlength=counted), _NO_NUMBERS
            else:
                totals = np.zeros(neighbours.stride, np.int64)
                np.add.at(totals, targets, weights[start : start + counted][owners])
                yield _NO_NUMBERS, totals
        return
    lists, search = neighbours.lists, loop
    size = max(_LEAST_SOURCES, min(count // 4, PART_STEPS * count // max(steps, 1)) + 1)
    if count * len(lists.targets) > _SURELY_SHORT:
        # The guess may be far too low: this thread has to look at the bounds meanwhile.
        steps = max(steps, 4 * PART_STEPS)
    is_over = Event()
    budget.allow(4 * lists.bound * 20)

    def work(start: int) -> tuple[IntArray, IntArray]:
        stop = min(start + size, count)
        totals = _NO_NUMBERS if weights is None else np.zeros(lists.bound, np.int64)
        counts = np.zeros(stop - start, np.int64)
        while start < stop and not is_over.is_set():
            some = slice(start, stop)
            shares = _NO_NUMBERS if weights is None else weights[some]
            rest = counts[start - stop :]
            start += _search(search, question, some, allowed=allowed, weights=shares, counts=rest, totals=totals)
        return counts, totals

    try:
        yield from worked(budget, iter(range(0, count, size)), work, steps)
    finally:
        is_over.set()


def _listed(loop: Loop, question: Question, lists: Lists, budget: Budget) -> Iterator[tuple[int, Reach]]:
    start, count = 0, len(question.sources)
    room = max(lists.bound, min(_WRITTEN_NODES, count * lists.bound))
    budget.allow(room * 8 + lists.bound * 12)
    while start < count:
        nodes, counts = np.empty(room, np.int64), np.zeros(count - start, np.int64)
        some = slice(start, count)
        done = _search(loop, question, some, counts=counts, nodes=nodes)
        ends = np.cumsum(counts[:done])
        yield start, Reach(ends - counts[:done], ends, nodes[: int(ends[-1])])
        budget.check()
        start += done


def _machine(neighbours: AdjacentNeighbours, steps: int) -> Loop | None:
    """The search as machine code, if it is ready and the lists that it walks are there or worth being made."""
    if not neighbours.is_whole and steps * 4 < neighbours.edge_count:
        return None
    return machine_loop(machine_code.reached, steps, neighbours.lists.targets)


def _search(
    loop: Loop,
    question: Question,
    some: slice,
    *,
    counts: IntArray,
    allowed: BoolArray | None = None,
    weights: IntArray = _NO_NUMBERS,
    totals: IntArray = _NO_NUMBERS,
    nodes: IntArray = _NO_NUMBERS,
) -> int:
    """Search from some of the sources; returns how many of them are done."""
    assert isinstance(question.neighbours, AdjacentNeighbours), "machine code walks the traversal index"
    lists = question.neighbours.lists
    done: int = loop(
        lists.starts,
        lists.ends,
        lists.targets,
        np.ascontiguousarray(question.sources[some]),
        question.low,
        question.high,
        _NONE if allowed is None else allowed,
        weights,
        np.zeros(lists.bound, np.int32),
        np.empty(lists.bound, np.int64),
        counts,
        totals,
        nodes,
        PART_STEPS,
    )
    return done


# ---- With numpy: all sources at once, hop by hop, as keys of a source and a node


def _reach(question: Question, sources: IntArray, visited: _Visited, budget: Budget) -> Reach:
    neighbours, low, high = question.neighbours, question.low, question.high
    stride, count = neighbours.stride, len(sources)
    frontier = np.arange(count) * stride + sources
    visited.add(frontier)
    emitted: list[IntArray] = []
    for hop in range(1, high + 1):
        reached: list[IntArray] = []
        for keys, origin in _steps(neighbours, frontier, stride, budget):
            if hop == 1 and low == 1:
                own = keys[keys == origin]
                if len(own):
                    emitted.append(own)
            new = visited.add_new(keys)
            if len(new):
                reached.append(new)
                budget.allow(sum(item.nbytes for item in reached) * 2)
        if not reached:
            break
        frontier = reached[0] if len(reached) == 1 else np.concatenate(reached)
        if hop >= low:
            emitted.append(frontier)
    if len(emitted) == 1:
        # One hop: its keys are in the order of their sources already.
        owners, targets = np.divmod(emitted[0], stride)
        return Reach.of_runs(owners, count, targets)
    budget.allow(sum(item.nbytes for item in emitted) * 4)
    owners, targets = np.divmod(np.concatenate([_NO_NUMBERS, *emitted]), stride)
    # Sorting small numbers is much faster than sorting keys.
    order = np.argsort(owners.astype(np.uint16) if count <= 1 << 16 else owners, kind="stable")
    return Reach.of_runs(owners, count, targets[order])


def _steps(
    neighbours: Neighbours, frontier: IntArray, stride: int, budget: Budget
) -> Iterator[tuple[IntArray, IntArray]]:
    """The keys that one hop leads to, and the keys that it starts at, in parts of a bounded number of edges."""
    for begin in budget.steps(range(0, len(frontier), _STEP_NODES)):
        part = frontier[begin : begin + _STEP_NODES]
        node = part % stride
        places, step = neighbours.once(node)
        for some in budget.steps(bounded_parts(step, places, _STEP_EDGES)):
            budget.allow(int(some.counts.sum()) * 8 * 6)
            index, targets = neighbours_of(some.reach, some.places)
            index += some.start
            origin = part[index]
            yield (origin - node[index]) + step.targets[targets].astype(np.int64), origin


class _Visited(Protocol):
    """The (source, node) keys that were reached."""

    def add(self, keys: IntArray) -> None:
        """Mark keys."""
        ...

    def add_new(self, keys: IntArray) -> IntArray:
        """Mark keys; those that were not marked before, once each, in the order of their sources."""
        ...


class _Bitmap:
    """Visited keys as one truth value per possible key."""

    def __init__(self, cells: int, budget: Budget) -> None:
        budget.allow(cells * 5)
        self._seen: BoolArray = np.zeros(cells, np.bool_)
        #: Of equal keys the one that was written last stays.
        self._last = np.empty(cells, np.int32)

    def add(self, keys: IntArray) -> None:
        self._seen[keys] = True

    def add_new(self, keys: IntArray) -> IntArray:
        new: IntArray = keys[~self._seen[keys]]
        places = np.arange(len(new), dtype=np.int32)
        self._last[new] = places
        new = new[self._last[new] == places]
        self._seen[new] = True
        return new


class _SortedKeys:
    """Visited keys as a sorted array: for nodes whose numbers are not dense."""

    def __init__(self) -> None:
        self._seen = _NO_NUMBERS

    def add(self, keys: IntArray) -> None:
        self._seen = np.sort(np.concatenate([self._seen, keys]))

    def add_new(self, keys: IntArray) -> IntArray:
        new: IntArray = sorted_distinct(keys)
        places = np.minimum(np.searchsorted(self._seen, new), len(self._seen) - 1)
        new = new[self._seen[places] != new]
        self.add(new)
        return new
