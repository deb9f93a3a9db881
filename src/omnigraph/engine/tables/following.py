"""What a commit does for the next read of the tables that it touched."""

from __future__ import annotations

from collections.abc import Collection

from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.traversal_index import is_index_read, known_adjacency


def follow(context: Context, changed: Collection[TableKey]) -> bool:
    """Make numbers, columns and traversal indexes of the snapshot from those that were read at the state before.

    Reads what changed and nothing else: what cannot be made like that is left to the read that needs it. Whether
    something was asked for.
    """
    caches, pins, has_readers = context.caches, context.snapshot.pins, False
    touched = {key for key in changed if key in pins}
    for key in touched:
        if caches.is_read(pins[key].location):
            context.type_entities(key).known_numbering()
            has_readers = True
    for edge in context.catalog.edges.values():
        tables = edge_table_key(edge.name), node_table_key(edge.source), node_table_key(edge.target)
        if not touched.isdisjoint(tables) and is_index_read(context, edge):
            known_adjacency(context, edge, is_read=False)
            has_readers = True
    return has_readers
