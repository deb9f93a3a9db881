"""Branches under cleanup: what they inherit, what they merge, what deleted ones leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.errors import HistoricalVersionReclaimedError, NotFoundError
from omnigraph.graph.graph import Graph
from support.graphs import fork
from support.histories import (
    PERSON,
    add,
    files,
    lines,
    people,
    people_at,
    readable,
    remove,
    set_age,
    unused_files,
)


def clean(graph: Graph, **more) -> None:
    report = graph.cleanup(keep=3, confirm=True, **more)
    assert report.errors == ()
    assert unused_files(graph.uri) == set()


def test_a_branch_keeps_the_versions_that_it_inherited(graph: Graph):
    graph.create_branch("dev", base=graph.commits()[5].commit_id)
    before = people(graph, "dev")
    clean(graph)
    assert people(graph, "dev") == before == {"p0": 1, "p1": 1, "p2": 1}
    add(graph, "new", "dev")
    assert people(graph, "dev") == {**before, "new": 1}


@pytest.mark.parametrize("forget", [False, True])
def test_branches_that_parted_long_ago_still_merge(graph: Graph, forget: bool):
    graph.create_branch("dev", base=graph.commits()[6].commit_id)
    for number in range(5):
        add(graph, f"d{number}", "dev")
        set_age(graph, "p0", 10 + number, "dev")
    clean(graph, commits=forget)
    assert readable(graph, "dev")[:3] == [True] * 3
    result = graph.merge("dev")
    assert result.outcome == "merged"
    assert people(graph) == {
        **{f"p{n}": 1 for n in range(8)},
        **{f"d{n}": 1 for n in range(5)},
        "p0": 14,
    }


def test_after_a_merge_branches_merge_again_from_the_last_one(graph: Graph):
    graph.create_branch("dev")
    set_age(graph, "p1", 50, "dev")
    graph.merge("dev")
    for number in range(5):
        add(graph, f"m{number}")
        set_age(graph, "p2", number, "dev")
    clean(graph, commits=True)
    remove(graph, "p1", "dev")
    graph.merge("dev")
    assert "p1" not in people(graph)
    assert people(graph)["p2"] == 4


def test_the_forks_of_a_deleted_branch_go_with_everything_that_only_they_held(graph: Graph):
    graph.create_branch("dev")
    before = lines(graph.uri)
    add(graph, "only here", "dev")
    fork = graph.snapshot("dev").pins[PERSON]
    head = graph.snapshot("dev").commit_id
    graph.delete_branch("dev")
    clean(graph)
    assert (fork.location, fork.branch) not in lines(graph.uri)
    assert lines(graph.uri).keys() == before.keys()
    with pytest.raises(NotFoundError):
        people_at(graph, head)


def test_an_unpublished_fork_is_an_orphan(graph: Graph):
    graph.create_branch("dev")
    snapshot = graph.snapshot("dev")
    fork(graph, "dev", PERSON)
    assert (snapshot.pins[PERSON].location, "dev") in lines(graph.uri)
    preview = graph.cleanup(keep=3)
    assert [item.forks_removed for item in preview.datasets if item.type_key == PERSON] == [1]
    before = sum(files(graph.uri).values())
    done = graph.cleanup(keep=3, confirm=True)
    assert done.bytes_removed == preview.bytes_removed == before - sum(files(graph.uri).values())
    assert (snapshot.pins[PERSON].location, "dev") not in lines(graph.uri)
    add(graph, "later", "dev")
    assert "later" in people(graph, "dev")


def test_beside_a_writer_only_forks_go_that_nobody_wrote_to_for_long(graph: Graph):
    graph.create_branch("dev")
    snapshot = graph.snapshot("dev")
    pin = snapshot.pins[PERSON]
    fork(graph, "dev", PERSON)
    with graph._environment.staging.shared():
        graph.cleanup(keep=3, confirm=True)
        assert (pin.location, "dev") in lines(graph.uri)
        for path in (Path(graph.uri) / pin.location / "tree" / "dev").rglob("*"):
            os.utime(path, (1, 1))
        graph.cleanup(keep=3, confirm=True)
        assert (pin.location, "dev") not in lines(graph.uri)


def test_old_versions_of_a_fork_go_too(graph: Graph):
    graph.create_branch("dev")
    for number in range(6):
        add(graph, f"d{number}", "dev")
    pin = graph.snapshot("dev").pins[PERSON]
    clean(graph)
    assert lines(graph.uri)[pin.location, "dev"] == {pin.version - n for n in range(3)}
    graph.create_branch("dev2", base="dev")
    add(graph, "deep", "dev2")
    for number in range(4):
        add(graph, f"e{number}", "dev")
    clean(graph)
    assert "deep" in people(graph, "dev2")
    assert pin.version in lines(graph.uri)[pin.location, "dev"], "a fork of the fork begins there"


def test_a_branch_cannot_begin_at_a_state_that_is_gone(graph: Graph):
    old = graph.commits()[6].commit_id
    assert people_at(graph, old) == {"p0": 1, "p1": 1}, "and a handle of it is kept"
    with Graph.open(graph.uri) as other:
        clean(other)
    with pytest.raises(HistoricalVersionReclaimedError):
        graph.create_branch("late", base=old)
    assert graph.branches() == ["main"]
