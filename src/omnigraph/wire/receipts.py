"""Receipts of writes: what an embedded graph and a server both answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph.errors import MergeConflict
from omnigraph.ids import TableKey
from omnigraph.wire.commits import commit_document, commit_json, optional_commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.branches.merging import TypeChanges
    from omnigraph.manifest.rows import GraphCommit


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

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> MutationResult:
        """The inverse of `to_json`, of a body of any server."""
        return MutationResult(
            branch=body["branch"],
            query_name=body["query_name"],
            affected_nodes=body["affected_nodes"],
            affected_edges=body["affected_edges"],
            actor=body.get("actor_id"),
            commit=optional_commit(body.get("commit")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchReceipt:
    """A branch that was created or deleted, and by whom; `base` is where a new one begins, as it was asked for."""

    name: str
    base: str | None
    actor: str | None

    def to_json(self) -> dict[str, object]:
        """The receipt, without the address of the graph."""
        base = {} if self.base is None else {"from": self.base}
        return {"name": self.name, **base, "actor_id": self.actor}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> BranchReceipt:
        """The inverse of `to_json`, of a body of any server."""
        return BranchReceipt(name=body["name"], base=body.get("from"), actor=body.get("actor_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The receipt of a load; `commit` is None after a dry run."""

    uri: str
    branch: str
    #: The branch that a missing one begins at, as the caller gave it.
    base: str | None
    branch_created: bool
    mode: str
    #: Records of the input per table key of every type that is present, those that were superseded too.
    rows: Mapping[TableKey, int]
    #: Records that a merge replaced by a later one of the same id: read, not written.
    superseded: int
    actor: str | None
    commit: GraphCommit | None
    dry_run: bool = False
    #: The same per table key, of types that have any.
    superseded_rows: Mapping[TableKey, int] = field(default_factory=dict)

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """Records of the input per node type, name-sorted."""
        return self._of_kind("node")

    @property
    def edges_loaded(self) -> dict[str, int]:
        """Records of the input per edge type, name-sorted."""
        return self._of_kind("edge")

    def _of_kind(self, kind: str) -> dict[str, int]:
        found = (key.partition(":") for key in sorted(self.rows))
        return {name: self.rows[TableKey(f"{k}:{name}")] for k, _, name in found if k == kind}

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        return {
            "uri": self.uri,
            "branch": self.branch,
            "mode": self.mode,
            "base_branch": self.base,
            "branch_created": self.branch_created,
            "nodes": self._types_json("node", self.nodes_loaded),
            "edges": self._types_json("edge", self.edges_loaded),
            "total_entities": sum(self.rows.values()),
            "superseded": self.superseded,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }

    def _types_json(self, kind: str, counts: Mapping[str, int]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for name, count in counts.items():
            gone = self.superseded_rows.get(TableKey(f"{kind}:{name}"))
            found.append(
                {"name": name, "entities_loaded": count} | ({"superseded": gone} if gone else {})
            )
        return found

    @staticmethod
    def from_json(body: Mapping[str, Any], *, uri: str) -> LoadResult:
        """The inverse of `to_json`; the address is the one that the caller used."""
        types = {
            TableKey(f"{kind}:{item['name']}"): item
            for kind in ("node", "edge")
            for item in body[f"{kind}s"]
        }
        gone = {key: item["superseded"] for key, item in types.items() if item.get("superseded")}
        return LoadResult(
            uri=uri,
            branch=body["branch"],
            base=body.get("base_branch"),
            branch_created=body["branch_created"],
            mode=body["mode"],
            rows={key: item["entities_loaded"] for key, item in types.items()},
            superseded=body.get("superseded", 0),
            superseded_rows=gone,
            actor=body.get("actor_id"),
            commit=optional_commit(body.get("commit")),
            dry_run=body.get("dry_run", False),
        )


class MergeOutcome(StrEnum):
    """How a merge ended, or in a dry run how it would end."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    #: Only of a dry run; otherwise conflicts are an error.
    CONFLICTS = "conflicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The receipt of a merge; `commit` is None when there was nothing to merge, and after a dry run."""

    source: str
    target: str
    outcome: MergeOutcome
    commit: GraphCommit | None = None
    conflicts: tuple[MergeConflict, ...] = ()
    conflict_total: int = 0
    changes: tuple[TypeChanges, ...] = ()
    strategy: str | None = None
    #: Whether the source was deleted; None when nobody asked for it.
    branch_deleted: bool | None = None
    #: Why it could not be; the merge happened all the same.
    branch_delete_error: str | None = None
    actor: str | None = None
    dry_run: bool = False

    def to_json(self) -> dict[str, object]:
        """The merge envelope."""
        body: dict[str, object] = {
            "source": self.source,
            "target": self.target,
            "outcome": str(self.outcome),
            "commit": None if self.commit is None else commit_json(self.commit),
            "changes": [change.to_json() for change in self.changes],
            "strategy": self.strategy,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
        }
        if self.dry_run:
            body["merge_conflicts"] = [conflict.to_json() for conflict in self.conflicts]
            body["merge_conflict_total"] = self.conflict_total
        if self.branch_deleted is not None:
            body["branch_deleted"] = self.branch_deleted
        if self.branch_delete_error is not None:
            body["branch_delete_error"] = self.branch_delete_error
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> MergeResult:
        """The inverse of `to_json`."""
        # Late: whoever merges nothing needs nothing of branches.
        from omnigraph.branches.merging import TypeChanges

        return MergeResult(
            source=body["source"],
            target=body["target"],
            outcome=MergeOutcome(body["outcome"]),
            commit=optional_commit(body.get("commit")),
            conflicts=tuple(map(MergeConflict.from_json, body.get("merge_conflicts", ()))),
            conflict_total=body.get("merge_conflict_total", 0),
            changes=tuple(map(TypeChanges.from_json, body.get("changes", ()))),
            strategy=body.get("strategy"),
            branch_deleted=body.get("branch_deleted"),
            branch_delete_error=body.get("branch_delete_error"),
            actor=body.get("actor_id"),
            dry_run=body.get("dry_run", False),
        )


class Receipt(Protocol):
    """What a write returns."""

    @property
    def commit(self) -> GraphCommit | None:
        """What it published; None when nothing changed."""
        ...

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        ...


def receipt_document(receipt: Receipt) -> dict[str, object]:
    """A receipt as a server sends it: its commit is complete, so that a client has the same one."""
    commit = receipt.commit
    return receipt.to_json() | {"commit": None if commit is None else commit_document(commit)}
