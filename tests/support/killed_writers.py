"""A small graph to break, children that break it, and the checks that hold after every recovery."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import lance
import pytest

from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.commit.publisher import FOLD_THRESHOLD
from omnigraph.commit.rows import GraphCommit, TablePin
from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import VARIABLE
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph

CHILD = Path(__file__).parent / "children" / "child.py"
K = TypeVar("K")

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key  size: I64? }
edge LivesIn: Person -> City
edge Knows: Person -> Person { since: I32? }
"""

SEED = """query seed() {
    insert Person { name: "ann", age: 30 }
    insert Person { name: "bob", age: 40 }
    insert Person { name: "cid" }
    insert City { name: "oslo", size: 700 }
    insert City { name: "rome" }
    insert LivesIn { from: "ann", to: "oslo" }
    insert LivesIn { from: "bob", to: "rome" }
    insert Knows { from: "ann", to: "bob", since: 1 }
    insert Knows { from: "bob", to: "cid", since: 2 }
}"""

ACTOR = "act-writer"

#: Places that only cleanups pass (`test_killed_cleanups`).
OF_CLEANUPS = frozenset(
    {
        *(F.CLEANUP_PLANNED, F.BEFORE_VERSION_REMOVAL, F.AFTER_VERSION_REMOVAL),
        *(F.BEFORE_COMMITS_FORGOTTEN, F.BEFORE_CATALOG_CLEANUP),
    }
)

#: Places that only the first open of a moved graph passes (`folders/test_copies`).
OF_MOVES = frozenset({F.BEFORE_REBASE, F.BEFORE_ROOT_RECORD})

#: Places that only merges, the making and deletion of branches (`test_killed_merges`), embeddings
#: (`test_killed_embeddings`), cleanups and moves pass.
OF_MERGES_AND_BRANCHES = frozenset(
    {
        *(F.MERGE_PLANNED, F.MERGE_STAGED, F.MERGE_CHECKED, F.BEFORE_CONFIRM, F.AFTER_CONFIRM),
        *(F.BEFORE_BRANCH_PUBLISH, F.AFTER_BRANCH_PUBLISH, F.BEFORE_FORK_REMOVAL),
        *(F.EMBED_VECTORS_KEPT, F.EMBED_STAGED),
        *OF_CLEANUPS,
        *OF_MOVES,
    }
)

#: Places that only an optimize or a fold passes: `test_killed_optimize`.
OF_OPTIMIZE = frozenset({F.OPTIMIZE_STAGED, F.FOLD_STAGED, F.BETWEEN_VERSIONS})

#: Places that only changes of the schema pass (`test_killed_schema_changes`).
OF_SCHEMA_CHANGES = frozenset(
    {
        *(F.BEFORE_SCHEMA_FILE, F.BEFORE_NEW_TABLE, F.AFTER_NEW_TABLES),
        *(F.BEFORE_PROMOTION, F.BEFORE_STAGED_REMOVAL, F.BEFORE_PURGE),
    }
)


@dataclass(frozen=True, slots=True)
class Writer:
    """One kind of write, and how many tables it moves."""

    name: str
    query: str
    tables: int
    branch: str = "main"

    def __str__(self) -> str:
        return self.name


INSERT = Writer("insert", 'query w() { insert Person { name: "dan", age: 1 } insert City { name: "bonn" } }', tables=2)
UPSERT = Writer(
    "upsert", 'query w() { insert Person { name: "ann", age: 31 } insert City { name: "oslo", size: 8 } }', tables=2
)
UPDATE = Writer(
    "update",
    'query w() { update Person set { age: 9 } where name = "bob" update City set { size: 5 } where name = "rome" }',
    tables=2,
)
DELETE = Writer("delete_with_cascade", 'query w() { delete Person where name = "bob" }', tables=3)
FORK = Writer(
    "first_write_on_a_branch",
    'query w() { insert Person { name: "eve", age: 2 } insert City { name: "lund" } }',
    tables=2,
    branch="dev",
)
WRITERS = (INSERT, UPSERT, UPDATE, DELETE, FORK)

