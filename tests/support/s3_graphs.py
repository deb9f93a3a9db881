"""A small graph, and what has to hold of it wherever it lies."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint
from omnigraph.core.ids import TableKey
from omnigraph.errors import ConflictError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.lease import Tenure
from omnigraph.storage.location import parse_location
from omnigraph.storage.locks import LeaseCommitLock
from omnigraph.storage.objects import ControlObjects

SCHEMA = """
node Paper { doi: String @key  title: String?  reads: I64?  scan: Blob? }
node Note { text: String }
edge Cites: Paper -> Paper { why: String? }
"""
ADD_PAPER = "query add($doi: String, $title: String?) { insert Paper { doi: $doi, title: $title } }"
ADD_NOTE = "query add($text: String) { insert Note { text: $text } }"
ADD_CITING = """
query add($doi: String, $to: String) {
    insert Paper { doi: $doi }
    insert Cites { from: $doi, to: $to, why: $doi }
}
"""
CITE = "query cite($from: String, $to: String) { insert Cites { from: $from, to: $to } }"
READ = "query read($doi: String, $n: I64) { update Paper set { reads: $n } where doi = $doi }"
FORGET = "query forget($doi: String) { delete Paper where doi = $doi }"
ADD_SCAN = "query scan($doi: String, $scan: Blob) { insert Paper { doi: $doi, scan: $scan } }"


def rows(graph: Graph, key: str, columns: list[str], branch: str = "main") -> list[dict[str, Any]]:
    """The rows of a table at the head of a branch, sorted."""
    pin = graph.snapshot(branch).pins[TableKey(key)]
    store = TableStore(parse_location(graph.uri))
    found = store.open(pin.location, pin.branch, pin.version).read(columns).to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def values(graph: Graph, key: str, column: str, branch: str = "main") -> list[Any]:
    """One column, sorted."""
    return [row[column] for row in rows(graph, key, [column], branch)]


def check_graph(uri: str, *, has_deleted: bool = False) -> None:
    """Linear histories, without gaps unless a branch was deleted; catalog = datasets, nothing left to settle."""
    with Graph.open(uri, read_only=True) as graph:
        assert graph.pending_recoveries() == []
        store = TableStore(parse_location(uri))
        versions = []
        for branch in graph.branches():
            history = graph.commits(branch)[::-1]
            ids = [commit.commit_id for commit in history]
            assert [commit.parent_id for commit in history] == [None, *ids[:-1]]
            versions += [commit.graph_version for commit in history if commit.branch == branch]
            snapshot = graph.snapshot(branch)
            if branch != "main":
                versions.append(snapshot.incarnation)
            for key, pin in snapshot.pins.items():
                table = store.open(pin.location, pin.branch, pin.version)
                assert table.count_rows() == pin.row_count, key
                if pin.branch == snapshot.fork_name:
                    assert table.latest_version == pin.version, f"{key} on {branch} has drifted"
        if not has_deleted:
            assert sorted(versions) == list(range(1, len(versions) + 1))


# ---- Two writers, each of which can stand still at a named place, and what has to hold whatever happens between them


NEVER = 3_600.0
#: Ends a hopeless wait; nothing takes nearly as long.
HOPELESS_S = 120.0


@dataclass
class Stall:
    """A place at which one thread stands still, the n-th time it comes there."""

    place: str
    thread: Thread | None = None
    arrived: Event = field(default_factory=Event)
    go_on: Event = field(default_factory=Event)
    seen: Counter[str] = field(default_factory=Counter)

    def watch(self, place: Failpoint) -> None:
        if threading.current_thread() is not self.thread:
            return
        self.seen[place] += 1
        name, _, number = self.place.partition("@")
        if place == name and self.seen[place] == int(number or 1):
            self.arrived.set()
            assert self.go_on.wait(HOPELESS_S), self.place


class Door:
    """The commit lock of the first writer: another one after its stall, and somebody can see it wait there."""

    can_be_lost = True

    def __init__(self, stopped: LeaseCommitLock, awake: LeaseCommitLock) -> None:
        self._stopped = stopped
        self._awake = awake
        self.is_awake = False
        self.waits_again = Event()

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[Tenure]:
        if self.is_awake:
            self.waits_again.set()
        lock = self._awake if self.is_awake else self._stopped
        with lock.held(timeout_s) as tenure:
            yield tenure


@dataclass
class Outcome:
    """What became of a write: acknowledged, or refused with a typed error that nothing happened."""

    acknowledged: bool = False
    refusal: Exception | None = None
    failure: BaseException | None = None


def stopped_view(uri: str) -> tuple[Graph, Door]:
    """A view of the graph whose lease is over for everybody else at once, and that does not notice it."""
    objects = ControlObjects(parse_location(uri), durable=False)
    lock = LeaseCommitLock(objects, renewal_s=NEVER, wall=lambda: time.time() - NEVER, elapsed=lambda: 0.0)
    door = Door(lock, LeaseCommitLock(objects))
    graph = Graph.open(uri)
    environment = dataclasses.replace(graph._core.environment, lock=door)
    return Graph(OpenGraph(environment, graph._core.settings, read_only=False)), door


def run(write: Callable[[], Any], outcome: Outcome) -> None:
    try:
        write()
        outcome.acknowledged = True
    except (ConflictError, StorageError) as error:
        outcome.refusal = error
    except BaseException as error:  # noqa: BLE001  # the test tells of it in its own thread
        outcome.failure = error


def interleave(
    uri: str, first: Callable[[Graph], Any], second: Callable[[Graph], Any], stalls: tuple[str, str]
) -> tuple[Outcome, Outcome]:
    """Let the first writer stand still at one place and the second at another; then first the first goes on."""
    slow, door = stopped_view(uri)
    successor = Graph.open(uri)
    outcomes = Outcome(), Outcome()
    done = Event(), Event()

    def work(number: int, write: Callable[[], Any]) -> None:
        run(write, outcomes[number])
        done[number].set()

    first_stall, second_stall = Stall(stalls[0]), Stall(stalls[1])
    one = Thread(target=work, args=(0, lambda: first(slow)))
    other = Thread(target=work, args=(1, lambda: second(successor)))
    first_stall.thread, second_stall.thread = one, other
    with failpoints.watched(first_stall.watch), failpoints.watched(second_stall.watch):
        one.start()
        wait_for_any(first_stall.arrived, done[0])
        door.is_awake = True
        other.start()
        wait_for_any(second_stall.arrived, done[1])
        first_stall.go_on.set()
        wait_for_any(done[0], door.waits_again)
        second_stall.go_on.set()
        one.join(HOPELESS_S)
        other.join(HOPELESS_S)
    assert done[0].is_set(), f"the first writer hangs after {stalls}"
    assert done[1].is_set(), f"the second writer hangs after {stalls}"
    for outcome in outcomes:
        if outcome.failure is not None:
            raise outcome.failure
    return outcomes


def wait_for_any(*events: Event) -> None:
    deadline = time.monotonic() + HOPELESS_S
    while not any(event.wait(0.005) for event in events):
        assert time.monotonic() < deadline, "nothing happens any more"


# ---- the world


def make_world(uri: str) -> None:
    """Two papers, one citing the other."""
    with Graph.init(uri, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        graph.mutate(ADD_CITING, {"doi": "o", "to": "a"})


def add_b(graph: Graph) -> None:
    graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})


def forget_a(graph: Graph) -> None:
    graph.mutate(FORGET, {"doi": "a"})


def check_whole(uri: str) -> None:
    """No dangling edge, no doubled commit, catalog = datasets, and the next write works."""
    with Graph.open(uri) as graph:
        graph.mutate(ADD_PAPER, {"doi": "next", "title": "N"})
        for branch in graph.branches():
            papers = set(values(graph, "node:Paper", "doi", branch))
            for edge in rows(graph, "edge:Cites", ["src", "dst"], branch):
                assert {edge["src"], edge["dst"]} <= papers, f"{edge} dangles on {branch}"
        ids = [row["object_id"] for row in graph._core.environment.manifest._look()[0].read_rows("graph_commit")]
        assert len(ids) == len(set(ids)), "a commit is there twice"
        assert graph.pending_recoveries() == []
    check_graph(uri, has_deleted=True)
