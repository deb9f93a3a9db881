"""Two writers, each of which can stand still at a named place, and what has to hold whatever happens between them.

The first writer never notices that its lease is over, which is the worst a stall can be: it stands still right after
its look at the clock. The second takes over, goes on to a place of its own, and waits there until the first has done
all that it can do.
"""

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
from omnigraph.errors import ConflictError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import parse_location
from omnigraph.storage.locks import HeldTenure, LeaseCommitLock
from omnigraph.storage.objects import ObstoreObjects
from support.s3_graphs import ADD_CITING, ADD_PAPER, CITE, FORGET, SCHEMA, check_graph, rows, values

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
    def held(self, timeout_s: float) -> Iterator[HeldTenure]:
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
    objects = ObstoreObjects(parse_location(uri), durable=False)
    lock = LeaseCommitLock(
        objects, renewal_s=NEVER, wall=lambda: time.time() - NEVER, elapsed=lambda: 0.0
    )
    door = Door(lock, LeaseCommitLock(objects))
    graph = Graph.open(uri)
    environment = dataclasses.replace(graph._environment, lock=door)
    return Graph(environment, read_only=False, settings=graph._settings), door


def run(write: Callable[[], Any], outcome: Outcome) -> None:
    try:
        write()
        outcome.acknowledged = True
    except (ConflictError, StorageError) as error:
        outcome.refusal = error
    except BaseException as error:  # noqa: BLE001  # the test tells of it in its own thread
        outcome.failure = error


def interleave(
    uri: str,
    first: Callable[[Graph], Any],
    second: Callable[[Graph], Any],
    stalls: tuple[str, str],
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


def cite_b(graph: Graph) -> None:
    graph.mutate(CITE, {"from": "o", "to": "b"})


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
        ids = [
            row["object_id"]
            for row in graph._environment.manifest._look()[0].read_rows("graph_commit")
        ]
        assert len(ids) == len(set(ids)), "a commit is there twice"
        assert graph.pending_recoveries() == []
    check_graph(uri, has_deleted=True)
