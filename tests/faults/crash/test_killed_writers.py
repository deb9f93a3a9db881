"""A writer dies by SIGKILL at every place of its commit; whoever comes next finds all of the write, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.core.failpoints import FailpointError
from omnigraph.errors import AlreadyInitializedError, CompilerError, NotFoundError
from omnigraph.graph.graph import Graph
from support.killed_writers import (
    ACTOR,
    DELETE,
    FINISHED,
    FORGOTTEN,
    FORK,
    INSERT,
    NOTHING,
    OF_MERGES_AND_BRANCHES,
    OF_OPTIMIZE,
    OF_SCHEMA_CHANGES,
    ROLLED_BACK,
    ROLLED_FORWARD,
    SCHEMA,
    UPDATE,
    UPSERT,
    WRITERS,
    Children,
    Outcome,
    Writer,
    catalog_fragments,
    check_next_writes,
    check_sound,
    contents,
    copy,
    deaths,
    every_commit,
    mutation,
    publishing,
    table_commits,
)


def places(writer: Writer) -> list[tuple[str, Outcome]]:
    """Every place that the writer passes, in order, with what a death there leads to."""
    cells = [(F.BEFORE_SIDECAR, NOTHING), (F.SIDECAR_WRITE, NOTHING), (F.AFTER_SIDECAR, FORGOTTEN)]
    cells += [*table_commits(writer.tables), *publishing()]
    return [(str(name), outcome) for name, outcome in cells]


#: One writer dies everywhere: what follows the sidecar is the same for all. The others die in and after their commit.
CHOSEN = {
    INSERT.name: [place for place, _ in places(INSERT)],
    UPSERT.name: ["after_table_commit@1"],
    UPDATE.name: ["before_publish"],
    DELETE.name: ["before_table_commit@3", "after_table_commit@2", "after_table_commit@3"],
    FORK.name: ["after_sidecar", "after_table_commit@1", "before_publish", "after_publish"],
}
MATRIX = [(writer, place, outcome) for writer in WRITERS for place, outcome in places(writer)]
FOLDING = [
    (F.BEFORE_PUBLISH, ROLLED_FORWARD),
    (F.IN_FOLD, ROLLED_FORWARD),
    (F.BEFORE_CATALOG_COMMIT, ROLLED_FORWARD),
    (F.AFTER_PUBLISH, FINISHED),
]
DURABLE = [
    (INSERT, "after_table_commit@1", ROLLED_BACK),
    (DELETE, "before_publish", ROLLED_FORWARD),
    (FORK, "after_publish", FINISHED),
]


@pytest.fixture(scope="module")
def after(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The content of the graph after each undisturbed write."""
    return {
        writer.name: undisturbed(base, tmp_path_factory.mktemp(writer.name) / "graph", writer) for writer in WRITERS
    }


def undisturbed(source: Path, root: Path, writer: Writer) -> dict:
    with Graph.open(copy(source, root)) as graph:
        graph.mutate(writer.query, branch=writer.branch)
    return contents(root)


def check_outcome(root: Path, source: Path, writer: Writer, outcome: Outcome, after: dict) -> None:
    before = contents(source)
    assert before != after
    with Graph.open(source, read_only=True) as graph:
        known = [commit.commit_id for commit in every_commit(graph)]
    with Graph.open(root) as graph:
        commits = every_commit(graph)
        records = graph.recoveries()
    check_sound(root)
    assert contents(root) == (after if outcome.happened else before)
    assert [commit.commit_id for commit in commits[: len(known)]] == known
    added = commits[len(known) :]
    assert tuple(commit.actor for commit in added) == outcome.added
    if outcome.audit is None:
        assert records == []
    else:
        (record,) = records
        assert record.recovery_kind == outcome.audit
        assert (record.writer_kind, record.recovery_for_actor) == ("mutation", ACTOR)
        assert record.graph_commit_id == (added[0].commit_id if added else None)
        assert len(record.tables) == writer.tables
    for commit in added:
        assert commit.branch == writer.branch
        if commit.actor == RECOVERY_ACTOR:
            assert commit.recovery_for_actor == ACTOR
    check_next_writes(root, writer, after)


