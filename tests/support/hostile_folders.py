"""Crafted graph folders: links at every level, and paths of other places in everything that names a path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph.core.ids import new_ulid
from omnigraph.storage.location import RECOVERY_FOLDER, SCHEMA_FILES

#: Paths that lead elsewhere, seen from the root of a graph that lies beside its victim.
ELSEWHERE = (
    *("../victim.omni/nodes/da89d00e1b71df59", "nodes/../../victim.omni/nodes/da89d00e1b71df59", "nodes/evil"),
    *("nodes", "", ".", "__manifest", "nodes/da89d00e1b71df59/../../../victim.omni", "nodes//da89d00e1b71df59"),
    *("nodes/DA89D00E1B71DF59", "nodes/da89d00e1b71df59/tree/draft", "nodes/da89d00e1b71df59\n"),
    "nodes/da89d00e1b71df59\0",
)


def absolute(victim: Path) -> str:
    return str(victim / "nodes" / "da89d00e1b71df59")


def sidecar_of(head: Any, **changed: Any) -> dict[str, Any]:
    """The JSON of a sidecar that continues the head of main, with a hostile part."""
    body: dict[str, Any] = {
        "format_version": 1,
        "operation_id": new_ulid(),
        "writer_kind": "schema_apply",
        "actor": None,
        "branch": "main",
        "branch_incarnation": head.incarnation,
        "schema_hash": head.schema_hash,
        # The commit exists: recovery only has to finish what it did.
        "commit": {"commit_id": head.commit_id, "parent_id": None, "created_at": 1},
        "tables": [],
        "schema_change": None,
    }
    return body | changed


def change_of(head: Any, **changed: Any) -> dict[str, Any]:
    """The part of a sidecar about a schema change that happened."""
    return {
        "schema_hash": head.schema_hash,
        "files": dict.fromkeys(SCHEMA_FILES, "{}"),
        "new_tables": [],
        "renamed": {},
        "dropped": [],
    } | changed


def table_of(path: str, branch: str | None = None) -> dict[str, Any]:
    return {
        "table_key": "node:Person",
        "incarnation": 1,
        "table_path": path,
        "table_branch": branch,
        "expected_version": 1,
        "post_commit_pin": 2,
        "transaction_uuid": "x",
    }


def write_sidecar(root: Path, body: dict[str, Any]) -> Path:
    folder = root / RECOVERY_FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{body['operation_id']}.json"
    path.write_text(json.dumps(body))
    return path
