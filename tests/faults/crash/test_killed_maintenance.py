"""A process that optimizes or folds dies by SIGKILL anywhere: no row changes, and the next run completes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core import failpoints
from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.fold import FOLD_ACTOR
from omnigraph.storage.datasets.indexes import list_indexes
from omnigraph.storage.datasets.staged import stage_append
from support.embedded_notes import kept_files, note, notes_graph, of, put, vectors
from support.graphs import fork
from support.histories import PERSON, add, files, people, people_at, set_age, unused_files
from support.histories import SCHEMA as KILLED_CLEANUPS_SCHEMA
from support.killed_writers import (
    ACTOR,
    NEXT,
    OF_MERGES_AND_BRANCHES,
    OF_OPTIMIZE,
    OF_SCHEMA_CHANGES,
    SCHEMA,
    SEED,
    Children,
    check_sound,
    content,
    contents,
    copy,
    every_commit,
    opening,
    sidecars,
)
from support.killed_writers import SCHEMA as KILLED_INDEX_BUILDS_SCHEMA

MORE = (
    'query w() { insert Person { name: "dan", age: 3 } }',
    'query w() { update Person set { age: 31 } where name = "ann" }',
    'query w() { insert City { name: "bonn" } }',
    'query w() { insert Knows { from: "dan", to: "ann" } }',
    'query w() { delete Person where name = "cid" }',
)
QUESTIONS = (
    'match { $p: Person { name: "ann" } } return { $p.age as x }',
    "match { $p: Person  $p.age >= 3 } return { $p.name as x }",
    'match { $p: Person  search($p.name, "ann dan cid") } return { $p.name as x }',
    "match { $p: Person  $p knows{1,3} $q } return { $p.name as x, $q.name as y }",
)
#: That have something to gain.
TABLES = 3
#: Every place that a run passes, the commit records that it leaves, and how often each counts.
PLACES = (
    (F.OPTIMIZE_STAGED, None),
    (F.BEFORE_SIDECAR, None),
    (F.AFTER_SIDECAR, "RolledBack"),
    ("between_versions@1", "RolledForward"),
    ("between_versions@2", "RolledForward"),
    ("after_table_commit@1", "RolledForward"),
    ("before_table_commit@3", "RolledForward"),
    (f"after_table_commit@{TABLES}", "RolledForward"),
    (F.BEFORE_PUBLISH, "RolledForward"),
    (F.BEFORE_CATALOG_COMMIT, "RolledForward"),
    (F.AFTER_PUBLISH, "RolledForward"),
    (F.SIDECAR_DELETE, "RolledForward"),
    (F.AFTER_SIDECAR_DELETE, None),
    # The fold of the catalog, after the commit.
    (F.IN_FOLD, None),
    ("before_catalog_commit@2", None),
)
QUICK = {
    *("optimize_staged", "between_versions@1", "between_versions@2", "before_table_commit@3"),
    *("before_publish", "in_fold"),
}


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some fragments with indexes, some without, moved and deleted rows in both."""
    root = tmp_path_factory.mktemp("worn") / "graph"
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(SEED)
        graph.ensure_indices()
        graph.create_branch("dev")
        for text in MORE:
            graph.mutate(text)
    return root


def answers(root: Path) -> list[list[str]]:
    with Graph.open(root, read_only=True) as graph:
        found = [graph.query(f"query q() {{ {text} }}").to_pylist() for text in QUESTIONS]
    return [sorted(map(str, rows)) for rows in found]


def optimizing(root: Path) -> dict[str, Any]:
    return {"action": "optimize", "root": str(root), "actor": ACTOR}


