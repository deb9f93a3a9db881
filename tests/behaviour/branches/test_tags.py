"""Tags: they never move, what they show stays, and nothing else takes their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.commit.tags import MAX_TAG_NAME
from omnigraph.core.failpoints import Failpoint, FailpointError, watched
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    HistoricalVersionReclaimedError,
    NotFoundError,
    PolicyDeniedError,
    TagExistsError,
    TagNotFoundError,
)
from omnigraph.policy.policy import Policy

SCHEMA = "node Person { name: String @key  age: I32? } edge Knows: Person -> Person"
NAMES = "match { $p: Person } return { $p.name as name } order { name }"
KNOWN = "match { $p: Person  $p knows $q } return { $p.name as p, $q.name as q } order { p, q }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Ann knows Bob, and the tag `v1` says so."""
    graph = Graph.init(tmp_path / "people.omni", SCHEMA)
    graph.mutate('insert Person { name: "ann" } insert Person { name: "bob" } insert Knows { from: "ann", to: "bob" }')
    graph.create_tag("v1", actor="ada", message="first release", metadata={"ticket": 1})
    return graph


def add(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate("insert Person { name: $name }", {"name": name}, branch=branch)


def seen(graph: Graph, reference: str) -> list[Any]:
    return [graph.query(text, snapshot=reference).to_pylist() for text in (NAMES, KNOWN)]


def test_a_tag_says_who_named_what_when_and_why(graph: Graph) -> None:
    (tag,) = graph.tags()
    assert (tag.name, tag.commit_id, tag.actor) == ("v1", graph.snapshot().commit_id, "ada")
    assert (tag.message, tag.metadata) == ("first release", {"ticket": 1})
    assert tag.created_at > graph.commits()[0].created_at
    assert "v1" in repr(graph.tags())


def test_tags_are_names_of_commits_for_every_process(graph: Graph) -> None:
    before = seen(graph, "v1")
    add(graph, "cid")
    graph.create_tag("docs/v2", "main")
    graph.create_tag("v0", "v1~1")
    with Graph.open(graph.uri, read_only=True) as other:
        assert [tag.name for tag in other.tags()] == ["docs/v2", "v0", "v1"]
        assert seen(other, "v1") == before
        assert other.query(NAMES, snapshot="docs/v2").row_count == 3
        assert other.query(NAMES, snapshot="v0").row_count == 0
        assert [change.id for change in other.diff("v1", "docs/v2")] == ["cid"]
        assert other.commit("v1").commit_id == other.tags()[2].commit_id
    graph.create_branch("from-tag", "v1")
    assert graph.snapshot("from-tag").commit_id == graph.commit("v1").commit_id


def test_a_tag_never_moves_and_its_name_is_free_once_it_is_deleted(graph: Graph) -> None:
    first = graph.commit("v1").commit_id
    add(graph, "cid")
    with pytest.raises(TagExistsError, match="tags do not move"):
        graph.create_tag("v1")
    with Graph.open(graph.uri) as other:
        assert other.delete_tag("v1").commit_id == first
    assert graph.tags() == []
    with pytest.raises(TagNotFoundError):
        graph.delete_tag("v1")
    with pytest.raises(NotFoundError):
        graph.commit("v1")
    graph.create_tag("v1")
    assert graph.commit("v1").commit_id == graph.snapshot().commit_id != first


def test_what_a_tag_shows_stays_through_optimize_cleanup_and_schema_changes(graph: Graph) -> None:
    before = seen(graph, "v1")
    for number in range(6):
        add(graph, f"p{number}")
    graph.mutate('delete Person where name = "ann"')
    graph.optimize()
    graph.apply_schema("node Human @rename_from(Person) { name: String @key } edge Knows: Human -> Human")
    graph.optimize()
    report = graph.cleanup(keep=3, commits=True, confirm=True)
    assert report.kept_because["tag"] == 1
    assert seen(graph, "v1") == before
    with Graph.open(graph.uri) as other:
        assert seen(other, "v1") == before
        assert other.verify().is_sound
    named = graph.delete_tag("v1").commit_id
    graph.cleanup(keep=3, commits=True, confirm=True)
    with pytest.raises((NotFoundError, HistoricalVersionReclaimedError)):
        seen(graph, named)


def test_nothing_that_a_tag_shows_is_destroyed_by_a_schema_change(graph: Graph) -> None:
    without_edges = "node Person { name: String @key  age: I32? }"
    with pytest.raises(BadRequestError, match="destroys data that the tags v1 show"):
        graph.apply_schema(without_edges, allow_data_loss=True)
    before = seen(graph, "v1")
    graph.apply_schema(without_edges)
    assert seen(graph, "v1") == before


def test_a_tag_of_before_does_not_stop_the_loss_of_what_it_does_not_show(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", "node Person { name: String @key }")
    graph.create_tag("v0")
    graph.apply_schema("node Person { name: String @key } node Place { name: String @key }")
    assert graph.apply_schema("node Person { name: String @key }", allow_data_loss=True).applied
    assert graph.query(NAMES, snapshot="v0").row_count == 0


def test_a_branch_with_tagged_commits_is_not_deleted(graph: Graph) -> None:
    graph.create_branch("draft")
    add(graph, "cid", "draft")
    graph.create_tag("v2", "draft")
    with pytest.raises(BadRequestError, match="its commits have the tags v2"):
        graph.delete_branch("draft")
    merged = graph.merge("draft", delete_branch=True)
    assert merged.branch_deleted is False
    assert merged.branch_delete_error is not None
    assert "tags v2" in merged.branch_delete_error
    graph.delete_tag("v2")
    graph.create_tag("v2", "main")
    graph.delete_branch("draft")
    assert graph.query(NAMES, snapshot="v2").row_count == 3


def test_where_a_branch_began_is_not_its_own_commit(graph: Graph) -> None:
    graph.create_branch("draft", "v1")
    graph.delete_branch("draft")
    assert graph.branches() == ["main"]


def test_branches_and_tags_have_names_of_their_own(graph: Graph, tmp_path: Path) -> None:
    graph.create_branch("draft")
    with pytest.raises(BadRequestError, match="there is a branch 'draft'"):
        graph.create_tag("draft")
    with pytest.raises(BadRequestError, match="there is a tag 'v1'"):
        graph.create_branch("v1")
    lines = tmp_path / "people.jsonl"
    lines.write_text('{"type": "Person", "data": {"name": "cid"}}')
    with pytest.raises(BadRequestError, match="there is a tag 'v1'"):
        graph.load(lines, mode="append", branch="v1", base="main")
    with pytest.raises(BranchNotFoundError):
        graph.mutate('insert Person { name: "cid" }', branch="v1")


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "v1~1", "v@1", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "x" * (MAX_TAG_NAME + 1), "../up", None]
)
def test_names_that_no_tag_can_have(graph: Graph, name: Any) -> None:
    with pytest.raises(BadRequestError):
        graph.create_tag(name)
    assert [tag.name for tag in graph.tags()] == ["v1"]


