"""Adjacency arrays, the ways to neighbours, and bounded reachability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from omnigraph.core.arrow import Array, Batch, pa, pc
from omnigraph.core.budget import Budget
from omnigraph.engine.rows import BoolArray, IntArray, Numbers, read_batches
from omnigraph.engine.tables.entities import Entities, row_id_array
from omnigraph.errors import DamageError
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import Direction
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.reads import read_rows, scan_rows

# ---- The traversal index
#
# For each direction, the neighbours of node `n` are `targets[offsets[n]:offsets[n + 1]]`, sorted, beside the row ids
# of the edges that lead to them. Parallel edges are kept there; where there are any, a second pair of arrays has each
# neighbour once.


_MAX_NARROW = 2**32 - 1


def ends_among(ids: Array, known: Array, edges: str) -> IntArray:
    """The positions of the ends of edges among the ids of all nodes.

    Raises:
        DamageError: one of them does not exist, and no writer leaves an edge like that.
    """
    found = pc.index_in(ids, known)
    if found.null_count:
        count = f"{found.null_count:,} of {len(ids):,} ends"
        raise DamageError(f"following the edges in {edges}", f"{count} are nodes that do not exist")
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)


@frozen
class Side:
    """One direction of the edges."""

    offsets: IntArray
    targets: Numbers
    edges: Numbers
    #: The same with every neighbour once; the same arrays when no two edges are parallel.
    distinct_offsets: IntArray
    distinct_targets: Numbers

    def is_consistent(self, sources: int, targets: int) -> bool:
        """Whether runs follow each other, one per source, and lead to targets that exist."""
        return len(self.edges) == len(self.targets) and all(
            _are_runs(offsets, ends, sources, targets)
            for offsets, ends in ((self.offsets, self.targets), (self.distinct_offsets, self.distinct_targets))
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or mapped."""
        arrays = [self.offsets, self.targets, self.edges]
        if self.distinct_targets is not self.targets:
            arrays += [self.distinct_offsets, self.distinct_targets]
        return sum(array.nbytes for array in arrays)