@pytest.mark.parametrize(
    ("place", "audit"),
    [
        pytest.param(str(place), audit, id=str(place), marks=() if place in QUICK else pytest.mark.slow)
        for place, audit in PLACES
    ],
)
def test_a_run_killed_anywhere_changes_no_row_and_the_next_completes(
    worn: Path, tmp_path: Path, children: Children, place: str, audit: str | None
) -> None:
    root = copy(worn, tmp_path / "graph")
    rows, found = contents(worn), answers(worn)
    children.kill_at(place, optimizing(root))
    assert answers(root) == found, "a reader settles nothing and reads right"
    with Graph.open(root) as graph:
        kinds = [record.recovery_kind for record in graph.recoveries()]
        assert kinds == ([] if audit is None else [audit])
    check_sound(root)
    assert (contents(root), answers(root)) == (rows, found)
    with Graph.open(root) as graph:
        graph.optimize()
        assert graph.optimize().commit is None
        assert graph.pending_indexes() == []
        pins = graph.snapshot().pins.values()
        assert {graph._open(pin).fragment_count() for pin in pins} == {1}
        assert (contents(root), answers(root)) == (rows, found)
        graph.mutate(NEXT)
    check_sound(root)


def test_recovery_of_a_run_may_be_killed_as_well(worn: Path, tmp_path: Path, children: Children) -> None:
    root = copy(worn, tmp_path / "graph")
    rows, found = contents(worn), answers(worn)
    children.kill_at("between_versions@2", optimizing(root))
    children.kill_at(F.BEFORE_RECOVERY_PUBLISH, opening(root))
    with Graph.open(root) as graph:
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_sound(root)
    assert (contents(root), answers(root)) == (rows, found)


@pytest.mark.parametrize(
    ("place", "folded"), [("fold_staged", False), ("before_table_commit@2", False), ("after_table_commit@2", True)]
)
def test_a_writer_that_dies_while_it_folds_has_written(
    worn: Path, tmp_path: Path, children: Children, place: str, folded: bool
) -> None:
    root = copy(worn, tmp_path / "graph")
    job = {"action": "mutate", "root": str(root), "branch": "main", "actor": ACTOR}
    text = 'query w() { insert Person { name: "eve" } }'
    children.kill_at(place, {**job, "text": text}, OMNIGRAPH_FOLD_FRAGMENTS="1")
    with Graph.open(root) as graph:
        folds = [c for c in graph.commits() if c.recovery_for_actor == FOLD_ACTOR]
        assert len(folds) == folded
        names = [row["name"] for row in contents(root)["main"]["node:Person"]]
        assert sorted(names) == ["ann", "bob", "dan", "eve"]
        graph.mutate(NEXT)
    check_sound(root)


def test_the_matrix_names_every_place_of_an_optimize() -> None:
    named = {str(place).partition("@")[0] for place, _ in PLACES} | {F.FOLD_STAGED}
    assert named >= OF_OPTIMIZE
    assert {str(place) for place, _ in PLACES} >= QUICK


# ---- A run that embeds dies by SIGKILL anywhere: the graph has all vectors or none, and none is computed twice


TEXTS = {"a": "x", "b": "y", "c": "z"}
#: Place → vectors that were kept when the run died there; None when they are in the graph by then.
KILLED_EMBEDDINGS_PLACES = {
    f"{F.EMBED_VECTORS_KEPT}@2": 2,
    F.EMBED_STAGED: 3,
    F.AFTER_SIDECAR: 3,
    F.AFTER_TABLE_COMMIT: None,
    F.AFTER_PUBLISH: None,
}