@pytest.mark.parametrize(("writer", "place", "outcome"), deaths(WRITERS, places, CHOSEN))
def test_a_writer_killed_anywhere_leaves_all_of_its_write_or_nothing(
    base: Path, tmp_path: Path, children: Children, after: dict, writer: Writer, place: str, outcome: Outcome
):
    root = copy(base, tmp_path / "graph")
    children.kill_at(place, mutation(root, writer))
    check_outcome(root, base, writer, outcome, after[writer.name])


@pytest.mark.parametrize(("writer", "place", "outcome"), DURABLE)
def test_a_durable_writer_killed_anywhere_leaves_all_of_its_write_or_nothing(
    base: Path,
    tmp_path: Path,
    children: Children,
    after: dict,
    monkeypatch: pytest.MonkeyPatch,
    writer: Writer,
    place: str,
    outcome: Outcome,
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(base, tmp_path / "graph")
    children.kill_at(place, mutation(root, writer), OMNIGRAPH_DURABILITY="full")
    check_outcome(root, base, writer, outcome, after[writer.name])


@pytest.mark.parametrize(("place", "outcome"), FOLDING)
def test_a_writer_killed_while_the_catalog_is_folded_loses_no_commit(
    ready_to_fold: Path, tmp_path: Path, children: Children, place: F, outcome: Outcome
):
    after = undisturbed(ready_to_fold, tmp_path / "undisturbed", INSERT)
    assert catalog_fragments(tmp_path / "undisturbed") == 1
    root = copy(ready_to_fold, tmp_path / "graph")
    children.kill_at(place, mutation(root, INSERT))
    check_outcome(root, ready_to_fold, INSERT, outcome, after)


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "place", "outcome"), MATRIX)
def test_a_durable_writer_killed_at_any_place_is_settled_by_another_process(
    base: Path,
    tmp_path: Path,
    children: Children,
    after: dict,
    monkeypatch: pytest.MonkeyPatch,
    writer: Writer,
    place: str,
    outcome: Outcome,
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(base, tmp_path / "graph")
    children.kill_at(place, mutation(root, writer), OMNIGRAPH_DURABILITY="full")
    done = children.run({"action": "open", "root": str(root), "environment": {"OMNIGRAPH_DURABILITY": "full"}})
    assert done.code == 0, done.err
    check_outcome(root, base, writer, outcome, after[writer.name])


def test_a_writer_of_another_branch_settles_what_a_dead_writer_left(
    base: Path, tmp_path: Path, children: Children, after: dict
):
    root = copy(base, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at("before_publish", mutation(root, INSERT))
        graph.mutate(FORK.query, branch="dev")
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_sound(root)
    assert contents(root)["main"] == after[INSERT.name]["main"]
    assert contents(root)["dev"] == after[FORK.name]["dev"]


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
    base: Path, tmp_path: Path, children: Children, statement: str, affected: int
):
    root = copy(base, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at("before_publish", mutation(root, INSERT))
        result = graph.mutate(f"query w() {{ {statement} }}")
        assert result.affected_nodes + result.affected_edges == affected
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
        assert graph.pending_recoveries() == []
    check_sound(root)


def test_a_refused_mutation_settles_what_a_dead_writer_left(
    base: Path, tmp_path: Path, children: Children, after: dict
):
    root = copy(base, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at("before_publish", mutation(root, INSERT))
        with pytest.raises(CompilerError):
            graph.mutate('query w() { insert Person { nme: "dan" } }')
        assert graph.pending_recoveries() == []
    assert contents(root) == after[INSERT.name]


def test_a_long_running_reader_and_writer_heals_on_refresh(base: Path, tmp_path: Path, children: Children, after: dict):
    root = copy(base, tmp_path / "graph")
    with Graph.open(root) as graph:
        before = graph.snapshot()
        children.kill_at("before_publish", mutation(root, INSERT))
        assert graph.snapshot() == before
        graph.refresh()
        assert graph.snapshot() != before
    check_sound(root)
    assert contents(root) == after[INSERT.name]


def test_a_reader_sees_the_state_before_an_interrupted_write_and_settles_nothing(
    base: Path, tmp_path: Path, children: Children
):
    root = copy(base, tmp_path / "graph")
    children.kill_at("before_publish", mutation(root, INSERT))
    with Graph.open(root, read_only=True) as graph:
        graph.refresh()
        assert len(graph.pending_recoveries()) == 1
        assert graph.recoveries() == []
    assert contents(root) == contents(base)


def test_an_undisturbed_child_acknowledges_the_commit_that_it_made(
    base: Path, tmp_path: Path, children: Children, after: dict
):
    root = copy(base, tmp_path / "graph")
    done = children.run({**mutation(root, INSERT), "environment": {}})
    assert done.code == 0, done.err
    with Graph.open(root) as graph:
        assert [commit.commit_id for commit in graph.commits()][:1] == done.out.split()
        assert graph.recoveries() == []
    assert contents(root) == after[INSERT.name]


def test_the_matrix_names_every_place_of_a_write():
    covered = {place.partition("@")[0] for place, _ in places(INSERT)} | {F.IN_FOLD}
    elsewhere = {
        F.RECOVERY_LIST,
        F.BEFORE_RESTORE,
        F.AFTER_RESTORE,
        F.BEFORE_RECOVERY_PUBLISH,
        F.AFTER_RECOVERY_PUBLISH,
        F.AUDIT_WRITE,
        F.AFTER_AUDIT,
        # Only loads have tasks.
        F.IN_TASK,
        *OF_MERGES_AND_BRANCHES,
        *OF_OPTIMIZE,
        *OF_SCHEMA_CHANGES,
    }
    others = ("init_", "load_")
    assert covered | elsewhere == {place for place in F if not place.startswith(others)}


# ---- A process that creates a graph dies at every place: there is a whole graph, or none


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
    root = tmp_path / "graph"
    children.kill_at(place, initializing(root))
    for read_only in (True, False):
        with pytest.raises(NotFoundError):
            Graph.open(root, read_only=read_only)
    assert (root / CLAIM).exists()
    Graph.init(root, SCHEMA, force=place is F.INIT_AFTER_SCHEMA).close()
    assert not (root / CLAIM).exists()
    check_new(root)


def test_schema_files_of_a_dead_init_are_replaced_only_by_force(tmp_path: Path, children: Children):
    root = tmp_path / "graph"
    children.kill_at(F.INIT_AFTER_SCHEMA, initializing(root))
    with pytest.raises(AlreadyInitializedError, match="--force"):
        Graph.init(root, SCHEMA)


def test_an_init_killed_after_the_catalog_leaves_a_whole_graph(tmp_path: Path, children: Children):
    root = tmp_path / "graph"
    children.kill_at(F.INIT_AFTER_MANIFEST, initializing(root))
    for force in (False, True):
        with pytest.raises(AlreadyInitializedError):
            Graph.init(root, SCHEMA, force=force)
    check_new(root)


@pytest.mark.parametrize("place", BEFORE_THE_CATALOG)
def test_an_init_that_fails_in_a_living_process_takes_its_claim_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: F
):
    root = tmp_path / "graph"
    monkeypatch.setenv(failpoints.VARIABLE, f"{place}=raise")
    with pytest.raises(FailpointError):
        Graph.init(root, SCHEMA)
    assert not (root / CLAIM).exists()
    Graph.init(root, SCHEMA, force=True).close()
    check_new(root)
