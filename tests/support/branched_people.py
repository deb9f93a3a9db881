"""Graphs with branches, what to do on them, and looks at them that do not go through the code under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.rows import GraphCommit
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import ConflictKind, MergeConflict, MergeConflictsError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import deltas
from omnigraph.pipeline.workers import Silent
from omnigraph.spark import worker_choice
from omnigraph.spark.worker_choice import make_engine
from support.graphs import everything, run


def use_files(patch: pytest.MonkeyPatch) -> None:
    """Let merges work as if nothing fitted into memory, in several ranges of ids."""
    patch.setattr(worker_choice, "ELASTIC_ROWS", 0)
    patch.setattr(deltas, "_BUCKET_ROWS", 3)
    here = make_engine("local", None, Silent(), 0)
    patch.setattr(worker_choice.ElasticWorkers, "for_rows", lambda *_: here)


#: For modules: every test in memory, and as if nothing fitted there.
IN_MEMORY_AND_FILES = [
    pytest.mark.usefixtures("room_for_rows"),
    pytest.mark.parametrize("room_for_rows", ["in memory", "in files"], indirect=True),
]


def in_memory_and_files(test: Any) -> Any:
    """The same for one test."""
    for mark in IN_MEMORY_AND_FILES:
        test = mark(test)
    return test


#: The same for large matrices, of which the default run leaves out the files.
MATRIX_IN_MEMORY_AND_FILES = [
    pytest.mark.usefixtures("room_for_rows"),
    pytest.mark.parametrize(
        "room_for_rows", ["in memory", pytest.param("in files", marks=pytest.mark.slow)], indirect=True
    ),
]
#: People who know each other, and a type that nobody touches unless a test says so.
PEOPLE = """
node Person {
    name: String @key
    age: I32?
    note: String?
}
node Place { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> Place
"""

MATRIX_BASE = """
    insert Person { name: "Alice", age: 30 } insert Person { name: "Bob", age: 25 }
    insert Person { name: "Carol", age: 40 } insert Person { name: "Dan", age: 50 }
    insert Knows { from: "Bob", to: "Carol" }
"""

#: Every rule between rows, and every rule of a value.
RULES = """
node Book {
    name: String @key
    isbn: String? @unique
    room: String?
    slot: I32?
    year: I32?
    code: String?
    stage: enum(draft, final)?
    @unique(room, slot)
    @range(year, 1600..2100)
    @check(code, "^[A-Z]+$")
}
node Author { name: String @key }
edge Wrote: Author -> Book { @unique(src, dst) }
edge Cites: Book -> Book
edge Leads: Author -> Book @card(0..1)
edge Reviews: Book -> Author @card(2..3)
"""

RULES_BASE = """
    insert Book { name: "b1", isbn: "i1", room: "r", slot: 1 }
    insert Book { name: "b2", isbn: "i2", room: "r", slot: 2 }
    insert Book { name: "b3" } insert Book { name: "b4" }
    insert Author { name: "a1" } insert Author { name: "a2" }
    insert Author { name: "a3" } insert Author { name: "a4" }
"""

PERSON, PLACE = TableKey("node:Person"), TableKey("node:Place")
KNOWS, LIVES = TableKey("edge:Knows"), TableKey("edge:Lives")


# ---- doing


def put(graph: Graph, branch: str, *records: dict[str, Any], mode: str = "merge") -> GraphCommit:
    """Replace whole rows by id; the only way to give an edge an id, or to change one."""
    lines = "\n".join(json.dumps(record) for record in records)
    path = Path(graph.uri).parent / f"{new_ulid()}.jsonl"
    path.write_text(lines, encoding="utf-8")
    commit = graph.load(path, mode=mode, branch=branch, engine="local").commit
    path.unlink()
    assert commit is not None
    return commit


def knows(entity_id: str, source: str, target: str, since: int | None = None) -> dict[str, Any]:
    return edge("Knows", entity_id, source, target, since=since)


def edge(kind: str, entity_id: str, source: str, target: str, **data: object) -> dict[str, Any]:
    return {"edge": kind, "from": source, "to": target, "data": {"id": entity_id, **data}}


def add_person(graph: Graph, branch: str, name: str, age: int = 1) -> Any:
    return run(graph, f'insert Person {{ name: "{name}", age: {age} }}', branch)


def set_age(graph: Graph, branch: str, name: str, age: int) -> Any:
    return run(graph, f'update Person set {{ age: {age} }} where name = "{name}"', branch)


def remove_person(graph: Graph, branch: str, name: str) -> Any:
    return run(graph, f'delete Person where name = "{name}"', branch)


# ---- looking


def ages(graph: Graph, branch: str = "main") -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in everything(graph, branch)[PERSON]}


def ends(graph: Graph, branch: str = "main", key: TableKey = KNOWS) -> list[tuple[str, str]]:
    return sorted((row["src"], row["dst"]) for row in everything(graph, branch)[key])


def all_branches(graph: Graph) -> dict[str, Any]:
    """Every row, head and commit of every branch."""
    return {name: (everything(graph, name), graph.snapshot(name), graph.commits(name)) for name in graph.branches()}


def files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def conflicts_of(graph: Graph, source: str, into: str = "main", strategy: str | None = None) -> list[MergeConflict]:
    """The conflicts of a merge that is refused; nothing happened on any branch, and no attempt is left."""
    before = all_branches(graph)
    found = refusal_of(graph, source, into, strategy)
    assert all_branches(graph) == before
    assert graph.pending_recoveries() == []
    return found


def refusal_of(graph: Graph, source: str, into: str, strategy: str | None = None) -> list[MergeConflict]:
    """The conflicts of a merge that is refused, and that a dry run finds as well."""
    preview = graph.merge(source, into, strategy=strategy, dry_run=True)
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge(source, into, strategy=strategy)
    error = caught.value
    assert (error.source, error.target, error.total) == (source, into, len(error.conflicts))
    assert preview.outcome == "conflicts"
    assert (preview.conflicts, preview.conflict_total) == (error.conflicts, error.total)
    return list(error.conflicts)


def named(conflicts: list[MergeConflict]) -> list[tuple[ConflictKind, str, str | None]]:
    """Kind, type and id of conflicts, in a fixed order."""
    return sorted((c.kind, c.type_key, c.entity_id) for c in conflicts)
