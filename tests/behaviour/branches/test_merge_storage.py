"""Merges do not depend on how rows are stored: indexed, compacted, spread over many files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.merge import MergeJob
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictKind,
    HistoricalVersionReclaimedError,
    RecoveryRequiredError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.cleanup import reclaim_forks
from omnigraph.storage.datasets.versions import list_forks
from support.branched_people import (
    IN_MEMORY_AND_FILES,
    PERSON,
    add_person,
    ages,
    conflicts_of,
    ends,
    named,
    put,
    remove_person,
    set_age,
)
from support.change_feeds import compact
from support.graphs import everything, new_graph, run
from support.search_graphs import SCHEMA as DOCUMENTS
from support.search_graphs import ZERO, cites, doc, set_body, write

pytestmark = IN_MEMORY_AND_FILES

# ---- compaction


def spread(graph: Graph, branch: str) -> None:
    """Rows in several files, some of them deleted: something to compact."""
    for number in range(3):
        add_person(graph, branch, f"{branch} {number}")
    remove_person(graph, branch, f"{branch} 1")


COMPACTED = {"the target": ("main",), "the source": ("feature",), "both": ("feature", "main"), "neither": ()}


@pytest.mark.parametrize("compacted", COMPACTED.values(), ids=COMPACTED)
@pytest.mark.parametrize("is_before", [True, False], ids=["before changes", "after changes"])
def test_a_merge_does_not_see_compactions(people: Graph, compacted: tuple[str, ...], is_before: bool) -> None:
    spread(people, "main")
    people.create_branch("feature")
    for branch in ("feature", "main"):
        if branch in compacted and is_before:
            if branch == "feature":
                add_person(people, branch, "own file")
            compact(people, branch)
    spread(people, "feature")
    set_age(people, "feature", "Alice", 31)
    remove_person(people, "feature", "main 0")
    set_age(people, "main", "Carol", 41)
    add_person(people, "main", "later")
    for branch in compacted:
        if not is_before:
            compact(people, branch)
    before = dict(ages(people))
    result = people.merge("feature")
    expected = {**before, "Alice": 31, "feature 0": 1, "feature 2": 1}
    if "feature" in compacted and is_before:
        expected["own file"] = 1
    del expected["main 0"]
    assert ages(people) == expected
    (changes,) = [item for item in result.changes if item.type_key == PERSON]
    assert (changes.inserted, changes.updated, changes.deleted) == (len(expected.keys() - before.keys()), 1, 1)
    assert people.merge("feature").outcome == "already_up_to_date"


@pytest.mark.parametrize("branch", ["feature", "main"])
def test_a_compaction_alone_changes_no_row_of_the_other_branch(people: Graph, branch: str) -> None:
    spread(people, "main")
    people.create_branch("feature")
    if branch == "feature":
        add_person(people, "feature", "Eve")
        remove_person(people, "feature", "Eve")
    compact(people, branch)
    other = "main" if branch == "feature" else "feature"
    before = everything(people, other), people.snapshot(other).pins
    result = people.merge(branch, other)
    assert (result.outcome, result.changes) == ("fast_forward", ())
    assert (everything(people, other), people.snapshot(other).pins) == before


def test_round_trips_with_compactions_in_between(people: Graph) -> None:
    people.create_branch("feature")
    for number in range(2):
        add_person(people, "feature", f"f{number}")
        set_age(people, "main", "Alice", 100 + number)
        people.merge("feature")
        compact(people, "main")
        people.merge("main", "feature")
        add_person(people, "feature", f"g{number}")
        remove_person(people, "feature", f"f{number}")
        compact(people, "feature")
        assert ages(people, "feature")["Alice"] == 100 + number
    people.merge("feature")
    assert ages(people) == {"Alice": 101, "Bob": 25, "Carol": 40, "Dan": 50, **{f"g{number}": 1 for number in range(2)}}


def test_a_child_of_a_compacted_target_keeps_its_rows(people: Graph) -> None:
    people.create_branch("target")
    spread(people, "target")
    people.create_branch("child", "target")
    before = everything(people, "child")
    compact(people, "target")
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
    "nearest": (f"match {{ $d: Doc }} return {{ $d.slug as d }} order {{ nearest($d.vec, {ZERO}) }} limit 3"),
    "traversal": ("match { $d: Doc  $d cites $e } return { $d.slug as d, $e.slug as e } order { $d.slug, $e.slug }"),
}


def answers(graph: Graph, branch: str = "main") -> dict[str, Any]:
    return {name: graph.query(f"query q() {{ {text} }}", branch=branch).to_pylist() for name, text in QUERIES.items()}


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
def test_reads_after_a_merge_do_not_depend_on_indexes(documents: Graph, indexed: tuple[str, ...], into: str) -> None:
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
    for number in range(3):
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


# ---- Branches that meet more than once: round trips, third branches, criss-crosses, and bases whose branch is gone


def person(name: str, age: int) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, "age": age}}


def reclaim(graph: Graph) -> list[tuple[str, str]]:
    return list(reclaim_forks(graph._core.environment))


def forks_of_people(graph: Graph) -> list[str]:
    return list_forks(graph._core.environment.location, graph.snapshot().pins[PERSON].location)


# ---- round trips


def test_round_trips_with_changes_on_both_sides(people: Graph) -> None:
    people.create_branch("feature")
    expected = ages(people)
    for number in range(4):
        add_person(people, "feature", f"f{number}", number)
        set_age(people, "main", "Alice", 100 + number)
        add_person(people, "main", f"m{number}", number)
        if number:
            remove_person(people, "feature", f"m{number - 1}")
            expected.pop(f"m{number - 1}")
            set_age(people, "main", f"f{number - 1}", 50 + number)
            expected[f"f{number - 1}"] = 50 + number
        expected |= {f"f{number}": number, f"m{number}": number, "Alice": 100 + number}
        assert people.merge("feature").outcome == "merged"
        assert ages(people) == expected
        assert people.merge("main", "feature").outcome == "fast_forward"
        assert ages(people, "feature") == expected
    assert people.merge("feature").outcome == "fast_forward"
    assert people.merge("main", "feature").outcome == "fast_forward"


def test_a_fast_forward_back_and_forth_ends_when_nothing_is_new(people: Graph) -> None:
    """A fast-forward makes a commit of its own, which the other side has not seen."""
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    assert people.merge("feature").outcome == "fast_forward"
    assert people.merge("feature").outcome == "already_up_to_date"
    back = people.merge("main", "feature")
    assert (back.outcome, back.changes) == ("fast_forward", ())
    assert people.merge("main", "feature").outcome == "already_up_to_date"


def test_a_row_deleted_after_a_merge_stays_deleted(people: Graph) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    people.merge("feature")
    remove_person(people, "main", "Eve")
    add_person(people, "feature", "Fay")
    assert people.merge("feature").outcome == "merged"
    assert "Eve" not in ages(people)
    people.merge("main", "feature")
    assert "Eve" not in ages(people, "feature")


def test_a_decided_conflict_does_not_come_again(people: Graph) -> None:
    people.create_branch("feature")
    set_age(people, "feature", "Alice", 31)
    set_age(people, "main", "Alice", 32)
    people.merge("feature", strategy="ours")
    add_person(people, "feature", "Eve")
    assert people.merge("feature").outcome == "merged"
    assert ages(people)["Alice"] == 32
    set_age(people, "feature", "Alice", 33)
    found = conflicts_of(people, "feature")
    assert named(found) == [(ConflictKind.DIVERGENT_UPDATE, PERSON, "Alice")], "a new disagreement"


# ---- a third branch


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_branch_that_both_sides_merged_is_their_base(people: Graph, is_deleted: bool) -> None:
    """With the older base, rows of `f` that main changed would conflict, and those it deleted would come back."""
    people.create_branch("f")
    put(people, "f", person("from f 1", 1), person("from f 2", 2), person("from f 3", 3))
    set_age(people, "f", "Bob", 26)
    people.create_branch("g")
    add_person(people, "g", "own of g")
    people.merge("f")
    people.merge("f", "g")
    if is_deleted:
        people.delete_branch("f")
        assert "f" in forks_of_people(people), "the base of a later merge stays readable"
    set_age(people, "main", "from f 1", 10)
    remove_person(people, "main", "from f 2")
    set_age(people, "main", "Alice", 31)
    remove_person(people, "main", "Dan")
    set_age(people, "g", "from f 3", 30)
    result = people.merge("g")
    assert result.outcome == "merged"
    assert ages(people) == {"Alice": 31, "Bob": 26, "Carol": 40, "from f 1": 10, "from f 3": 30, "own of g": 1}
    back = people.merge("main", "g")
    assert back.outcome == "fast_forward"
    assert everything(people, "g") == everything(people)
    if is_deleted:
        reclaim(people)
        assert "f" not in forks_of_people(people), "nobody needs it any more"
        add_person(people, "g", "later")
        assert people.merge("g").outcome == "fast_forward"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_only_one_side_took_from_a_third_branch_is_no_common_ground(people: Graph, is_deleted: bool) -> None:
    people.create_branch("f")
    add_person(people, "f", "Eve", 1)
    people.create_branch("g")
    people.merge("f", "g")
    if is_deleted:
        people.delete_branch("f")
    add_person(people, "main", "Eve", 2)
    assert named(conflicts_of(people, "g")) == [(ConflictKind.DIVERGENT_INSERT, PERSON, "Eve")]
    assert people.merge("g", strategy="theirs").outcome == "merged"
    assert ages(people)["Eve"] == 1


def test_real_conflicts_over_rows_of_a_third_branch_are_found(people: Graph) -> None:
    people.create_branch("f")
    put(people, "f", person("x", 1), person("y", 1), person("z", 1))
    people.create_branch("g")
    add_person(people, "g", "own of g")
    people.merge("f")
    people.merge("f", "g")
    people.delete_branch("f")
    set_age(people, "main", "x", 2)
    set_age(people, "g", "x", 3)
    remove_person(people, "main", "y")
    set_age(people, "g", "y", 3)
    found = conflicts_of(people, "g")
    assert named(found) == [(ConflictKind.DELETE_VS_UPDATE, PERSON, "y"), (ConflictKind.DIVERGENT_UPDATE, PERSON, "x")]
    bases = {conflict.entity_id: conflict.base for conflict in found}
    for image in bases.values():
        assert image is not None
        assert image["properties"]["age"] == 1


def test_a_deleted_branch_that_comes_back_is_another_base(people: Graph) -> None:
    people.create_branch("f")
    add_person(people, "f", "first")
    people.create_branch("g")
    add_person(people, "g", "own of g")
    people.merge("f")
    people.merge("f", "g")
    people.delete_branch("f")
    people.create_branch("f")
    add_person(people, "f", "second")
    people.merge("f", "g")
    remove_person(people, "main", "first")
    assert people.merge("g").outcome == "merged"
    assert "first" not in ages(people)
    assert {"second", "own of g"} <= ages(people).keys()


def test_two_deleted_branches_that_both_sides_merged_are_two_bases(people: Graph) -> None:
    for name in ("f1", "f2"):
        people.create_branch(name)
        put(people, name, person(f"{name} a", 1), person(f"{name} b", 1))
    people.create_branch("g")
    for target in ("main", "g"):
        add_person(people, target, f"own of {target}")
        for name in ("f1", "f2"):
            people.merge(name, target)
    for name in ("f1", "f2"):
        people.delete_branch(name)
    assert {"f1", "f2"} <= set(forks_of_people(people))
    for name in ("f1", "f2"):
        remove_person(people, "main", f"{name} a")
        set_age(people, "main", f"{name} b", 2)
    assert people.merge("g").outcome == "merged"
    found = ages(people)
    assert {name: age for name, age in found.items() if name.startswith("f")} == {"f1 b": 2, "f2 b": 2}
    assert {"own of main", "own of g"} <= found.keys()


# ---- criss-crosses


def cross(graph: Graph) -> None:
    """Merge main and g into each other as they were, by way of branches that hold the old heads."""
    graph.create_branch("old-main")
    graph.create_branch("old-g", "g")
    # A branch with a commit of its own, so that its head is not the one of the branch it came from.
    for name in ("old-main", "old-g"):
        run(graph, f'insert Place {{ name: "{name}" }}', name)
    graph.merge("old-g")
    graph.merge("old-main", "g")
    for name in ("old-main", "old-g"):
        graph.delete_branch(name)


def test_a_criss_cross_neither_brings_rows_back_nor_invents_conflicts(people: Graph) -> None:
    people.create_branch("g")
    put(people, "g", person("g1", 1), person("g2", 1), person("g3", 1))
    put(people, "main", person("m1", 1), person("m2", 1), person("m3", 1))
    cross(people)
    assert ages(people) == ages(people, "g")
    remove_person(people, "main", "g1")
    set_age(people, "main", "g2", 2)
    remove_person(people, "main", "m1")
    set_age(people, "main", "m2", 2)
    set_age(people, "g", "m3", 3)
    set_age(people, "g", "g3", 3)
    remove_person(people, "g", "Dan")
    assert people.merge("g").outcome == "merged"
    expected = {"Alice": 30, "Bob": 25, "Carol": 40, "g2": 2, "g3": 3, "m2": 2, "m3": 3}
    assert ages(people) == expected
    assert people.merge("main", "g").outcome == "fast_forward"
    assert ages(people, "g") == expected


def test_criss_crosses_one_behind_the_other(people: Graph) -> None:
    people.create_branch("g")
    expected = ages(people)
    for number in range(2):
        put(people, "g", person(f"g{number}", number), person("Alice", 100 + number))
        put(people, "main", person(f"m{number}", number), person("Bob", 200 + number))
        expected |= {f"g{number}": number, f"m{number}": number}
        expected |= {"Alice": 100 + number, "Bob": 200 + number}
        cross(people)
        assert ages(people) == ages(people, "g") == expected
    remove_person(people, "main", "g0")
    remove_person(people, "g", "m0")
    set_age(people, "main", "g1", 7)
    assert people.merge("g").outcome == "merged"
    del expected["g0"], expected["m0"]
    assert ages(people) == {**expected, "g1": 7}


def test_bases_that_were_decided_differently_leave_a_conflict(people: Graph) -> None:
    """Each side decided the same conflict its own way: neither of the two bases knows better."""
    people.create_branch("g")
    set_age(people, "g", "Alice", 31)
    set_age(people, "main", "Alice", 32)
    people.create_branch("old-main")
    people.create_branch("old-g", "g")
    for name in ("old-main", "old-g"):
        run(people, f'insert Place {{ name: "{name}" }}', name)
    people.merge("old-g", strategy="ours")
    people.merge("old-main", "g", strategy="ours")
    assert (ages(people)["Alice"], ages(people, "g")["Alice"]) == (32, 31)
    assert named(conflicts_of(people, "g")) == [(ConflictKind.DIVERGENT_UPDATE, PERSON, "Alice")]
    people.merge("g", strategy="theirs")
    assert ages(people)["Alice"] == 31


def test_a_conflict_shows_the_row_of_the_base_that_has_it(people: Graph) -> None:
    for name in ("f1", "f2"):
        people.create_branch(name)
        add_person(people, name, f"of {name}", 1)
    people.create_branch("g")
    for target in ("main", "g"):
        add_person(people, target, f"own of {target}")
        for name in ("f1", "f2"):
            people.merge(name, target)
    for name in ("f1", "f2"):
        set_age(people, "main", f"of {name}", 2)
        set_age(people, "g", f"of {name}", 3)
    found = people.merge("g", dry_run=True).conflicts
    shown = [(item.entity_id, item.base and item.base["properties"]) for item in found]
    assert shown == [
        ("of f1", {"name": "of f1", "age": 1, "note": None}),
        ("of f2", {"name": "of f2", "age": 1, "note": None}),
    ]


def test_the_base_of_bases_stays_when_its_branch_is_deleted(people: Graph) -> None:
    """It is the base of no two live branches, but of what two of them become."""
    for name in ("y", "p", "q", "z", "a", "b", "c"):
        people.create_branch(name)
    add_person(people, "y", "of y")
    for name in ("p", "q", "z"):
        add_person(people, name, f"of {name}")
        people.merge("y", name)
    for source, target in (("p", "a"), ("z", "a"), ("q", "c"), ("z", "c"), ("p", "b"), ("q", "b")):
        add_person(people, target, f"of {source}{target}")
        people.merge(source, target)
    for name in ("p", "q", "z", "y"):
        people.delete_branch(name)
    people.merge("c", "a")
    remove_person(people, "a", "of y")
    assert people.merge("b", "a").outcome == "merged"
    assert "of y" not in ages(people, "a")
    assert {"of p", "of q", "of z", "of pb"} <= ages(people, "a").keys()


def test_a_base_that_is_gone_is_told_as_such(people: Graph) -> None:
    """A branch at an old commit may need a base that nobody needed when it was removed."""
    people.create_branch("f")
    add_person(people, "f", "of f")
    people.create_branch("g")
    add_person(people, "g", "of g")
    people.merge("f")
    people.merge("f", "g")
    old = people.snapshot("g").commit_id
    add_person(people, "main", "later")
    people.merge("main", "g")
    people.delete_branch("f")
    people.create_branch("h", old)
    add_person(people, "h", "of h")
    before = everything(people)
    with pytest.raises(HistoricalVersionReclaimedError, match="last agreed"):
        people.merge("h")
    assert everything(people) == before


def test_edges_cross_as_nodes_do(people: Graph) -> None:
    people.create_branch("f")
    run(people, 'insert Knows { from: "Alice", to: "Dan" }', "f")
    run(people, 'insert Knows { from: "Carol", to: "Dan" }', "f")
    people.create_branch("g")
    run(people, 'insert Knows { from: "Dan", to: "Bob" }', "g")
    people.merge("f")
    people.merge("f", "g")
    people.delete_branch("f")
    run(people, 'delete Knows where from = "Alice"')
    run(people, 'delete Knows where from = "Bob"')
    assert people.merge("g").outcome == "merged"
    assert ends(people) == [("Carol", "Dan"), ("Dan", "Bob")]


# ---- several targets


def test_several_merges_into_the_same_branch(people: Graph) -> None:
    people.create_branch("target")
    for number in range(4):
        people.create_branch(f"s{number}")
        add_person(people, f"s{number}", f"p{number}")
        people.ensure_indices(f"s{number}")
    for number in range(4):
        outcome = people.merge(f"s{number}", "target").outcome
        assert outcome == ("merged" if number else "fast_forward")
        people.delete_branch(f"s{number}")
        people.ensure_indices("target")
        assert f"p{number}" in ages(people, "target")
    assert people.merge("target").outcome == "fast_forward"
    assert ages(people).keys() >= {"p0", "p1", "p2", "p3"}


def test_one_branch_is_merged_into_several(people: Graph) -> None:
    for name in ("a", "b", "source"):
        people.create_branch(name)
    add_person(people, "source", "Eve")
    add_person(people, "b", "Fay")
    outcomes = [people.merge("source", name).outcome for name in ("a", "b", "main")]
    assert outcomes == ["fast_forward", "merged", "fast_forward"]
    assert all("Eve" in ages(people, name) for name in ("a", "b", "main"))
    assert people.merge("b").outcome == "merged"
    assert people.merge("a").outcome == "merged", "its fast-forward was a commit"
    assert len(ages(people)) == 6
