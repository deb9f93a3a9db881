"""Paths between nodes: the shortest one of every pair of ends, or all trails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from omnigraph.core.arrow import Array, pa
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.engine.distinct import distinct_numbers
from omnigraph.engine.operators.unions import Run, not_among, of_type
from omnigraph.engine.results.projection import order_codes
from omnigraph.engine.rows import Column, IntArray, Rows, batch_rows
from omnigraph.engine.tables.context import EDGES, NODES, Context
from omnigraph.errors import ResourceLimitError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

PATHS_RESOURCE = "paths"

#: The variables of one hop: the path that it goes on from, where that is, where the hop goes, and along which edge.
_FROM, _AT, _NEXT, _EDGE = "~from", "~at", "~next", "~edge"
_LISTS = pa.list_(pa.field("item", pa.utf8()))


@frozen
class _Hops:
    """Hops from the paths of a level: which path each goes on from, and the node and edge that it adds."""

    origins: IntArray
    nodes: IntArray
    edges: IntArray

    def take(self, places: IntArray) -> _Hops:
        """Some of the hops."""
        return _Hops(self.origins[places], self.nodes[places], self.edges[places])


@frozen
class _Paths:
    """Paths of one length: the place of their source, and their nodes and edges as rows of numbers."""

    seeds: IntArray
    nodes: IntArray
    edges: IntArray

    def extended(self, hops: _Hops) -> _Paths:
        """The paths that hops make of these."""
        nodes = np.concatenate([self.nodes[hops.origins], hops.nodes[:, None]], axis=1)
        edges = np.concatenate([self.edges[hops.origins], hops.edges[:, None]], axis=1)
        return _Paths(self.seeds[hops.origins], nodes, edges)

    def take(self, places: IntArray) -> _Paths:
        """Some of the paths."""
        return _Paths(self.seeds[places], self.nodes[places], self.edges[places])

    @property
    def ends(self) -> IntArray:
        """The last node of each path."""
        last: IntArray = self.nodes[:, -1]
        return last

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return self.seeds.nbytes + self.nodes.nbytes + self.edges.nbytes


class PathOperator:
    """Binds paths from the source, and where they end."""

    def __init__(self, context: Context, op: ir.PathSearch, live: frozenset[str], run: Run) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._run = run
        self._wanted = np.array(
            [context.type_number(node_table_key(name)) for name in op.search.target_types], np.int64
        )
        #: How many trails were found so far in this query.
        self._found = 0

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The paths of every row; equal sources are searched once."""
        op, context = self._op, self._context
        identities = context.identity(op.source, rows.variables[op.source])
        sources, source_of = distinct_numbers(identities)
        rows = rows.only(self._live)
        search = self._shortest if op.choice is ir.PathChoice.SHORTEST else self._trails
        for paths in search(sources):
            yield from self._joined(rows, source_of, paths, len(sources))

    # ---- rows of paths

    def _joined(self, rows: Rows, source_of: IntArray, paths: _Paths, sources: int) -> Iterator[Rows]:
        """Each row with the paths of its source, as many at a time as a batch has."""
        order = np.argsort(paths.seeds, kind="stable")
        paths = paths.take(order)
        sizes = np.bincount(paths.seeds, minlength=sources)
        starts = np.cumsum(sizes) - sizes
        counts, firsts = sizes[source_of], starts[source_of]
        most = batch_rows(rows.width + 2 * paths.nodes.shape[1])
        ends = np.cumsum(counts)
        begin = 0
        while begin < rows.count:
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
            some = counts[begin:end]
            pairs = int(some.sum())
            if pairs:
                index = np.repeat(np.arange(begin, min(end, rows.count)), some)
                offsets = np.arange(pairs) - np.repeat(np.cumsum(some) - some, some)
                yield self._bound(rows.take(index), paths.take(np.repeat(firsts[begin:end], some) + offsets))
            begin = end

    def _bound(self, rows: Rows, paths: _Paths) -> Rows:
        op, context = self._op, self._context
        context.budget.allow(paths.nbytes * 4)
        if op.target in self._live:
            ends = paths.ends
            rows = rows.bind(op.target, ends if context.tables[op.target] == NODES else context.row_ids(ends))
        if op.path in self._live:
            # A path is no row of a table: its number tells it from the others of this batch.
            rows = rows.bind(op.path, np.arange(rows.count))
            columns: dict[Column, Array] = {
                (op.path, ir.PathPart.NODES): self._ids(_AT, paths.nodes),
                (op.path, ir.PathPart.EDGES): self._ids(_EDGE, paths.edges),
            }
            if op.path in context.walked:
                columns[op.path, ir.PathPart.NODE_TYPES] = self._types(_AT, paths.nodes)
                columns[op.path, ir.PathPart.EDGE_TYPES] = self._types(_EDGE, paths.edges)
            rows = rows.attach(columns)
        return rows

    def _types(self, variable: str, numbers: IntArray) -> Array:
        """Lists of the types of nodes or edges, one list per row of numbers."""
        context, flat = self._context.narrowed({_AT: NODES, _EDGE: EDGES}), numbers.ravel()
        # There are few types: their names are looked up once each.
        _, first, places = np.unique(context.type_numbers_of(flat), return_index=True, return_inverse=True)
        return _lists(context.type_names(variable, flat[first]).take(pa.array(places)), numbers)

    def _ids(self, variable: str, numbers: IntArray) -> Array:
        """Lists of the ids of nodes or edges, one list per row of numbers."""
        context = self._context.narrowed({_AT: NODES, _EDGE: EDGES})
        distinct, places = distinct_numbers(numbers.ravel())
        ids = context.columns(variable, distinct, ("id",))["id"].take(pa.array(places.ravel()))
        return _lists(ids.cast(pa.utf8()), numbers)

    # ---- the search

    def _start(self, sources: IntArray) -> _Paths:
        seeds = np.flatnonzero(sources >= 0)
        return _Paths(seeds, sources[seeds][:, None], np.zeros((len(seeds), 0), np.int64))

    def _shortest(self, sources: IntArray) -> Iterator[_Paths]:
        """One path to every node that is reached, at its first reach; of several the one with the smallest edges."""
        search, context = self._op.search, self._context
        paths = self._start(sources)
        visited = (paths.seeds, paths.ends)
        ranks = np.zeros(len(paths.seeds), np.int64)
        for hop in range(1, search.high + 1):
            if not len(paths.seeds):
                return
            context.budget.check()
            hops = self._one_hop(paths)
            codes = self._edge_order(hops.edges)
            # Smaller paths first, so that the first of each pair of ends is the one that stays.
            keys = (codes, ranks[hops.origins], hops.nodes, paths.seeds[hops.origins])
            order = context.budget.patiently(partial(np.lexsort, keys), len(codes))
            hops, codes = hops.take(order), codes[order]
            seeds = paths.seeds[hops.origins]
            is_first = np.ones(len(seeds), np.bool_)
            is_first[1:] = (seeds[1:] != seeds[:-1]) | (hops.nodes[1:] != hops.nodes[:-1])
            hops, codes, seeds = hops.take(np.flatnonzero(is_first)), codes[is_first], seeds[is_first]
            if hop == 1 and search.low == 1:
                # An edge from a node to itself reaches it, although it counts as visited.
                loops = hops.take(np.flatnonzero(hops.nodes == sources[seeds]))
                yield self._ending(paths.extended(loops))
            known = partial(not_among, seeds, hops.nodes, *visited)
            fresh = np.flatnonzero(context.budget.patiently(known, len(seeds) + len(visited[0])))
            hops, codes = hops.take(fresh), codes[fresh]
            before = ranks[hops.origins]
            paths = paths.extended(hops)
            visited = (np.concatenate([visited[0], paths.seeds]), np.concatenate([visited[1], paths.ends]))
            context.budget.allow(2 * (paths.nbytes + visited[0].nbytes + visited[1].nbytes))
            ranks = np.empty(len(fresh), np.int64)
            ranks[np.lexsort((codes, before))] = np.arange(len(fresh))
            if hop >= search.low:
                yield self._ending(paths)

    def _trails(self, sources: IntArray) -> Iterator[_Paths]:
        """Every path without an edge twice."""
        search, context = self._op.search, self._context
        paths = self._start(sources)
        for hop in range(1, search.high + 1):
            if not len(paths.seeds):
                return
            context.budget.check()
            hops = self._one_hop(paths)
            is_new = ~(paths.edges[hops.origins] == hops.edges[:, None]).any(axis=1)
            hops = hops.take(np.flatnonzero(is_new))
            context.budget.allow(3 * len(hops.nodes) * (2 * hop + 3) * 8)
            paths = paths.extended(hops)
            if hop >= search.low:
                found = self._ending(paths)
                self._count(len(found.seeds))
                yield found

    def _count(self, found: int) -> None:
        limit = self._context.settings.path_limit
        self._found += found
        if self._found > limit:
            advice = "ask for fewer hops, for the shortest paths, or narrow the ends; OMNIGRAPH_PATH_LIMIT allows more"
            raise ResourceLimitError(PATHS_RESOURCE, limit, self._found, advice)

    def _ending(self, paths: _Paths) -> _Paths:
        """The paths that end at a node of a wanted type."""
        is_wanted = np.isin(self._context.type_numbers_of(paths.ends), self._wanted)
        return paths.take(np.flatnonzero(is_wanted))

    def _edge_order(self, edges: IntArray) -> IntArray:
        """Numbers that sort as edges do: by their ids, then by their types."""
        context = self._context.narrowed({_EDGE: EDGES})
        distinct, places = context.budget.patiently(partial(distinct_numbers, edges), len(edges))
        ids = context.columns(_EDGE, distinct, ("id",))["id"]
        context.budget.check()
        id_codes = context.budget.patiently(partial(order_codes, ids, descending=False), len(distinct))
        # Types are numbered in the order of their names.
        order = np.lexsort((distinct, id_codes))
        codes = np.empty(len(distinct), np.int64)
        codes[order] = np.arange(len(distinct))
        found: IntArray = codes[places.ravel()]
        return found

    def _one_hop(self, paths: _Paths) -> _Hops:
        """Every edge that goes on from the end of a path."""
        search = self._op.search
        context = self._context.narrowed({_AT: NODES, _NEXT: NODES})
        frontier = Rows(count=len(paths.seeds), variables={_FROM: np.arange(len(paths.seeds)), _AT: paths.ends})
        parts = [_Hops(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for step in search.steps:
            keys = {
                _AT: node_table_key(step.source_type),
                _NEXT: node_table_key(step.target_type),
                search.hop: edge_table_key(step.edge_type),
            }
            start = of_type(context, frontier, _AT, keys[_AT])
            if not start.count:
                continue
            expand = ir.Expand(
                _AT,
                _NEXT,
                step.edge_type,
                step.direction,
                step.target_type,
                edge_variable=search.hop,
                edge_filters=search.edge_filters,
            )
            inside = context.narrowed(keys)
            for found in self._run(inside, (expand,), [start], (_FROM, _NEXT, search.hop)):
                parts.append(self._hops(found.variables, keys, inside))
        columns = zip(*((part.origins, part.nodes, part.edges) for part in parts), strict=True)
        return _Hops(*(np.concatenate(column) for column in columns))

    def _hops(self, found: Mapping[str, IntArray], keys: Mapping[str, TableKey], context: Context) -> _Hops:
        hop = self._op.search.hop
        nodes, edges = context.tagged(keys[_NEXT], found[_NEXT]), context.tagged(keys[hop], found[hop])
        return _Hops(found[_FROM], nodes, edges)


def _lists(items: Array, numbers: IntArray) -> Array:
    """Items as one list per row of the numbers that they were found for."""
    count, length = numbers.shape
    offsets = pa.array(np.arange(count + 1) * length, pa.int32())
    lists: Array = pa.ListArray.from_arrays(offsets, items, type=_LISTS)
    return lists
