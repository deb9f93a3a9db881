"""From rows to neighbours, and where traversal indexes come from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import sha256

import numpy as np

from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.engine.predicates import Restriction
from omnigraph.engine.rows import IntArray, Numbers, Rows, batch_rows, read_batches
from omnigraph.engine.tables.adjacency import (
    Adjacency,
    AdjacentNeighbours,
    IndexedNeighbours,
    Neighbours,
    Reach,
    ScannedNeighbours,
    Side,
    bounded_parts,
    ends_among,
    neighbours_of,
    reach_within,
    reached_targets,
)
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import row_id_array
from omnigraph.engine.tables.settings import TraversalFacts, TraversalMode, TraversalPath, choose_path, followed_edges
from omnigraph.engine.tables.wanted_indexes import scalar_index_name
from omnigraph.lang.query.ir import Direction, Expand
from omnigraph.lang.schema.catalog import EdgeDef
from omnigraph.storage.datasets.reads import scan_rows
from omnigraph.storage.derived import group_name

# ---- Sources of traversal indexes


#: Fewer edges are scanned faster than their index is found on disk.
PERSIST_MIN_EDGES = 50_000
_SIDE_ARRAYS = ("offsets", "targets", "edges", "distinct_offsets", "distinct_targets")
_SCAN_ROWS = 1 << 17


def adjacency_key(context: Context, edge: EdgeDef) -> tuple[str, str, str]:
    """The cache key of an adjacency: the rows of the edges and of both ends."""
    tables = (edge_table_key(edge.name), node_table_key(edge.source), node_table_key(edge.target))
    first, second, third = (context.type_entities(key).fingerprint for key in tables)
    return first, second, third


def is_adjacency_ready(context: Context, edge: EdgeDef) -> bool:
    """Whether the index of an edge type need not be built."""
    key = adjacency_key(context, edge)
    if context.caches.adjacencies.get(key) is not None:
        return True
    return context.caches.derived.has(_group(context, edge), _name(key))


def find_adjacency(context: Context, edge: EdgeDef, *, keep: bool = False) -> Adjacency:
    """The index of an edge type at the snapshot; a new large one is kept on disk.

    `keep` keeps it on disk also when it is in memory already, as a maintenance run does.
    """
    caches, key = context.caches, adjacency_key(context, edge)
    known = caches.adjacencies.get_or_build(key, lambda: _load_or_build(context, edge, key), context.budget.check)
    if keep and known.edge_count >= PERSIST_MIN_EDGES:
        _save(context, edge, key, known)
    return known


def _load_or_build(context: Context, edge: EdgeDef, key: tuple[str, str, str]) -> Adjacency:
    found = _load(context, edge, key)
    if found is None:
        found = _build(context, edge)
        if found.edge_count >= PERSIST_MIN_EDGES:
            _save(context, edge, key, found)
    return found


def _build(context: Context, edge: EdgeDef) -> Adjacency:
    edges = context.type_entities(edge_table_key(edge.name))
    sources = context.type_entities(node_table_key(edge.source))
    targets = context.type_entities(node_table_key(edge.target))
    parts: list[tuple[IntArray, IntArray, IntArray]] = []
    source_ids = sources.whole_column("id")
    target_ids = source_ids if edge.source == edge.target else targets.whole_column("id")
    budget = context.budget
    scanned = scan_rows(edges.table, ("src", "dst"), batch_rows=_SCAN_ROWS)
    for batch in read_batches(budget, scanned, edges.row_count):
        path = edges.table.path
        source = budget.patiently(partial(ends_among, batch.column(0), source_ids, path), len(source_ids))
        target = budget.patiently(partial(ends_among, batch.column(1), target_ids, path), len(target_ids))
        parts.append((source, target, row_id_array(batch)))

    def build() -> Adjacency:
        empty = np.zeros(0, np.int64)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [empty] * 3
        return Adjacency.build(columns[0], columns[1], columns[2], sources=len(source_ids), targets=len(target_ids))

    return budget.patiently(build, edges.row_count)


# ---- on disk


def _group(context: Context, edge: EdgeDef) -> str:
    entities = context.type_entities(edge_table_key(edge.name))
    return group_name(entities.table.path, entities.table.branch)


def _name(key: tuple[str, str, str]) -> str:
    return sha256("/".join(key).encode()).hexdigest()[:24]


def _save(context: Context, edge: EdgeDef, key: tuple[str, str, str], found: Adjacency) -> None:
    group, name = _group(context, edge), _name(key)
    if not context.is_head or context.caches.derived.has(group, name):
        return
    arrays: dict[str, Numbers] = {"counts": np.array([found.sources, found.targets])}
    for direction in (Direction.OUT, Direction.IN):
        side = found.side(direction)
        wanted = _SIDE_ARRAYS if side.distinct_targets is not side.targets else _SIDE_ARRAYS[:3]
        arrays |= {f"{direction}-{part}": getattr(side, part) for part in wanted}
    context.caches.derived.save(group, name, arrays)


def _load(context: Context, edge: EdgeDef, key: tuple[str, str, str]) -> Adjacency | None:
    mapped = context.caches.derived.load(_group(context, edge), _name(key))
    if mapped is None or "counts" not in mapped:
        return None
    # Plain views of the mapped files: every access to a mapped array itself costs several function calls.
    arrays = {name: np.asarray(array) for name, array in mapped.items()}
    sides: dict[Direction, Side] = {}
    for direction in (Direction.OUT, Direction.IN):
        parts = {part: arrays.get(f"{direction}-{part}") for part in _SIDE_ARRAYS}
        offsets, targets, edges = parts["offsets"], parts["targets"], parts["edges"]
        if offsets is None or targets is None or edges is None:
            return None
        distinct_offsets, distinct_targets = parts["distinct_offsets"], parts["distinct_targets"]
        if distinct_offsets is None or distinct_targets is None:
            distinct_offsets, distinct_targets = offsets, targets
        sides[direction] = Side(offsets, targets, edges, distinct_offsets, distinct_targets)
    found = Adjacency(_row_count(context, edge.source), _row_count(context, edge.target), sides)
    if not found.is_consistent():
        # Its checksums are right: something else than a traversal wrote it.
        context.caches.derived.forget(_group(context, edge), _name(key))
        return None
    return found


def _row_count(context: Context, node: str) -> int:
    return context.type_entities(node_table_key(node)).row_count


# ---- The expand operator


#: Sums of counts are exact in 64-bit floats below this.
_EXACT_FLOAT = 2**53
#: Fewer pairs than this are not worth being counted per target.
_COLLAPSE_MIN_PAIRS = 4096
#: Pairs that are counted per target at once.
_COLLAPSE_PAIRS = 1 << 22
#: Arrays as long as the result that making pairs takes beside it.
_WORKING_COLUMNS = 4


class ExpandOperator:
    """Binds the target, and the edge if it has a name, for each neighbour of the source."""

    def __init__(self, context: Context, op: Expand, live: frozenset[str]) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._edge = context.catalog.edges[op.edge_type]
        self._restriction = Restriction(context, op.target, op.filters)
        self._edge_restriction = (
            None if op.edge_variable is None else Restriction(context, op.edge_variable, op.edge_filters)
        )
        #: The path that was taken last, for people who ask.
        self.path: TraversalPath | None = None

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The neighbours of every row."""
        op = self._op
        crosses_types = self._edge.source != self._edge.target
        if crosses_types and op.low > 1:
            return
        if op.source in self._context.optional:
            # From nothing no edge begins.
            rows = rows.keep(rows.variables[op.source] >= 0)
            if not rows.count:
                return
        hops = 1 if crosses_types else op.high
        neighbours = self._neighbours(rows.count, hops)
        row_ids = rows.variables[op.source]
        rows = rows.only(self._live)
        if op.edge_variable is not None:
            places, reach = neighbours.edges(neighbours.numbers(row_ids))
            yield from self._emit(rows, places, reach, neighbours)
        elif hops == 1:
            places, reach = neighbours.once(neighbours.numbers(row_ids))
            yield from self._emit(rows, places, reach, neighbours)
        else:
            yield from self._reach(rows, row_ids, neighbours)

    def _reach(self, rows: Rows, row_ids: IntArray, neighbours: Neighbours) -> Iterator[Rows]:
        op = self._op
        is_dense = self.path is TraversalPath.ADJACENCY
        sources, source_of = np.unique(row_ids, return_inverse=True)
        budget = self._context.budget
        reached = reach_within(neighbours, sources, op.low, op.high, is_dense=is_dense, budget=budget)
        for start, reach in reached:
            count = len(reach.offsets) - 1
            if count == len(sources):
                part, places = rows, source_of
            else:
                inside = np.flatnonzero((source_of >= start) & (source_of < start + count))
                part, places = rows.take(inside), source_of[inside] - start
            yield from self._emit(part, places, reach, neighbours)

    # ---- rows from neighbours

    def _emit(self, rows: Rows, places: IntArray, reach: Reach, neighbours: Neighbours) -> Iterator[Rows]:
        op = self._op
        counts = reach.offsets[places + 1] - reach.offsets[places]
        keeps_edge = op.edge_variable is not None and op.edge_variable in self._live
        keeps_target = op.target in self._live
        if not keeps_edge and not keeps_target and self._keeps_all():
            yield rows.multiplied(counts)
            return
        pairs = int(counts.sum())
        if keeps_target and not keeps_edge and self._can_collapse(rows, pairs):
            yield self._collapse(rows, places, counts, reach, neighbours)
            return
        most = batch_rows(rows.width + keeps_target + keeps_edge + _WORKING_COLUMNS)
        if pairs <= most:
            yield self._pairs(rows, places, reach, neighbours)
            return
        for part in bounded_parts(reach, places, most):
            yield self._pairs(rows.slice(part.start, part.stop), part.places, part.reach, neighbours)

    def _keeps_all(self) -> bool:
        edges = self._edge_restriction
        return self._restriction.is_empty and (edges is None or edges.is_empty)

    def _pairs(self, rows: Rows, places: IntArray, reach: Reach, neighbours: Neighbours) -> Rows:
        """One row per pair of a row and a neighbour, or a weight per row when the neighbour is not used."""
        op, budget = self._op, self._context.budget
        counts = reach.offsets[places + 1] - reach.offsets[places]
        pairs = int(counts.sum())
        budget.allow(rows.taken_bytes(pairs) + pairs * _WORKING_COLUMNS * 8)
        index, spots = neighbours_of(reach, places)
        targets = neighbours.row_ids(reach.targets[spots])
        edges = None if reach.edges is None else reach.edges[spots].astype(np.int64)
        kept = np.ones(len(index), np.bool_)
        if self._edge_restriction is not None and not self._edge_restriction.is_empty:
            assert edges is not None, "an edge with a name is counted per edge"
            kept = self._edge_restriction.keeps(edges)
        if not self._restriction.is_empty:
            kept = kept & self._restriction.keeps(targets)
        if not kept.all():
            index, targets = index[kept], targets[kept]
            edges = None if edges is None else edges[kept]
        bound: dict[str, IntArray] = {}
        if op.target in self._live:
            bound[op.target] = targets
        if edges is not None and op.edge_variable is not None and op.edge_variable in self._live:
            bound[op.edge_variable] = edges
        if not bound:
            return rows.multiplied(np.bincount(index, minlength=rows.count))
        result = rows.take(index)
        for variable, row_ids in bound.items():
            result = result.bind(variable, row_ids)
        return result

    def _can_collapse(self, rows: Rows, pairs: int) -> bool:
        """Whether rows may be counted per target: no other variable is asked for any more."""
        return (
            self.path is TraversalPath.ADJACENCY
            and self._edge_restriction is None
            and not rows.variables
            and not rows.columns
            and pairs >= _COLLAPSE_MIN_PAIRS
            and (rows.weights is None or float(rows.weights.max()) * pairs < _EXACT_FLOAT)
        )

    def _collapse(self, rows: Rows, places: IntArray, counts: IntArray, reach: Reach, neighbours: Neighbours) -> Rows:
        """One row per target, standing for all pairs that lead to it."""
        budget = self._context.budget
        # Each step counts into all targets, so it has at least as many pairs.
        step = max(_COLLAPSE_PAIRS, neighbours.stride)
        budget.allow(2 * neighbours.stride * 8 + min(int(counts.sum()), step) * 16)
        totals = np.zeros(neighbours.stride, np.int64)
        for part in budget.steps(bounded_parts(reach, places, step)):
            targets = reached_targets(part)
            if rows.weights is None:
                totals += np.bincount(targets, minlength=len(totals))
            else:
                weights = rows.weights[part.start : part.stop].astype(np.float64)
                shares = np.repeat(weights, part.counts)
                found = np.bincount(targets, weights=shares, minlength=len(totals))
                totals += found.astype(np.int64)
        found = np.flatnonzero(totals)
        result = Rows(count=len(found), variables={self._op.target: neighbours.row_ids(found)}, weights=totals[found])
        if self._restriction.is_empty:
            return result
        return result.keep(self._restriction.keeps(result.variables[self._op.target]))

    # ---- the way to the neighbours

    def _neighbours(self, frontier: int, hops: int) -> Neighbours:
        context, op, edge = self._context, self._op, self._edge
        if context.settings.traversal_mode is TraversalMode.AUTO:
            known = context.caches.adjacencies.get(adjacency_key(context, edge))
            if known is not None:
                self.path = TraversalPath.ADJACENCY
                source = context.type_entities(node_table_key(_source_type(edge, op.direction)))
                return AdjacentNeighbours(known, op.direction, source, context.entities(op.target))
        facts = traversal_facts(context, edge, op.direction, frontier, hops)
        self.path = choose_path(facts, context.settings)
        edges = context.type_entities(edge_table_key(edge.name))
        target = context.entities(op.target)
        source = context.type_entities(node_table_key(_source_type(edge, op.direction)))
        if self.path is TraversalPath.ADJACENCY:
            return AdjacentNeighbours(find_adjacency(context, edge), op.direction, source, target)
        key = adjacency_key(context, edge)
        cost = edges.row_count if self.path is TraversalPath.EDGE_SCAN else followed_edges(facts)
        context.caches.traversal_debt.put(key, facts.debt + cost)
        way = IndexedNeighbours if self.path is TraversalPath.INDEXED else ScannedNeighbours
        return way(edges, op.direction, source, target)


def traversal_facts(context: Context, edge: EdgeDef, direction: Direction, frontier: int, hops: int) -> TraversalFacts:
    """The facts for the choice of a path, at this snapshot."""
    edges = context.type_entities(edge_table_key(edge.name))
    source = context.type_entities(node_table_key(_source_type(edge, direction)))
    probed = {Direction.OUT: ("src",), Direction.IN: ("dst",), Direction.BOTH: ("src", "dst")}
    indexes = context.caches.indexes(edges.table)
    names = [scalar_index_name(column) for column in probed[direction]]
    return TraversalFacts(
        frontier=frontier,
        hops=hops,
        edges=edges.row_count,
        sources=source.row_count,
        is_indexed=all(name in indexes and not indexes[name].missing_fragments for name in names),
        is_ready=is_adjacency_ready(context, edge),
        debt=context.caches.traversal_debt.get(adjacency_key(context, edge)) or 0.0,
    )


def _source_type(edge: EdgeDef, direction: Direction) -> str:
    return edge.target if direction is Direction.IN else edge.source