NEXT = 'query next() { insert Person { name: "zoe" } insert LivesIn { from: "zoe", to: "oslo" } }'


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the next one finds after a death."""

    happened: bool
    #: The kind of the record that a recovery left.
    audit: str | None
    #: The actors of the commits that the interrupted write, or its recovery, added.
    added: tuple[str, ...]


NOTHING = Outcome(False, None, ())
FORGOTTEN = Outcome(False, "RolledBack", ())
ROLLED_BACK = Outcome(False, "RolledBack", (RECOVERY_ACTOR,))
ROLLED_FORWARD = Outcome(True, "RolledForward", (RECOVERY_ACTOR,))
FINISHED = Outcome(True, "RolledForward", (ACTOR,))
COMPLETE = Outcome(True, None, (ACTOR,))


def table_commits(
    tables: int, undone: Outcome = ROLLED_BACK, complete: Outcome = ROLLED_FORWARD
) -> list[tuple[str, Outcome]]:
    """The places before and after the commit of every table, with what a death there leads to."""
    cells = []
    for number in range(1, tables + 1):
        before = FORGOTTEN if number == 1 else undone
        after = complete if number == tables else undone
        cells.append((f"{F.BEFORE_TABLE_COMMIT}@{number}", before))
        cells.append((f"{F.AFTER_TABLE_COMMIT}@{number}", after))
    return cells


def publishing(complete: Outcome = ROLLED_FORWARD) -> list[tuple[str, Outcome]]:
    """The places from the publish to the end of a write."""
    return [
        (F.BEFORE_PUBLISH, complete),
        (F.BEFORE_CATALOG_COMMIT, complete),
        (F.AFTER_PUBLISH, FINISHED),
        (F.SIDECAR_DELETE, FINISHED),
        (F.AFTER_SIDECAR_DELETE, COMPLETE),
    ]


def deaths(
    kinds: Iterable[K], places: Callable[[K], list[tuple[str, Outcome]]], chosen: Mapping[str, Collection[str]]
) -> list[Any]:
    """Every kind of a write at every place that it passes; all but the chosen ones behind the slow marker."""
    return [
        pytest.param(
            kind,
            str(place),
            outcome,
            id=f"{kind}-{place}",
            marks=() if place in chosen[str(kind)] else pytest.mark.slow,
        )
        for kind in kinds
        for place, outcome in places(kind)
    ]


# ---- graphs


def make_base(root: Path) -> Path:
    """The seeded graph with an unwritten branch."""
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(SEED, actor="act-seed")
        graph.create_branch("dev")
    return root


def make_ready_to_fold(base: Path, root: Path) -> Path:
    """The base graph with so many publishes that the next one folds the catalog."""
    copy(base, root)
    with Graph.open(root) as graph:
        number = 0
        while catalog_fragments(root) <= FOLD_THRESHOLD:
            number += 1
            graph.mutate(f'query w() {{ insert City {{ name: "oslo", size: {number} }} }}')
    return root


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def catalog_fragments(root: Path) -> int:
    return len(lance.dataset(str(root / "__manifest")).get_fragments())


# ---- children


@dataclass(frozen=True, slots=True)
class Done:
    """How a child ended."""

    code: int
    out: str
    err: str


class Children:
    """Runs every job in a fresh process; see `child.py`."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k != VARIABLE}
        self._server = subprocess.Popen(
            [sys.executable, str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, job: Mapping[str, Any]) -> Done:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        return Done(**json.loads(self._server.stdout.readline()))

    def kill_at(self, failpoint: str, job: Mapping[str, Any], **environment: str) -> None:
        """Run a job that must die by the failpoint."""
        settings = {"OMNIGRAPH_DURABILITY": "process"} | environment
        settings[VARIABLE] = f"{failpoint}=kill"
        done = self.run({**job, "environment": settings})
        assert done.code == -signal.SIGKILL, (failpoint, done.code, done.err)
        assert done.out == "", "a killed writer acknowledged nothing"

    def close(self) -> None:
        self._server.communicate()


def mutation(root: Path, writer: Writer) -> dict[str, Any]:
    return {"action": "mutate", "root": str(root), "text": writer.query, "branch": writer.branch, "actor": ACTOR}


def opening(root: Path) -> dict[str, Any]:
    return {"action": "open", "root": str(root)}


# ---- looking at a graph from outside


def dataset_of(root: Path, pin: TablePin, *, at_pin: bool) -> lance.LanceDataset:
    uri = root / pin.location
    if pin.branch is not None:
        uri = uri / "tree" / pin.branch
    return lance.dataset(str(uri), version=pin.version if at_pin else None)


def content(root: Path, branch: str) -> dict[str, list[Any]]:
    """Every visible row of a branch; the random ids of edges are left out."""
    with Graph.open(root, read_only=True) as graph:
        return _rows(root, graph, branch)


def contents(root: Path) -> dict[str, dict[str, list[Any]]]:
    """Every visible row of every branch."""
    with Graph.open(root, read_only=True) as graph:
        return {branch: _rows(root, graph, branch) for branch in graph.branches()}


def _rows(root: Path, graph: Graph, branch: str) -> dict[str, list[Any]]:
    found = {}
    for key, pin in graph.snapshot(branch).pins.items():
        rows = dataset_of(root, pin, at_pin=True).to_table().to_pylist()
        if key.startswith("edge:"):
            rows = [{k: v for k, v in row.items() if k != "id"} for row in rows]
        found[str(key)] = sorted(rows, key=str)
        assert pin.row_count == len(rows), key
    return found


def sidecars(root: Path) -> list[str]:
    folder = root / "__recovery"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def every_commit(graph: Graph) -> list[GraphCommit]:
    """All commits of the graph in the order of their publishes."""
    return sorted(graph._environment.manifest.commits().values(), key=lambda item: item.graph_version)


@dataclass(frozen=True, slots=True)
class Before:
    """The graph that all writes of a matrix begin at: copy it before use."""

    root: Path
    content: dict[str, dict[str, list[Any]]]
    commits: list[str]

    @classmethod
    def of(cls, root: Path) -> Before:
        with Graph.open(root, read_only=True) as graph:
            commits = [commit.commit_id for commit in every_commit(graph)]
        return cls(root, contents(root), commits)


def table_files(root: Path) -> set[str]:
    """The files below the tables of a graph."""
    return {
        str(path.relative_to(root))
        for folder in ("nodes", "edges")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }


def of_main(names: set[str]) -> set[str]:
    """The files outside of forks: an empty fork of a table is reclaimed as a whole, with its branch."""
    return {name for name in names if "/tree/" not in name and "/_refs/" not in name}


def reclaim(root: Path, *, preview: bool = False) -> set[str]:
    """Remove what no version refers to; the names of the files below the tables, without notes of their writers."""
    with Graph.open(root) as graph:
        paths = [pin.location for pin in graph.snapshot().pins.values()]
        found = reclaim_staged_files(graph._environment, paths, 0.0, preview=preview)
    assert found.is_complete
    assert found.failures == {}
    names = {file.name for item in found.removals for file in item.files}
    return {name for name in names if not name.startswith("__staging/")}


def check_sound(root: Path) -> None:
    """What holds for every graph at rest: manifest = HEAD, no sidecar, a linear history."""
    assert sidecars(root) == []
    with Graph.open(root, read_only=True) as graph:
        for branch in graph.branches():
            own = None if branch == "main" else branch
            for key, pin in graph.snapshot(branch).pins.items():
                if pin.branch == own:
                    head = dataset_of(root, pin, at_pin=False)
                    assert (key, head.version) == (key, pin.version)
                    assert head.count_rows() == pin.row_count
            history = graph.commits(branch)
            assert [c.parent_id for c in history] == [*(c.commit_id for c in history[1:]), None]
            versions = [c.graph_version for c in history]
            assert versions == sorted(set(versions), reverse=True)
            assert history[0].commit_id == graph.snapshot(branch).commit_id
        rows = lance.dataset(str(root / "__manifest")).to_table(["object_id"])
        ids = rows["object_id"].to_pylist()
        assert len(ids) == len(set(ids)), "every catalog row is there once"


def check_next_writes(root: Path, writer: Writer, after: Mapping[str, Any]) -> None:
    """A repetition of the write, and another write, succeed and are in the history once."""
    with Graph.open(root) as graph:
        repeated = graph.mutate(writer.query, branch=writer.branch)
        assert contents(root) == after
        acknowledged = [] if repeated.commit is None else [repeated.commit.commit_id]
        further = graph.mutate(NEXT, branch=writer.branch)
        assert further.commit is not None
        acknowledged.append(further.commit.commit_id)
        history = [commit.commit_id for commit in graph.commits(writer.branch)]
        assert history[: len(acknowledged)] == acknowledged[::-1]
        assert all(history.count(commit_id) == 1 for commit_id in acknowledged)
        names = [row["name"] for row in content(root, writer.branch)["node:Person"]]
        assert names.count("zoe") == 1
    check_sound(root)
