"""The commit lock on an object store: a lease that excludes, expires and is never torn from a successor."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from omnigraph.commit import attempt
from omnigraph.commit.rows import GraphCommit
from omnigraph.core import failpoints
from omnigraph.errors import (
    ExpectedVersionMismatchError,
    InternalError,
    LeaseLostError,
    OmniError,
    RecoveryRequiredError,
    RetryableCommitConflictError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.graph import Graph
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.storage.location import parse_location
from omnigraph.storage.locks import LeaseCommitLock
from omnigraph.storage.objects import ControlObjects, StoredObject
from support.s3_graphs import (
    ADD_CITING,
    ADD_NOTE,
    ADD_PAPER,
    CITE,
    FORGET,
    READ,
    SCHEMA,
    check_graph,
    check_whole,
    values,
)

NEVER = 3_600.0


@pytest.fixture
def objects(s3_root: str) -> ControlObjects:
    return ControlObjects(parse_location(s3_root), durable=False)


def lease(objects: ControlObjects) -> dict[str, Any]:
    stored = objects.read("__lock")
    assert stored is not None
    body: dict[str, Any] = json.loads(stored.data)
    return body


def test_a_held_lease_excludes_and_a_released_one_does_not(objects: ControlObjects) -> None:
    one, two = LeaseCommitLock(objects), LeaseCommitLock(objects)
    with one.held(0):
        with pytest.raises(RetryableCommitConflictError), two.held(0):
            pass
        assert lease(objects)["expires_at"] > time.time()
    with two.held(0), pytest.raises(RetryableCommitConflictError), one.held(0):
        pass


def test_a_waiting_writer_gets_the_lease_when_it_is_released(objects: ControlObjects) -> None:
    order: list[str] = []
    waits = Event()

    class Watched(ControlObjects):
        def read(self, name: str) -> StoredObject | None:
            found = super().read(name)
            waits.set()
            return found

    waiting = Watched(objects._location, durable=False)

    def second() -> None:
        with LeaseCommitLock(waiting).held(60):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with LeaseCommitLock(objects).held(0):
            future = pool.submit(second)
            assert waits.wait(60)
            order.append("first")
        future.result()
    assert order == ["first", "second"]


@pytest.mark.parametrize("left", [b'{"owner": "dead", "expires_at": 1.0}', b'{"owner": "de', b"", b"[]", b"{}"])
def test_an_expired_or_damaged_lease_is_taken_over(objects: ControlObjects, left: bytes) -> None:
    objects.write("__lock", left)
    with LeaseCommitLock(objects).held(0):
        assert lease(objects)["owner"] != "dead"
        assert lease(objects)["expires_at"] > time.time()


def test_a_lease_of_a_dead_owner_that_is_not_over_is_respected(objects: ControlObjects) -> None:
    body = {"owner": "dead", "expires_at": time.time() + NEVER}
    objects.write("__lock", json.dumps(body).encode())
    with pytest.raises(RetryableCommitConflictError), LeaseCommitLock(objects).held(0):
        pass
    assert lease(objects) == body


def test_of_many_that_take_over_an_expired_lease_one_gets_it(objects: ControlObjects) -> None:
    barrier, done = Barrier(6), Barrier(6)

    def contender(_: int) -> bool:
        own = ControlObjects(objects._location, durable=False)
        barrier.wait()
        try:
            with LeaseCommitLock(own).held(0):
                done.wait()
                return True
        except RetryableCommitConflictError:
            done.wait()
            return False

    with ThreadPoolExecutor(6) as pool:
        for _ in range(4):
            objects.write("__lock", b'{"owner": "dead", "expires_at": 1.0}')
            assert sum(pool.map(contender, range(6))) == 1


class WatchedReplace:
    """Control objects that tell when a replacement has succeeded."""

    def __init__(self, inner: ControlObjects) -> None:
        self._inner = inner
        self._replaced = threading.Semaphore(0)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        replaced = self._inner.replace(name, data, tag)
        self._replaced.release()
        return replaced

    def next_replacement(self) -> bool:
        """Wait for a replacement that begins after this call: the one under way is passed over."""
        while self._replaced.acquire(blocking=False):
            pass
        return all(self._replaced.acquire(timeout=30) for _ in range(2))


def test_a_held_lease_is_renewed(objects: ControlObjects) -> None:
    watched = WatchedReplace(objects)
    with LeaseCommitLock(watched, renewal_s=0.01).held(0):  # type: ignore[arg-type]  # a stand-in
        first = lease(objects)
        assert watched.next_replacement(), "the lease was never renewed"
        now = lease(objects)
        assert now["owner"] == first["owner"]
        assert now["expires_at"] > first["expires_at"]
        with pytest.raises(RetryableCommitConflictError), LeaseCommitLock(objects).held(0):
            pass
    with LeaseCommitLock(objects).held(0):
        pass


def test_a_holder_that_was_replaced_leaves_the_lease_of_its_successor(objects: ControlObjects) -> None:
    slow = stopped_lock(objects)
    next_one = LeaseCommitLock(objects)
    with slow.held(0):
        holding = next_one.held(0)
        holding.__enter__()
        owner = lease(objects)["owner"]
    assert lease(objects)["owner"] == owner
    assert lease(objects)["expires_at"] > time.time()
    with pytest.raises(RetryableCommitConflictError), LeaseCommitLock(objects).held(0):
        pass
    holding.__exit__(None, None, None)
    with LeaseCommitLock(objects).held(0):
        pass


def stopped_lock(objects: ControlObjects) -> LeaseCommitLock:
    """The lock of a writer whose lease is over for everybody else at once, and that does not notice it.

    As one that stands still right after its look at the clock.
    """
    return LeaseCommitLock(objects, renewal_s=NEVER, wall=lambda: time.time() - NEVER, elapsed=lambda: 0.0)


class FailingReplace:
    """Control objects whose conditional put fails a number of times, as a store under load does."""

    def __init__(self, inner: ControlObjects, failures: int) -> None:
        self._inner = inner
        self.failures = failures

    def read(self, name: str) -> StoredObject | None:
        return self._inner.read(name)

    def create(self, name: str, data: bytes) -> str | None:
        return self._inner.create(name, data)

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        if self.failures:
            self.failures -= 1
            raise StorageError("the store is overloaded", StorageFailure.TRANSIENT)
        return self._inner.replace(name, data, tag)


def test_a_renewal_that_fails_once_is_tried_again(objects: ControlObjects) -> None:
    flaky = FailingReplace(objects, 1)
    watched = WatchedReplace(flaky)  # type: ignore[arg-type]  # a stand-in
    with LeaseCommitLock(watched, renewal_s=0.01).held(0):  # type: ignore[arg-type]  # a stand-in
        first = lease(objects)
        assert watched.next_replacement(), "the keeper gave up"
        assert flaky.failures == 0
        assert lease(objects)["expires_at"] > first["expires_at"], "the keeper gave up"


def with_lease(graph: Graph, lock: LeaseCommitLock) -> Graph:
    environment = dataclasses.replace(graph._core.environment, lock=lock)
    return Graph(OpenGraph(environment, graph._core.settings, read_only=False))


def test_a_published_write_is_acknowledged_when_the_lease_cannot_be_given_back(
    s3_root: str, objects: ControlObjects
) -> None:
    graph = Graph.init(s3_root, SCHEMA)
    flaky = FailingReplace(objects, 1)
    private = with_lease(graph, LeaseCommitLock(flaky, renewal_s=NEVER))  # type: ignore[arg-type]  # a stand-in
    receipt = private.mutate(ADD_NOTE, {"text": "x"}).commit
    assert flaky.failures == 0
    assert receipt is not None
    assert graph.snapshot().commit_id == receipt.commit_id


@contextmanager
def at_place(monkeypatch: pytest.MonkeyPatch, place: str, action: Callable[[], object]) -> Iterator[list[str]]:
    """Do something when a write reaches a place for the first time."""
    original = attempt.reach
    reached: list[str] = []

    def reach(name: Any) -> None:
        if name == place and not reached:
            reached.append(place)
            action()
        original(name)

    with monkeypatch.context() as patch:
        patch.setattr(attempt, "reach", reach)
        yield reached


@pytest.fixture
def stalled(s3_root: str, objects: ControlObjects) -> Graph:
    """A graph whose writer loses its lease at once, as a process that sleeps for a minute does."""
    graph = Graph.init(s3_root, SCHEMA)
    graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    return with_lease(graph, stopped_lock(objects))


def tried(call: Callable[[], Any]) -> bool:
    """Whether a write was acknowledged; a typed failure is fine, when it tells the truth."""
    try:
        result = call()
    except (RecoveryRequiredError, InternalError):
        raise
    except OmniError:
        return False
    assert result.commit is not None
    return True


Act = Callable[[Graph], Any]


@pytest.fixture
def overtaken(stalled: Graph, s3_root: str, monkeypatch: pytest.MonkeyPatch):
    """Let a successor act when the stalled writer reaches a place; gives the successor, and whether the writer won."""

    def run(place: str, write: Act, overtake: Act) -> tuple[Graph, bool]:
        successor = Graph.open(s3_root)
        with at_place(monkeypatch, place, lambda: overtake(successor)) as reached:
            done = tried(lambda: write(stalled))
        assert reached
        return successor, done

    return run


def note(graph: Graph) -> Any:
    return graph.mutate(ADD_NOTE, {"text": "successor"})


def cite(doi: str) -> Act:
    return lambda graph: graph.mutate(ADD_CITING, {"doi": doi, "to": "a"})


def test_an_insert_that_its_successor_completed_is_acknowledged_and_written_once(overtaken, s3_root: str) -> None:
    receipts = []

    def insert(graph: Graph) -> Any:
        receipts.append(graph.mutate(ADD_NOTE, {"text": "stalled"}))
        return receipts[0]

    successor, done = overtaken("before_publish", insert, note)
    assert done
    assert values(successor, "node:Note", "text") == ["stalled", "successor"]
    assert receipts[0].commit.commit_id in {commit.commit_id for commit in successor.commits()}
    check_graph(s3_root)


def test_a_write_that_its_successor_undid_between_two_tables_leaves_no_drift(overtaken, s3_root: str) -> None:
    successor, done = overtaken("after_table_commit", cite("b"), note)
    assert values(successor, "node:Paper", "doi") == (["a", "b"] if done else ["a"])
    assert values(successor, "edge:Cites", "src") == (["b"] if done else [])
    check_graph(s3_root)
    cite("c")(successor)
    check_graph(s3_root)


#: The default run overtakes a write at the last of these places.
PLACES = [
    pytest.param("before_sidecar", marks=pytest.mark.slow),
    pytest.param("after_sidecar", marks=pytest.mark.slow),
    "before_table_commit",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_write_that_its_successor_overtook_before_the_first_table_is_whole_or_nothing(
    overtaken, s3_root: str, place: str
) -> None:
    successor, done = overtaken(place, cite("b"), cite("c"))
    assert values(successor, "node:Paper", "doi") == (["a", "b", "c"] if done else ["a", "c"])
    assert values(successor, "edge:Cites", "src") == (["b", "c"] if done else ["c"])
    check_graph(s3_root)


@pytest.mark.parametrize("place", PLACES)
def test_an_edge_whose_end_a_successor_deleted_is_never_published(
    stalled: Graph, overtaken, s3_root: str, place: str
) -> None:
    stalled.mutate(ADD_PAPER, {"doi": "b", "title": "B"})
    successor, done = overtaken(
        place,
        lambda graph: graph.mutate(CITE, {"from": "a", "to": "b"}),
        lambda graph: graph.mutate(FORGET, {"doi": "b"}),
    )
    assert not done
    assert values(successor, "node:Paper", "doi") == ["a"]
    assert values(successor, "edge:Cites", "dst") == []
    check_graph(s3_root)


@pytest.mark.parametrize("place", PLACES)
def test_a_condition_that_a_successor_broke_is_never_ignored(
    stalled: Graph, overtaken, s3_root: str, place: str
) -> None:
    seen = stalled.snapshot().commit_id
    successor, done = overtaken(place, lambda graph: graph.mutate(READ, {"doi": "a", "n": 1}, if_commit=seen), note)
    assert not done
    assert values(successor, "node:Paper", "reads") == [None]
    check_graph(s3_root)


def fence_of(graph: Graph) -> int:
    return graph._core.environment.manifest.state().fence


def test_every_holder_has_a_higher_epoch_and_publishes_under_it(s3_root: str, objects: ControlObjects) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_NOTE, {"text": "one"})
        first = lease(objects)["epoch"]
        versions = graph._core.environment.manifest.state().manifest_version
        graph.mutate(ADD_NOTE, {"text": "two"})
        assert lease(objects)["epoch"] == first + 1 == fence_of(graph)
        assert graph._core.environment.manifest.state().manifest_version == versions + 1, (
            "a lease that was given back costs no commit of its own"
        )


def test_a_graph_whose_lock_object_is_gone_or_older_than_its_catalog_goes_on(
    s3_root: str, objects: ControlObjects
) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        for text in ("one", "two", "three"):
            graph.mutate(ADD_NOTE, {"text": text})
        before = fence_of(graph)
        objects.delete("__lock")
        graph.mutate(ADD_NOTE, {"text": "four"})
        assert fence_of(graph) > before
        # As a copy from a backup of another moment.
        objects.write("__lock", b'{"owner": "x", "expires_at": 0, "epoch": 1, "released": true}')
        graph.mutate(ADD_NOTE, {"text": "five"})
        assert len(graph.commits()) == 6
    check_graph(s3_root)


def test_a_holder_is_above_the_fence_also_when_the_count_begins_again(s3_root: str, objects: ControlObjects) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_NOTE, {"text": "one"})
        before = fence_of(graph)
        assert before == lease(objects)["epoch"] == 1, "as high as the epoch after a new beginning"
        objects.delete("__lock")
        with graph._core.environment.window() as held:
            epoch = held.tenure.epoch
            assert epoch is not None
            assert fence_of(graph) == epoch > before


@dataclass
class Sleeper:
    """A writer that stands still before its first effect, a number of times, while another writer may take over."""

    graph: Graph
    #: Without one its lease stays where it is.
    successor: Graph | None
    times: int
    now: float = 0.0

    def sleep(self, place: Any) -> None:
        if place != "before_sidecar" or not self.times:
            return
        self.now += NEVER
        # The successor passes the same place.
        left, self.times = self.times - 1, 0
        if self.successor is not None:
            self.successor.mutate(ADD_PAPER, {"doi": str(left), "title": None})
        self.times = left

    def write(self) -> GraphCommit | None:
        objects = self.graph._core.environment.objects
        # Its time of day lies far behind: others need not watch its lease before they take it.
        lock = LeaseCommitLock(objects, renewal_s=NEVER, wall=lambda: time.time() - NEVER, elapsed=lambda: self.now)
        with failpoints.watched(self.sleep):
            return with_lease(self.graph, lock).mutate(ADD_NOTE, {"text": "sleeper"}).commit


def notes(graph: Graph) -> list[str]:
    return list(values(graph, "node:Note", "text"))


def test_a_writer_that_stood_still_goes_on_when_its_lease_was_not_taken(s3_root: str) -> None:
    graph = Graph.init(s3_root, SCHEMA)
    assert Sleeper(graph, None, 1).write() is not None
    assert notes(graph) == ["sleeper"]
    assert len(graph.commits()) == 2
    assert graph.recoveries() == []
    check_graph(s3_root)


def test_a_writer_that_was_overtaken_before_any_effect_enters_another_window(s3_root: str) -> None:
    graph = Graph.init(s3_root, SCHEMA)
    assert Sleeper(graph, Graph.open(s3_root), 1).write() is not None
    assert notes(graph) == ["sleeper"]
    assert values(graph, "node:Paper", "doi") == ["0"]
    assert graph.recoveries() == []
    check_graph(s3_root)


def test_a_writer_that_is_overtaken_in_every_window_is_told_which_setting_helps(s3_root: str) -> None:
    graph = Graph.init(s3_root, SCHEMA)
    with pytest.raises(LeaseLostError, match="OMNIGRAPH_LOCK_LEASE_MS"):
        Sleeper(graph, Graph.open(s3_root), 99).write()
    assert notes(graph) == []
    assert values(graph, "node:Paper", "doi") == ["96", "97", "98"]
    assert graph.pending_recoveries() == []
    assert graph.recoveries() == []
    check_graph(s3_root)


@pytest.mark.parametrize("place", ["before_sidecar", "before_table_commit"])
def test_a_table_that_a_successor_moved_is_not_reported_as_drift(
    s3_root: str, objects: ControlObjects, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, successor = Graph.init(s3_root, SCHEMA), Graph.open(s3_root)
    graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    now = [0.0]
    lock = LeaseCommitLock(objects, renewal_s=NEVER, wall=lambda: time.time() - NEVER, elapsed=lambda: now[0])

    def overtake() -> None:
        now[0] += NEVER
        successor.mutate(READ, {"doi": "a", "n": 1})

    with (
        at_place(monkeypatch, place, overtake) as reached,
        pytest.raises((LeaseLostError, ExpectedVersionMismatchError)),
    ):
        with_lease(graph, lock).mutate(READ, {"doi": "a", "n": 2})
    assert reached
    assert values(successor, "node:Paper", "reads") == [1]
    check_graph(s3_root)


def test_the_lease_of_a_graph_has_the_length_that_is_set(
    s3_root: str, objects: ControlObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    Graph.init(s3_root, SCHEMA).close()
    monkeypatch.setenv("OMNIGRAPH_LOCK_LEASE_MS", "7500")
    with Graph.open(s3_root) as graph, graph._core.environment.window():
        assert lease(objects)["lease_s"] == 7.5


def test_a_write_goes_through_when_the_lease_of_a_dead_writer_is_over_by_its_own_clock(
    s3_root: str, objects: ControlObjects
) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_NOTE, {"text": "one"})
    now = [0.0]
    body = {"owner": "dead", "expires_at": time.time() + NEVER, "epoch": 9, "lease_s": 3.0}
    objects.write("__lock", json.dumps(body).encode())

    class Looking(ControlObjects):
        """A second goes by between two looks at the lease."""

        def read(self, name: str) -> StoredObject | None:
            now[0] += 1.0
            return super().read(name)

    looking = Looking(objects._location, durable=False)
    lock = LeaseCommitLock(looking, renewal_s=NEVER, elapsed=lambda: now[0])
    with Graph.open(s3_root) as graph:
        with_lease(graph, lock).mutate(ADD_NOTE, {"text": "two"})
        assert now[0] <= 5
        assert notes(graph) == ["one", "two"]
        assert fence_of(graph) == 10


# ---- Real processes that are stopped at random moments for longer than their leases, and go on


LEASE_S = 0.6
CHILD = Path(__file__).parents[2] / "support" / "children" / "stopped_child.py"


def start(uri: str, who: str, writes: int, said: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "PYTHONPATH": str(CHILD.parents[2]),
        # Leases of a moment, so that a stop of a moment loses them.
        "OMNIGRAPH_LOCK_LEASE_MS": str(int(LEASE_S * 1000)),
    }
    with said.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, str(CHILD), uri, who, str(writes)], env=environment, stdout=out, stderr=subprocess.STDOUT
        )


def stop_at_random(children: list[subprocess.Popen[bytes]], chance: random.Random) -> None:
    """Stop one child after the other for longer than a lease, until all have ended."""
    while any(child.poll() is None for child in children):
        child = chance.choice(children)
        time.sleep(chance.uniform(0.01, 0.3))  # the moment of the stop is what is tried
        if child.poll() is None:
            child.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.5, 2.5) * LEASE_S)  # shorter and longer than a lease
            child.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("seed", "writes"), [(1, 3), *(pytest.param(seed, 12, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_processes_that_are_stopped_tear_nothing(s3_root: str, tmp_path: Path, seed: int, writes: int) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    files = [tmp_path / who for who in ("x", "y")]
    children = [start(s3_root, file.name, writes, file) for file in files]
    try:
        while not all(file.stat().st_size for file in files):
            time.sleep(0.02)  # the time until a process has begun is none of what is tried
            assert all(child.poll() is None for child in children), [file.read_text() for file in files]
        stop_at_random(children, random.Random(seed))
    finally:
        for child in children:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()
    lines = [line.split(maxsplit=1) for file in files for line in file.read_text().splitlines()]
    told: dict[str, set[str]] = {}
    for what, doi in lines:
        told.setdefault(what, set()).add(doi)
    assert "failed" not in told, told["failed"]
    assert len(told["begin"]) == 2 * writes, lines
    with Graph.open(s3_root) as graph:
        papers = set(values(graph, "node:Paper", "doi")) - {"a"}
        edges = set(values(graph, "edge:Cites", "src"))
    assert papers == edges
    assert told.get("done", set()) <= papers <= told.get("done", set()) | told.get("unknown", set())
    check_whole(s3_root)
