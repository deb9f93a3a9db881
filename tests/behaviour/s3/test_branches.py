"""Branches, merges and the change feed behave the same on a disk and on S3."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConflictKind, MergeConflictsError, NotFoundError
from omnigraph.graph.graph import Graph
from support.s3_graphs import ADD_CITING, ADD_PAPER, FORGET, SCHEMA, check_graph


@pytest.fixture
def graph(root: str) -> Graph:
    """A graph with papers a and b, and b cites a; a branch where c cites b and a new title of a."""
    made = Graph.init(root, SCHEMA, actor="me")
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    made.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    made.create_branch("work")
    made.mutate(ADD_CITING, {"doi": "c", "to": "b"}, branch="work")
    made.mutate('query q() { update Paper set { title: "new" } where doi = "a" }', branch="work")
    return made


def ids(graph: Graph, branch: str = "main") -> list[object]:
    found = graph.query(
        "query q() { match { $p: Paper } return { $p.doi as doi } order { doi } }", branch=branch
    )
    return [row["doi"] for row in found.to_pylist()]


def test_a_branch_is_merged_and_deleted(graph: Graph, root: str) -> None:
    graph.mutate(ADD_PAPER, {"doi": "d", "title": "D"})
    assert {change.id for change in graph.diff("main", "work")} >= {"a", "c", "d"}
    result = graph.merge("work", delete_branch=True)
    assert (result.outcome, result.branch_deleted) == ("merged", True)
    assert ids(graph) == ["a", "b", "c", "d"]
    assert graph.branches() == ["main"]
    assert result.commit is not None
    changed = graph.changes(result.commit.commit_id, kinds=["node"])
    assert [(change.op, change.id) for change in changed.changes] == [
        ("update", "a"),
        ("insert", "c"),
    ]
    with pytest.raises(NotFoundError, match="deleted"):
        graph.commit(str(result.commit.merged_parent_id))
    check_graph(root, has_deleted=True)


@pytest.mark.slow  # the same runs on a disk in the default run
def test_a_conflict_leaves_the_target_alone(graph: Graph, root: str) -> None:
    graph.mutate(FORGET, {"doi": "a"})
    before = graph.snapshot()
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("work")
    assert [item.kind for item in caught.value.conflicts] == [ConflictKind.DELETE_VS_UPDATE]
    assert graph.snapshot() == before
    assert graph.merge("work", strategy="ours").outcome == "merged"
    assert ids(graph) == ["b", "c"]
    check_graph(root)


def test_a_feed_goes_on_behind_a_merge(graph: Graph) -> None:
    cursor = graph.feed().cursor
    graph.merge("work")
    page = graph.feed(cursor=cursor)
    assert [len(block.changes) for block in page.blocks] == [3]
    assert page.caught_up


@pytest.mark.slow  # the same runs on a disk in the default run
def test_a_name_is_used_again(graph: Graph, root: str) -> None:
    graph.delete_branch("work")
    graph.create_branch("work")
    assert ids(graph, "work") == ["a", "b"]
    graph.mutate(ADD_PAPER, {"doi": "z", "title": "Z"}, branch="work")
    assert ids(graph, "work") == ["a", "b", "z"]
    assert graph.merge("work").outcome == "fast_forward"
    assert ids(graph) == ["a", "b", "z"]
    check_graph(root, has_deleted=True)
