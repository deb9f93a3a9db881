"""A small graph to break, children that break it, and the checks that hold after every recovery."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.commit.publisher import FOLD_THRESHOLD
from omnigraph.commit.rows import GraphCommit, TablePin
from omnigraph.core.failpoints import VARIABLE
from omnigraph.graph.graph import Graph

CHILD = Path(__file__).parent / "children" / "child.py"
ACTOR = "act-writer"
#: The rows of every table, by branch and table.
Contents = dict[str, dict[str, list[Any]]]

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key  size: I64? }
edge LivesIn: Person -> City { year: I32?  @key(src, dst) }
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
NEXT = 'query next() { insert Person { name: "zoe" } insert LivesIn { from: "zoe", to: "oslo" } }'


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

    def run(self, job: Mapping[str, Any], **environment: str) -> Done:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({**job, "environment": environment}) + "\n")
        self._server.stdin.flush()
        return Done(**json.loads(self._server.stdout.readline()))

    def kill_at(self, failpoint: str, job: Mapping[str, Any], **environment: str) -> None:
        """Run a job that must die by the failpoint."""
        settings = {"OMNIGRAPH_DURABILITY": "process"} | environment | {VARIABLE: f"{failpoint}=kill"}
        done = self.run(job, **settings)
        assert done.code == -signal.SIGKILL, (failpoint, done.code, done.err)
        assert done.out == "", "a killed writer acknowledged nothing"

    def close(self) -> None:
        self._server.communicate()


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


def contents(root: Path) -> Contents:
    """Every visible row of every branch."""
    with Graph.open(root, read_only=True) as graph:
        return {branch: _rows(root, graph, branch) for branch in graph.branches()}


def _rows(root: Path, graph: Graph, branch: str) -> dict[str, list[Any]]:
    found = {}
    for key, pin in graph.snapshot(branch).pins.items():
        read = dataset_of(root, pin, at_pin=True).to_table()
        rows = read.to_pylist()
        assert pin.row_count == len(rows), key
        if key.startswith("edge:"):
            rows = [{k: v for k, v in row.items() if k != "id"} for row in rows]
        # A table without rows tells at least its columns.
        found[str(key)] = sorted(rows, key=str) or read.schema.names
    return found


def sidecars(root: Path) -> list[str]:
    folder = root / "__recovery"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def every_commit(graph: Graph) -> list[GraphCommit]:
    """All commits of the graph in the order of their publishes."""
    return sorted(graph._core.environment.manifest.commits().values(), key=lambda item: item.graph_version)


def recovery_kinds(graph: Graph) -> list[str]:
    return [record.recovery_kind for record in graph.recoveries()]


@dataclass(frozen=True, slots=True)
class Before:
    """The graph that all writes of a matrix begin at: copy it before use."""

    root: Path
    content: Contents
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
        found = reclaim_staged_files(graph._core.environment, paths, 0.0, preview=preview)
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
