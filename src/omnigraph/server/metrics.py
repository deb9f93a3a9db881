"""What a server counts, in the text form of Prometheus."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from prometheus_client import Metric

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
            "omnigraph_http_requests_in_flight",
            "Requests that are not finished.",
            registry=self._registry,
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
            "omnigraph_commits",
            "Commits published through this server.",
            (_GRAPH,),
            registry=self._registry,
        )
        self.unknown_tokens = Counter(
            "omnigraph_unknown_tokens",
            "Requests with a token that the server does not know.",
            registry=self._registry,
        )
        self.streams = Gauge(
            "omnigraph_streams_open", "Streaming responses that are open.", registry=self._registry
        )
        self.reloads = Counter(
            "omnigraph_reloads",
            "Reloads of tokens and policy.",
            ("result",),
            registry=self._registry,
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
