"""Recovery itself dies by SIGKILL at every place; the next one finishes it, and records it once."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from support.killed_writers import (
    ACTOR,
    DELETE,
    INSERT,
    Children,
    check_next_writes,
    check_sound,
    contents,
    copy,
    every_commit,
    mutation,
    opening,
)

#: Where the writer died → the kind on record, the actors of the commits that it or its recovery added.
INTERRUPTED = {
    "rolled_back": ("after_table_commit@2", "RolledBack", [RECOVERY_ACTOR]),
    "rolled_forward": ("before_publish", "RolledForward", [RECOVERY_ACTOR]),
    "finished": ("after_publish", "RolledForward", [ACTOR]),
    "forgotten": ("after_sidecar", "RolledBack", []),
}
RECORDING = [F.AUDIT_WRITE, F.AFTER_AUDIT, F.SIDECAR_DELETE]
PUBLISHING = [F.BEFORE_RECOVERY_PUBLISH, F.BEFORE_CATALOG_COMMIT, F.AFTER_RECOVERY_PUBLISH]
RESTORING = [f"{place}@{n}" for n in (1, 2) for place in (F.BEFORE_RESTORE, F.AFTER_RESTORE)]
LISTING = [f"{F.RECOVERY_LIST}@1", f"{F.RECOVERY_LIST}@2"]
PLACES = {
    "rolled_back": [*LISTING, *RESTORING, *PUBLISHING, *RECORDING],
    "rolled_forward": [*LISTING, *PUBLISHING, *RECORDING],
    "finished": RECORDING,
    "forgotten": RECORDING,
}
CELLS = [pytest.param(way, str(place), id=f"{way}-{place}") for way, places in PLACES.items() for place in places]
TWICE = [
    pytest.param(way, str(first), str(second), id=f"{way}-{first}-{second}")
    for way, places in PLACES.items()
    for index, first in enumerate(places)
    for second in places[index:]
]


@pytest.fixture(scope="module")
def interrupted(base: Path, children: Children, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One graph per way in which a deleting writer of three tables can be interrupted."""
    graphs = {}
    for way, (place, _, _) in INTERRUPTED.items():
        graphs[way] = copy(base, tmp_path_factory.mktemp(way) / "graph")
        children.kill_at(place, mutation(graphs[way], DELETE))
    return graphs


@pytest.fixture(scope="module")
def after(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    root = copy(base, tmp_path_factory.mktemp("after") / "graph")
    with Graph.open(root) as graph:
        graph.mutate(DELETE.query)
    return contents(root)


def check_settled(root: Path, base: Path, way: str, after: dict) -> None:
    _, kind, actors = INTERRUPTED[way]
    with Graph.open(base, read_only=True) as graph:
        known = len(every_commit(graph))
    with Graph.open(root) as graph:
        added = every_commit(graph)[known:]
        assert [commit.actor for commit in added] == actors
        (record,) = graph.recoveries()
        assert (record.recovery_kind, record.recovery_for_actor) == (kind, ACTOR)
        assert record.graph_commit_id == (added[0].commit_id if added else None)
    check_sound(root)
    assert contents(root) == (after if kind == "RolledForward" else contents(base))
    check_next_writes(root, DELETE, after)


@pytest.mark.parametrize(("way", "place"), CELLS)
def test_recovery_killed_anywhere_is_finished_by_the_next_one_and_recorded_once(
    base: Path, interrupted: dict[str, Path], after: dict, tmp_path: Path, children: Children, way: str, place: str
):
    root = copy(interrupted[way], tmp_path / "graph")
    children.kill_at(place, opening(root))
    check_settled(root, base, way, after)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "first", "second"), TWICE)
def test_recovery_killed_twice_is_finished_by_the_third_one_and_recorded_once(
    base: Path,
    interrupted: dict[str, Path],
    after: dict,
    tmp_path: Path,
    children: Children,
    way: str,
    first: str,
    second: str,
):
    root = copy(interrupted[way], tmp_path / "graph")
    children.kill_at(first, opening(root))
    environment = {"OMNIGRAPH_DURABILITY": "process", "OMNIGRAPH_FAILPOINT": f"{second}=kill"}
    # The second recovery has less to do, and may not come to the place where it would die.
    assert children.run({**opening(root), "environment": environment}).code in (0, -9)
    check_settled(root, base, way, after)


@pytest.mark.parametrize("place", [F.IN_FOLD, F.BEFORE_CATALOG_COMMIT, F.AFTER_RECOVERY_PUBLISH])
def test_recovery_killed_while_it_folds_the_catalog_loses_no_commit(
    ready_to_fold: Path, tmp_path: Path, children: Children, place: F
):
    root = copy(ready_to_fold, tmp_path / "graph")
    with Graph.open(root, read_only=True) as graph:
        known = [commit.commit_id for commit in every_commit(graph)]
    children.kill_at("before_publish", mutation(root, INSERT))
    children.kill_at(place, opening(root))
    with Graph.open(root) as graph:
        assert [commit.commit_id for commit in every_commit(graph)][:-1] == known
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_sound(root)


@pytest.mark.parametrize("way", INTERRUPTED)
def test_a_record_names_every_table_with_its_versions(
    base: Path, interrupted: dict[str, Path], tmp_path: Path, way: str
):
    root = copy(interrupted[way], tmp_path / "graph")
    with Graph.open(base, read_only=True) as graph:
        pins = graph.snapshot().pins
    with Graph.open(root) as graph:
        (record,) = graph.recoveries()
    moved = {"rolled_back": 2, "rolled_forward": 3, "finished": 3, "forgotten": 0}[way]
    keys = ["node:Person", "edge:LivesIn", "edge:Knows"]
    assert sorted(record.tables) == sorted(keys)
    steps = [record.tables[key]["from_version"] - pins[key].version for key in record.tables]
    assert sum(steps) == moved
    if way == "rolled_back":
        assert all(record.tables[key]["to_version"] == pins[key].version for key in keys)


def test_a_record_names_every_table_even_when_recovery_died_before_it_was_written(
    interrupted: dict[str, Path], tmp_path: Path, children: Children
):
    root = copy(interrupted["rolled_back"], tmp_path / "graph")
    children.kill_at(F.AFTER_RECOVERY_PUBLISH, opening(root))
    with Graph.open(root) as graph:
        (record,) = graph.recoveries()
    assert sorted(record.tables) == ["edge:Knows", "edge:LivesIn", "node:Person"]
