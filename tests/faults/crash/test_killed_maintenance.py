"""Maintenance that dies by SIGKILL at its own places; index builds and optimize are in `test_killed_writes`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.crash.conftest import Worlds
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.optimize import FOLD_ACTOR
from omnigraph.storage.datasets.staged import stage_append
from support.embedded_notes import kept_files, note, notes_graph, of, put, vectors
from support.graphs import fork
from support.histories import PERSON, SCHEMA, add, files, people, people_at, set_age, unused_files
from support.killed_writers import ACTOR, NEXT, Children, check_sound, contents, copy, recovery_kinds, sidecars
from support.killed_writes import FIRST_BUILD, OPTIMIZE, TABLES

# ---- folds and indexes


@pytest.mark.parametrize(
    ("place", "folded"), [("fold_staged", False), ("before_table_commit@2", False), ("after_table_commit@2", True)]
)
def test_a_writer_that_dies_while_it_folds_has_written(
    worlds: Worlds, tmp_path: Path, children: Children, place: str, folded: bool
) -> None:
    root = copy(worlds(OPTIMIZE)[0].root, tmp_path / "graph")
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


def test_a_writer_settles_what_a_dead_index_builder_left(root: Path, children: Children):
    with Graph.open(root) as graph:
        children.kill_at("after_table_commit@3", FIRST_BUILD.job(root))
        graph.mutate(NEXT)
        assert recovery_kinds(graph) == ["RolledForward"]
        assert [commit.kind for commit in graph.commits()][:2] == ["mutation", "ensure_indices"]
    check_sound(root)


def test_the_next_index_builder_settles_what_a_dead_one_left(root: Path, base: Path, children: Children):
    with Graph.open(root) as graph:
        children.kill_at("after_table_commit@3", FIRST_BUILD.job(root))
        report = graph.ensure_indices()
        assert [item.type_key for item in report.built] == [TABLES[3]]
        assert graph.pending_indexes() == []
    check_sound(root)
    assert contents(root) == contents(base)


def test_a_precondition_survives_a_run_that_recovery_completed(root: Path, children: Children):
    with Graph.open(root) as graph:
        seen = graph.snapshot().commit_id
        children.kill_at("before_publish", FIRST_BUILD.job(root))
        receipt = graph.mutate(NEXT, if_commit=seen)
        assert receipt.commit is not None
    check_sound(root)


def test_a_run_that_fails_half_way_reports_what_it_built_and_no_more(root: Path, failing: Callable[[str], Any]):
    with Graph.open(root) as graph, failing("after_table_commit@2"):
        report = graph.ensure_indices(actor=ACTOR)
        assert {item.type_key for item in report.built} == set(TABLES[:2])


# ---- A run that embeds dies by SIGKILL anywhere: the graph has all vectors or none, and none is computed twice


TEXTS = {"a": "x", "b": "y", "c": "z"}
#: Place → vectors that were kept when the run died there; None when they are in the graph by then.
EMBEDDINGS = {
    f"{F.EMBED_VECTORS_KEPT}@2": 2,
    F.EMBED_STAGED: 3,
    F.AFTER_SIDECAR: 3,
    F.AFTER_TABLE_COMMIT: None,
    F.AFTER_PUBLISH: None,
}


@pytest.mark.parametrize(("place", "kept"), EMBEDDINGS.items())
def test_the_next_run_goes_on_where_a_killed_one_stopped(
    tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch, place: str, kept: int | None
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")
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


@pytest.mark.parametrize("place", [F.EMBED_VECTORS_KEPT, F.LOAD_CHECKED, F.BEFORE_SIDECAR])
def test_a_load_that_dies_has_written_nothing_and_the_next_one_embeds_nothing_again(
    tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch, place: F
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    made = notes_graph(tmp_path)
    source = tmp_path / "notes.jsonl"
    source.write_text('{"type": "Note", "data": {"slug": "a", "body": "x"}}\n')
    job = {"source": str(source), "mode": "merge", "engine": "local"}
    children.kill_at(place, {"action": "load", "root": made.uri, **job}, OMNIGRAPH_EMBEDDINGS_MOCK="1")
    with Graph.open(made.uri) as graph:
        assert vectors(graph) == {}
        assert graph.load(**job).embedded == 0
        assert vectors(graph) == {"a": pytest.approx(of("x"))}
        assert kept_files(graph) == []


def test_a_mutation_that_dies_after_it_embedded_has_written_nothing(
    tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    made = notes_graph(tmp_path)
    text = 'query q() { insert Note { slug: "a", body: "x" } }'
    job = {"action": "mutate", "root": made.uri, "text": text}
    children.kill_at(F.BEFORE_SIDECAR, job, OMNIGRAPH_EMBEDDINGS_MOCK="1")
    with Graph.open(made.uri) as graph:
        assert vectors(graph) == {}
        assert graph.mutate(text).embedded == 1
        assert vectors(graph) == {"a": pytest.approx(of("x"))}


# ---- A cleanup dies by SIGKILL anywhere: what it promised is readable, the rest is whole or gone, and a rerun finishes


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
        table = graph._core.open_table(graph.snapshot().pins[PERSON])
        stage_append(table, table.read())
    return root


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the datasets after a cleanup that nothing disturbed."""
    root = copy(world, tmp_path_factory.mktemp("finished") / "g.omni")
    with Graph.open(root) as graph:
        graph.cleanup(keep=3, commits=True, confirm=True)
    return data_files(root)


def data_files(root: Path) -> set[str]:
    return {name for name in files(root) if name.startswith(("nodes/", "edges/"))}


CLEANUPS = [
    F.CLEANUP_PLANNED,
    F.BEFORE_FORK_REMOVAL,
    f"{F.BEFORE_VERSION_REMOVAL}@2",
    f"{F.BEFORE_VERSION_REMOVAL}@3",
    F.AFTER_VERSION_REMOVAL,
    F.BEFORE_COMMITS_FORGOTTEN,
    F.BEFORE_CATALOG_COMMIT,
    F.BEFORE_CATALOG_CLEANUP,
]


@pytest.mark.parametrize("place", CLEANUPS)
def test_a_killed_cleanup_keeps_its_promise_and_the_next_one_finishes(
    place: str, world: Path, finished: set[str], children: Children, tmp_path: Path
):
    root = copy(world, tmp_path / "g.omni")
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
        known = graph._core.environment.manifest.commits()
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
    assert {str(place).partition("@")[0] for place in CLEANUPS} >= {
        *(F.CLEANUP_PLANNED, F.BEFORE_VERSION_REMOVAL, F.AFTER_VERSION_REMOVAL),
        *(F.BEFORE_COMMITS_FORGOTTEN, F.BEFORE_CATALOG_CLEANUP),
    }
