"""A load dies by SIGKILL anywhere: whoever comes next finds all of it or nothing, and what it staged can be removed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.core.failpoints import VARIABLE
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from support.killed_writers import (
    ACTOR,
    FORGOTTEN,
    NEXT,
    NOTHING,
    OF_MERGES_AND_BRANCHES,
    OF_OPTIMIZE,
    OF_SCHEMA_CHANGES,
    ROLLED_BACK,
    ROLLED_FORWARD,
    Before,
    Children,
    Outcome,
    check_sound,
    content,
    contents,
    copy,
    deaths,
    every_commit,
    of_main,
    publishing,
    reclaim,
    sidecars,
    table_commits,
    table_files,
)

NODES = [
    {"type": "Person", "data": {"name": "dan", "age": 1}},
    {"type": "Person", "data": {"name": "eve", "age": 2}},
    {"type": "City", "data": {"name": "bonn", "size": 3}},
]
EDGES = [
    {"edge": "LivesIn", "from": "dan", "to": "bonn"},
    {"edge": "Knows", "from": "eve", "to": "ann", "data": {"since": 3}},
]
REPLACED = [{"type": "Person", "data": {"name": name, "age": 9}} for name in ("ann", "bob", "cid")] + [
    {"type": "City", "data": {"name": name, "size": 9}} for name in ("oslo", "rome")
]


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load; it moves all four tables."""

    name: str
    mode: str
    records: tuple[dict[str, Any], ...]
    branch: str = "main"
    base: str | None = None
    tables: int = 4

    def __str__(self) -> str:
        return self.name


APPEND = Load("append", "append", (*NODES, *EDGES))
MERGE = Load("merge", "merge", (*REPLACED, *NODES, *EDGES))
OVERWRITE = Load("overwrite", "overwrite", (*REPLACED, *NODES, *EDGES))
FORK = Load("first_load_on_a_branch", "append", (*NODES, *EDGES), branch="dev")
NEW_BRANCH = Load("load_of_a_new_branch", "append", (*NODES, *EDGES), branch="new", base="main")
LOADS = (APPEND, MERGE, OVERWRITE, FORK, NEW_BRANCH)


def places(load: Load) -> list[tuple[str, Outcome]]:
    """Every place that the load passes, in order, with what a death there leads to."""
    # A branch that is not there has no commits: until its publish, a load that makes it has not happened.
    is_new = load.base is not None
    undone, complete = (FORGOTTEN, FORGOTTEN) if is_new else (ROLLED_BACK, ROLLED_FORWARD)
    cells: list[tuple[str, Outcome]] = [
        (F.LOAD_PLANNED, NOTHING),
        (F.LOAD_FRAGMENTS_WRITTEN, NOTHING),
        (F.LOAD_IDENTIFIED, NOTHING),
        (F.LOAD_CHECKED, NOTHING),
        (F.BEFORE_SIDECAR, NOTHING),
        (F.SIDECAR_WRITE, NOTHING),
        (F.AFTER_SIDECAR, FORGOTTEN),
    ]
    cells += [*table_commits(load.tables, undone, complete), *publishing(complete)]
    return [(str(name), outcome) for name, outcome in cells]


