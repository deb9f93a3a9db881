"""A schema change dies by SIGKILL anywhere: the next one finds all of it or nothing, and so does every reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.snapshot import branch_at, snapshot_of
from omnigraph.core import failpoints
from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from support.killed_schema_changes import (
    CHANGES,
    HARD,
    NEW_TABLES,
    NEXT_NEW,
    NEXT_OLD,
    OLD,
    READ_NEW,
    SOFT,
    TABLES,
    Change,
    apply,
    applying,
    check_goes_on,
    check_settled,
    check_whole,
    make_populated,
    tables,
)
from support.killed_writers import (
    COMPLETE,
    FINISHED,
    FORGOTTEN,
    NOTHING,
    OF_SCHEMA_CHANGES,
    ROLLED_BACK,
    ROLLED_FORWARD,
    Children,
    Outcome,
    check_sound,
    copy,
    deaths,
    opening,
    sidecars,
)


def places(change: Change) -> list[tuple[str, Outcome]]:
    """Every place that the change passes, in order, with what a death there leads to."""
    cells: list[tuple[str, Outcome]] = [
        (F.BEFORE_SIDECAR, NOTHING),
        (F.SIDECAR_WRITE, NOTHING),
        (F.AFTER_SIDECAR, FORGOTTEN),
        *((f"{F.BEFORE_SCHEMA_FILE}@{number}", FORGOTTEN) for number in (1, 2, 3)),
        *((f"{F.BEFORE_NEW_TABLE}@{number + 1}", FORGOTTEN) for number in range(NEW_TABLES)),
        (F.AFTER_NEW_TABLES, FORGOTTEN),
    ]
    for number in range(1, TABLES + 1):
        cells.append((f"{F.BEFORE_TABLE_COMMIT}@{number}", FORGOTTEN if number == 1 else ROLLED_BACK))
        if number == change.two_versions:
            cells.append((F.BETWEEN_VERSIONS, ROLLED_BACK))
        outcome = ROLLED_FORWARD if number == TABLES else ROLLED_BACK
        cells.append((f"{F.AFTER_TABLE_COMMIT}@{number}", outcome))
    cells += [
        (F.BEFORE_PUBLISH, ROLLED_FORWARD),
        (F.BEFORE_CATALOG_COMMIT, ROLLED_FORWARD),
        (F.AFTER_PUBLISH, FINISHED),
        *((f"{F.BEFORE_PROMOTION}@{number}", FINISHED) for number in (1, 2, 3)),
        *((f"{F.BEFORE_STAGED_REMOVAL}@{number}", FINISHED) for number in (1, 2, 3)),
        *((f"{F.BEFORE_PURGE}@{number + 1}", FINISHED) for number in range(change.purged)),
        (F.SIDECAR_DELETE, FINISHED),
        (F.AFTER_SIDECAR_DELETE, COMPLETE),
    ]
    return [(str(name), outcome) for name, outcome in cells]


#: Before, in and after every phase. Most others come in a process that lives on; all of them behind the marker.
CHOSEN = {
    SOFT.name: (
        *(F.AFTER_SIDECAR, "before_schema_file@3", "before_new_table@2", F.AFTER_NEW_TABLES),
        *("after_table_commit@1", F.BETWEEN_VERSIONS, F.BEFORE_PUBLISH),
        *("before_promotion@2", "before_staged_removal@2"),
    ),
    HARD.name: ("after_table_commit@2", F.AFTER_PUBLISH, "before_purge@1", "before_purge@3"),
}
MATRIX = [(change, place, outcome) for change in CHANGES for place, outcome in places(change)]
#: What is killed is not made to fail as well, but for the two changes that a purge follows.
FAILING = [
    pytest.param(change, place, outcome, id=f"{change}-{place}")
    for change in CHANGES
    for place, outcome in places(change)
    if (place in CHOSEN[change.name]) is (change is HARD)
]


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph before its schema changes; copy it before use."""
    return make_populated(tmp_path_factory.mktemp("populated") / "graph")


