"""Short ways to write pins, commits and heads."""

from __future__ import annotations

from pathlib import Path

from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes, Manifest
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.commit.sidecar import PlannedCommit, Sidecar, SidecarTable, WriterKind
from omnigraph.core.ids import TableKey
from omnigraph.storage.location import parse_location

PAPER, CITES = TableKey("node:Paper"), TableKey("edge:Cites")
HASH = "sha256:one"


def pin(key: TableKey = PAPER, version: int = 1, *, incarnation: int = 1, branch: str | None = None) -> TablePin:
    return TablePin(
        table_key=key,
        incarnation=incarnation,
        location=f"nodes/{incarnation:016x}",
        branch=branch,
        version=version,
        row_count=10 * version,
    )


def commit(commit_id: str, graph_version: int, parent: str | None = None, branch: str = "main", **more) -> GraphCommit:
    values = {"created_at": 5, "kind": "mutation", "operation_id": "op", "schema_hash": HASH} | more
    return GraphCommit(commit_id=commit_id, graph_version=graph_version, branch=branch, parent_id=parent, **values)


def head(branch: str, incarnation: int, graph_version: int, commit_id: str = "c", **more) -> Head:
    return Head(
        branch=branch,
        incarnation=incarnation,
        graph_version=graph_version,
        commit_id=commit_id,
        schema_hash=HASH,
        **more,
    )


def open_manifest(root: Path) -> Manifest:
    return Manifest(parse_location(root), durable=False)


def create_manifest(root: Path) -> Manifest:
    """A catalog with the genesis commit `c1` and two tables at version 1."""
    manifest = open_manifest(root)
    manifest.create(commit("c1", 1, kind="init"), (pin(PAPER), pin(CITES)))
    return manifest


def publish(
    manifest: Manifest, commit_id: str, *pins: TablePin, branch: str = "main", kind: str = "mutation", **expected
) -> GraphCommit:
    current = manifest.state().head(branch)
    expectations = Expectations(branch=branch, incarnation=current.incarnation, schema_hash=HASH, **expected)

    def make(before: Head, version: int) -> GraphCommit:
        return commit(commit_id, version, before.commit_id, branch, kind=kind)

    return manifest.publish(expectations, Changes(pins=pins), make)


# ---- Sidecars to test with


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
