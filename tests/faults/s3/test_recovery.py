"""Failures in every phase of a write, on a disk and on S3: all or nothing, and the next write works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.core.ids import new_ulid
from omnigraph.errors import RecoveryRequiredError, RetryableCommitConflictError
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects
from support.s3_graphs import (
    ADD_CITING,
    ADD_NOTE,
    ADD_PAPER,
    READ,
    SCHEMA,
    check_graph,
    rows,
    values,
)


@pytest.fixture
def graph(root: str) -> Graph:
    """A graph with one paper."""
    made = Graph.init(root, SCHEMA)
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    return made


def objects_of(uri: str) -> ObstoreObjects:
    return ObstoreObjects(parse_location(uri), durable=False)


def check_next_write(uri: str, papers: list[str]) -> None:
    """A fresh open writes at once, and everything fits."""
    with Graph.open(uri) as fresh:
        assert values(fresh, "node:Paper", "doi") == papers
        assert values(fresh, "edge:Cites", "src") == [doi for doi in papers if doi != "a"]
        receipt = fresh.mutate(ADD_CITING, {"doi": "z", "to": "a"}).commit
        assert receipt is not None
        assert fresh.snapshot().commit_id == receipt.commit_id
        assert values(fresh, "node:Paper", "doi") == [*papers, "z"]
    check_graph(uri)


@pytest.mark.parametrize("place", ["before_sidecar", "sidecar_write"])
def test_a_failure_before_the_sidecar_leaves_nothing(
    graph: Graph, root: str, place: str, fail_at: Callable[[str | None], None]
) -> None:
    before = graph.snapshot()
    fail_at(place)
    with pytest.raises(FailpointError):
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    fail_at(None)
    assert graph.snapshot() == before
    assert graph.pending_recoveries() == []
    assert graph.recoveries() == []
    check_next_write(root, ["a"])


@pytest.mark.parametrize("place", ["after_sidecar", "before_table_commit"])
def test_a_failure_before_the_first_table_moves_is_forgotten(
    graph: Graph, root: str, place: str, fail_at: Callable[[str | None], None]
) -> None:
    before = graph.snapshot()
    fail_at(place)
    with pytest.raises(FailpointError):
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}, actor="me")
    fail_at(None)
    assert graph.snapshot() == before
    (record,) = graph.recoveries()
    assert (record.recovery_kind, record.graph_commit_id) == ("RolledBack", None)
    assert record.recovery_for_actor == "me"
    check_next_write(root, ["a"])


@pytest.mark.parametrize("place", ["after_table_commit", "before_table_commit@2"])
def test_a_failure_between_two_tables_is_rolled_back(
    graph: Graph, root: str, place: str, fail_at: Callable[[str | None], None]
) -> None:
    fail_at(place)
    with pytest.raises(FailpointError):
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}, actor="me")
    fail_at(None)
    (record,) = graph.recoveries()
    assert record.recovery_kind == "RolledBack"
    assert record.tables["node:Paper"]["class"] == "RolledPastExpected"
    assert record.tables["edge:Cites"]["class"] == "NoMovement"
    undo = graph.commits()[0]
    assert undo.commit_id == record.graph_commit_id
    assert (undo.actor, undo.recovery_for_actor) == (RECOVERY_ACTOR, "me")
    check_next_write(root, ["a"])


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("after_table_commit@2", marks=pytest.mark.slow),
        "before_publish",
        pytest.param("before_catalog_commit", marks=pytest.mark.slow),
        "after_publish",
    ],
)
def test_a_failure_after_the_last_table_is_healed_and_acknowledged(
    graph: Graph, root: str, place: str, fail_at: Callable[[str | None], None]
) -> None:
    fail_at(place)
    receipt = graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}, actor="me").commit
    fail_at(None)
    assert receipt is not None
    assert graph.snapshot().commit_id == receipt.commit_id
    (record,) = graph.recoveries()
    assert (record.recovery_kind, record.graph_commit_id) == ("RolledForward", receipt.commit_id)
    check_next_write(root, ["a", "b"])


def test_a_sidecar_that_cannot_be_deleted_is_consumed_by_the_next_open(
    graph: Graph, root: str, fail_at: Callable[[str | None], None]
) -> None:
    fail_at("sidecar_delete")
    receipt = graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}).commit
    fail_at(None)
    assert receipt is not None
    (stale,) = graph.pending_recoveries()
    with Graph.open(root, read_only=True) as reader:
        assert reader.pending_recoveries() == [stale]
        assert values(reader, "node:Paper", "doi") == ["a", "b"]
    history = graph.commits()
    with Graph.open(root) as fresh:
        assert fresh.pending_recoveries() == []
        (record,) = fresh.recoveries()
        assert stale == f"__recovery/{record.operation_id}.json"
        assert (record.recovery_kind, record.graph_commit_id) == (
            "RolledForward",
            receipt.commit_id,
        )
        assert fresh.commits() == history
    check_next_write(root, ["a", "b"])


def test_a_sidecar_of_an_update_that_was_left_is_consumed_by_the_next_write(
    graph: Graph, root: str, fail_at: Callable[[str | None], None]
) -> None:
    fail_at("sidecar_delete")
    graph.mutate(READ, {"doi": "a", "n": 1})
    fail_at(None)
    graph.mutate(READ, {"doi": "a", "n": 2})
    assert rows(graph, "node:Paper", ["doi", "reads"]) == [{"doi": "a", "reads": 2}]
    assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_next_write(root, ["a"])


def test_an_unreadable_sidecar_stops_writers_and_is_kept(graph: Graph, root: str) -> None:
    name = f"__recovery/{new_ulid()}.json"
    objects_of(root).write(name, b"{ not a sidecar")
    with pytest.raises(RecoveryRequiredError, match="cannot be read"):
        graph.mutate(ADD_NOTE, {"text": "x"})
    with pytest.raises(RecoveryRequiredError, match="cannot be read"):
        Graph.open(root)
    with Graph.open(root, read_only=True) as reader:
        assert values(reader, "node:Paper", "doi") == ["a"]
        assert reader.pending_recoveries() == [name]
    objects_of(root).delete(name)
    check_next_write(root, ["a"])


def test_a_folder_that_cannot_be_listed_stops_the_write(
    graph: Graph, root: str, fail_at: Callable[[str | None], None]
) -> None:
    before = graph.snapshot()
    fail_at("recovery_list")
    with pytest.raises(FailpointError):
        graph.mutate(ADD_NOTE, {"text": "x"})
    fail_at(None)
    assert graph.snapshot() == before
    check_next_write(root, ["a"])


@pytest.mark.parametrize(
    "place",
    [pytest.param("audit_write", marks=pytest.mark.slow), "before_recovery_publish", "after_audit"],
)
def test_a_recovery_that_fails_too_is_finished_by_the_next_open(
    graph: Graph, root: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.commit import attempt, audit, sweep

    places = {"after_table_commit", place}
    reached = set()

    def fail_once(name: str) -> None:
        if name in places - reached:
            reached.add(name)
            raise FailpointError(name)

    for module in (attempt, audit, sweep):
        monkeypatch.setattr(module, "reach", fail_once)
    with pytest.raises(RecoveryRequiredError) as caught:
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    assert reached == places
    with Graph.open(root) as fresh:
        (record,) = fresh.recoveries()
        assert record.operation_id == caught.value.operation_id
        assert record.recovery_kind == "RolledBack"
    check_next_write(root, ["a"])


KILLED = """
import sys
from omnigraph.graph.graph import Graph
from support.s3_graphs import ADD_CITING
Graph.open(sys.argv[1]).mutate(ADD_CITING, {"doi": "b", "to": "a"})
"""


def kill_a_writer(root: str, place: str) -> None:
    """A process that dies at a named place of its write, with the commit lock in its hands."""
    tests = str(Path(__file__).parents[2])
    environment = os.environ | {VARIABLE: f"{place}=kill", "PYTHONPATH": tests}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, root], env=environment, capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr.decode()


def expire_lease(root: str) -> None:
    """As if the lease of the dead owner had ended long ago."""
    lease = objects_of(root).read("__lock")
    assert lease is not None
    body = json.loads(lease.data)
    objects_of(root).write("__lock", json.dumps(body | {"expires_at": 1.0}).encode())


@pytest.mark.parametrize(
    ("place", "kind", "papers"),
    [
        pytest.param("after_sidecar", "RolledBack", ["a"], marks=pytest.mark.slow),
        pytest.param("after_table_commit", "RolledBack", ["a"], marks=pytest.mark.slow),
        ("before_publish", "RolledForward", ["a", "b"]),
        pytest.param("after_publish", "RolledForward", ["a", "b"], marks=pytest.mark.slow),
    ],
)
def test_a_write_whose_process_died_on_s3_is_settled_when_its_lease_is_over(
    s3_root: str, place: str, kind: str, papers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    kill_a_writer(s3_root, place)
    monkeypatch.setenv("OMNIGRAPH_LOCK_TIMEOUT_MS", "0")
    with pytest.raises(RetryableCommitConflictError, match="the commit lock stayed busy"):
        Graph.open(s3_root)
    monkeypatch.delenv("OMNIGRAPH_LOCK_TIMEOUT_MS")
    with Graph.open(s3_root, read_only=True) as reader:
        assert len(reader.pending_recoveries()) == 1
        visible = ["a", "b"] if place == "after_publish" else ["a"]
        assert values(reader, "node:Paper", "doi") == visible
        moment = datetime.now(UTC)
        seen = reader.snapshot(as_of=moment).commit_id
    expire_lease(s3_root)
    with Graph.open(s3_root) as fresh:
        (record,) = fresh.recoveries()
        assert record.recovery_kind == kind
        assert fresh.snapshot(as_of=moment).commit_id == seen, "a moment that was read changed"
        newest = fresh.commits()[0]
        if place == "before_publish":
            assert newest.written_at is not None
            assert newest.written_at < moment.timestamp() * 1e6 < newest.created_at
    check_next_write(s3_root, papers)
