"""Sidecars to test with."""

from __future__ import annotations

from omnigraph.commit.sidecar import PlannedCommit, Sidecar, SidecarTable, WriterKind

OPERATION = "01M7GZR25SA3GECG1CBN830JN6"


def entry(key: str = "node:Paper", confirmed: int | None = None) -> SidecarTable:
    """A table that its writer moves from version 4 to 5."""
    return SidecarTable(
        table_key=key,
        incarnation=1,
        table_path="nodes/da89d00e1b71df59",
        table_branch=None,
        expected_version=4,
        post_commit_pin=5,
        transaction_uuid="uuid-ours",
        confirmed_version=confirmed,
    )


def sidecar(kind: WriterKind = WriterKind.MUTATION, **changed) -> Sidecar:
    values = {
        "operation_id": OPERATION,
        "writer_kind": kind,
        "actor": "act-ü",
        "branch": "team/dev",
        "branch_incarnation": 7,
        "schema_hash": "sha256:one",
        "commit": PlannedCommit(
            commit_id="01M7GZR22DMJRCCDNMW6R919VM",
            parent_id="01M7GZR22DMJRCCDNMW6R919VN",
            merged_parent_id="01M7GZR22DMJRCCDNMW6R919VP",
            created_at=1_700_000_000_000_000,
        ),
        "tables": (entry(), entry("edge:Cites", confirmed=6)),
    }
    return Sidecar(**(values | changed))
