"""Graphs to clean up, and looks at them that do not go through the code under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance

from omnigraph.commit.rows import GraphCommit
from omnigraph.core.ids import TableKey
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.graph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node Place { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
PERSON, PLACE, KNOWS = TableKey("node:Person"), TableKey("node:Place"), TableKey("edge:Knows")
NAMES = "query names() { match { $p: Person } return { $p.name as name, $p.age as age } }"
_U64_MAX = 2**64 - 1


# ---- doing


def add(graph: Graph, name: str, branch: str = "main", age: int = 1) -> GraphCommit:
    text = f'query add() {{ insert Person {{ name: "{name}", age: {age} }} }}'
    return graph.mutate(text, branch=branch).commit


def set_age(graph: Graph, name: str, age: int, branch: str = "main") -> Any:
    text = f'query set() {{ update Person set {{ age: {age} }} where name = "{name}" }}'
    return graph.mutate(text, branch=branch)


def remove(graph: Graph, name: str, branch: str = "main") -> Any:
    return graph.mutate(f'query del() {{ delete Person where name = "{name}" }}', branch=branch)


# ---- looking


def people_at(graph: Graph, commit_id: str) -> dict[str, int] | None:
    """Names and ages at a commit; None when it was cleaned up."""
    try:
        rows = graph.query(NAMES, snapshot=commit_id).to_pylist()
    except HistoricalVersionReclaimedError:
        return None
    return {row["name"]: row["age"] for row in rows}


def people(graph: Graph, branch: str = "main") -> dict[str, int]:
    rows = graph.query(NAMES, branch=branch).to_pylist()
    return {row["name"]: row["age"] for row in rows}


def readable(graph: Graph, branch: str = "main") -> list[bool]:
    """Which commits of a branch can be read, newest first."""
    return [people_at(graph, commit.commit_id) is not None for commit in graph.commits(branch)]


def files(root: str | Path) -> dict[str, int]:
    """Every file below a root, with its size; locks and Lance's small notes about forks are left out."""
    return {
        path.relative_to(root).as_posix(): path.stat().st_size
        for path in Path(root).rglob("*")
        if path.is_file() and not path.name.endswith("lock") and "_refs" not in path.parts
    }


def lines(root: str | Path) -> dict[tuple[str, str | None], set[int]]:
    """The versions on disk, per dataset of a type and fork."""
    found: dict[tuple[str, str | None], set[int]] = {}
    for path in Path(root).glob("*s/*/**/_versions/*.manifest"):
        if path.name.startswith("d"):
            continue
        kind, folder, *inner = path.parent.parent.relative_to(root).parts
        fork = "/".join(inner[1:]) or None
        version = _U64_MAX - int(path.stem)
        found.setdefault((f"{kind}/{folder}", fork), set()).add(version)
    return found


def unused_files(root: str | Path) -> set[str]:
    """Files of datasets that no version refers to, by Lance's own account of what versions refer to."""
    used: set[str] = set()
    for (path, fork), versions in lines(root).items():
        uri = Path(root) / path if fork is None else Path(root) / path / "tree" / fork
        for version in versions:
            dataset = lance.dataset(str(uri), version=version)
            for index in dataset.describe_indices():
                used.update(f"_indices/{segment.uuid}" for segment in index.segments)
        for batch in lance.dataset(str(uri)).tracked_files():
            used.update(batch["path"].to_pylist())
    return {
        name
        for name in files(root)
        if name.startswith(("nodes/", "edges/"))
        and not name.endswith((".json", "_reclaimed"))
        and not any(name.endswith(f"/{item}") or f"/{item}/" in name for item in used)
    }
