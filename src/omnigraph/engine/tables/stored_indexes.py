"""Traversal indexes on disk: that of a state, and those of earlier states from which others are made."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from hashlib import sha256

import numpy as np

from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.engine.rows import Numbers
from omnigraph.engine.tables.adjacency import Adjacency, Side
from omnigraph.engine.tables.context import AdjacencyKey, Context
from omnigraph.engine.tables.entities import Entities, step_limit
from omnigraph.errors import DamageError, OutsideRootError, StorageError
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.catalog import EdgeDef
from omnigraph.storage.datasets.steps import step_between
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.derived import group_name

_SIDE_ARRAYS = ("offsets", "targets", "edges", "distinct_offsets", "distinct_targets")
#: The array that tells which states a set belongs to.
_STATES = "states"
_log = logging.getLogger(__name__)


def edge_entities(context: Context, edge: EdgeDef) -> tuple[Entities, Entities, Entities]:
    """The edges of a type, and the nodes at both ends."""
    tables = (edge_table_key(edge.name), node_table_key(edge.source), node_table_key(edge.target))
    edges, source, target = (context.type_entities(key) for key in tables)
    return edges, source, target


# ---- the index of a state


def has_index(context: Context, edge: EdgeDef, key: AdjacencyKey) -> bool:
    """Whether the index of a state is there."""
    return context.caches.derived.has(_group(context, edge), _name(key))


def save_index(context: Context, edge: EdgeDef, key: AdjacencyKey, found: Adjacency) -> None:
    """Keep the index of the newest state of a branch, in the place of earlier ones."""
    group, name = _group(context, edge), _name(key)
    if not context.is_head or context.caches.derived.has(group, name):
        return
    found = found.without_dead()
    states = [[item.table.branch, item.table.version, item.fingerprint] for item in edge_entities(context, edge)]
    if tuple(state[2] for state in states) != key:
        return
    arrays: dict[str, Numbers] = {
        "counts": np.array([found.sources, found.targets]),
        _STATES: np.frombuffer(json.dumps(states).encode(), np.uint8),
    }
    for direction in (Direction.OUT, Direction.IN):
        side = found.side(direction)
        wanted = _SIDE_ARRAYS if side.distinct_targets is not side.targets else _SIDE_ARRAYS[:3]
        arrays |= {f"{direction}-{part}": getattr(side, part) for part in wanted}
    context.caches.derived.save(group, name, arrays)


def load_index(context: Context, edge: EdgeDef, key: AdjacencyKey) -> Adjacency | None:
    """The index of a state, if it is there."""
    _, source, target = edge_entities(context, edge)
    return _loaded(context, (_group(context, edge), _name(key)), source, target)


def _loaded(context: Context, place: tuple[str, str], source: Entities, target: Entities) -> Adjacency | None:
    mapped = context.caches.derived.load(*place)
    if mapped is None or "counts" not in mapped:
        return None
    sides = _sides(mapped)
    if sides is None:
        return None
    found = Adjacency(source.row_count, target.row_count, sides)
    if not found.is_consistent():
        # Its checksums are right: something else than a traversal wrote it.
        context.caches.derived.forget(*place)
        return None
    return found.with_dead(source.numbering(), target.numbering())


def _sides(mapped: Mapping[str, Numbers]) -> dict[Direction, Side] | None:
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
    return sides


def _group(context: Context, edge: EdgeDef) -> str:
    table = context.type_entities(edge_table_key(edge.name)).table
    return group_name(table.path, table.branch)


def _name(key: AdjacencyKey) -> str:
    return sha256("/".join(key).encode()).hexdigest()[:24]


# ---- the index of an earlier state


@frozen
class EarlierIndex:
    """The index of an earlier state on disk, of which this state differs little."""

    place: tuple[str, str]
    edges: Table
    source: Table
    target: Table

    @property
    def key(self) -> AdjacencyKey:
        """The identity of its edges."""
        return self.edges.fingerprint, self.source.fingerprint, self.target.fingerprint

    def load(self, context: Context) -> Adjacency | None:
        """The index, under the numbers that its state has in memory."""
        caches = context.caches
        source = caches.entities(self.source, context.budget)
        target = source if self.target is self.source else caches.entities(self.target, context.budget)
        return _loaded(context, self.place, source, target)


def earlier_index(context: Context, edge: EdgeDef) -> EarlierIndex | None:
    """The index of an earlier state of the branch, or of the main line, from which that of this state can be made."""
    caches, mark = context.caches, ("stored", *(item.fingerprint for item in edge_entities(context, edge)))
    if caches.unrelated.get(mark) is not None:
        return None
    table = context.type_entities(edge_table_key(edge.name)).table
    for branch in dict.fromkeys((table.branch, None)):
        group = group_name(table.path, branch)
        for name in caches.derived.names(group):
            try:
                found = _earlier(context, edge, (group, name))
            except (StorageError, DamageError, OutsideRootError) as error:
                # A cleanup may have taken the earlier state. This one is read without it.
                _log.debug("derived state %s/%s is of no use any more: %s", group, name, error)
                continue
            if found is not None:
                return found
    caches.unrelated.put(mark, True)
    return None


def _earlier(context: Context, edge: EdgeDef, place: tuple[str, str]) -> EarlierIndex | None:
    arrays = context.caches.derived.load(*place, only=(_STATES,))
    if arrays is None or _STATES not in arrays:
        return None
    now = edge_entities(context, edge)
    tables: list[Table] = []
    for state, entities in zip(json.loads(arrays[_STATES].tobytes()), now, strict=True):
        branch, version, fingerprint = state
        if branch not in (None, entities.table.branch):
            return None
        table = context.store.open(entities.table.path, branch, int(version))
        if table.fingerprint != fingerprint:
            return None
        tables.append(table)
    edges, source, target = tables
    if step_between(edges, now[0].table, step_limit(now[0].row_count)) is None:
        return None
    return EarlierIndex(place, edges, source, source if edge.source == edge.target else target)
