"""Reads of any state of the past, over branches and merges; and what is said when it is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.rows import GraphCommit, TablePin
from omnigraph.core.ids import new_ulid
from omnigraph.errors import BadRequestError, BranchNotFoundError, HistoricalVersionReclaimedError, NotFoundError
from omnigraph.graph.graph import Graph
from support.branched_people import KNOWS, PERSON, add_person, ages, ends, knows, put, remove_person, set_age
from support.graphs import run

SCAN = "query q() { match { $p: Person } return { $p.name as n, $p.age as a } order { n } }"
FILTER = "query q() { match { $p: Person  $p.age > 35 } return { $p.name as n } order { n } }"
TRAVERSAL = "query q() { match { $p: Person  $p knows $q } return { $p.name as p, $q.name as q } order { p, q } }"
ANTI_JOIN = "query q() { match { $p: Person  not { $p knows $_ } } return { $p.name as n } order { n } }"


def answers(graph: Graph, **target: Any) -> list[Any]:
    texts = (SCAN, FILTER, TRAVERSAL, ANTI_JOIN)
    return [graph.query(text, **target).to_pylist() for text in texts]


def moment(commit: GraphCommit) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=commit.created_at)


@pytest.fixture
def graph(people: Graph) -> Graph:
    """A clock that goes on by a second with every look at it."""
    ticks = iter(range(2_000_000_000_000_000, 3_000_000_000_000_000, 1_000_000))
    object.__setattr__(people._core.environment, "clock", lambda: next(ticks))
    return people


Then = dict[tuple[str, str], list[Any]]


def tell_story(graph: Graph) -> Then:
    """Work on two branches that meet twice; what each head answered, by branch and commit."""
    then: Then = {("main", graph.snapshot().commit_id): answers(graph)}

    def note(branch: str) -> None:
        then[branch, graph.snapshot(branch).commit_id] = answers(graph, branch=branch)

    graph.create_branch("feature")
    for branch, act in (
        ("feature", lambda: add_person(graph, "feature", "Eve", 60)),
        ("main", lambda: run(graph, 'insert Knows { from: "Alice", to: "Dan" }')),
        ("feature", lambda: run(graph, 'insert Knows { from: "Eve", to: "Bob" }', "feature")),
        ("main", lambda: graph.merge("feature")),
        ("main", lambda: remove_person(graph, "main", "Dan")),
        ("feature", lambda: set_age(graph, "feature", "Bob", 26)),
        ("feature", lambda: graph.merge("main", "feature")),
        ("feature", lambda: remove_person(graph, "feature", "Eve")),
        ("main", lambda: graph.merge("feature")),
    ):
        act()
        note(branch)
    return then


def test_every_commit_answers_as_it_did_when_it_was_the_head(graph: Graph) -> None:
    then = tell_story(graph)
    assert len({str(answer) for answer in then.values()}) >= 8, "the steps change answers"
    for (branch, commit_id), expected in then.items():
        commit = graph.commit(commit_id)
        assert answers(graph, snapshot=commit_id) == expected
        assert answers(graph, branch=branch, version=commit.graph_version) == expected
        assert answers(graph, branch=branch, as_of=moment(commit)) == expected
    with Graph.open(graph.uri, read_only=True) as again:
        for (_, commit_id), expected in reversed(then.items()):
            assert answers(again, snapshot=commit_id) == expected


def test_a_snapshot_stays_while_branches_are_merged_and_deleted(graph: Graph) -> None:
    old = graph.snapshot().commit_id
    expected = answers(graph)
    tell_story(graph)
    graph.delete_branch("feature")
    assert answers(graph, snapshot=old) == expected


# ---- what is not there


def test_a_target_that_is_not_there_is_refused_for_queries_and_entities(graph: Graph) -> None:
    graph.create_branch("feature")
    add_person(graph, "feature", "Eve")
    head, last = graph.snapshot().commit_id, graph.snapshot("feature").graph_version
    first = {branch: graph.snapshot(branch).incarnation for branch in ("main", "feature")}
    missing = [{"snapshot": name} for name in (new_ulid(), "nope", head[1:-1], "")]
    for branch in first:
        versions = (-1, 0, first[branch] - 1, last + 1, last + 1000)
        missing += [{"branch": branch, "version": version} for version in versions]
    wrong = [{"as_of": text} for text in ("", "yesterday", "2020-13-01", "12:00")]
    two = {"snapshot": head, "version": 1, "as_of": "2020-01-01", "branch": "feature"}
    pairs = (("snapshot", "version"), ("snapshot", "as_of"), ("version", "as_of"), ("snapshot", "branch"))
    wrong += [{name: two[name] for name in pair} for pair in pairs]
    missing.append({"as_of": "1999-12-31T23:59:59Z"})
    for error, targets in ((NotFoundError, missing), (BadRequestError, wrong)):
        for target in targets:
            with pytest.raises(error):
                graph.query(SCAN, **target)
            with pytest.raises(error):
                graph.entity_at(PERSON, "Alice", **target)
    assert graph.query(SCAN, as_of="2999-01-01").commit_id == head
    for branch, version in first.items():
        assert graph.query(SCAN, branch=branch, version=last)
        assert graph.query(SCAN, branch=branch, version=version) is not None


# ---- one entity


def test_an_entity_at_every_target(graph: Graph) -> None:
    first = graph.commits()[0]
    set_age(graph, "main", "Alice", 31)
    second = graph.commits()[0]
    graph.create_branch("feature")
    set_age(graph, "feature", "Alice", 32)
    third = graph.commits("feature")[0]
    remove_person(graph, "feature", "Alice")
    for target, age in (
        ({}, 31),
        ({"branch": "main"}, 31),
        ({"snapshot": first.commit_id}, 30),
        ({"snapshot": third.commit_id}, 32),
        ({"version": first.graph_version}, 30),
        ({"version": second.graph_version}, 31),
        ({"branch": "feature", "version": third.graph_version}, 32),
        ({"as_of": moment(first)}, 30),
        ({"as_of": moment(third)}, 31),
        ({"branch": "feature", "as_of": moment(third).isoformat()}, 32),
        ({"branch": "feature", "as_of": moment(second)}, 31),
        ({"branch": "feature"}, None),
    ):
        image = graph.entity_at(PERSON, "Alice", **target)
        if age is None:
            assert image is None
        else:
            properties = {"name": "Alice", "age": age, "note": None}
            assert image == {"id": "Alice", "properties": properties}, target


def test_an_edge_is_shown_with_its_ends(graph: Graph) -> None:
    put(graph, "main", knows("e", "Alice", "Bob", 1))
    old = graph.snapshot().commit_id
    put(graph, "main", knows("e", "Alice", "Dan", 2))
    for target, end, since in (({"snapshot": old}, "Bob", 1), ({}, "Dan", 2)):
        assert graph.entity_at(KNOWS, "e", **target) == {
            "id": "e",
            "properties": {"since": since},
            "endpoints": {"from": "Alice", "to": end},
        }
    assert ("Alice", "Dan") in ends(graph)


def test_an_entity_that_was_not_there_yet_is_none(graph: Graph) -> None:
    old = graph.snapshot().commit_id
    add_person(graph, "main", "Eve")
    assert graph.entity_at(PERSON, "Eve") is not None
    assert graph.entity_at(PERSON, "Eve", snapshot=old) is None
    for name in ("", "eve", "Eve' OR '1'='1"):
        assert graph.entity_at(PERSON, name) is None


def test_an_unknown_type_or_branch_is_not_found(graph: Graph) -> None:
    for key in ("node:Nope", "edge:Person", "Nope", ""):
        with pytest.raises(NotFoundError):
            graph.entity_at(key, "Alice")
    with pytest.raises(BranchNotFoundError):
        graph.entity_at(PERSON, "Alice", branch="nope")


# ---- versions that were cleaned up


def reclaim(graph: Graph, pin: TablePin) -> None:
    """What a cleanup does to one version: its manifest goes. Lance counts the names of these files backwards."""
    folder = Path(graph.uri) / pin.location
    if pin.branch is not None:
        folder = folder / "tree" / pin.branch
    (folder / "_versions" / f"{2**64 - 1 - pin.version}.manifest").unlink()


def reads(graph: Graph, commit_id: str) -> list[Any]:
    return [
        lambda: graph.query(SCAN, snapshot=commit_id),
        lambda: graph.entity_at(PERSON, "Alice", snapshot=commit_id),
        lambda: graph.diff(commit_id, "main"),
        lambda: graph.diff("main", commit_id),
        lambda: graph.changes(commit_id),
    ]


@pytest.mark.parametrize("branch", ["main", "feature"])
def test_a_version_that_was_cleaned_up_is_told_from_one_that_never_was(graph: Graph, branch: str) -> None:
    graph.create_branch("feature")
    commits = []
    for age in (31, 32, 33):
        set_age(graph, branch, "Alice", age)
        commits.append(graph.snapshot(branch))
    gone = commits[1]
    reclaim(graph, gone.pins[PERSON])
    # Another handle: this one still has the table open.
    with Graph.open(graph.uri) as other:
        for read in reads(other, gone.commit_id):
            with pytest.raises(HistoricalVersionReclaimedError) as caught:
                read()
            error = caught.value
            assert not isinstance(error, NotFoundError)
            assert (error.table_key, error.version) == (PERSON, gone.pins[PERSON].version)
            assert error.details() == {"version_reclaimed": {"table_key": PERSON, "version": error.version}}
        for read in reads(other, new_ulid()):
            with pytest.raises(NotFoundError):
                read()


def test_other_types_and_commits_stay_readable_after_a_cleanup(graph: Graph) -> None:
    old = graph.snapshot()
    set_age(graph, "main", "Alice", 31)
    middle = graph.snapshot()
    set_age(graph, "main", "Alice", 32)
    reclaim(graph, middle.pins[PERSON])
    with Graph.open(graph.uri) as other:
        assert other.commit(middle.commit_id).commit_id == middle.commit_id
        (edge,) = graph.diff(other.commits()[-1].commit_id, "main", types=["Knows"]).changes
        assert other.entity_at(KNOWS, edge.id, snapshot=middle.commit_id) is not None
        for target, age in (({"snapshot": old.commit_id}, 30), ({}, 32)):
            image = other.entity_at(PERSON, "Alice", **target)
            assert image is not None
            assert image["properties"]["age"] == age
        set_age(other, "main", "Alice", 33)
        assert ages(other)["Alice"] == 33


def test_a_merge_whose_base_was_cleaned_up_says_so_and_does_nothing(graph: Graph) -> None:
    base = graph.snapshot()
    graph.create_branch("feature")
    set_age(graph, "feature", "Alice", 31)
    set_age(graph, "main", "Bob", 26)
    reclaim(graph, base.pins[PERSON])
    with Graph.open(graph.uri) as other:
        before = ages(other), other.commits()
        with pytest.raises(HistoricalVersionReclaimedError, match="last agreed") as caught:
            other.merge("feature")
        assert base.commit_id in caught.value.message
        assert (ages(other), other.commits()) == before
        assert other.pending_recoveries() == []
        set_age(other, "main", "Carol", 41)
