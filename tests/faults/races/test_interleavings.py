"""Races with a fixed outcome: one writer stands before the commit window while another one goes through."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import (
    BadRequestError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    ReadSetConflictError,
    RetryableCommitConflictError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.locks import FileCommitLock
from support.races.checks import check_every_snapshot_is_closed
from support.races.jobs import (
    ADD_EDGE,
    ADD_NOTE,
    ADD_PERSON,
    DELETE_PERSON,
    SET_VISITS,
    table_rows,
)
from support.races.overtaking import overtaken


@pytest.fixture
def graph(root: Path) -> Graph:
    opened = Graph.open(root)
    for name in ("ann", "bob"):
        opened.mutate(ADD_PERSON, {"name": name})
    return opened


def edge_tags(graph: Graph) -> list[str]:
    return sorted(row["tag"] for row in table_rows(graph, graph.snapshot(), "edge:Knows", ["tag"]))


def test_an_edge_whose_end_is_deleted_meanwhile_is_refused(graph: Graph, root: Path) -> None:
    late = overtaken(graph, lambda other: other.mutate(DELETE_PERSON, {"name": "bob"}))
    with pytest.raises(BadRequestError, match="'bob' not found in Person"):
        late.mutate(ADD_EDGE, {"from": "ann", "to": "bob", "tag": "late"})
    assert edge_tags(graph) == []
    check_every_snapshot_is_closed(root)


def test_a_delete_that_misses_a_new_edge_is_a_conflict(graph: Graph, root: Path) -> None:
    edge = {"from": "ann", "to": "bob", "tag": "new"}
    late = overtaken(graph, lambda other: other.mutate(ADD_EDGE, edge))
    with pytest.raises(ReadSetConflictError) as caught:
        late.mutate(DELETE_PERSON, {"name": "bob"})
    assert caught.value.member == "edge:Knows"
    assert caught.value.exit_code == 75
    assert edge_tags(graph) == ["new"]
    check_every_snapshot_is_closed(root)
    assert late.mutate(DELETE_PERSON, {"name": "bob"}).affected_edges == 1


def test_a_delete_that_misses_one_of_two_edges_is_a_conflict(graph: Graph, root: Path) -> None:
    graph.mutate(ADD_EDGE, {"from": "ann", "to": "bob", "tag": "old"})
    edge = {"from": "bob", "to": "ann", "tag": "new"}
    late = overtaken(graph, lambda other: other.mutate(ADD_EDGE, edge))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        late.mutate(DELETE_PERSON, {"name": "bob"})
    assert caught.value.table_key == "edge:Knows"
    assert edge_tags(graph) == ["new", "old"]
    assert late.mutate(DELETE_PERSON, {"name": "bob"}).affected_edges == 2
    check_every_snapshot_is_closed(root)


def test_an_overtaken_insert_is_prepared_again_and_written_once(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}))
    receipt = late.mutate(ADD_NOTE, {"text": "second"}).commit
    assert receipt is not None
    texts = [row["text"] for row in table_rows(graph, graph.snapshot(), "node:Note", ["text"])]
    assert texts == ["first", "second"]
    newest, before = graph.commits()[:2]
    assert newest.commit_id == receipt.commit_id
    assert newest.parent_id == before.commit_id


def test_an_overtaken_update_is_a_conflict_and_changes_nothing(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(SET_VISITS, {"name": "ann", "visits": 1}))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        late.mutate(SET_VISITS, {"name": "bob", "visits": 2})
    pin = graph.snapshot().pins["node:Person"]
    assert (caught.value.expected, caught.value.actual) == (pin.version - 1, pin.version)
    rows = table_rows(graph, graph.snapshot(), "node:Person", ["name", "visits"])
    assert {row["name"]: row["visits"] for row in rows} == {"ann": 1, "bob": 0}
    assert late.mutate(SET_VISITS, {"name": "bob", "visits": 2}).commit is not None


def test_an_overtaken_insert_with_a_condition_is_not_repeated(graph: Graph) -> None:
    seen = graph.snapshot().commit_id
    late = overtaken(graph, lambda other: other.mutate(ADD_PERSON, {"name": "cid"}))
    with pytest.raises(PreconditionFailedError) as caught:
        late.mutate(ADD_NOTE, {"text": "late"}, if_commit=seen)
    assert caught.value.expected == seen
    assert caught.value.actual == graph.snapshot().commit_id
    assert table_rows(graph, graph.snapshot(), "node:Note", ["text"]) == []


def test_a_write_that_was_overtaken_on_another_table_goes_through(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}))
    receipt = late.mutate(SET_VISITS, {"name": "ann", "visits": 7}).commit
    assert receipt is not None
    assert receipt.parent_id == graph.commits()[1].commit_id


def test_a_first_write_on_a_branch_that_another_writer_forked_meanwhile_joins_the_fork(
    graph: Graph,
) -> None:
    graph.mutate(ADD_NOTE, {"text": "base"})
    graph.create_branch("new")
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}, branch="new"))
    late.mutate(ADD_NOTE, {"text": "second"}, branch="new")
    rows = table_rows(graph, graph.snapshot("new"), "node:Note", ["text"])
    assert [row["text"] for row in rows] == ["base", "first", "second"]
    assert graph.pending_recoveries() == []
    assert graph.recoveries() == []


def test_a_writer_that_waits_too_long_for_the_lock_has_done_nothing(
    graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_TIMEOUT_MS", "20")
    before = graph.snapshot()
    with (
        FileCommitLock(root).held(1),
        Graph.open(root) as late,
        pytest.raises(RetryableCommitConflictError) as caught,
    ):
        late.mutate(ADD_NOTE, {"text": "late"})
    assert caught.value.exit_code == 75
    assert graph.snapshot() == before
    assert list((root / "__recovery").glob("*")) == []
    with Graph.open(root) as late:
        assert late.mutate(ADD_NOTE, {"text": "late"}).commit is not None


def test_readers_do_not_wait_for_the_commit_lock(graph: Graph, root: Path) -> None:
    with FileCommitLock(root).held(1), Graph.open(root, read_only=True) as reader:
        assert reader.snapshot() == graph.snapshot()
        assert len(reader.commits()) == 3
        assert reader.branches() == ["main"]
