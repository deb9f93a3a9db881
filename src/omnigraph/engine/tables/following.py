"""What a commit does for the next read of the tables that it touched."""

from __future__ import annotations

from collections.abc import Collection

from omnigraph.core.ids import TableKey
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.traversal_index import follow_edges


def follow(context: Context, changed: Collection[TableKey]) -> None:
    """Make numbers, columns and traversal indexes of the snapshot from those that were read at the state before.

    Reads what changed and nothing else: what cannot be made like that is left to the read that needs it.
    """
    touched = {key for key in changed if key in context.snapshot.pins}
    for key in touched:
        entities = context.type_entities(key)
        if context.caches.is_read(entities.table.path):
            entities.known_numbering()
    for edge in context.catalog.edges.values():
        if not touched.isdisjoint(
            (edge.table_key, *(context.catalog.nodes[name].table_key for name in (edge.source, edge.target)))
        ):
            follow_edges(context, edge)
