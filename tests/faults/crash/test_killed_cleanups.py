"""A cleanup dies by SIGKILL anywhere: what it promised is readable, the rest is whole or gone, and a rerun finishes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.staged import stage_append
from support.graphs import fork
from support.histories import (
    PERSON,
    SCHEMA,
    add,
    files,
    people,
    people_at,
    set_age,
    unused_files,
)
from support.killed_writers import (
    Children,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with everything that a cleanup removes: versions, a deleted branch, an orphan fork, a staged file."""
    root = tmp_path_factory.mktemp("world") / "g.omni"
    with Graph.init(root, SCHEMA) as graph:
        for number in range(6):
            add(graph, f"p{number}")
            graph.mutate(f'query q() {{ insert Place {{ name: "{number}" }} }}')
        graph.create_branch("dev", base=graph.commits()[2].commit_id)
        for number in range(5):
            set_age(graph, "p0", number, "dev")
        graph.create_branch("orphan")
        fork(graph, "orphan", PERSON)
        table = graph._open(graph.snapshot().pins[PERSON])
        stage_append(table, table.read())
    return root


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the datasets after a cleanup that nothing disturbed."""
    root = tmp_path_factory.mktemp("finished") / "g.omni"
    shutil.copytree(world, root)
    with Graph.open(root) as graph:
        graph.cleanup(keep=3, commits=True, confirm=True)
    return data_files(root)


def data_files(root: Path) -> set[str]:
    return {name for name in files(root) if name.startswith(("nodes/", "edges/"))}


PLACES = [
    F.CLEANUP_PLANNED,
    F.BEFORE_FORK_REMOVAL,
    f"{F.BEFORE_VERSION_REMOVAL}@2",
    f"{F.BEFORE_VERSION_REMOVAL}@3",
    F.AFTER_VERSION_REMOVAL,
    F.BEFORE_COMMITS_FORGOTTEN,
    F.BEFORE_CATALOG_COMMIT,
    F.BEFORE_CATALOG_CLEANUP,
]


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_cleanup_keeps_its_promise_and_the_next_one_finishes(
    place: str, world: Path, finished: set[str], children: Children, tmp_path: Path
):
    root = tmp_path / "g.omni"
    shutil.copytree(world, root)
    with Graph.open(world, read_only=True) as graph:
        states = {
            commit.commit_id: (people_at(graph, commit.commit_id), number < 3)
            for branch in graph.branches()
            for number, commit in enumerate(graph.commits(branch))
        }
        heads = {branch: people(graph, branch) for branch in graph.branches()}
    job = {"action": "cleanup", "root": str(root), "keep": 3, "commits": True, "confirm": True}
    children.kill_at(place, job)
    with Graph.open(root, read_only=True) as graph:
        known = graph._environment.manifest.commits()
        for commit_id, (rows, is_promised) in states.items():
            if commit_id in known:
                found = people_at(graph, commit_id)
                assert found == rows or (found is None and not is_promised)
            assert commit_id in known or not is_promised
    with Graph.open(root) as graph:
        graph.cleanup(keep=3, commits=True, confirm=True)
        assert {branch: people(graph, branch) for branch in graph.branches()} == heads
        assert unused_files(root) == set()
        assert data_files(root) == finished
        add(graph, "next")
        add(graph, "next", "dev")
        graph.merge("dev")
        assert people(graph)["next"] == 1
        assert people(graph)["p0"] == 4


def test_every_place_of_a_cleanup_is_in_the_matrix():
    assert {str(place).partition("@")[0] for place in PLACES} >= {
        *(F.CLEANUP_PLANNED, F.BEFORE_VERSION_REMOVAL, F.AFTER_VERSION_REMOVAL),
        *(F.BEFORE_COMMITS_FORGOTTEN, F.BEFORE_CATALOG_CLEANUP),
    }