@pytest.mark.parametrize(("place", "kept"), KILLED_EMBEDDINGS_PLACES.items())
def test_the_next_run_goes_on_where_a_killed_one_stopped(
    tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch, place: str, kept: int | None
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    made = notes_graph(tmp_path)
    put(made, tmp_path, *[note(slug, text) for slug, text in TEXTS.items()])
    job = {"action": "embed", "root": made.uri, "engine": "local", "batch_size": 1}
    children.kill_at(place, job, OMNIGRAPH_EMBEDDINGS_MOCK="1")
    with Graph.open(made.uri) as graph:
        assert sidecars(Path(made.uri)) == []
        is_done = vectors(graph)["a"] is not None
        assert is_done == (kept is None)
        result = graph.embed(engine="local")
        assert (result.commit is None) == is_done
        if kept is not None:
            assert (result.embedded, result.reused) == (3 - kept, kept)
            assert kept_files(graph) == []
        wanted = {slug: pytest.approx(of(text)) for slug, text in TEXTS.items()}
        assert vectors(graph) == wanted


# ---- A cleanup dies by SIGKILL anywhere: what it promised is readable, the rest is whole or gone, and a rerun finishes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with everything that a cleanup removes: versions, a deleted branch, an orphan fork, a staged file."""
    root = tmp_path_factory.mktemp("world") / "g.omni"
    with Graph.init(root, KILLED_CLEANUPS_SCHEMA) as graph:
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


KILLED_CLEANUPS_PLACES = [
    F.CLEANUP_PLANNED,
    F.BEFORE_FORK_REMOVAL,
    f"{F.BEFORE_VERSION_REMOVAL}@2",
    f"{F.BEFORE_VERSION_REMOVAL}@3",
    F.AFTER_VERSION_REMOVAL,
    F.BEFORE_COMMITS_FORGOTTEN,
    F.BEFORE_CATALOG_COMMIT,
    F.BEFORE_CATALOG_CLEANUP,
]


@pytest.mark.parametrize("place", KILLED_CLEANUPS_PLACES)
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
    assert {str(place).partition("@")[0] for place in KILLED_CLEANUPS_PLACES} >= {
        *(F.CLEANUP_PLANNED, F.BEFORE_VERSION_REMOVAL, F.AFTER_VERSION_REMOVAL),
        *(F.BEFORE_COMMITS_FORGOTTEN, F.BEFORE_CATALOG_CLEANUP),
    }


# ---- A process that builds indexes dies by SIGKILL anywhere: no row changes, and the next run completes


#: In the order in which a run commits them.
KILLED_INDEX_BUILDS_TABLES = ("node:City", "node:Person", "edge:Knows", "edge:LivesIn")
KILLED_INDEX_BUILDS_MORE = """query more() {
    insert Person { name: "dan" }
    insert City { name: "bonn" }
    insert LivesIn { from: "dan", to: "bonn" }
    insert Knows { from: "dan", to: "ann" }
}"""

KILLED_INDEX_BUILDS_QUESTIONS = {
    "match { $p: Person } return { $p.name as x } order { $p.name }",
    "match { $p: Person  $p.age >= 30 } return { $p.name as x } order { $p.name }",
    'match { $p: Person  search($p.name, "ann bob dan") } return { $p.name as x } order { $p.name }',
    'match { $p: Person } return { $p.name as x } order { bm25($p.name, "cid") }',
    "match { $p: Person  $p knows{1,3} $q } return { $p.name as x, $q.name as y } order { $p.name, $q.name }",
    "match { $c: City  not { $_ livesIn $c } } return { $c.name as x } order { $c.name }",
}


def build(root: Path, branch: str = "main") -> dict[str, Any]:
    return {"action": "ensure_indices", "root": str(root), "branch": branch, "actor": ACTOR}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the next one finds: how many tables have their indexes, the record, the authors of new commits."""

    tables: int
    audit: str | None
    added: tuple[str, ...]


def places() -> list[tuple[str, Outcome]]:
    """Every place that a run passes, in order. Tables that did not move stay out of a roll-forward."""
    every = len(KILLED_INDEX_BUILDS_TABLES)
    cells = [
        (F.BEFORE_SIDECAR, Outcome(0, None, ())),
        (F.SIDECAR_WRITE, Outcome(0, None, ())),
        (F.AFTER_SIDECAR, Outcome(0, "RolledBack", ())),
    ]
    for number in range(1, every + 1):
        done = number - 1
        before = Outcome(done, "RolledForward", (RECOVERY_ACTOR,))
        cells += [
            (f"{F.BEFORE_TABLE_COMMIT}@{number}", before if done else Outcome(0, "RolledBack", ())),
            (f"{F.AFTER_TABLE_COMMIT}@{number}", Outcome(number, "RolledForward", (RECOVERY_ACTOR,))),
        ]
    cells += [
        (F.BEFORE_PUBLISH, Outcome(every, "RolledForward", (RECOVERY_ACTOR,))),
        (F.BEFORE_CATALOG_COMMIT, Outcome(every, "RolledForward", (RECOVERY_ACTOR,))),
        (F.AFTER_PUBLISH, Outcome(every, "RolledForward", (ACTOR,))),
        (F.SIDECAR_DELETE, Outcome(every, "RolledForward", (ACTOR,))),
        (F.AFTER_SIDECAR_DELETE, Outcome(every, None, (ACTOR,))),
    ]
    return [(str(place), outcome) for place, outcome in cells]


def cells(*chosen: str) -> list[Any]:
    """Every place; all but the chosen ones behind the slow marker."""
    return [
        pytest.param(place, outcome, id=place, marks=() if place in chosen else pytest.mark.slow)
        for place, outcome in places()
    ]


@pytest.fixture(scope="session")
def unindexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unindexed") / "graph"
    with Graph.init(root, KILLED_INDEX_BUILDS_SCHEMA) as graph:
        graph.mutate(SEED, actor="act-seed")
        graph.create_branch("dev")
    return root


@pytest.fixture(scope="session")
def half_indexed(unindexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy(unindexed, tmp_path_factory.mktemp("half") / "graph")
    with Graph.open(root) as graph:
        graph.ensure_indices()
        graph.mutate(KILLED_INDEX_BUILDS_MORE)
    return root


def answers_of_killed_index_builds(graph: Graph, branch: str = "main") -> dict[str, list[dict[str, Any]]]:
    return {
        text: graph.query(f"query q() {{ {text} }}", branch=branch).to_pylist()
        for text in sorted(KILLED_INDEX_BUILDS_QUESTIONS)
    }


@cache
def original(source: Path, branch: str) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """The commits of an untouched graph, the answers of a branch and all rows."""
    with Graph.open(source, read_only=True) as graph:
        commits = [commit.commit_id for commit in every_commit(graph)]
        return commits, answers_of_killed_index_builds(graph, branch), contents(source)


def covered_tables(graph: Graph, branch: str) -> set[str]:
    """The tables with all indexes over all rows."""
    lacking = {item.type_key for item in graph.pending_indexes(branch)}
    pins = graph.snapshot(branch).pins
    return {str(key) for key, pin in pins.items() if list_indexes(graph._open(pin))} - lacking


def check_outcome(root: Path, source: Path, outcome: Outcome, branch: str = "main") -> None:
    known, expected, rows = original(source, branch)
    with Graph.open(root, read_only=True) as reader:
        assert answers_of_killed_index_builds(reader, branch) == expected, "a reader settles nothing and reads right"
    with Graph.open(root) as graph:
        added = every_commit(graph)[len(known) :]
        records = graph.recoveries()
        assert covered_tables(graph, branch) == set(KILLED_INDEX_BUILDS_TABLES[: outcome.tables])
        assert answers_of_killed_index_builds(graph, branch) == expected
    check_sound(root)
    assert contents(root) == rows
    assert tuple(commit.actor for commit in added) == outcome.added
    for commit in added:
        assert (commit.kind, commit.branch) == ("ensure_indices", branch)
        assert set(commit.tables) == set(KILLED_INDEX_BUILDS_TABLES[: outcome.tables])
    if outcome.audit is None:
        assert records == []
    else:
        (record,) = records
        assert (record.recovery_kind, record.writer_kind) == (outcome.audit, "ensure_indices")
        assert record.recovery_for_actor == ACTOR
        assert record.graph_commit_id == (added[0].commit_id if added else None)
    check_completes(root, source, outcome.tables, branch)


def check_completes(root: Path, source: Path, done: int, branch: str) -> None:
    """The next run builds exactly what is missing, and writers go on."""
    _, expected, rows = original(source, branch)
    with Graph.open(root) as graph:
        report = graph.ensure_indices(branch)
        assert {item.type_key for item in report.built} == set(KILLED_INDEX_BUILDS_TABLES[done:])
        assert (report.commit is None) == (done == len(KILLED_INDEX_BUILDS_TABLES))
        assert covered_tables(graph, branch) == set(KILLED_INDEX_BUILDS_TABLES)
        assert graph.ensure_indices(branch).commit is None
        assert contents(root) == rows
        assert answers_of_killed_index_builds(graph, branch) == expected
        graph.mutate(NEXT, branch=branch)
        names = [row["name"] for row in content(root, branch)["node:Person"]]
        assert names.count("zoe") == 1
        found = 'query q() { match { $p: Person  search($p.name, "zoe") } return { $p.name as x } }'
        assert graph.query(found, branch=branch).to_pylist() == [{"x": "zoe"}]
    check_sound(root)


# ---- killed


@pytest.mark.parametrize(
    ("place", "outcome"), cells("sidecar_write", "after_table_commit@1", "before_table_commit@3", "after_publish")
)
def test_a_first_run_killed_anywhere_changes_no_row_and_the_next_completes(
    unindexed: Path, tmp_path: Path, children: Children, place: str, outcome: Outcome
):
    root = copy(unindexed, tmp_path / "graph")
    children.kill_at(place, build(root))
    check_outcome(root, unindexed, outcome)


@pytest.mark.parametrize(("place", "outcome"), cells("after_sidecar", "after_table_commit@2", "before_publish"))
def test_a_later_run_killed_anywhere_changes_no_row_and_the_next_completes(
    half_indexed: Path, tmp_path: Path, children: Children, place: str, outcome: Outcome
):
    root = copy(half_indexed, tmp_path / "graph")
    children.kill_at(place, build(root))
    with Graph.open(root) as graph:
        assert covered_tables(graph, "main") == set(KILLED_INDEX_BUILDS_TABLES[: outcome.tables])
        kinds = [record.recovery_kind for record in graph.recoveries()]
        assert kinds == ([] if outcome.audit is None else [outcome.audit])
        assert answers_of_killed_index_builds(graph) == original(half_indexed, "main")[1]
    check_sound(root)
    check_completes(root, half_indexed, outcome.tables, "main")


@pytest.mark.parametrize(("place", "outcome"), cells("before_sidecar", "after_table_commit@1", "before_publish"))
def test_a_run_on_a_branch_killed_anywhere_leaves_main_alone(
    unindexed: Path, tmp_path: Path, children: Children, place: str, outcome: Outcome
):
    root = copy(unindexed, tmp_path / "graph")
    children.kill_at(place, build(root, "dev"))
    with Graph.open(unindexed, read_only=True) as graph:
        main = graph.snapshot()
    check_outcome(root, unindexed, outcome, "dev")
    with Graph.open(root, read_only=True) as graph:
        assert graph.snapshot() == main


@pytest.mark.parametrize(
    ("place", "recovery"),
    [
        ("after_table_commit@2", F.BEFORE_RECOVERY_PUBLISH),
        ("after_table_commit@2", F.AFTER_RECOVERY_PUBLISH),
        ("before_publish", F.AUDIT_WRITE),
    ],
)
def test_recovery_of_a_run_killed_anywhere_is_finished_and_recorded_once(
    unindexed: Path, tmp_path: Path, children: Children, place: str, recovery: F
):
    root = copy(unindexed, tmp_path / "graph")
    children.kill_at(place, build(root))
    children.kill_at(recovery, opening(root))
    check_outcome(root, unindexed, dict(places())[place])


def test_a_durable_run_killed_before_its_publish_is_completed(
    unindexed: Path, tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(unindexed, tmp_path / "graph")
    children.kill_at("before_publish", build(root), OMNIGRAPH_DURABILITY="full")
    check_outcome(root, unindexed, dict(places())["before_publish"])


def test_a_writer_settles_what_a_dead_index_builder_left(unindexed: Path, tmp_path: Path, children: Children):
    root = copy(unindexed, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at("after_table_commit@3", build(root))
        graph.mutate(NEXT)
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
        assert [commit.kind for commit in graph.commits()][:2] == ["mutation", "ensure_indices"]
    check_sound(root)


def test_the_next_index_builder_settles_what_a_dead_one_left(unindexed: Path, tmp_path: Path, children: Children):
    root = copy(unindexed, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at("after_table_commit@3", build(root))
        report = graph.ensure_indices()
        assert [item.type_key for item in report.built] == [KILLED_INDEX_BUILDS_TABLES[3]]
        assert graph.pending_indexes() == []
    check_sound(root)
    assert contents(root) == original(unindexed, "main")[2]


def test_a_precondition_survives_a_run_that_recovery_completed(unindexed: Path, tmp_path: Path, children: Children):
    root = copy(unindexed, tmp_path / "graph")
    with Graph.open(root) as graph:
        seen = graph.snapshot().commit_id
        children.kill_at("before_publish", build(root))
        receipt = graph.mutate(NEXT, if_commit=seen)
        assert receipt.commit is not None
    check_sound(root)


def test_an_undisturbed_child_acknowledges_the_commit_that_it_made(unindexed: Path, tmp_path: Path, children: Children):
    root = copy(unindexed, tmp_path / "graph")
    done = children.run({**build(root), "environment": {}})
    assert done.code == 0, done.err
    with Graph.open(root) as graph:
        assert graph.commits()[0].commit_id == done.out.strip()
        assert graph.recoveries() == []
    check_completes(root, unindexed, len(KILLED_INDEX_BUILDS_TABLES), "main")


# ---- failing in a process that lives on


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    def fail_at(place: str) -> None:
        failpoints.reset()
        monkeypatch.setenv(VARIABLE, f"{place}=raise")

    yield fail_at
    failpoints.reset()


@pytest.mark.parametrize("place", ["before_sidecar", "after_sidecar", "before_table_commit@1"])
def test_a_run_that_fails_before_any_effect_gives_its_error_and_changes_nothing(
    unindexed: Path, tmp_path: Path, failing: Any, place: str
):
    root = copy(unindexed, tmp_path / "graph")
    with Graph.open(root) as graph:
        before = graph.snapshot()
        failing(place)
        with pytest.raises(FailpointError):
            graph.ensure_indices(actor=ACTOR)
        assert graph.snapshot() == before
        assert covered_tables(graph, "main") == set()
    assert sidecars(root) == []
    check_completes(root, unindexed, 0, "main")


@pytest.mark.parametrize(
    ("place", "tables"),
    [
        ("after_table_commit@1", 1),
        ("before_table_commit@3", 2),
        ("after_table_commit@4", 4),
        ("before_publish", 4),
        ("before_catalog_commit", 4),
    ],
)
def test_a_run_that_fails_half_way_keeps_what_it_finished(
    unindexed: Path, tmp_path: Path, failing: Any, place: str, tables: int
):
    root = copy(unindexed, tmp_path / "graph")
    with Graph.open(root) as graph:
        failing(place)
        report = graph.ensure_indices(actor=ACTOR)
        assert report.commit is not None
        assert set(report.commit.tables) == set(KILLED_INDEX_BUILDS_TABLES[:tables])
        assert covered_tables(graph, "main") == set(KILLED_INDEX_BUILDS_TABLES[:tables])
    check_sound(root)
    check_completes(root, unindexed, tables, "main")


def test_a_run_that_fails_half_way_reports_what_it_built_and_no_more(unindexed: Path, tmp_path: Path, failing: Any):
    root = copy(unindexed, tmp_path / "graph")
    with Graph.open(root) as graph:
        failing("after_table_commit@2")
        report = graph.ensure_indices(actor=ACTOR)
        assert {item.type_key for item in report.built} == set(KILLED_INDEX_BUILDS_TABLES[:2])


def test_the_matrix_names_every_place_of_a_write():
    covered = {place.partition("@")[0] for place, _ in places()}
    elsewhere = {place for place in F if place.startswith(("init_", "load_"))} | {F.IN_TASK}
    elsewhere |= {F.IN_FOLD, F.RECOVERY_LIST, F.BEFORE_RESTORE, F.AFTER_RESTORE}
    elsewhere |= OF_MERGES_AND_BRANCHES | OF_OPTIMIZE | OF_SCHEMA_CHANGES
    elsewhere |= {F.BEFORE_RECOVERY_PUBLISH, F.AFTER_RECOVERY_PUBLISH, F.AUDIT_WRITE, F.AFTER_AUDIT}
    assert covered | elsewhere == set(F)
