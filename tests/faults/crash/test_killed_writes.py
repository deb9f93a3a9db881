"""Writes of every kind are killed or fail at every place: what comes next finds all of the write, or nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from faults.crash.conftest import Worlds
from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.core.failpoints import FailpointError
from omnigraph.errors import AlreadyInitializedError, CompilerError, NotFoundError, StorageError
from omnigraph.graph.graph import Graph
from support.killed_writers import (
    ACTOR,
    SCHEMA,
    Before,
    Children,
    Contents,
    catalog_fragments,
    check_sound,
    contents,
    copy,
    every_commit,
    of_main,
    opening,
    recovery_kinds,
    table_files,
)
from support.killed_writes import (
    DELETE,
    FINISHED,
    FIRST_BUILD,
    FORK,
    HARD,
    INSERT,
    INTO_MAIN,
    INTO_UNFORKED,
    NEW_BRANCH,
    NOTHING,
    OPTIMIZE,
    ROLLED_FORWARD,
    SOFT,
    WRITES,
    Outcome,
    Write,
    cells,
    check_settled,
)

DURABLE = {"OMNIGRAPH_DURABILITY": "full"}


def check_death(root: Path, world: tuple[Before, Contents], write: Write, outcome: Outcome) -> None:
    before, after = world
    check_settled(root, before, write, outcome, after)
    write.check_goes_on(root, before, outcome, after)


# ---- killed


@pytest.mark.parametrize(("write", "place", "outcome"), cells("killed_at"))
def test_a_write_killed_anywhere_leaves_all_of_it_or_nothing(
    worlds: Worlds, tmp_path: Path, children: Children, write: Write, place: str, outcome: Outcome
):
    world = worlds(write)
    root = copy(world[0].root, tmp_path / "graph")
    children.kill_at(place, write.job(root))
    # What recovery will complete is not there yet.
    write.check_reader(root, world[0], is_published=outcome.is_published)
    check_death(root, world, write, outcome)


@pytest.mark.parametrize(
    ("write", "place"),
    [
        (INSERT, "after_table_commit@1"),
        (DELETE, F.BEFORE_PUBLISH),
        (FORK, F.AFTER_PUBLISH),
        (INTO_MAIN, "after_table_commit@2"),
        (INTO_UNFORKED, F.AFTER_CONFIRM),
        (FIRST_BUILD, F.BEFORE_PUBLISH),
    ],
    ids=str,
)
def test_a_durable_write_killed_anywhere_leaves_all_of_it_or_nothing(
    worlds: Worlds, tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch, write: Write, place: str
):
    world = worlds(write)
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(world[0].root, tmp_path / "graph")
    children.kill_at(place, write.job(root), **DURABLE)
    check_death(root, world, write, write.outcome_at(place))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "place", "outcome"), [(write, place, outcome) for write in WRITES for place, outcome in write.places()]
)
def test_a_durable_write_killed_at_any_place_is_settled_by_another_process(
    worlds: Worlds,
    tmp_path: Path,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    write: Write,
    place: str,
    outcome: Outcome,
):
    world = worlds(write)
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(world[0].root, tmp_path / "graph")
    children.kill_at(place, write.job(root), **DURABLE)
    write.check_reader(root, world[0], is_published=outcome.is_published)
    done = children.run(opening(root), **DURABLE)
    assert done.code == 0, done.err
    check_death(root, world, write, outcome)


@pytest.mark.parametrize(
    ("place", "outcome"),
    [
        (F.BEFORE_PUBLISH, ROLLED_FORWARD),
        (F.IN_FOLD, ROLLED_FORWARD),
        (F.BEFORE_CATALOG_COMMIT, ROLLED_FORWARD),
        (F.AFTER_PUBLISH, FINISHED),
    ],
)
def test_a_write_killed_while_the_catalog_is_folded_loses_no_commit(
    ready_to_fold: Path, tmp_path: Path, children: Children, place: F, outcome: Outcome
):
    undisturbed = copy(ready_to_fold, tmp_path / "undisturbed")
    with Graph.open(undisturbed) as graph:
        INSERT.run(graph)
    assert catalog_fragments(undisturbed) == 1
    root = copy(ready_to_fold, tmp_path / "graph")
    children.kill_at(place, INSERT.job(root))
    check_death(root, (Before.of(ready_to_fold), contents(undisturbed)), INSERT, outcome)


@pytest.mark.parametrize("write", [INSERT, NEW_BRANCH, INTO_MAIN, FIRST_BUILD], ids=str)
def test_an_undisturbed_child_acknowledges_the_commit_that_it_made(
    worlds: Worlds, tmp_path: Path, children: Children, write: Write
):
    before, after = worlds(write)
    root = copy(before.root, tmp_path / "graph")
    done = children.run(write.job(root))
    assert done.code == 0, done.err
    with Graph.open(root) as graph:
        assert [graph.snapshot(write.branch).commit_id] == done.out.split()
        assert graph.recoveries() == []
    assert contents(root) == after
    write.check_left(root, before, write.outcome_at(F.AFTER_SIDECAR_DELETE))


# ---- failing in a process that lives on


@pytest.mark.parametrize(("write", "place", "outcome"), cells("failing_at"))
def test_a_write_that_fails_anywhere_settles_itself_and_stops_nobody(
    worlds: Worlds, tmp_path: Path, failing: Callable[[str], Any], write: Write, place: str, outcome: Outcome
):
    before, after = worlds(write)
    root = copy(before.root, tmp_path / "graph")
    with Graph.open(root) as graph:
        with failing(place):
            if outcome.happened and place != F.AFTER_SIDECAR_DELETE:
                result = write.run(graph)
                assert result.commit == graph.commits(write.branch)[0], "the normal receipt"
            else:
                # A publish tells its failure in its own words.
                with pytest.raises((FailpointError, StorageError), match=place.partition("@")[0]):
                    write.run(graph)
        write.check_reader(root, before, is_published=outcome.happened)
        if outcome == NOTHING:
            assert of_main(table_files(root) - table_files(before.root)) == set(), "a failed write tidies up"
        # What follows a publish is left to the next write.
        is_left = outcome.is_published and outcome.audit is not None and place != F.AFTER_PUBLISH
        assert len(graph.pending_recoveries()) == is_left
        graph.refresh()
        assert recovery_kinds(graph) == ([] if outcome.audit is None else [outcome.audit])
        added = every_commit(graph)[len(before.commits) :]
        assert len(added) == len(outcome.added)
        if not outcome.happened:
            assert {(commit.actor, commit.recovery_for_actor) for commit in added} <= {(RECOVERY_ACTOR, ACTOR)}
    check_sound(root)
    assert contents(root) == (after if outcome.happened else before.content)
    write.check_left(root, before, outcome)
    write.check_goes_on(root, before, outcome, after)


def test_a_write_that_fails_inside_the_fold_is_completed_at_once(
    ready_to_fold: Path, tmp_path: Path, failing: Callable[[str], Any]
):
    undisturbed = copy(ready_to_fold, tmp_path / "undisturbed")
    with Graph.open(undisturbed) as graph:
        INSERT.run(graph)
    root = copy(ready_to_fold, tmp_path / "graph")
    with Graph.open(root) as graph, failing(F.IN_FOLD):
        assert INSERT.run(graph).commit == graph.commits()[0]
        assert recovery_kinds(graph) == ["RolledForward"]
    check_sound(root)
    assert contents(root) == contents(undisturbed)


# ---- recovery is killed


RECORDING = [F.AUDIT_WRITE, F.AFTER_AUDIT, F.SIDECAR_DELETE]
PUBLISHING = [F.BEFORE_RECOVERY_PUBLISH, F.BEFORE_CATALOG_COMMIT, F.AFTER_RECOVERY_PUBLISH]
RESTORING = [f"{place}@{n}" for n in (1, 2) for place in (F.BEFORE_RESTORE, F.AFTER_RESTORE)]
LISTING = [f"{F.RECOVERY_LIST}@1", f"{F.RECOVERY_LIST}@2"]
#: What died where → the places of its recovery; of a write that deletes from three tables all of them.
RECOVERIES: dict[tuple[Write, str], list[str]] = {
    (DELETE, "after_table_commit@2"): [*LISTING, *RESTORING, *PUBLISHING, *RECORDING],
    (DELETE, F.BEFORE_PUBLISH): [*LISTING, *PUBLISHING, *RECORDING],
    (DELETE, F.AFTER_PUBLISH): RECORDING,
    (DELETE, F.AFTER_SIDECAR): RECORDING,
    (INTO_MAIN, F.BEFORE_CONFIRM): [f"{F.BEFORE_RESTORE}@2", f"{F.AFTER_RESTORE}@4", F.AFTER_RECOVERY_PUBLISH],
    (INTO_UNFORKED, F.AFTER_CONFIRM): [F.BEFORE_RECOVERY_PUBLISH, F.AUDIT_WRITE],
    (SOFT, "after_table_commit@2"): [f"{F.AFTER_RESTORE}@1", F.AFTER_RECOVERY_PUBLISH, f"{F.BEFORE_STAGED_REMOVAL}@2"],
    (HARD, F.BEFORE_PUBLISH): [F.BEFORE_RECOVERY_PUBLISH, F.AFTER_AUDIT, f"{F.BEFORE_PURGE}@2"],
    (FIRST_BUILD, "after_table_commit@2"): [F.BEFORE_RECOVERY_PUBLISH, F.AFTER_RECOVERY_PUBLISH],
    (FIRST_BUILD, F.BEFORE_PUBLISH): [F.AUDIT_WRITE],
    (OPTIMIZE, "between_versions@2"): [F.BEFORE_RECOVERY_PUBLISH],
}
#: Where the recovery of a merge is killed as well, behind the marker.
OF_MERGES: dict[tuple[Write, str], list[str]] = {
    (INTO_MAIN, F.BEFORE_CONFIRM): [
        *(f"{F.AFTER_RESTORE}@1", F.BEFORE_RECOVERY_PUBLISH, F.BEFORE_CATALOG_COMMIT, F.AUDIT_WRITE),
        *(F.AFTER_AUDIT, F.SIDECAR_DELETE),
    ],
    (INTO_UNFORKED, F.AFTER_CONFIRM): [F.RECOVERY_LIST, F.AFTER_RECOVERY_PUBLISH],
}


def recoveries(table: dict[tuple[Write, str], list[str]], *marks: pytest.MarkDecorator) -> list[Any]:
    return [
        pytest.param(write, str(died), str(place), id=f"{write}-{died}-{place}", marks=marks)
        for (write, died), places in table.items()
        for place in places
    ]


@pytest.fixture(scope="module")
def interrupted(worlds: Worlds, children: Children, tmp_path_factory: pytest.TempPathFactory):
    """A graph in which a write died at a place; copy it before use."""

    @cache
    def make(write: Write, died: str) -> Path:
        root = copy(worlds(write)[0].root, tmp_path_factory.mktemp("interrupted") / "graph")
        children.kill_at(died, write.job(root))
        return root

    return make


@pytest.mark.parametrize(
    ("write", "died", "place"), [*recoveries(RECOVERIES), *recoveries(OF_MERGES, pytest.mark.slow)]
)
def test_recovery_killed_anywhere_is_finished_by_the_next_one_and_recorded_once(
    worlds: Worlds, interrupted, tmp_path: Path, children: Children, write: Write, died: str, place: str
):
    root, outcome = copy(interrupted(write, died), tmp_path / "graph"), write.outcome_at(died)
    children.kill_at(place, opening(root))
    if outcome.happened:
        write.check_reader(root, worlds(write)[0], is_published=place != F.BEFORE_RECOVERY_PUBLISH)
    check_death(root, worlds(write), write, outcome)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("died", "first", "second"),
    [
        (died, str(first), str(second))
        for (write, died), places in RECOVERIES.items()
        if write is DELETE
        for index, first in enumerate(places)
        for second in places[index:]
    ],
)
def test_recovery_killed_twice_is_finished_by_the_third_one_and_recorded_once(
    worlds: Worlds, interrupted, tmp_path: Path, children: Children, died: str, first: str, second: str
):
    root = copy(interrupted(DELETE, died), tmp_path / "graph")
    children.kill_at(first, opening(root))
    environment = {"OMNIGRAPH_DURABILITY": "process", "OMNIGRAPH_FAILPOINT": f"{second}=kill"}
    # The second recovery has less to do, and may not come to the place where it would die.
    assert children.run(opening(root), **environment).code in (0, -signal.SIGKILL)
    check_death(root, worlds(DELETE), DELETE, DELETE.outcome_at(died))


@pytest.mark.parametrize("place", [F.IN_FOLD, F.BEFORE_CATALOG_COMMIT, F.AFTER_RECOVERY_PUBLISH])
def test_recovery_killed_while_it_folds_the_catalog_loses_no_commit(
    ready_to_fold: Path, tmp_path: Path, children: Children, place: F
):
    root = copy(ready_to_fold, tmp_path / "graph")
    with Graph.open(root, read_only=True) as graph:
        known = [commit.commit_id for commit in every_commit(graph)]
    children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
    children.kill_at(place, opening(root))
    with Graph.open(root) as graph:
        assert [commit.commit_id for commit in every_commit(graph)][:-1] == known
        assert recovery_kinds(graph) == ["RolledForward"]
    check_sound(root)


@pytest.mark.parametrize(
    ("died", "moved"), [("after_table_commit@2", 2), (F.BEFORE_PUBLISH, 3), (F.AFTER_PUBLISH, 3), (F.AFTER_SIDECAR, 0)]
)
def test_a_record_names_every_table_with_its_versions(base: Path, interrupted, tmp_path: Path, died: str, moved: int):
    root = copy(interrupted(DELETE, died), tmp_path / "graph")
    with Graph.open(base, read_only=True) as graph:
        pins = graph.snapshot().pins
    with Graph.open(root) as graph:
        (record,) = graph.recoveries()
    assert sorted(record.tables) == ["edge:Knows", "edge:LivesIn", "node:Person"]
    assert sum(table["from_version"] - pins[key].version for key, table in record.tables.items()) == moved
    if moved == 2:
        assert all(table["to_version"] == pins[key].version for key, table in record.tables.items())


def test_a_record_names_every_table_even_when_recovery_died_before_it_was_written(
    interrupted, tmp_path: Path, children: Children
):
    root = copy(interrupted(DELETE, "after_table_commit@2"), tmp_path / "graph")
    children.kill_at(F.AFTER_RECOVERY_PUBLISH, opening(root))
    with Graph.open(root) as graph:
        (record,) = graph.recoveries()
    assert sorted(record.tables) == ["edge:Knows", "edge:LivesIn", "node:Person"]


# ---- what settles a dead write


def test_a_writer_of_another_branch_settles_what_a_dead_writer_left(root: Path, children: Children, worlds: Worlds):
    with Graph.open(root) as graph:
        children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
        FORK.run(graph)
        assert recovery_kinds(graph) == ["RolledForward"]
    check_sound(root)
    assert contents(root) == {"main": worlds(INSERT)[1]["main"], "dev": worlds(FORK)[1]["dev"]}


@pytest.mark.parametrize(
    ("statement", "affected"),
    [
        ('update Person set { age: 7 } where name = "dan"', 1),
        ('update Person set { age: 7 } where name = "bob"', 1),
        ('delete Person where name = "dan"', 1),
        ('delete Person where name = "nobody"', 0),
        ('insert Knows { from: "ann", to: "dan" }', 1),
    ],
)
def test_a_mutation_counts_as_if_a_dead_writer_had_been_settled_before(
    root: Path, children: Children, statement: str, affected: int
):
    with Graph.open(root) as graph:
        children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
        result = graph.mutate(f"query w() {{ {statement} }}")
        assert result.affected_nodes + result.affected_edges == affected
        assert recovery_kinds(graph) == ["RolledForward"]
        assert graph.pending_recoveries() == []
    check_sound(root)


def test_a_refused_mutation_settles_what_a_dead_writer_left(root: Path, children: Children, worlds: Worlds):
    with Graph.open(root) as graph:
        children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
        with pytest.raises(CompilerError):
            graph.mutate('query w() { insert Person { nme: "dan" } }')
        assert graph.pending_recoveries() == []
    assert contents(root) == worlds(INSERT)[1]


def test_a_long_running_reader_and_writer_heals_on_refresh(root: Path, children: Children, worlds: Worlds):
    with Graph.open(root) as graph:
        before = graph.snapshot()
        children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
        assert graph.snapshot() == before
        graph.refresh()
        assert graph.snapshot() != before
    check_sound(root)
    assert contents(root) == worlds(INSERT)[1]


def test_a_reader_sees_the_state_before_an_interrupted_write_and_settles_nothing(
    root: Path, base: Path, children: Children
):
    children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
    with Graph.open(root, read_only=True) as graph:
        graph.refresh()
        assert len(graph.pending_recoveries()) == 1
        assert graph.recoveries() == []
    assert contents(root) == contents(base)


# ---- a process that creates a graph dies at every place: there is a whole graph, or none


CLAIM = "__init_claim.json"
BEFORE_THE_CATALOG = [F.INIT_AFTER_CLAIM, F.INIT_AFTER_TABLES, F.INIT_AFTER_SCHEMA]


def initializing(root: Path) -> dict[str, str]:
    return {"action": "init", "root": str(root), "schema": SCHEMA}


def check_new(root: Path) -> None:
    check_sound(root)
    with Graph.open(root) as graph:
        assert [commit.kind for commit in every_commit(graph)] == ["init"]
        assert sum(pin.row_count for pin in graph.snapshot().pins.values()) == 0
        graph.mutate('query w() { insert Person { name: "ann" } }')
        assert len(graph.commits()) == 2
    check_sound(root)


@pytest.mark.parametrize("place", BEFORE_THE_CATALOG)
def test_an_init_killed_before_the_catalog_leaves_no_graph_and_blocks_nobody(
    tmp_path: Path, children: Children, place: F
):
    new = tmp_path / "new"
    children.kill_at(place, initializing(new))
    for read_only in (True, False):
        with pytest.raises(NotFoundError):
            Graph.open(new, read_only=read_only)
    assert (new / CLAIM).exists()
    needs_force = place is F.INIT_AFTER_SCHEMA
    if needs_force:
        with pytest.raises(AlreadyInitializedError, match="--force"):
            Graph.init(new, SCHEMA)
    Graph.init(new, SCHEMA, force=needs_force).close()
    assert not (new / CLAIM).exists()
    check_new(new)


def test_an_init_killed_after_the_catalog_leaves_a_whole_graph(tmp_path: Path, children: Children):
    new = tmp_path / "new"
    children.kill_at(F.INIT_AFTER_MANIFEST, initializing(new))
    for force in (False, True):
        with pytest.raises(AlreadyInitializedError):
            Graph.init(new, SCHEMA, force=force)
    check_new(new)


@pytest.mark.parametrize("place", BEFORE_THE_CATALOG)
def test_an_init_that_fails_in_a_living_process_takes_its_claim_back(
    tmp_path: Path, failing: Callable[[str], Any], place: F
):
    new = tmp_path / "new"
    with failing(place), pytest.raises(FailpointError):
        Graph.init(new, SCHEMA)
    assert not (new / CLAIM).exists()
    Graph.init(new, SCHEMA, force=True).close()
    check_new(new)


# ---- the matrix


def test_the_matrix_names_every_place():
    covered = {str(place).partition("@")[0] for write in WRITES for place, _ in write.places()}
    by_default = {str(place).partition("@")[0] for write in WRITES for place in write.killed_at}
    recovery = {str(place).partition("@")[0] for places in RECOVERIES.values() for place in places}
    init = {*BEFORE_THE_CATALOG, F.INIT_AFTER_MANIFEST}
    # Inside tasks a death is a retry; the first open of a moved graph is killed in `behaviour/folders`, a load with a
    # quarantine in `test_killed_loads`.
    elsewhere = {F.IN_TASK, F.BEFORE_REBASE, F.BEFORE_ROOT_RECORD, F.QUARANTINE_WRITTEN, F.QUARANTINE_PUBLISHED}
    of_branches = {F.BEFORE_BRANCH_PUBLISH, F.AFTER_BRANCH_PUBLISH, F.BEFORE_FORK_REMOVAL}
    of_maintenance = {
        *(F.FOLD_STAGED, F.EMBED_VECTORS_KEPT, F.EMBED_STAGED, F.CLEANUP_PLANNED),
        *(F.BEFORE_VERSION_REMOVAL, F.AFTER_VERSION_REMOVAL, F.BEFORE_COMMITS_FORGOTTEN, F.BEFORE_CATALOG_CLEANUP),
    }
    assert covered | recovery | init | elsewhere | of_branches | of_maintenance == set(F)
    assert by_default == covered
    for write in WRITES:
        assert {*write.killed_at, *write.failing_at} <= {place for place, _ in write.places()}
