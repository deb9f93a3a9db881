"""Answers that get lost, come twice or come late: what arrived is believed, and nothing happens twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from omnigraph.errors import RetryableCommitConflictError, StorageError, StorageFailure
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import INIT_CLAIM, parse_location
from omnigraph.storage.locks import LeaseCommitLock
from omnigraph.storage.objects import ObstoreObjects, StoredObject, put_owned, replace_content
from support.faulty_s3 import (
    DOUBLE,
    HANG,
    LOSE,
    OVERLOADED,
    OVERLOADED_AFTER,
    TRUNCATE,
    Faults,
    faulty_store,
)
from support.s3 import create_bucket, point_to
from support.s3_graphs import ADD_CITING, ADD_PAPER, SCHEMA, values
from support.stalled_writers import check_whole

_numbers = itertools.count(1)

# ---- the owner tells


class LosingObjects(ObstoreObjects):
    """Control objects that do what they are asked, and whose answers get lost."""

    losses = 0
    #: Whether the client sent the request again by itself, and met its own object.
    is_repeated = False

    def _lost(self, tag: str | None) -> str | None:
        if not self.losses:
            return tag
        self.losses -= 1
        if self.is_repeated:
            return None
        raise StorageError("the connection was reset", StorageFailure.TRANSIENT)

    def create(self, name: str, data: bytes) -> str | None:
        return self._lost(super().create(name, data))

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        return self._lost(super().replace(name, data, tag))


@pytest.fixture(params=[False, True], ids=["reset", "repeated"])
def losing(request: pytest.FixtureRequest, s3_root: str) -> LosingObjects:
    objects = LosingObjects(parse_location(s3_root), durable=False)
    objects.is_repeated = request.param
    return objects


def body(owner: str) -> bytes:
    return json.dumps({"owner": owner}).encode()


def stored(objects: ObstoreObjects, name: str) -> StoredObject:
    found = objects.read(name)
    assert found is not None
    return found


def test_what_names_its_owner_is_its_owners(losing: LosingObjects) -> None:
    losing.losses = 1
    tag = put_owned(losing, "x", body("me"), None)
    assert tag == stored(losing, "x").tag
    losing.losses = 1
    assert put_owned(losing, "x", body("other"), tag) == stored(losing, "x").tag
    assert put_owned(losing, "x", body("me"), tag) is None
    assert put_owned(losing, "x", body("me"), None) is None
    assert stored(losing, "x").data == body("other")


def test_a_request_that_never_arrived_is_sent_again(s3_root: str) -> None:
    class Deaf(ObstoreObjects):
        failures = 2

        def create(self, name: str, data: bytes) -> str | None:
            if self.failures:
                self.failures -= 1
                raise StorageError("the connection was reset", StorageFailure.TRANSIENT)
            return super().create(name, data)

    objects = Deaf(parse_location(s3_root), durable=False)
    assert put_owned(objects, "x", body("me"), None) is not None
    objects.failures = 99
    with pytest.raises(StorageError, match="reset"):
        put_owned(objects, "y", body("me"), None)
    assert objects.read("y") is None


def test_the_content_tells_whether_a_file_was_written(losing: LosingObjects) -> None:
    losing.losses = 1
    assert replace_content(losing, "f", b"one", None)
    losing.losses = 1
    assert replace_content(losing, "f", b"two", stored(losing, "f").tag)
    losing.is_repeated = True
    assert not replace_content(losing, "f", b"three", None)
    assert stored(losing, "f").data == b"two"


def test_a_lease_whose_answers_get_lost_locks_nobody_out(losing: LosingObjects) -> None:
    for _ in range(3):
        losing.losses = 1
        with LeaseCommitLock(losing).held(0) as tenure:
            assert not tenure.is_lost
            with pytest.raises(RetryableCommitConflictError), LeaseCommitLock(losing).held(0):
                pass
            losing.losses = 1


def test_a_lease_that_nobody_knows_of_is_taken_back_by_its_process(s3_root: str) -> None:
    class Silent(ObstoreObjects):
        is_silent = False

        def create(self, name: str, data: bytes) -> str | None:
            super().create(name, data)
            self.is_silent = True
            raise StorageError("the connection was reset", StorageFailure.TRANSIENT)

        def read(self, name: str) -> StoredObject | None:
            if self.is_silent:
                raise StorageError("the connection was reset", StorageFailure.TRANSIENT)
            return super().read(name)

    objects = Silent(parse_location(s3_root), durable=False)
    lock = LeaseCommitLock(objects)
    with pytest.raises(StorageError), lock.held(0):
        pass
    objects.is_silent = False
    with lock.held(0) as tenure:
        assert tenure.needs_fence


# ---- through the wire


@pytest.fixture
def faulty(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Faults]]:
    """An unused root behind a proxy; every bucket is used with one endpoint only."""
    bucket = f"faulty-{next(_numbers)}"
    create_bucket(s3_endpoint, bucket)
    with faulty_store(s3_endpoint) as (endpoint, faults):
        point_to(monkeypatch, endpoint)
        yield f"s3://{bucket}/graph.omni", faults


#: The default run tries one; a lost answer and a doubled request lead to the same places.
ANSWERS = [OVERLOADED_AFTER, *(pytest.param(it, marks=pytest.mark.slow) for it in (LOSE, DOUBLE))]


@pytest.mark.parametrize("treatment", ANSWERS)
def test_an_init_whose_claim_or_catalog_was_not_answered_is_whole(
    faulty: tuple[str, Faults], treatment: str
) -> None:
    root, faults = faulty
    for number, place in enumerate((INIT_CLAIM, "__manifest/_versions")):
        uri = f"{root}-{number}"
        faults.arm(treatment, place)
        Graph.init(uri, SCHEMA).close()
        assert faults.hit
        with Graph.open(uri) as graph:
            assert len(graph.commits()) == 1
        assert ObstoreObjects(parse_location(uri), durable=False).read(INIT_CLAIM) is None


@pytest.mark.parametrize("treatment", ANSWERS)
@pytest.mark.parametrize("place", ["__lock", "__manifest/_versions", "nodes/", "__recovery/"])
def test_a_write_whose_answer_was_lost_happens_once(
    faulty: tuple[str, Faults], treatment: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, faults = faulty
    # Nobody waits for a lease to end: a wait would be a conflict.
    monkeypatch.setenv("OMNIGRAPH_LOCK_TIMEOUT_MS", "0")
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        faults.arm(treatment, place)
        receipt = graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}).commit
        assert faults.hit
        assert receipt is not None
        assert len(graph.commits()) == 3
        assert values(graph, "node:Paper", "doi") == ["a", "b"]
    check_whole(root)


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_request_about_the_lease_that_is_never_answered_is_given_up(
    faulty: tuple[str, Faults], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, faults = faulty
    # Longer than a test may take.
    monkeypatch.setenv("AWS_TIMEOUT", "3600s")
    monkeypatch.setenv("OMNIGRAPH_LOCK_LEASE_MS", "1500")
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        faults.arm(HANG, "__lock", method=method)
        assert graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}).commit is not None
        assert faults.hit
    check_whole(root)


@pytest.mark.parametrize("treatment", ANSWERS)
def test_a_branch_whose_creation_was_not_answered_exists_once(
    faulty: tuple[str, Faults], treatment: str
) -> None:
    root, faults = faulty
    with Graph.init(root, SCHEMA) as graph:
        faults.arm(treatment, "__manifest/_versions")
        graph.create_branch("work")
        assert faults.hit
        assert sorted(graph.branches()) == ["main", "work"]
        faults.arm(treatment, "__manifest/_versions")
        graph.delete_branch("work")
        assert faults.hit
        assert sorted(graph.branches()) == ["main"]


@pytest.mark.parametrize(
    ("treatment", "method"), [(OVERLOADED, "PUT"), (OVERLOADED, "GET"), (TRUNCATE, "GET")]
)
def test_a_burst_of_failures_is_waited_out(
    faulty: tuple[str, Faults], treatment: str, method: str
) -> None:
    root, faults = faulty
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        faults.arm(treatment, "graph.omni", times=2, method=method)
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})
        assert faults.hit
    check_whole(root)
