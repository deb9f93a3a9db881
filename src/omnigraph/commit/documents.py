"""Commits, snapshots and the log as JSON, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.commit.rows import INTERNAL_SCHEMA_VERSION, GraphCommit, TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.ids import TableKey

# ---- commits


def commit_json(commit: GraphCommit) -> dict[str, object]:
    """A commit as JSON; times are in microseconds since the epoch, `written_at` is there where it differs."""
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
    if commit.written_at is not None:
        body["written_at"] = commit.written_at
    return body


def commit_document(commit: GraphCommit) -> dict[str, object]:
    """A commit as a server sends it: also what a client needs to show it as an embedded graph does."""
    return commit_json(commit) | {
        "kind": commit.kind,
        "operation_id": commit.operation_id,
        "schema_hash": commit.schema_hash,
        "tables": list(commit.tables),
        "recovery_for_actor": commit.recovery_for_actor,
    }


def commit_from_json(body: Mapping[str, Any]) -> GraphCommit:
    """The inverse of `commit_document`; what a shorter document does not say is empty."""
    return GraphCommit(
        commit_id=body["graph_commit_id"],
        graph_version=body["graph_manifest_version"],
        branch=body["graph_branch"],
        parent_id=body.get("parent_commit_id"),
        merged_parent_id=body.get("merged_parent_commit_id"),
        actor=body.get("actor_id"),
        created_at=body["created_at"],
        kind=body.get("kind", ""),
        operation_id=body.get("operation_id", ""),
        schema_hash=body.get("schema_hash", ""),
        tables=tuple(TableKey(key) for key in body.get("tables", ())),
        recovery_for_actor=body.get("recovery_for_actor"),
        merge_strategy=body.get("merge_strategy"),
        written_at=body.get("written_at"),
    )


def optional_commit(body: Mapping[str, Any] | None) -> GraphCommit | None:
    """The commit of a receipt; a write that changed nothing has none."""
    return None if body is None else commit_from_json(body)


# ---- snapshots


def snapshot_json(snapshot: Snapshot) -> dict[str, object]:
    """The document of `snapshot --json`: which version of every dataset a branch reads."""
    return {
        "graph_branch": snapshot.branch,
        "graph_manifest_version": snapshot.graph_version,
        "graph_commit_id": snapshot.commit_id,
        "internal_schema_version": INTERNAL_SCHEMA_VERSION,
        "datasets": [_dataset(pin) for pin in _sorted_pins(snapshot)],
    }


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """A snapshot as a server sends it: complete."""
    return snapshot_json(snapshot) | {
        "datasets": [
            _dataset(pin) | {"incarnation": pin.incarnation} for pin in _sorted_pins(snapshot)
        ],
        "branch_incarnation": snapshot.incarnation,
        "schema_hash": snapshot.schema_hash,
        "fork_name": snapshot.fork_name,
    }


def snapshot_from_json(body: Mapping[str, Any]) -> Snapshot:
    """The inverse of `snapshot_document`."""
    pins = {}
    for item in body["datasets"]:
        key = TableKey(f"{item['entity_kind']}:{item['type_name']}")
        pins[key] = TablePin(
            table_key=key,
            incarnation=item["incarnation"],
            location=item["dataset_path"],
            branch=item["native_dataset_branch"],
            version=item["published_dataset_version"],
            row_count=item["entity_count"],
        )
    return Snapshot(
        branch=body["graph_branch"],
        incarnation=body["branch_incarnation"],
        graph_version=body["graph_manifest_version"],
        commit_id=body["graph_commit_id"],
        schema_hash=body["schema_hash"],
        pins=pins,
        fork_name=body["fork_name"],
    )


# ---- the log


def log_document(
    commits: Iterable[GraphCommit], heads: Mapping[str, Snapshot]
) -> dict[str, object]:
    """The document of `log --graph --json`, with complete commits: everything that branches build on."""
    bodies = [
        commit_document(commit) | {"branch_deleted": is_of_deleted_branch(commit, heads)}
        for commit in commits
    ]
    return {
        "commits": bodies,
        "heads": {name: head.commit_id for name, head in heads.items()},
    }


def is_of_deleted_branch(commit: GraphCommit, heads: Mapping[str, Snapshot]) -> bool:
    """Whether a commit was made on a branch that is gone; one of the same name may have been created since."""
    head = heads.get(commit.branch)
    return head is None or commit.graph_version < head.incarnation


def _sorted_pins(snapshot: Snapshot) -> list[TablePin]:
    return [snapshot.pins[key] for key in sorted(snapshot.pins)]


def _dataset(pin: TablePin) -> dict[str, object]:
    kind, _, name = pin.table_key.partition(":")
    return {
        "entity_kind": kind,
        "type_name": name,
        "dataset_path": pin.location,
        "published_dataset_version": pin.version,
        "native_dataset_branch": pin.branch,
        "entity_count": pin.row_count,
    }