MATRIX = [(load, place, outcome) for load in LOADS for place, outcome in places(load)]
#: The places of loads, and every kind of load in or after its commit; all of them behind the marker.
CHOSEN = {
    APPEND.name: (F.LOAD_PLANNED, F.LOAD_FRAGMENTS_WRITTEN, "after_table_commit@1"),
    MERGE.name: (F.LOAD_IDENTIFIED, F.LOAD_CHECKED, "after_table_commit@4", F.AFTER_PUBLISH),
    OVERWRITE.name: (F.LOAD_FRAGMENTS_WRITTEN, "after_table_commit@2", F.BEFORE_CATALOG_COMMIT),
    FORK.name: (F.LOAD_CHECKED, "after_table_commit@3", F.BEFORE_PUBLISH),
    NEW_BRANCH.name: (F.AFTER_SIDECAR, "after_table_commit@2", F.BEFORE_PUBLISH, F.AFTER_PUBLISH),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The input of each kind of load."""
    folder = tmp_path_factory.mktemp("sources")
    found = {}
    for load in LOADS:
        path = folder / f"{load}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in load.records))
        found[load.name] = path
    return found


@pytest.fixture(scope="module")
def before(base: Path) -> Before:
    return Before.of(base)


@pytest.fixture(scope="module")
def after(base: Path, sources: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The content of the graph after each undisturbed load."""
    found = {}
    for load in LOADS:
        root = copy(base, tmp_path_factory.mktemp(load.name) / "graph")
        with Graph.open(root) as graph:
            run(graph, load, sources)
        found[load.name] = contents(root)
    return found


def run(graph: Graph, load: Load, sources: dict[str, Path], mode: str | None = None) -> Any:
    return graph.load(sources[load.name], mode=mode or load.mode, branch=load.branch, base=load.base, engine="local")


def loading(root: Path, load: Load, sources: dict[str, Path], engine: str = "local") -> dict:
    return {
        "action": "load",
        "root": str(root),
        "source": str(sources[load.name]),
        "mode": load.mode,
        "branch": load.branch,
        "base": load.base,
        "actor": ACTOR,
        "engine": engine,
    }


# ---- what is left of a load


def check_nothing_is_left(root: Path, base: Path, outcome: Outcome) -> None:
    """One reclaim removes every file that the dead load left; where nothing happened, all that it wrote."""
    reclaim(root)
    assert reclaim(root, preview=True) == set()
    if outcome == NOTHING:
        assert of_main(table_files(root) - table_files(base)) == set()


def check_outcome(root: Path, before: Before, load: Load, outcome: Outcome, after: dict) -> None:
    assert before.content != after
    with Graph.open(root) as graph:
        commits = every_commit(graph)
        records = graph.recoveries()
    known = before.commits
    check_sound(root)
    assert contents(root) == (after if outcome.happened else before.content)
    assert [commit.commit_id for commit in commits[: len(known)]] == known
    added = commits[len(known) :]
    assert tuple(commit.actor for commit in added) == outcome.added
    assert [record.recovery_kind for record in records] == ([] if outcome.audit is None else [outcome.audit])
    for record in records:
        assert (record.writer_kind, record.recovery_for_actor) == ("load", ACTOR)
        # Of a branch that the load makes, a record tells no tables.
        assert len(record.tables) == (0 if load.base else load.tables)
    assert {commit.branch for commit in added} <= {load.branch}


def check_next_loads(root: Path, load: Load, outcome: Outcome, sources: dict, after: dict) -> None:
    """A repetition of the load ends as one undisturbed load does, and other writes work."""
    with Graph.open(root) as graph:
        if not outcome.happened or load.mode == "overwrite":
            run(graph, load, sources)
        assert contents(root) == after
        graph.mutate(NEXT, branch=load.branch)
        run(graph, Load("more", "merge", (), load.branch), {"more": sources["merge"]})
    rows = {row["name"]: row["age"] for row in content(root, load.branch)["node:Person"]}
    assert rows == {"ann": 9, "bob": 9, "cid": 9, "dan": 1, "eve": 2, "zoe": None}
    check_sound(root)


def check_death(
    root: Path, before: Before, load: Load, outcome: Outcome, sources: dict[str, Path], after: dict
) -> None:
    check_outcome(root, before, load, outcome, after)
    check_nothing_is_left(root, before.root, outcome)
    check_next_loads(root, load, outcome, sources, after)


# ---- deaths


@pytest.mark.parametrize(("load", "place", "outcome"), deaths(LOADS, places, CHOSEN))
def test_a_load_killed_anywhere_leaves_all_of_it_or_nothing(
    before: Before,
    tmp_path: Path,
    children: Children,
    sources: dict[str, Path],
    after: dict,
    load: Load,
    place: str,
    outcome: Outcome,
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, loading(root, load, sources))
    check_death(root, before, load, outcome, sources, after[load.name])


@pytest.mark.slow
@pytest.mark.parametrize(("load", "place", "outcome"), MATRIX)
def test_a_durable_load_killed_at_any_place_is_settled_by_another_process(
    before: Before,
    tmp_path: Path,
    children: Children,
    sources: dict[str, Path],
    after: dict,
    monkeypatch: pytest.MonkeyPatch,
    load: Load,
    place: str,
    outcome: Outcome,
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, loading(root, load, sources), OMNIGRAPH_DURABILITY="full")
    done = children.run({"action": "open", "root": str(root), "environment": {"OMNIGRAPH_DURABILITY": "full"}})
    assert done.code == 0, done.err
    check_death(root, before, load, outcome, sources, after[load.name])


@pytest.mark.parametrize("place", [F.LOAD_FRAGMENTS_WRITTEN, F.LOAD_CHECKED])
def test_what_a_dead_load_staged_is_invisible_and_reclaimed_at_once(
    base: Path, tmp_path: Path, children: Children, sources: dict[str, Path], place: F
):
    root = copy(base, tmp_path / "graph")
    children.kill_at(place, loading(root, MERGE, sources))
    staged = table_files(root) - table_files(base)
    assert staged, "a load stages before it commits"
    assert contents(root) == contents(base)
    assert sidecars(root) == []
    assert reclaim(root) == staged
    assert table_files(root) == table_files(base)


@pytest.mark.parametrize("load", [MERGE, NEW_BRANCH], ids=str)
def test_doctor_names_what_a_dead_load_left_and_cleanup_removes_it(
    base: Path, tmp_path: Path, children: Children, sources: dict[str, Path], load: Load
):
    root = copy(base, tmp_path / "graph")
    with Graph.open(root) as graph:
        graph.cleanup(keep=100, confirm=True)
        before = table_files(root)
    children.kill_at(F.LOAD_CHECKED, loading(root, load, sources))
    assert table_files(root) - before
    assert list((root / "__staging").iterdir())
    with Graph.open(root) as graph:
        (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
        assert found.severity == "warning"
        assert found.action is not None
        assert "cleanup" in found.action
        graph.cleanup(keep=100, confirm=True)
        (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
    assert found.severity == "ok"
    assert table_files(root) == before
    assert not (root / "__staging").exists()
    assert contents(root) == contents(base)


def test_a_load_that_runs_keeps_its_files_while_those_of_a_dead_one_are_reclaimed(
    base: Path,
    tmp_path: Path,
    children: Children,
    sources: dict[str, Path],
    after: dict,
    monkeypatch: pytest.MonkeyPatch,
):
    from omnigraph.pipeline.load import job as stages

    root = copy(base, tmp_path / "graph")
    children.kill_at(F.LOAD_CHECKED, loading(root, MERGE, sources))

    def look(place: F) -> None:
        if place is F.LOAD_CHECKED:
            with Graph.open(root) as other:
                paths = [pin.location for pin in other.snapshot().pins.values()]
                found = reclaim_staged_files(other._environment, paths, 3600.0)
            assert not found.is_complete
            assert found.file_count == 0, "all of them are young"

    monkeypatch.setattr(stages, "reach", look)
    with Graph.open(root) as graph:
        run(graph, APPEND, sources)
    assert contents(root) == after[APPEND.name]
    assert reclaim(root), "those of the dead load"
    assert contents(root) == after[APPEND.name]
    check_sound(root)


def test_an_undisturbed_child_acknowledges_the_commit_that_it_made(
    base: Path, tmp_path: Path, children: Children, sources: dict[str, Path], after: dict
):
    root = copy(base, tmp_path / "graph")
    done = children.run({**loading(root, NEW_BRANCH, sources), "environment": {}})
    assert done.code == 0, done.err
    with Graph.open(root) as graph:
        assert [commit.commit_id for commit in graph.commits("new")][:1] == done.out.split()
        assert graph.recoveries() == []
    assert contents(root) == after[NEW_BRANCH.name]
    assert reclaim(root, preview=True) == set()


#: Loads on Spark, and says which JVM it uses before it dies.
DRIVER = """
import sys
from omnigraph.spark import spark_session
from omnigraph.graph.graph import Graph
spark = spark_session(input_bytes=0)
print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
with Graph.open(sys.argv[1]) as graph:
    graph.load(sys.argv[2], mode="append", spark=spark)
"""


@pytest.mark.slow
def test_the_jvm_ends_with_a_killed_driver_and_the_load_did_not_happen(
    before: Before, tmp_path: Path, sources: dict[str, Path], after: dict
):
    root = copy(before.root, tmp_path / "graph")
    settings = {
        VARIABLE: f"{F.LOAD_FRAGMENTS_WRITTEN}=kill",
        "OMNIGRAPH_SPARK_ARCHIVE": "off",
        "OMNIGRAPH_SPARK_DRIVER_MEMORY": "512m",
        "OMNIGRAPH_SPARK_MASTER": "local[1]",
        "TMPDIR": str(tmp_path),
    }
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(root), str(sources[APPEND.name])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | settings,
    )
    assert driver.stdout is not None
    jvm = driver.stdout.readline()
    assert jvm, driver.communicate()[1]
    handle = os.pidfd_open(int(jvm))
    try:
        _, errors = driver.communicate(timeout=120)
        assert driver.returncode == -signal.SIGKILL, errors
        # The handle becomes readable when the process ends.
        assert select.select([handle], [], [], 60)[0], "the JVM outlived its driver"
    finally:
        os.close(handle)
    check_death(root, before, APPEND, NOTHING, sources, after[APPEND.name])


def test_the_matrix_names_every_place_of_a_load():
    covered = {place.partition("@")[0] for load in LOADS for place, _ in places(load)}
    chosen = {str(place).partition("@")[0] for names in CHOSEN.values() for place in names}
    assert {place for place in F if place.startswith("load_")} <= chosen
    # Inside tasks a death is a retry, and folding is the same for every writer.
    elsewhere = {F.IN_TASK, F.IN_FOLD, *OF_MERGES_AND_BRANCHES, *OF_OPTIMIZE, *OF_SCHEMA_CHANGES}
    recovery = {place for place in F if place.startswith(("init_", "recovery_", "audit_"))} | {
        F.BEFORE_RESTORE,
        F.AFTER_RESTORE,
        F.BEFORE_RECOVERY_PUBLISH,
        F.AFTER_RECOVERY_PUBLISH,
        F.AFTER_AUDIT,
    }
    assert covered | elsewhere | recovery == set(F)
    for load in LOADS:
        names = {str(name) for name in CHOSEN[load.name]}
        assert names <= {place for place, _ in places(load)}