class Adjacency:
    """All edges of one type between two numbered node types. Sides are made when they are first asked for."""

    def __init__(self, sources: int, targets: int, sides: Mapping[Direction, Side] | None = None) -> None:
        self.sources = sources
        self.targets = targets
        self._sides: dict[Direction, Side] = dict(sides or {})

    @staticmethod
    def build(source: IntArray, target: IntArray, edge: IntArray, *, sources: int, targets: int) -> Adjacency:
        """From one array per column: number of the source, number of the target, row id of the edge."""
        adjacency = Adjacency(sources, targets)
        adjacency._sides[Direction.OUT] = build_side(source, target, edge, sources, targets)
        return adjacency

    def side(self, direction: Direction) -> Side:
        """The edges as seen in one direction."""
        known = self._sides.get(direction)
        if known is None:
            known = self._make(direction)
            self._sides[direction] = known
        return known

    def has(self, direction: Direction) -> bool:
        """Whether the edges in one direction need not be made first."""
        return direction in self._sides

    def known_sides(self) -> Mapping[Direction, Side]:
        """The sides that are made."""
        return self._sides

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return len(self.side(Direction.OUT).targets)

    def is_consistent(self) -> bool:
        """Whether every number in the arrays stands for a node or a place that exists; row ids are not looked at."""
        ends = {Direction.OUT: (self.sources, self.targets), Direction.IN: (self.targets, self.sources)}
        return all(
            direction not in ends or side.is_consistent(*ends[direction]) for direction, side in self._sides.items()
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all sides that are made."""
        return sum(side.nbytes for side in self._sides.values())

    def _make(self, direction: Direction) -> Side:
        out = self._sides[Direction.OUT]
        source = np.repeat(np.arange(self.sources), np.diff(out.offsets))
        target = out.targets.astype(np.int64)
        edge = out.edges.astype(np.int64)
        if direction is Direction.IN:
            return build_side(target, source, edge, self.targets, self.sources)
        # A self-loop is one edge, not two, whichever way it is followed.
        others = source != target
        return build_side(
            np.concatenate([source, target[others]]),
            np.concatenate([target, source[others]]),
            np.concatenate([edge, edge[others]]),
            self.sources,
            self.targets,
        )


def build_side(source: IntArray, target: IntArray, edge: IntArray, sources: int, targets: int) -> Side:
    """Sort edges by source and target."""
    order = np.argsort(source * max(targets, 1) + target)
    source, target, edge = source[order], target[order], edge[order]
    offsets = offsets_of(source, sources)
    narrow_targets = target.astype(np.uint32 if targets <= _MAX_NARROW else np.int64)
    fits = not len(edge) or int(edge.max()) <= _MAX_NARROW
    narrow_edges = edge.astype(np.uint32 if fits else np.int64)
    repeats = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
    if not repeats.any():
        return Side(offsets, narrow_targets, narrow_edges, offsets, narrow_targets)
    first = np.concatenate([[True], ~repeats])
    return Side(offsets, narrow_targets, narrow_edges, offsets_of(source[first], sources), narrow_targets[first])


def _are_runs(offsets: IntArray, ends: Numbers, sources: int, targets: int) -> bool:
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (offsets, ends)):
        return False
    if len(offsets) != sources + 1 or offsets[0] != 0 or offsets[-1] != len(ends):
        return False
    if (offsets[1:] < offsets[:-1]).any():
        return False
    return not len(ends) or (int(ends.min()) >= 0 and int(ends.max()) < targets)


def offsets_of(sorted_source: IntArray, sources: int) -> IntArray:
    """The offsets of the runs of equal values among sorted sources, and the end of the last one."""
    counts = np.bincount(sorted_source, minlength=sources)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """The numbers `starts[i] … starts[i] + counts[i] - 1` of all i, one after the other."""
    total = int(counts.sum())
    if not total:
        return np.zeros(0, np.int64)
    ends = np.cumsum(counts)
    shifts: IntArray = np.repeat(starts - (ends - counts), counts)
    return np.arange(total) + shifts


# ---- Neighbours of nodes, from index, lookup or scan
#
# * `IndexedNeighbours` probes the edge table by node id: a few reads per hop, for small frontiers.
# * `AdjacentNeighbours` walks the traversal index: no read at all once the index is there.
# * `ScannedNeighbours` reads the edge table once and joins: for one-off questions without any index.
#
# Nodes are numbers inside one of them: dense numbers in the second, row ids in the others.


#: Row ids stay below this, so that a small number and a row id fit into one signed integer.
ROW_ID_STRIDE = 1 << 40
_SCAN_ROWS = 1 << 17
#: Ids in the text of one filter.
_PROBE_IDS = 1000


@frozen
class Reach:
    """The neighbours of nodes: node `i` of the question has `targets[offsets[i]:offsets[i + 1]]`."""

    offsets: IntArray
    targets: Numbers
    #: Row ids of the edges, when each edge counts; without them every neighbour occurs once.
    edges: Numbers | None = None


class Neighbours(Protocol):
    """The edges of one type, followed in one direction."""

    #: Every number of a node is below it.
    stride: int

    def numbers(self, row_ids: IntArray) -> IntArray:
        """The numbers of nodes at the beginning."""
        ...

    def row_ids(self, numbers: IntArray) -> IntArray:
        """The row ids of nodes at the end."""
        ...

    def once(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """Each neighbour once; the places in the answer of each asked number, and the answer."""
        ...

    def edges(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """Each edge once, parallel ones included; places and answer as above."""
        ...


class AdjacentNeighbours:
    """Neighbours from the traversal index."""

    def __init__(self, adjacency: Adjacency, direction: Direction, source: Entities, target: Entities) -> None:
        self._side = source.budget.patiently(
            lambda: adjacency.side(direction), 0 if adjacency.has(direction) else adjacency.edge_count
        )
        self._source = source.numbering()
        self._target = target.numbering()
        self.stride = max(self._target.count, self._source.count, 1)

    def numbers(self, row_ids: IntArray) -> IntArray:
        """The dense numbers of nodes."""
        return self._source.numbers(row_ids)

    def row_ids(self, numbers: IntArray) -> IntArray:
        """The row ids of dense numbers."""
        return self._target.row_ids(np.asarray(numbers, np.int64))

    def once(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """The index answers for all nodes, so a number is its own place."""
        return numbers, Reach(self._side.distinct_offsets, self._side.distinct_targets)

    def edges(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """As `once`, per edge."""
        return numbers, Reach(self._side.offsets, self._side.targets, self._side.edges)


class _ReadNeighbours:
    """Neighbours from the edge table; subclasses decide how its rows are found."""

    stride = ROW_ID_STRIDE

    def __init__(self, edges: Entities, direction: Direction, source: Entities, target: Entities) -> None:
        self._budget = edges.budget
        self._edges = edges
        self._direction = direction
        self._source = source
        self._target = target

    def numbers(self, row_ids: IntArray) -> IntArray:
        """Row ids are the numbers."""
        return row_ids

    def row_ids(self, numbers: IntArray) -> IntArray:
        """Row ids are the numbers."""
        return np.asarray(numbers, np.int64)

    def once(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """Each neighbour once."""
        asked, places = np.unique(numbers, return_inverse=True)
        source, target, _ = self._pairs(asked)
        keys = np.unique(source * ROW_ID_STRIDE + target)
        source, target = keys // ROW_ID_STRIDE, keys % ROW_ID_STRIDE
        return places, Reach(offsets_of(source, len(asked)), target)

    def edges(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """Each edge once."""
        asked, places = np.unique(numbers, return_inverse=True)
        source, target, edge = self._pairs(asked)
        order = np.lexsort((edge, target, source))
        source, target, edge = source[order], target[order], edge[order]
        if self._direction is Direction.BOTH:
            # A self-loop was found from both of its ends.
            repeats = (source[1:] == source[:-1]) & (edge[1:] == edge[:-1])
            first = np.concatenate([[True], ~repeats]) if len(source) else np.zeros(0, np.bool_)
            source, target, edge = source[first], target[first], edge[first]
        return places, Reach(offsets_of(source, len(asked)), target, edge)

    def _pairs(self, asked: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Place of the asked node, row id of the neighbour, row id of the edge: once per matching edge and way."""
        ids = self._source.column(asked, "id")
        near: list[IntArray] = []
        far: list[Array] = []
        edges: list[IntArray] = []
        for begin, end in _ways(self._direction):
            for batch in read_batches(self._budget, self._rows(begin, end, ids), self._edges.row_count):
                found = pc.index_in(batch.column(0), ids)
                known = np.asarray(found.is_valid().to_numpy(zero_copy_only=False))
                near.append(np.asarray(found.drop_null().to_numpy()).astype(np.int64))
                far.append(batch.column(1).filter(pa.array(known)))
                edges.append(row_id_array(batch)[known])
        if not near:
            empty = np.zeros(0, np.int64)
            return empty, empty, empty
        encoded = pa.chunked_array(far).combine_chunks().dictionary_encode()
        neighbours = self._find(encoded.dictionary)
        codes = np.asarray(encoded.indices.to_numpy())
        return np.concatenate(near), neighbours[codes], np.concatenate(edges)

    def _rows(self, begin: str, end: str, ids: Array) -> Iterator[Batch]:
        raise NotImplementedError

    def _find(self, ids: Array) -> IntArray:
        """The row ids of neighbours by id."""
        raise NotImplementedError


class IndexedNeighbours(_ReadNeighbours):
    """Neighbours by probing the edge table for the ids of the frontier, then the node table for their ids."""

    def _rows(self, begin: str, end: str, ids: Array) -> Iterator[Batch]:
        for part in _probes(ids):
            yield from scan_rows(self._edges.table, (begin, end), OneOf(begin, part))

    def _find(self, ids: Array) -> IntArray:
        tables = [
            read_rows(self._target.table, ("id",), OneOf("id", part)) for part in self._budget.steps(_probes(ids))
        ]
        if not tables:
            return np.zeros(0, np.int64)
        found = pa.concat_tables(tables)
        places = ends_among(ids, found["id"].combine_chunks(), self._edges.table.path)
        return row_id_array(found)[places]


class ScannedNeighbours(_ReadNeighbours):
    """Neighbours by reading all edges and all ids of the nodes at their end."""

    def _rows(self, begin: str, end: str, ids: Array) -> Iterator[Batch]:
        return scan_rows(self._edges.table, (begin, end), batch_rows=_SCAN_ROWS)

    def _find(self, ids: Array) -> IntArray:
        known = self._target.whole_column("id")
        numbers = self._budget.patiently(lambda: ends_among(ids, known, self._edges.table.path), len(known))
        return self._target.numbering().row_ids(numbers)


def _ways(direction: Direction) -> tuple[tuple[str, str], ...]:
    """The columns at which an edge is entered and left."""
    match direction:
        case Direction.OUT:
            return (("src", "dst"),)
        case Direction.IN:
            return (("dst", "src"),)
        case Direction.BOTH:
            return (("src", "dst"), ("dst", "src"))


def _probes(ids: Array) -> Iterator[list[str]]:
    for start in range(0, len(ids), _PROBE_IDS):
        yield [str(item) for item in ids.slice(start, _PROBE_IDS).to_pylist()]


def neighbours_of(reach: Reach, places: IntArray) -> tuple[IntArray, IntArray]:
    """Every (index into places, place in the targets) pair."""
    counts = reach.offsets[places + 1] - reach.offsets[places]
    index = np.repeat(np.arange(len(places)), counts)
    return index, ranges(reach.offsets[places], counts)


@frozen
class ReachPart:
    """A part of a question: the rows `start` to before `stop`, and where their neighbours are."""

    start: int
    stop: int
    places: IntArray
    reach: Reach

    @property
    def counts(self) -> IntArray:
        """The number of neighbours each row has in this part."""
        return self.reach.offsets[self.places + 1] - self.reach.offsets[self.places]


def reached_targets(part: ReachPart) -> Numbers:
    """The neighbours of all rows of a part, one after the other."""
    places, reach = part.places, part.reach
    if len(places) > 1 and bool((places[1:] == places[:-1] + 1).all()):
        return reach.targets[reach.offsets[places[0]] : reach.offsets[places[-1] + 1]]
    _, spots = neighbours_of(reach, places)
    return reach.targets[spots]


_FIRST_PLACE = np.zeros(1, np.int64)


def bounded_parts(reach: Reach, places: IntArray, most: int) -> Iterator[ReachPart]:
    """A question in parts of at most so many pairs; a node that has more neighbours is in several of them."""
    counts = reach.offsets[places + 1] - reach.offsets[places]
    ends = np.cumsum(counts)
    start, done = 0, 0
    while start < len(counts):
        stop = max(int(np.searchsorted(ends, done + most, side="right")), start + 1)
        if int(ends[stop - 1]) - done <= most:
            yield ReachPart(start, stop, places[start:stop], reach)
        else:
            last = int(reach.offsets[places[start] + 1])
            for begin in range(int(reach.offsets[places[start]]), last, most):
                some = replace(reach, offsets=np.array([begin, min(begin + most, last)]))
                yield ReachPart(start, stop, _FIRST_PLACE, some)
        start, done = stop, int(ends[stop - 1])


# ---- Bounded reachability


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
