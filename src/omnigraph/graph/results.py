"""What the methods of a graph return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.manifest import GraphCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """The receipt of a mutation; `commit` is None when nothing matched."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor: str | None
    commit: GraphCommit | None

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIndex:
    """A declared index that cannot be built yet; the next run tries again."""

    type_key: str
    property: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndexes:
    """What one type got."""

    type_key: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """The outcome of a run; `commit` is None when there was nothing to do."""

    branch: str
    commit: GraphCommit | None
    built: tuple[BuiltIndexes, ...]
    pending: tuple[PendingIndex, ...]


def commit_json(commit: GraphCommit) -> dict[str, object]:
    """A commit as JSON; `created_at` is in microseconds since the epoch."""
    return {
        "graph_commit_id": commit.commit_id,
        "graph_branch": commit.branch,
        "graph_manifest_version": commit.graph_version,
        "parent_commit_id": commit.parent_id,
        "merged_parent_commit_id": commit.merged_parent_id,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
    }
