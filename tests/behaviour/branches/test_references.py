"""Names of points in time that begin at a branch or a commit, wherever a commit is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.references import read_reference
from omnigraph.core.values import render_datetime
from omnigraph.errors import AmbiguousCommitError, BadRequestError, CommitNotFoundError, NotFoundError, OmniError
from omnigraph.policy.policy import Policy

NAMES = "match { $p: Person } return { $p.name as name } order { name }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Three commits on main, the last one a merge; the clock goes on by a day with every look at it."""
    graph = Graph.init(tmp_path / "people.omni", "node Person { name: String @key }")
    day_us = 86_400_000_000
    days = iter(range(30_000 * day_us, 40_000 * day_us, day_us))
    object.__setattr__(graph._core.environment, "clock", lambda: next(days))
    add(graph, "ann")
    graph.create_branch("draft/one")
    add(graph, "bob", "draft/one")
    add(graph, "cid")
    graph.merge("draft/one")
    return graph


def add(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate("insert Person { name: $name }", {"name": name}, branch=branch)


def names(graph: Graph, reference: str) -> list[str]:
    return [row["name"] for row in graph.query(NAMES, snapshot=reference).to_pylist()]


def test_ways_lead_along_parents(graph: Graph) -> None:
    assert names(graph, "main~0") == ["ann", "bob", "cid"]
    assert names(graph, "main~") == names(graph, "main^") == names(graph, "main~1") == ["ann", "cid"]
    assert names(graph, "main~2") == names(graph, "main~~") == names(graph, "main^1^") == ["ann"]
    assert names(graph, "main~3") == []
    assert names(graph, "main^2") == names(graph, "draft/one~0") == ["ann", "bob"]
    assert names(graph, "main^2~") == ["ann"]
    assert names(graph, " main^0 ") == ["ann", "bob", "cid"]


def test_ways_begin_at_commits_too_also_at_short_ids(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    assert names(graph, f"{head}~1") == names(graph, f"{head[-8:].lower()}~") == ["ann", "cid"]


def test_a_moment_is_that_of_the_newest_commit_before_it(graph: Graph) -> None:
    merge, second, first, _ = graph.commits()
    between = (first.created_at + second.created_at) // 2
    assert names(graph, f"main@{time_of(between)}") == ["ann"]
    assert names(graph, f"main@{time_of(second.created_at)}~1") == ["ann"]
    assert names(graph, f"{merge.commit_id}@{time_of(second.created_at)}") == ["ann", "cid"]
    assert names(graph, "main@2500-01-01") == ["ann", "bob", "cid"]


def time_of(microseconds: int) -> str:
    return render_datetime(microseconds // 1000)


def test_every_place_that_names_a_commit_takes_them(graph: Graph) -> None:
    merged = graph.commits()[0]
    assert graph.commit("main") == graph.commit("main~0") == merged
    assert graph.commit("main^2").branch == "draft/one"
    assert [change.id for change in graph.diff("main~2", "main")] == ["bob", "cid"]
    assert [change.id for change in graph.changes("main~").changes] == ["cid"]
    graph.create_branch("again", "main~1")
    assert graph.snapshot("again").commit_id == graph.commits()[1].commit_id
    assert graph.entity_at("node:Person", "bob", snapshot="main~1") is None
    assert graph.entity_at("node:Person", "bob", snapshot="main^2") is not None
    assert graph.snapshot(snapshot="main~1").commit_id == graph.commits()[1].commit_id


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("main~4", NotFoundError, "`main~4` leads to no commit: .* is the first one of the graph"),
        ("main~1^2", NotFoundError, "merged nothing"),
        ("main^3", BadRequestError, "a commit has one parent, or two where it merged"),
        ("main~x", BadRequestError, "names no commit: after a branch or a commit id write `~N`"),
        ("~1", BadRequestError, "names no commit"),
        ("main@", BadRequestError, "names no commit"),
        ("main~1@2026-01-01", BadRequestError, "names no commit"),
        ("main@yesterday", BadRequestError, "is not a time"),
        ("main@1999-01-01", NotFoundError, "has no commit at or before 1999-01-01"),
        ("nowhere~1", CommitNotFoundError, "there is no commit nowhere~1"),
        ("01ZZZZZZZZZZZZZZZZZZZZZZZZ~1", CommitNotFoundError, "there is no commit"),
    ],
)
def test_a_way_that_leads_nowhere_says_why(graph: Graph, text: str, kind: type[OmniError], said: str) -> None:
    with pytest.raises(kind, match=said):
        graph.query(NAMES, snapshot=text)


def test_an_ambiguous_beginning_stays_ambiguous(graph: Graph) -> None:
    shared = graph.snapshot().commit_id[:4]
    with pytest.raises(AmbiguousCommitError):
        graph.query(NAMES, snapshot=f"{shared}~1")


def test_with_a_policy_ways_begin_at_branches(graph: Graph) -> None:
    guarded = Graph.open(graph.uri, policy=Policy.from_text(EVERYTHING))
    assert names(guarded, "main~1") == ["ann", "cid"]
    with pytest.raises(CommitNotFoundError):
        names(guarded, f"{graph.snapshot().commit_id[-8:]}~1")


EVERYTHING = """
version: 1
groups: { all: [ada] }
rules:
  - id: all
    allow: { actors: { group: all }, actions: [read, change], branch_scope: any }
"""


@pytest.mark.parametrize("text", ["main", "draft/one", "01M7S3MZWC", "", "v1.2"])
def test_plain_names_are_not_ways(text: str) -> None:
    assert read_reference(text) is None
