"""Admission of requests, slots of streams, and metrics."""

from __future__ import annotations

import collections
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from omnigraph.errors import TooManyRequestsError
from omnigraph.errors.text import size_text
from omnigraph.server.settings import ACTOR_BYTES, ACTOR_INFLIGHT, BODIES_BYTES

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.requests import Request
    from starlette.types import Scope


# ---- Limits of requests and bytes per actor


RETRY_AFTER_S = 60
#: What an operation on branches is taken to hold.
BRANCH_OPERATION_BYTES = 256
#: Memory that a load takes per byte of its body: measured 5 for short records, 3.4 for long ones.
LOAD_FACTOR = 6
_MEMORY = "omnigraph.body_memory"


class Admission:
    """Counts per actor. Thread-safe."""

    def __init__(self, *, inflight_max: int, bytes_max: int) -> None:
        self._inflight_max = inflight_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._inflight: collections.Counter[str | None] = collections.Counter()
        self._bytes: collections.Counter[str | None] = collections.Counter()

    @contextmanager
    def admitted(self, actor: str | None, size: int) -> Iterator[Grant]:
        """Hold a place for one request of so many bytes, or more later.

        Raises:
            TooManyRequestsError: the actor has too many requests or bytes in flight.
        """
        grant = Grant(self, actor)
        with self._lock:
            if self._inflight[actor] >= self._inflight_max:
                raise TooManyRequestsError(
                    f"{self._inflight_max} writes of this actor are in flight: try again when one is done, or raise "
                    f"{ACTOR_INFLIGHT} on the server"
                )
            self._hold(actor, size)
            self._inflight[actor] += 1
        grant.size = size
        try:
            yield grant
        finally:
            with self._lock:
                self._release(actor, grant.size)

    def grow(self, grant: Grant, size: int) -> None:
        """Let a request hold more bytes.

        Raises:
            TooManyRequestsError: its actor has too many in flight.
        """
        with self._lock:
            self._hold(grant.actor, size)
        grant.size += size

    def _hold(self, actor: str | None, size: int) -> None:
        held = self._bytes[actor]
        if held + size > self._bytes_max:
            raise TooManyRequestsError(
                f"this request holds about {size_text(size)}, the others of this actor {size_text(held)}, and "
                f"{size_text(self._bytes_max)} is the limit: send less, try again when one is done, or raise "
                f"{ACTOR_BYTES} on the server"
            )
        self._bytes[actor] += size

    def _release(self, actor: str | None, size: int) -> None:
        self._inflight[actor] -= 1
        self._bytes[actor] -= size
        if not self._inflight[actor]:
            del self._inflight[actor], self._bytes[actor]


class Grant:
    """The resources of one admitted request."""

    def __init__(self, admission: Admission, actor: str | None) -> None:
        self._admission = admission
        self.actor = actor
        self.size = 0

    def grow(self, size: int) -> None:
        """Hold more bytes.

        Raises:
            TooManyRequestsError: the actor has too many in flight.
        """
        self._admission.grow(self, size)


class BodyMemory:
    """The memory of the bodies of all requests. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """The bytes that are held now."""
        return self._held

    @contextmanager
    def of_request(self, scope: Scope) -> Iterator[None]:
        """Let the request of a scope hold memory until it is answered."""
        held = scope[_MEMORY] = HeldMemory(self)
        try:
            yield
        finally:
            self.add(-held.size)

    def add(self, size: int) -> None:
        """Count more, or less.

        Raises:
            TooManyRequestsError: it would be too much.
        """
        with self._lock:
            if size > 0 and self._held + size > self._limit:
                raise TooManyRequestsError(
                    f"this request holds about {size_text(size)}, all others {size_text(self._held)}, and "
                    f"{size_text(self._limit)} is the limit of the server: send less, try again when others are done, "
                    f"or raise {BODIES_BYTES} on the server"
                )
            self._held += size


class HeldMemory:
    """The memory of the body of one request, as bytes and as values."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.size = 0

    def grow(self, size: int) -> None:
        """Take more.

        Raises:
            TooManyRequestsError: the bodies of all requests take too much.
        """
        self._memory.add(size)
        self.size += size


def memory_of(request: Request) -> HeldMemory:
    """The memory of the body of a request."""
    held: HeldMemory = request.scope[_MEMORY]
    return held


# ---- Limits of streaming responses


class StreamSlots:
    """A number of places, of which one caller gets a part. Thread-safe; nothing waits in it."""

    def __init__(self, count: int, *, per_caller: int) -> None:
        self.count = count
        self.per_caller = per_caller
        self._taken: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def take(self, caller: str) -> bool:
        """Take a place; False when there is none for the caller."""
        with self._lock:
            if self._taken[caller] >= self.per_caller or self._taken.total() >= self.count:
                return False
            self._taken[caller] += 1
            return True

    def has_all(self, caller: str) -> bool:
        """Whether the caller has all places that one caller gets."""
        with self._lock:
            return self._taken[caller] >= self.per_caller

    def give_back(self, caller: str) -> None:
        """Give a place back."""
        with self._lock:
            assert self._taken[caller] > 0, "a place is given back once"
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


# ---- Prometheus metrics


_GRAPHS = "omnigraph_graphs"
#: The label of what belongs to one graph.
_GRAPH = "graph"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one server; each has its own registry, so that several live in one process."""

    def __init__(self, *, served: int, quarantined: int) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self.requests = Counter(
            "omnigraph_http_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "omnigraph_http_request_seconds",
            "Time from the first byte of a request to the last byte of its response.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "omnigraph_http_requests_in_flight", "Requests that are not finished.", registry=self._registry
        )
        self.decisions = Counter(
            "omnigraph_policy_decisions",
            "Decisions of the policy.",
            (_GRAPH, "action", "decision"),
            registry=self._registry,
        )
        self.refused = Counter(
            "omnigraph_admission_refused",
            "Writes refused because their actor had too much in flight.",
            (_GRAPH,),
            registry=self._registry,
        )
        self.commits = Counter(
            "omnigraph_commits", "Commits published through this server.", (_GRAPH,), registry=self._registry
        )
        self.unknown_tokens = Counter(
            "omnigraph_unknown_tokens", "Requests with a token that the server does not know.", registry=self._registry
        )
        self.streams = Gauge("omnigraph_streams_open", "Streaming responses that are open.", registry=self._registry)
        self.reloads = Counter(
            "omnigraph_reloads", "Reloads of tokens and policy.", ("result",), registry=self._registry
        )
        graphs = Gauge(_GRAPHS, "Graphs by state.", ("state",), registry=self._registry)
        graphs.labels("served").set(served)
        graphs.labels("quarantined").set(quarantined)

    def render(self, graphs: Collection[str] | None) -> bytes:
        """All metrics as text; with `graphs` only what belongs to these graphs, or to none."""
        source = self._registry if graphs is None else _Visible(self._registry, graphs)
        return generate_latest(source)


class _Visible:
    """The metrics of a registry without those of other graphs, and without their number."""

    def __init__(self, registry: CollectorRegistry, graphs: Collection[str]) -> None:
        self._registry = registry
        self._graphs = graphs

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        for metric in self._registry.collect():
            if metric.name == _GRAPHS:
                continue
            metric.samples = [
                sample
                for sample in metric.samples
                if _GRAPH not in sample.labels or sample.labels[_GRAPH] in self._graphs
            ]
            yield metric
