"""Where traversal indexes come from: memory, disk, or a scan of the edges."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

import numpy as np

from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.engine.rows import IntArray, Numbers, read_batches
from omnigraph.engine.tables.adjacency import Adjacency, Side, ends_among
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import row_id_array
from omnigraph.engine.tables.settings import TraversalFacts
from omnigraph.engine.tables.wanted_indexes import scalar_index_name
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.catalog import EdgeDef
from omnigraph.storage.datasets.reads import scan_rows
from omnigraph.storage.derived import group_name

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


# ---- What the choice of a way depends on


def traversal_facts(context: Context, edge: EdgeDef, direction: Direction, frontier: int, hops: int) -> TraversalFacts:
    """The facts for the choice of a path, at this snapshot."""
    edges = context.type_entities(edge_table_key(edge.name))
    source = context.type_entities(node_table_key(source_type(edge, direction)))
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


def source_type(edge: EdgeDef, direction: Direction) -> str:
    """The type of the nodes that a traversal starts from."""
    return edge.target if direction is Direction.IN else edge.source
