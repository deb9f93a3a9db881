"""Merges do not depend on how rows are stored: indexed, compacted, spread over many files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.merge import MergeJob
from omnigraph.errors import (
    BranchNotFoundError,
    RecoveryRequiredError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.graph import Graph
from support.branched_people import (
    IN_MEMORY_AND_FILES,
    PERSON,
    add_person,
    ages,
    compact,
    put,
    remove_person,
    set_age,
)
from support.graphs import everything, new_graph
from support.search_graphs import SCHEMA as DOCUMENTS
from support.search_graphs import ZERO, cites, doc, set_body, write

pytestmark = IN_MEMORY_AND_FILES

# ---- compaction


def spread(graph: Graph, branch: str) -> None:
    """Rows in several files, some of them deleted: something to compact."""
    for number in range(3):
        add_person(graph, branch, f"{branch} {number}")
    remove_person(graph, branch, f"{branch} 1")


COMPACTED = {
    "the target": ("main",),
    "the source": ("feature",),
    "both": ("feature", "main"),
    "neither": (),
}


@pytest.mark.parametrize("compacted", COMPACTED.values(), ids=COMPACTED)
@pytest.mark.parametrize("is_before", [True, False], ids=["before changes", "after changes"])
def test_a_merge_does_not_see_compactions(
    people: Graph, compacted: tuple[str, ...], is_before: bool
) -> None:
    spread(people, "main")
    people.create_branch("feature")
    for branch in ("feature", "main"):
        if branch in compacted and is_before:
            if branch == "feature":
                add_person(people, branch, "own file")
            compact(people, branch, PERSON)
    spread(people, "feature")
    set_age(people, "feature", "Alice", 31)
    remove_person(people, "feature", "main 0")
    set_age(people, "main", "Carol", 41)
    add_person(people, "main", "later")
    for branch in compacted:
        if not is_before:
            compact(people, branch, PERSON)
    before = dict(ages(people))
    result = people.merge("feature")
    expected = {**before, "Alice": 31, "feature 0": 1, "feature 2": 1}
    if "feature" in compacted and is_before:
        expected["own file"] = 1
    del expected["main 0"]
    assert ages(people) == expected
    (changes,) = [item for item in result.changes if item.type_key == PERSON]
    assert (changes.inserted, changes.updated, changes.deleted) == (
        len(expected.keys() - before.keys()),
        1,
        1,
    )
    assert people.merge("feature").outcome == "already_up_to_date"


@pytest.mark.parametrize("branch", ["feature", "main"])
def test_a_compaction_alone_changes_no_row_of_the_other_branch(people: Graph, branch: str) -> None:
    spread(people, "main")
    people.create_branch("feature")
    if branch == "feature":
        add_person(people, "feature", "Eve")
        remove_person(people, "feature", "Eve")
    compact(people, branch, PERSON)
    other = "main" if branch == "feature" else "feature"
    before = everything(people, other), people.snapshot(other).pins
    result = people.merge(branch, other)
    assert (result.outcome, result.changes) == ("fast_forward", ())
    assert (everything(people, other), people.snapshot(other).pins) == before


def test_round_trips_with_compactions_in_between(people: Graph) -> None:
    people.create_branch("feature")
    for number in range(4):
        add_person(people, "feature", f"f{number}")
        set_age(people, "main", "Alice", 100 + number)
        people.merge("feature")
        compact(people, "main", PERSON)
        people.merge("main", "feature")
        add_person(people, "feature", f"g{number}")
        remove_person(people, "feature", f"f{number}")
        compact(people, "feature", PERSON)
        assert ages(people, "feature")["Alice"] == 100 + number
    people.merge("feature")
    assert ages(people) == {
        "Alice": 103,
        "Bob": 25,
        "Carol": 40,
        "Dan": 50,
        **{f"g{number}": 1 for number in range(4)},
    }


def test_a_child_of_a_compacted_target_keeps_its_rows(people: Graph) -> None:
    people.create_branch("target")
    spread(people, "target")
    people.create_branch("child", "target")
    before = everything(people, "child")
    compact(people, "target", PERSON)
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    people.merge("feature", "target")
    assert everything(people, "child") == before
    set_age(people, "child", "Alice", 31)
    people.merge("child", "target")
    assert ages(people, "target")["Alice"] == 31
    assert "Eve" in ages(people, "target")


# ---- indexes

QUERIES = {
    "scan": "match { $d: Doc } return { $d.slug as d, $d.body as b, $d.year as y } order { $d.slug }",
    "key": 'match { $d: Doc { slug: "b" } } return { $d.body as b, $d.year as y }',
    "filter": "match { $d: Doc  $d.year >= 2 } return { $d.slug as d } order { $d.slug }",
    "search": 'match { $d: Doc  search($d.body, "red") } return { $d.slug as d } order { $d.slug }',
    "gone": 'match { $d: Doc  search($d.body, "fox") } return { $d.slug as d } order { $d.slug }',
    "new": 'match { $d: Doc  search($d.body, "owl") } return { $d.slug as d } order { $d.slug }',
    "nearest": (
        f"match {{ $d: Doc }} return {{ $d.slug as d }} order {{ nearest($d.vec, {ZERO}) }} limit 3"
    ),
    "traversal": (
        "match { $d: Doc  $d cites $e } return { $d.slug as d, $e.slug as e }"
        " order { $d.slug, $e.slug }"
    ),
}


def answers(graph: Graph, branch: str = "main") -> dict[str, Any]:
    return {
        name: graph.query(f"query q() {{ {text} }}", branch=branch).to_pylist()
        for name, text in QUERIES.items()
    }


def at(distance: float) -> list[float]:
    return [distance, 0.0, 0.0, 0.0]


SEED = (
    doc("a", "red fox", year=1, vec=at(4)),
    doc("b", "red hen", year=2, vec=at(3)),
    doc("c", "blue cat", year=3, vec=at(2)),
    doc("d", "green dog", year=4, vec=at(1)),
    cites("a", "b"),
    cites("c", "d"),
)
EXPECTED = {
    "scan": [
        {"d": "a", "b": "grey wolf", "y": 1},
        {"d": "b", "b": "red hen", "y": 9},
        {"d": "c", "b": "red cat", "y": 3},
        {"d": "e", "b": "red owl", "y": 2},
        {"d": "f", "b": "old owl", "y": 7},
    ],
    "key": [{"b": "red hen", "y": 9}],
    "filter": [{"d": name} for name in "bcef"],
    "search": [{"d": name} for name in "bce"],
    "gone": [],
    "new": [{"d": name} for name in "ef"],
    "nearest": [{"d": name} for name in "fec"],
    "traversal": [{"d": "a", "e": "b"}, {"d": "e", "e": "a"}],
}


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path, DOCUMENTS) as graph:
        write(graph, *SEED)
        yield graph


@pytest.mark.parametrize("into", ["main", "target"])
@pytest.mark.parametrize(
    "indexed",
    [(), ("base",), ("source",), ("target",), ("base", "source", "target")],
    ids=lambda states: " and ".join(states) or "nothing",
)
def test_reads_after_a_merge_do_not_depend_on_indexes(
    documents: Graph, indexed: tuple[str, ...], into: str
) -> None:
    graph = documents
    if "base" in indexed:
        assert graph.ensure_indices().commit is not None
    graph.create_branch("source")
    graph.create_branch("target")
    write(graph, doc("e", "red owl", year=2, vec=at(0.5)), cites("e", "a"), branch="source")
    set_body(graph, "a", "grey wolf", branch="source")
    write(graph, 'delete Doc where slug = "d"', branch="source")
    set_body(graph, "c", "red cat", branch=into)
    write(graph, 'update Doc set { year: 9 } where slug = "b"', branch=into)
    if "source" in indexed:
        assert graph.ensure_indices("source").commit is not None
    if "target" in indexed:
        assert graph.ensure_indices(into).commit is not None
    # Behind the last index: rows that no index knows.
    write(graph, doc("f", "old owl", year=7, vec=at(0.1)), branch="source")
    assert graph.merge("source", into).outcome == "merged"
    assert answers(graph, into) == EXPECTED
    assert graph.ensure_indices(into).commit is not None
    assert answers(graph, into) == EXPECTED
    if into == "target":
        assert graph.merge("target").outcome == "fast_forward"
        assert answers(graph) == EXPECTED
        graph.delete_branch("target")
        graph.delete_branch("source")
        assert answers(graph) == EXPECTED


def test_building_indexes_is_no_change_to_merge(documents: Graph) -> None:
    documents.create_branch("source")
    assert documents.ensure_indices("source").commit is not None
    before = everything(documents), documents.snapshot().pins
    result = documents.merge("source")
    assert (result.outcome, result.changes) == ("fast_forward", ())
    assert (everything(documents), documents.snapshot().pins) == before


def test_no_index_is_built_during_a_merge(documents: Graph) -> None:
    documents.ensure_indices()
    documents.create_branch("source")
    write(documents, doc("e", "red owl", vec=at(0.5)), branch="source")
    documents.ensure_indices("source")
    documents.merge("source")
    assert [item.type_key for item in documents.pending_indexes() if "does not" in item.reason]


def test_an_index_of_the_target_survives_many_merges(documents: Graph) -> None:
    documents.ensure_indices()
    for number in range(4):
        documents.create_branch("source")
        slug = f"n{number}"
        write(documents, doc(slug, "red ant", year=number, vec=at(9)), branch="source")
        set_body(documents, "a", f"word{number} fox", branch="source")
        documents.ensure_indices("source")
        documents.merge("source", delete_branch=True)
        if number % 2:
            documents.ensure_indices()
        found = answers(documents)
        ants = [{"d": f"n{n}"} for n in range(number + 1)]
        assert found["search"] == [{"d": "b"}, *ants]
        assert found["gone"] == [{"d": "a"}]
        assert found["key"] == [{"b": "red hen", "y": 2}]


# ---- many files


def test_rows_from_many_files_are_merged(people: Graph) -> None:
    for number in range(12):
        add_person(people, "main", f"m{number}", number)
    people.create_branch("feature")
    for number in range(0, 12, 2):
        set_age(people, "feature", f"m{number}", 100 + number)
    for number in range(1, 12, 4):
        remove_person(people, "feature", f"m{number}")
    put(people, "main", *({"type": "Person", "data": {"name": f"m{n}", "age": 50}} for n in (3, 7)))
    people.merge("feature")
    expected = {f"m{n}": 100 + n for n in range(0, 12, 2)} | {"m3": 50, "m7": 50, "m11": 11}
    assert {n: age for n, age in ages(people).items() if n.startswith("m")} == expected


# ---- forks of merges that fail


def test_a_fork_that_others_published_stays_when_its_branch_is_deleted(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge made the fork and fails, because the target is gone; it is the base of others by then."""
    for name in ("dev", "f", "x"):
        people.create_branch(name)
    for name in ("f", "x", "main"):
        add_person(people, name, f"of {name}")
    check, done = MergeJob.check, []

    def check_and_act(job: MergeJob) -> None:
        check(job)
        if not done:
            done.append(1)
            add_person(people, "dev", "of dev")
            people.merge("dev")
            people.merge("dev", "x")
            people.delete_branch("dev")

    monkeypatch.setattr(MergeJob, "check", check_and_act)
    with pytest.raises(BranchNotFoundError):
        people.merge("f", "dev")
    set_age(people, "x", "of dev", 7)
    add_person(people, "main", "later")
    assert people.merge("x").outcome == "merged"
    assert ages(people)["of dev"] == 7


def test_a_fork_that_an_unsettled_merge_moved_stays_until_it_is_settled(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing it would leave a write that nobody can settle, and stop every later one."""

    def no_room(*_: object) -> None:
        raise StorageError("no space", StorageFailure.CONFIGURATION)

    people.create_branch("dev")
    add_person(people, "main", "Eve")
    with monkeypatch.context() as full:
        full.setattr("omnigraph.commit.attempt.Attempt._confirm", no_room)
        full.setattr("omnigraph.commit.sweep.stage_restore", no_room)
        with pytest.raises(RecoveryRequiredError):
            people.merge("main", "dev")
    add_person(people, "main", "Fay")
    assert people.pending_recoveries() == []
    assert "Eve" not in ages(people, "dev")
    people.merge("main", "dev")
    assert ages(people, "dev") == ages(people)