@pytest.fixture(scope="module")
def after(populated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tables after each undisturbed change."""
    found = {}
    for change in CHANGES:
        root = copy(populated, tmp_path_factory.mktemp(change.name) / "graph")
        with Graph.open(root) as graph:
            assert apply(graph, change).applied
        found[change.name] = tables(root)
    return found


def check_readers(root: Path, outcome: Outcome) -> None:
    """Before anybody has settled anything a reader sees one schema completely, and leaves everything as it is."""
    left = sidecars(root)
    with Graph.open(root, read_only=True) as reader:
        # What recovery will complete is not there yet.
        check_whole(reader, is_new=outcome in (FINISHED, COMPLETE))
    assert sidecars(root) == left


# ---- killed


@pytest.mark.parametrize(("change", "place", "outcome"), deaths(CHANGES, places, CHOSEN))
def test_a_schema_change_killed_anywhere_leaves_all_of_it_or_nothing(
    populated: Path,
    after: dict[str, Any],
    tmp_path: Path,
    children: Children,
    change: Change,
    place: str,
    outcome: Outcome,
):
    root = copy(populated, tmp_path / "graph")
    children.kill_at(place, applying(root, change))
    check_readers(root, outcome)
    check_settled(root, populated, change, outcome, after[change.name])
    check_goes_on(root, change, outcome, after[change.name])


@pytest.mark.slow
@pytest.mark.parametrize(("change", "place", "outcome"), MATRIX)
def test_a_durable_schema_change_killed_at_any_place_is_settled_by_another_process(
    populated: Path,
    after: dict[str, Any],
    tmp_path: Path,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    place: str,
    outcome: Outcome,
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(populated, tmp_path / "graph")
    children.kill_at(place, applying(root, change), OMNIGRAPH_DURABILITY="full")
    check_readers(root, outcome)
    done = children.run({**opening(root), "environment": {"OMNIGRAPH_DURABILITY": "full"}})
    assert done.code == 0, done.err
    check_settled(root, populated, change, outcome, after[change.name])
    check_goes_on(root, change, outcome, after[change.name])


def test_a_writer_that_was_open_all_the_time_settles_the_change_and_goes_on_under_its_schema(
    populated: Path, tmp_path: Path, children: Children
):
    root = copy(populated, tmp_path / "graph")
    with Graph.open(root) as graph, Graph.open(root, read_only=True) as reader:
        check_whole(graph, is_new=False)
        check_whole(reader, is_new=False)
        children.kill_at(F.BEFORE_PUBLISH, applying(root, SOFT))
        check_whole(reader, is_new=False)
        assert graph.mutate(NEXT_NEW).commit is not None
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
        assert reader.schema == graph.schema
    check_sound(root)


def test_an_undone_change_leaves_a_graph_that_is_written_under_its_old_schema_and_changed_later(
    populated: Path, tmp_path: Path, children: Children
):
    root = copy(populated, tmp_path / "graph")
    children.kill_at("after_table_commit@2", applying(root, SOFT))
    with Graph.open(root) as graph:
        assert graph.mutate(NEXT_OLD).commit is not None
        assert apply(graph, SOFT).applied
        people = graph.query(READ_NEW).to_pylist()
    assert [(row["name"], row["years"]) for row in people] == [("ann", 31), ("bob", 0), ("zoe", 1)]
    check_sound(root)


# ---- failing in a process that lives on


@pytest.mark.parametrize(("change", "place", "outcome"), FAILING)
def test_a_schema_change_that_fails_anywhere_settles_itself_and_stops_nobody(
    populated: Path,
    after: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    place: str,
    outcome: Outcome,
):
    root = copy(populated, tmp_path / "graph")
    with Graph.open(root) as graph:
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, f"{place}=raise")
            failpoints.reset()
            if place == F.AFTER_SIDECAR_DELETE:
                with pytest.raises(FailpointError):
                    apply(graph, change)
            elif outcome.happened:
                assert apply(graph, change).commit is not None
            else:
                with pytest.raises(FailpointError):
                    apply(graph, change)
        check_whole(graph, is_new=outcome.happened)
        graph.refresh()
        check_sound(root)
        assert tables(root) == (after[change.name] if outcome.happened else tables(populated))
        assert apply(graph, change).applied is not outcome.happened
        check_whole(graph, is_new=True)
        graph.mutate(NEXT_NEW)
    check_sound(root)


# ---- recovery of a schema change

INTERRUPTED = {
    "rolled_back": ("after_table_commit@2", SOFT, ROLLED_BACK),
    "rolled_forward": (str(F.BEFORE_PUBLISH), HARD, ROLLED_FORWARD),
}
RECOVERING = [
    (way, str(place))
    for way, found in {
        "rolled_back": [*(f"{F.AFTER_RESTORE}@1", F.AFTER_RECOVERY_PUBLISH, f"{F.BEFORE_STAGED_REMOVAL}@2")],
        "rolled_forward": [*(F.BEFORE_RECOVERY_PUBLISH, F.AFTER_AUDIT, f"{F.BEFORE_PURGE}@2")],
    }.items()
    for place in found
]


@pytest.mark.parametrize(("way", "place"), RECOVERING)
def test_recovery_of_a_schema_change_killed_anywhere_is_finished_by_the_next_one(
    populated: Path, after: dict[str, Any], tmp_path: Path, children: Children, way: str, place: str
):
    died, change, outcome = INTERRUPTED[way]
    root = copy(populated, tmp_path / "graph")
    children.kill_at(died, applying(root, change))
    children.kill_at(place, opening(root))
    with Graph.open(root, read_only=True) as reader:
        is_published = outcome.happened and place != F.BEFORE_RECOVERY_PUBLISH
        check_whole(reader, is_new=is_published)
    check_settled(root, populated, change, outcome, after[change.name])
    check_goes_on(root, change, outcome, after[change.name])


def test_a_change_is_not_completed_beside_a_branch_that_came_without_settling_it(
    populated: Path, tmp_path: Path, children: Children
):
    root = copy(populated, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at(F.BEFORE_PUBLISH, applying(root, SOFT))
        # As a writer does that lost its lease on S3 and publishes all the same.
        manifest = graph._environment.manifest
        manifest.publish_branch(
            lambda state, version: branch_at(snapshot_of(state.head("main")), "dev", version, "dev")
        )
        graph.refresh()
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledBack"]
        check_whole(graph, is_new=False)
        assert graph.snapshot("dev").schema_hash == graph.snapshot().schema_hash
        graph.delete_branch("dev")
        assert apply(graph, SOFT).applied
    check_sound(root)


def test_a_table_that_was_withdrawn_is_made_again_with_other_columns_in_the_same_process(
    populated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = copy(populated, tmp_path / "graph")
    with Graph.open(root) as graph:
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, f"{F.AFTER_NEW_TABLES}=raise")
            with pytest.raises(FailpointError):
                graph.apply_schema(f"{OLD} node Tag {{ name: String @key }}", engine="local")
        graph.apply_schema(f"{OLD} node Tag {{ name: String @key  size: I32? }}", engine="local")
        graph.mutate('query add() { insert Tag { name: "new", size: 3 } }')
        found = graph.query("query all() { match { $t: Tag } return { $t.size as size } }")
        assert found.to_pylist() == [{"size": 3}]
    check_sound(root)


# ---- the matrix


def test_the_matrix_names_every_place_of_a_schema_change():
    covered = {place.partition("@")[0] for change in CHANGES for place, _ in places(change)}
    assert covered >= OF_SCHEMA_CHANGES
    for change in CHANGES:
        assert {str(name) for name in CHOSEN[change.name]} <= {name for name, _ in places(change)}