def test_only_commits_that_can_be_read_are_tagged(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="there is no commit nowhere"):
        graph.create_tag("v2", "nowhere")
    first = graph.commit("v1").commit_id
    graph.delete_tag("v1")
    for number in range(5):
        graph.mutate("update Person set { age: $n } where true", {"n": number})
    graph.optimize()
    graph.cleanup(keep=3, confirm=True)
    with pytest.raises(HistoricalVersionReclaimedError):
        graph.create_tag("v1", first)
    assert graph.tags() == []


def test_a_hint_names_the_tag_that_may_be_meant(graph: Graph) -> None:
    with pytest.raises(TagNotFoundError, match="`v1`"):
        graph.delete_tag("v3")
    with pytest.raises(NotFoundError, match="v1"):
        graph.query(NAMES, snapshot="v11")


@pytest.mark.parametrize("place", [Failpoint.BEFORE_BRANCH_PUBLISH, Failpoint.AFTER_BRANCH_PUBLISH])
def test_a_tag_is_there_or_it_is_not(graph: Graph, place: Failpoint) -> None:
    def die(reached: Failpoint) -> None:
        if reached is place:
            raise FailpointError(reached)

    with watched(die), pytest.raises(FailpointError):
        graph.create_tag("v2")
    is_there = place is Failpoint.AFTER_BRANCH_PUBLISH
    with Graph.open(graph.uri) as other:
        assert [tag.name for tag in other.tags()] == (["v1", "v2"] if is_there else ["v1"])
        add(other, "cid")


def test_many_tags_do_not_wear_the_manifest(graph: Graph) -> None:
    for number in range(40):
        graph.create_tag(f"t{number}")
    assert len(graph.tags()) == 41
    assert graph._core.environment.manifest.fragment_count() <= 34
    with Graph.open(graph.uri) as other:
        assert other.tags() == graph.tags()


def test_a_policy_decides_about_tags_as_about_branches(graph: Graph) -> None:
    rules = """
version: 1
groups: { makers: [ada] }
protected_branches: [v9]
rules:
  - id: makers
    allow: { actors: { group: makers }, actions: [read], branch_scope: any }
  - id: makers-names
    allow: { actors: { group: makers }, actions: [branch_create], target_branch_scope: unprotected }
"""
    guarded = Graph.open(graph.uri, policy=Policy.from_text(rules))
    assert guarded.create_tag("v2", actor="ada").actor == "ada"
    for refused in (
        lambda: guarded.create_tag("v3"),
        lambda: guarded.create_tag("v9", actor="ada"),
        lambda: guarded.delete_tag("v2", actor="ada"),
    ):
        with pytest.raises(PolicyDeniedError):
            refused()
    assert [tag.name for tag in graph.tags()] == ["v1", "v2"]
