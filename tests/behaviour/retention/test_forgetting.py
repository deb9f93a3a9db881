"""Commits that leave the history: it begins later, and everything that looked further back says so."""

from __future__ import annotations

import pytest

from omnigraph.errors import ChangeFeedGapError, HistoryReclaimedError, NotFoundError
from omnigraph.graph.graph import Graph
from support.histories import add, people, people_at, set_age


def test_the_history_begins_at_the_oldest_kept_commit(graph: Graph):
    before = graph.commits()
    report = graph.cleanup(keep=4, commits=True, confirm=True)
    assert report.commits_forgotten == 4
    assert graph.commits() == before[:4]
    assert graph.log() == before[:4]
    with Graph.open(graph.uri) as again:
        assert again.commits() == before[:4]
        assert again.commits()[-1].parent_id == before[4].commit_id, "it is still recorded"
        with pytest.raises(NotFoundError):
            people_at(again, before[5].commit_id)
        # The first commit identifies the graph: it is known, and its data is gone.
        assert people_at(again, before[-1].commit_id) is None
        add(again, "next")
    assert len(graph.commits()) == 5


def test_moments_before_the_history_are_told_from_moments_before_the_graph(graph: Graph):
    old = graph.commits()[5]
    graph.cleanup(keep=4, commits=True, confirm=True)
    names = "query q() { match { $p: Person } return { $p.name as n } }"
    with pytest.raises(HistoryReclaimedError) as caught:
        graph.query(names, version=old.graph_version)
    assert caught.value.details() == {
        "history_reclaimed": {"first_known_commit_id": graph.commits()[-1].commit_id}
    }
    with pytest.raises(HistoryReclaimedError):
        graph.query(names, as_of="2001-01-01")


def test_a_feed_from_before_the_history_has_a_gap(graph: Graph):
    old = graph.feed(start=f"after:{graph.commits()[6].commit_id}", max_commits=1).cursor
    young = graph.feed().cursor
    graph.cleanup(keep=4, commits=True, confirm=True)
    add(graph, "next")
    assert [len(block.changes) for block in graph.feed(cursor=young).blocks] == [1]
    first = graph.commits()[-1].commit_id
    for call in ({"cursor": old}, {"start": "beginning"}, {"start": f"after:{'0' * 26}"}):
        with pytest.raises(ChangeFeedGapError) as caught:
            graph.feed(**call)
        assert caught.value.commit_id == first
    with pytest.raises(HistoryReclaimedError):
        graph.changes(first)
    assert len(graph.feed(start=f"after:{first}").blocks) == 4


def test_snapshots_of_branches_that_began_at_forgotten_commits_are_whole(graph: Graph):
    graph.create_branch("dev", base=graph.commits()[6].commit_id)
    set_age(graph, "p0", 7, "dev")
    graph.merge("dev")
    for number in range(5):
        add(graph, f"d{number}", "dev")
        add(graph, f"m{number}")
    states = {c.commit_id: people_at(graph, c.commit_id) for c in graph.commits("dev")[:3]}
    graph.cleanup(keep=3, commits=True, confirm=True)
    with Graph.open(graph.uri) as again:
        assert {c: people_at(again, c) for c in states} == states
        assert again.merge("dev").outcome == "merged"
        assert people(again)["d4"] == 1
        assert people(again)["p0"] == 7


def test_forgetting_again_does_nothing(graph: Graph):
    graph.cleanup(keep=3, commits=True, confirm=True)
    report = graph.cleanup(keep=3, commits=True, confirm=True)
    assert (report.commits_forgotten, report.bytes_removed) == (0, 0)
