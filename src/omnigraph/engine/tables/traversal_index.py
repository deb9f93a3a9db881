"""Where traversal indexes come from: memory, disk, or a scan of the edges."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np

from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.engine.rows import read_batches
from omnigraph.engine.tables.adjacency import Adjacency
from omnigraph.engine.tables.context import AdjacencyKey, Context, EdgeState
from omnigraph.engine.tables.entities import row_id_array, step_limit
from omnigraph.engine.tables.numberings import is_among
from omnigraph.engine.tables.runs import EdgeList, joined_edges
from omnigraph.engine.tables.settings import TraversalFacts
from omnigraph.engine.tables.stored_indexes import (
    EarlierIndex,
    earlier_index,
    edge_entities,
    has_index,
    load_index,
    save_index,
)
from omnigraph.engine.tables.wanted_indexes import scalar_index_name
from omnigraph.errors import DamageError, StorageError
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.catalog import EdgeDef
from omnigraph.storage.datasets.reads import scan_rows
from omnigraph.storage.datasets.steps import read_come, step_between
from omnigraph.storage.datasets.tables import Table

#: Fewer edges are scanned faster than their index is found on disk.
PERSIST_MIN_EDGES = 50_000
_SCAN_ROWS = 1 << 17
#: States of one edge table that a new state may be made from.
_KEPT_STATES = 4

_log = logging.getLogger(__name__)


def adjacency_key(context: Context, edge: EdgeDef) -> AdjacencyKey:
    """The cache key of an adjacency: the rows of the edges and of both ends."""
    edges, source, target = edge_entities(context, edge)
    return edges.fingerprint, source.fingerprint, target.fingerprint


def is_adjacency_ready(context: Context, edge: EdgeDef) -> bool:
    """Whether the index of an edge type need not be built."""
    if known_adjacency(context, edge) is not None:
        return True
    return has_index(context, edge, adjacency_key(context, edge)) or earlier_index(context, edge) is not None


def known_adjacency(context: Context, edge: EdgeDef, *, is_read: bool = True) -> Adjacency | None:
    """The index of an edge type at the snapshot, if it is in memory or follows from one that is there.

    The difference to the other state is read, and nothing else. `is_read` says that a reader asks.
    """
    known = _known(context, edge)
    if known is not None and is_read:
        known.is_read = True
    return known


def is_index_read(context: Context, edge: EdgeDef) -> bool:
    """Whether the latest index of an edge type in memory was read since it was made."""
    caches = context.caches
    states = caches.edge_states.get(context.snapshot.pins[edge_table_key(edge.name)].location)
    latest = None if not states else caches.adjacencies.get(states[0][1])
    return latest is not None and latest.is_read


def _known(context: Context, edge: EdgeDef) -> Adjacency | None:
    caches, key = context.caches, adjacency_key(context, edge)
    known = caches.adjacencies.get(key)
    if known is not None and _fits(context, edge, known):
        return known
    path = context.type_entities(edge_table_key(edge.name)).table.path
    if caches.edge_states.get(path) is None or caches.unrelated.get(key) is not None:
        return None
    made = caches.stepping.make(key, lambda: _step(context, edge, key), context.budget.check)
    return made if made is not None and _fits(context, edge, made) else None


def find_adjacency(context: Context, edge: EdgeDef, *, keep: bool = False) -> Adjacency:
    """The index of an edge type at the snapshot; a new large one is kept on disk.

    `keep` keeps it on disk also when it is in memory already, as a maintenance run does.
    """
    caches, key = context.caches, adjacency_key(context, edge)
    known = known_adjacency(context, edge)
    if known is None:
        known = caches.building.make(key, lambda: _load_or_build(context, edge, key), context.budget.check)
        if not _fits(context, edge, known):
            # Another thread built it for numbers that are forgotten since.
            known = _load_or_build(context, edge, key)
        known.is_read = True
    if keep and known.edge_count >= PERSIST_MIN_EDGES:
        save_index(context, edge, key, known)
    return known


def _fits(context: Context, edge: EdgeDef, known: Adjacency) -> bool:
    """Whether the numbers in an adjacency are those of this query."""
    _, source, target = edge_entities(context, edge)
    assert known.numberings is not None, "what is kept knows what its numbers mean"
    return source.agrees(known.numberings[0]) and target.agrees(known.numberings[1])


def _keep(context: Context, edge: EdgeDef, key: AdjacencyKey, found: Adjacency) -> None:
    caches, table = context.caches, context.type_entities(edge_table_key(edge.name)).table
    caches.adjacencies.put(key, found, state_of=table.path)
    others = (item for item in caches.edge_states.get(table.path) or () if item[1] != key)
    caches.edge_states.put(table.path, ((table, key), *others)[:_KEPT_STATES])


def _load_or_build(context: Context, edge: EdgeDef, key: AdjacencyKey) -> Adjacency:
    kept = context.caches.adjacencies.get(key)
    if kept is not None and _fits(context, edge, kept):
        return kept
    found = load_index(context, edge, key)
    if found is None and (earlier := earlier_index(context, edge)) is not None:
        found = _made_from_stored(context, edge, key, earlier)
        if found is not None:
            return found
    if found is None:
        found = _build(context, edge)
        if found.edge_count >= PERSIST_MIN_EDGES:
            save_index(context, edge, key, found)
    _keep(context, edge, key, found)
    return found


def _build(context: Context, edge: EdgeDef) -> Adjacency:
    edges, source, target = edge_entities(context, edge)
    numberings = source.numbering(), target.numbering()
    parts: list[EdgeList] = []
    budget, path = context.budget, edges.table.path
    scanned = scan_rows(edges.table, ("src", "dst"), batch_rows=_SCAN_ROWS)
    for batch in read_batches(budget, scanned, edges.row_count):
        ends = source.numbers_of_ids(batch.column(0), path), target.numbers_of_ids(batch.column(1), path)
        parts.append(EdgeList(*ends, row_id_array(batch)))

    def build() -> Adjacency:
        every = joined_edges(parts)
        begins, ends = numberings
        return Adjacency.build(every.source, every.target, every.edge, sources=begins.count, targets=ends.count)

    found = budget.patiently(build, edges.row_count)
    found.numberings = numberings
    return found


# ---- from another state


def _step(context: Context, edge: EdgeDef, key: AdjacencyKey) -> Adjacency | None:
    """The adjacency of this state from that of another one, if it can be told at a low cost."""
    caches, table = context.caches, context.type_entities(edge_table_key(edge.name)).table

    def distance(state: EdgeState) -> tuple[bool, int]:
        return state[0].branch != table.branch, abs(state[0].version - table.version)

    for other, other_key in sorted(caches.edge_states.get(table.path) or (), key=distance):
        known = caches.adjacencies.get(other_key)
        if known is None:
            continue
        try:
            made = _step_from(context, edge, other, known)
        except (StorageError, DamageError) as error:
            # A cleanup may have taken what only the other state reads. A build reads what this state has.
            _log.debug("the edges of %s are read without an earlier state of them: %s", table.path, error)
            continue
        if made is not None:
            _keep(context, edge, key, made)
            if made.is_heavy:
                caches.background.submit(table.path, partial(_write_out, context, edge, key))
            return made
    caches.unrelated.put(key, True)
    return None


def _made_from_stored(context: Context, edge: EdgeDef, key: AdjacencyKey, earlier: EarlierIndex) -> Adjacency | None:
    """The adjacency of this state from that of an earlier one that another process left on disk."""
    caches = context.caches
    known = earlier.load(context)
    if known is None:
        return None
    path = earlier.edges.path
    caches.adjacencies.put(earlier.key, known, state_of=path)
    others = caches.edge_states.get(path) or ()
    caches.edge_states.put(path, ((earlier.edges, earlier.key), *others)[:_KEPT_STATES])
    return _step(context, edge, key)


def _step_from(context: Context, edge: EdgeDef, other: Table, known: Adjacency) -> Adjacency | None:
    edges, source, target = edge_entities(context, edge)
    begins, ends = source.known_numbering(), target.known_numbering()
    assert known.numberings is not None, "what is kept knows what its numbers mean"
    before = known.numberings
    if begins is None or ends is None or not (begins.extends(before[0]) and ends.extends(before[1])):
        return None
    step = step_between(other, edges.table, step_limit(edges.row_count))
    if step is None:
        return None
    come, rows = read_come(edges.table, step, ("src", "dst"))
    path = edges.table.path
    columns = [rows[name].combine_chunks() for name in ("src", "dst")]
    added = EdgeList(source.numbers_of_ids(columns[0], path), target.numbers_of_ids(columns[1], path), come)
    died = begins.dead[~is_among(begins.dead, before[0].dead)], ends.dead[~is_among(ends.dead, before[1].dead)]
    removed = known.located(step.gone, died)
    if removed is None:
        return None
    removed, added = _really(removed, added)
    made = known.stepped(removed, added, begins, ends)
    return made if made is not None and made.edge_count == edges.row_count else None


def _write_out(context: Context, edge: EdgeDef, key: AdjacencyKey) -> None:
    """Make whole arrays of a state of which much has changed, and put later states above them."""
    caches, table = context.caches, context.type_entities(edge_table_key(edge.name)).table
    written = caches.adjacencies.get(key)
    if written is None:
        return
    written.write_out()
    rebased: Adjacency | None = None
    while not caches.background.is_closed:
        # A writer may make another state meanwhile, from one that was not above these arrays yet.
        states = caches.edge_states.get(table.path) or ()
        later = None if not states else caches.adjacencies.get(states[0][1])
        rebased = None if later is None else later.rebased(written)
        if rebased is None:
            break
        assert later is not None, "it was rebased"
        rebased.is_read = later.is_read
        caches.adjacencies.put(states[0][1], rebased, state_of=table.path)
    if written.edge_count >= PERSIST_MIN_EDGES and not caches.background.is_closed:
        save_index(context, edge, key, written)


def _really(removed: EdgeList, added: EdgeList) -> tuple[EdgeList, EdgeList]:
    """Without edges that come as they were: an update of a property moves the row and leaves its ends."""
    removed, added = removed.take(np.argsort(removed.edge)), added.take(np.argsort(added.edge))
    stays, stayed = is_among(removed.edge, added.edge), is_among(added.edge, removed.edge)
    one, other = removed.take(stays), added.take(stayed)
    is_equal = (one.source == other.source) & (one.target == other.target)
    stays[stays] = is_equal
    stayed[stayed] = is_equal
    return removed.take(~stays), added.take(~stayed)


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
