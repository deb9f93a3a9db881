"""Whether what a graph says makes sense: a history without circles, and edges between nodes that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import DamageError
from omnigraph.graph.diagnosis import Finding, Health
from omnigraph.graph.healing import dangling_edges
from omnigraph.graph.schemas import find_schema
from omnigraph.manifest.lineage import disordered, doubled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph.schemas import GraphSchema
    from omnigraph.manifest.snapshot import History
    from omnigraph.recovery.environment import GraphEnvironment

#: Findings of one kind that are told one by one.
_SHOWN = 10


def check_history(
    environment: GraphEnvironment, history: History, repair: str
) -> Iterator[Finding]:
    """Commits that are there twice, and circles: whatever walks along the history would not come to an end."""
    twice = sorted(doubled(environment.manifest.commit_rows()))
    for commit_id in twice[:_SHOWN]:
        yield Finding(
            check="history",
            severity=Health.ERROR,
            message=f"commit {commit_id} is in the catalog more than once",
            action=repair,
        )
    wrong = [commit for commit in disordered(history.commits) if commit not in twice]
    for commit_id in wrong[:_SHOWN]:
        yield Finding(
            check="history",
            severity=Health.ERROR,
            message=f"commit {commit_id} builds on one that is not older: restore the catalog from a backup",
        )
    if not twice and not wrong:
        yield Finding(
            check="history",
            severity=Health.OK,
            message="every commit is there once, after what it builds on",
        )


def check_edges(environment: GraphEnvironment, repair: str, verify: str) -> Iterator[Finding]:
    """Edges without one of their ends. Reads the ids of all nodes and the ends of all edges."""

    def schema_of(schema_hash: str) -> GraphSchema:
        return find_schema(environment.objects, environment.manifest, schema_hash)

    found, unchecked = dangling_edges(environment, schema_of)
    for failed in unchecked:
        is_damage = isinstance(failed.error, DamageError)
        yield Finding(
            check="edges",
            severity=Health.ERROR,
            message=f"{failed.type_key} of branch {failed.branch} cannot be checked: {failed.error.message}",
            action=verify if is_damage else None,
            is_damage=is_damage,
        )
    for item in found:
        edges = "1 edge" if item.count == 1 else f"{item.count:,} edges"
        examples = ", ".join(item.examples)
        yield Finding(
            check="edges",
            severity=Health.ERROR,
            message=f"{item.type_key} of branch {item.branch} has {edges} without an end: {examples}",
            action=repair,
        )
    if not found and not unchecked:
        yield Finding(check="edges", severity=Health.OK, message="every edge has both ends")
