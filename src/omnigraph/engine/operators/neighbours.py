"""Neighbours of nodes, from index, lookup or scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np

from omnigraph.core.arrow import Array, Batch, pa, pc
from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.engine.distinct import distinct_numbers, sorted_distinct
from omnigraph.engine.kernels.lists import Lists
from omnigraph.engine.rows import BoolArray, IntArray, Numbers, read_batches
from omnigraph.engine.tables.adjacency import Adjacency, Side, ends_among
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import Entities, row_id_array
from omnigraph.engine.tables.runs import offsets_of, ranges
from omnigraph.engine.tables.settings import TraversalMode, TraversalPath, choose_path, followed_edges
from omnigraph.engine.tables.traversal_index import adjacency_key, find_adjacency, known_adjacency, traversal_facts
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.catalog import EdgeDef
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.reads import read_rows, scan_rows

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
    """The neighbours of nodes: node `i` of the question has `targets[starts[i]:ends[i]]`."""

    starts: IntArray
    ends: IntArray
    targets: Numbers
    #: Row ids of the edges, when each edge counts; without them every neighbour occurs once.
    edges: Numbers | None = None

    @classmethod
    def of_runs(cls, sorted_places: IntArray, count: int, targets: Numbers, edges: Numbers | None = None) -> Reach:
        """From the place of each target in the question, ascending."""
        offsets = offsets_of(sorted_places, count)
        return cls(offsets[:-1], offsets[1:], targets, edges)

    def counts(self, places: IntArray) -> IntArray:
        """How many neighbours there are."""
        found: IntArray = self.ends[places] - self.starts[places]
        return found


class Neighbours(Protocol):
    """The edges of one type, followed in one direction."""

    #: Every number of a node is below it.
    stride: int

    def numbers(self, row_ids: IntArray) -> IntArray:
        """The numbers of nodes at the beginning."""
        ...

    def target_numbers(self, row_ids: IntArray) -> IntArray:
        """The numbers of nodes at the end."""
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


def lists_of(side: Side, bound: int) -> Lists:
    """The neighbours of a side, each once: the one place that knows how a side keeps them."""
    return Lists(side.distinct_offsets[:-1], side.distinct_offsets[1:], side.distinct_targets, bound)


class AdjacentNeighbours:
    """Neighbours from the traversal index."""

    def __init__(self, adjacency: Adjacency, direction: Direction, source: Entities, target: Entities) -> None:
        self._side = source.budget.patiently(
            lambda: adjacency.side(direction), 0 if adjacency.has(direction) else adjacency.edge_count
        )
        self._source = source.numbering()
        self._target = target.numbering()
        self.stride = max(self._target.count, self._source.count, 1)

    @property
    def kept_edges(self) -> Numbers | None:
        """The row ids of all edges in their order here, which live as long as the index; None above a patch."""
        # Asking a side with a patch for them would write out all of its arrays.
        return self._side.edges if self._side.is_written else None

    @property
    def is_whole(self) -> bool:
        """Whether `lists` are there; after a write they have to be written out first, which few questions are worth."""
        return self._side.is_written

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return self._side.edge_count

    @property
    def mean(self) -> float:
        """The mean number of edges of a node."""
        return self.edge_count / max(self._source.count, 1)

    @cached_property
    def lists(self) -> Lists:
        """The neighbours of all nodes, each once."""
        return lists_of(self._side, self.stride)

    def mask(self, keeps: Callable[[IntArray], BoolArray]) -> BoolArray:
        """Per number of a node at the end, what is said of its row id."""
        row_ids = self._target.all_row_ids
        said = np.zeros(self.stride, np.bool_)
        said[self._target.numbers(row_ids)] = keeps(row_ids)
        return said

    def numbers(self, row_ids: IntArray) -> IntArray:
        """The dense numbers of nodes."""
        return self._source.numbers(row_ids)

    def target_numbers(self, row_ids: IntArray) -> IntArray:
        """The dense numbers of nodes at the end."""
        return self._target.numbers(row_ids)

    def row_ids(self, numbers: IntArray) -> IntArray:
        """The row ids of dense numbers."""
        return self._target.row_ids(np.asarray(numbers, np.int64))

    def once(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """The index answers for all nodes, so a number is its own place; with a patch above it for these nodes only."""
        places, offsets, targets, _ = self._side.among(numbers, distinct=True)
        return places, Reach(offsets[:-1], offsets[1:], targets)

    def edges(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """As `once`, per edge."""
        places, offsets, targets, edges = self._side.among(numbers, distinct=False)
        return places, Reach(offsets[:-1], offsets[1:], targets, edges)


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

    def target_numbers(self, row_ids: IntArray) -> IntArray:
        """Row ids are the numbers."""
        return row_ids

    def row_ids(self, numbers: IntArray) -> IntArray:
        """Row ids are the numbers."""
        return np.asarray(numbers, np.int64)

    def once(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """Each neighbour once."""
        asked, places = distinct_numbers(numbers)
        source, target, _ = self._pairs(asked)
        keys = sorted_distinct(source * ROW_ID_STRIDE + target)
        source, target = keys // ROW_ID_STRIDE, keys % ROW_ID_STRIDE
        return places, Reach.of_runs(source, len(asked), target)

    def edges(self, numbers: IntArray) -> tuple[IntArray, Reach]:
        """Each edge once."""
        asked, places = distinct_numbers(numbers)
        source, target, edge = self._pairs(asked)
        order = np.lexsort((edge, target, source))
        source, target, edge = source[order], target[order], edge[order]
        if self._direction is Direction.BOTH:
            # A self-loop was found from both of its ends.
            repeats = (source[1:] == source[:-1]) & (edge[1:] == edge[:-1])
            first = np.concatenate([[True], ~repeats]) if len(source) else np.zeros(0, np.bool_)
            source, target, edge = source[first], target[first], edge[first]
        return places, Reach.of_runs(source, len(asked), target, edge)

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
        return self._target.numbering().row_ids(self._target.numbers_of_ids(ids, self._edges.table.path))


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


def neighbours_of(reach: Reach, places: IntArray) -> tuple[IntArray, IntArray | slice]:
    """Every (index into places, place in the targets) pair; the latter as a slice where they lie side by side."""
    counts = reach.counts(places)
    index = np.repeat(np.arange(len(places)), counts)
    starts = reach.starts[places]
    if len(places) and _are_adjacent(reach, places, starts):
        return index, slice(int(starts[0]), int(starts[0]) + len(index))
    return index, ranges(starts, counts)


def _are_adjacent(reach: Reach, places: IntArray, starts: IntArray) -> bool:
    """Whether the targets of each place begin where those of the one before it end."""
    if len(places) == 1:
        return True
    # Most questions are seen to be scattered at their beginning.
    if starts[1] != reach.ends[places[0]]:
        return False
    return bool((starts[1:] == reach.ends[places[:-1]]).all())


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
        return self.reach.counts(self.places)


def reached_targets(part: ReachPart) -> Numbers:
    """The neighbours of all rows of a part, one after the other."""
    _, spots = neighbours_of(part.reach, part.places)
    return part.reach.targets[spots]


_FIRST_PLACE = np.zeros(1, np.int64)


def bounded_parts(reach: Reach, places: IntArray, most: int) -> Iterator[ReachPart]:
    """A question in parts of at most so many pairs; a node that has more neighbours is in several of them."""
    counts = reach.counts(places)
    ends = np.cumsum(counts)
    start, done = 0, 0
    while start < len(counts):
        stop = max(int(np.searchsorted(ends, done + most, side="right")), start + 1)
        if int(ends[stop - 1]) - done <= most:
            yield ReachPart(start, stop, places[start:stop], reach)
        else:
            last = int(reach.ends[places[start]])
            for begin in range(int(reach.starts[places[start]]), last, most):
                some = replace(reach, starts=np.array([begin]), ends=np.array([min(begin + most, last)]))
                yield ReachPart(start, stop, _FIRST_PLACE, some)
        start, done = stop, int(ends[stop - 1])


# ---- The way to the neighbours


def way_to_neighbours(
    context: Context, edge: EdgeDef, direction: Direction, frontier: int, hops: int = 1
) -> TraversalPath:
    """The path that a traversal takes from so many nodes."""
    is_free = context.settings.traversal_mode is TraversalMode.AUTO
    if is_free and known_adjacency(context, edge) is not None:
        return TraversalPath.ADJACENCY
    return choose_path(traversal_facts(context, edge, direction, frontier, hops), context.settings)


def adjacent_neighbours(context: Context, edge: EdgeDef, direction: Direction) -> AdjacentNeighbours:
    """The neighbours by the traversal index, which is made unless it is there."""
    source, target = (context.type_entities(node_table_key(name)) for name in ends_of(edge, direction))
    return AdjacentNeighbours(find_adjacency(context, edge), direction, source, target)


def find_neighbours(
    context: Context, edge: EdgeDef, direction: Direction, frontier: int, hops: int = 1
) -> tuple[TraversalPath, Neighbours]:
    """The neighbours on the cheapest path; what it costs without the traversal index is kept in mind."""
    source, target = (context.type_entities(node_table_key(name)) for name in ends_of(edge, direction))
    key = adjacency_key(context, edge)
    if context.settings.traversal_mode is TraversalMode.AUTO:
        known = known_adjacency(context, edge)
        if known is not None:
            return TraversalPath.ADJACENCY, AdjacentNeighbours(known, direction, source, target)
    facts = traversal_facts(context, edge, direction, frontier, hops)
    path = choose_path(facts, context.settings)
    if path is TraversalPath.ADJACENCY:
        return path, AdjacentNeighbours(find_adjacency(context, edge), direction, source, target)
    edges = context.type_entities(edge_table_key(edge.name))
    cost = edges.row_count if path is TraversalPath.EDGE_SCAN else followed_edges(facts)
    context.caches.traversal_debt.put(key, facts.debt + cost)
    way = IndexedNeighbours if path is TraversalPath.INDEXED else ScannedNeighbours
    return path, way(edges, direction, source, target)


def ends_of(edge: EdgeDef, direction: Direction) -> tuple[str, str]:
    """The types of the nodes at which a traversal begins and ends."""
    return (edge.target, edge.source) if direction is Direction.IN else (edge.source, edge.target)
