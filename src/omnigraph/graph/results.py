"""What the methods of a graph return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.ids import TableKey

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The receipt of a load; `commit` is None after a dry run."""

    uri: str
    branch: str
    #: The branch that a missing one begins at, as the caller gave it.
    base: str | None
    branch_created: bool
    mode: str
    #: Records of the input per table key of every type that is present.
    rows: Mapping[TableKey, int]
    #: Records that a merge replaced by a later one of the same id.
    superseded: int
    actor: str | None
    commit: GraphCommit | None
    dry_run: bool = False

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """Records per node type, name-sorted."""
        return self._of_kind("node")

    @property
    def edges_loaded(self) -> dict[str, int]:
        """Records per edge type, name-sorted."""
        return self._of_kind("edge")

    def _of_kind(self, kind: str) -> dict[str, int]:
        found = (key.partition(":") for key in sorted(self.rows))
        return {name: self.rows[TableKey(f"{k}:{name}")] for k, _, name in found if k == kind}

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        nodes, edges = self.nodes_loaded, self.edges_loaded
        return {
            "uri": self.uri,
            "branch": self.branch,
            "mode": self.mode,
            "base_branch": self.base,
            "branch_created": self.branch_created,
            "nodes": [{"name": name, "entities_loaded": n} for name, n in nodes.items()],
            "edges": [{"name": name, "entities_loaded": n} for name, n in edges.items()],
            "total_entities": sum(self.rows.values()),
            "superseded": self.superseded,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedProperty:
    """What a run did to one vector property, or would do."""

    type_key: str
    property: str
    #: Rows without a vector, and rows whose text changed since, or that were asked for.
    missing: int
    outdated: int
    #: Rows that lost their vector, because their text is gone; rows that could not, because it must not be null.
    cleared: int
    kept: int
    #: Texts that the provider embedded, and texts whose vectors an earlier run had computed.
    embedded: int
    reused: int
    #: The commit before which changed texts could not be recognised; None when all were.
    checked_since: str | None

    def to_json(self) -> dict[str, object]:
        """The property as a JSON object."""
        return {
            "type_key": self.type_key,
            "property": self.property,
            "missing": self.missing,
            "outdated": self.outdated,
            "cleared": self.cleared,
            "kept": self.kept,
            "embedded": self.embedded,
            "reused": self.reused,
            "checked_since": self.checked_since,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """The receipt of a run; `commit` is None when there was nothing to do, and after a dry run."""

    uri: str
    branch: str
    provider: str
    model: str
    properties: tuple[EmbeddedProperty, ...]
    actor: str | None
    commit: GraphCommit | None
    dry_run: bool = False

    @property
    def rows(self) -> int:
        """Rows that got a vector or lost it, once per property."""
        return sum(item.missing + item.outdated + item.cleared for item in self.properties)

    @property
    def embedded(self) -> int:
        """Texts that the provider embedded."""
        return sum(item.embedded for item in self.properties)

    @property
    def reused(self) -> int:
        """Texts whose vectors an earlier run had computed."""
        return sum(item.reused for item in self.properties)

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        return {
            "uri": self.uri,
            "branch": self.branch,
            "provider": self.provider,
            "model": self.model,
            "properties": [item.to_json() for item in self.properties],
            "rows": self.rows,
            "embedded": self.embedded,
            "reused": self.reused,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }


def commit_json(commit: GraphCommit) -> dict[str, object]:
    """A commit as JSON; `created_at` is in microseconds since the epoch."""
    body: dict[str, object] = {
        "graph_commit_id": commit.commit_id,
        "graph_branch": commit.branch,
        "graph_manifest_version": commit.graph_version,
        "parent_commit_id": commit.parent_id,
        "merged_parent_commit_id": commit.merged_parent_id,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
    }
    if commit.merge_strategy is not None:
        body["merge_strategy"] = commit.merge_strategy
    return body
