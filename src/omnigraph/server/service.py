"""What one process serves: its graphs, who may do what with them, and the bounds that all requests share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from omnigraph.server.admission import Admission, BodyMemory
from omnigraph.server.hidden_places import HiddenPlaces
from omnigraph.server.kept_diffs import KeptDiffs
from omnigraph.server.metrics import Metrics
from omnigraph.server.stream_slots import StreamSlots
from omnigraph.server.unknown_tokens import UnknownTokens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from omnigraph.graph.graph import Graph
    from omnigraph.policy.gate import PolicyGate
    from omnigraph.server.settings import ServerSettings
    from omnigraph.server.tokens import Tokens
    from omnigraph.serving.config import ServerConfig
    from omnigraph.serving.stored import StoredQueries

#: Streams of all graphs at the same time.
STREAMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGraph:
    """One graph that is served."""

    graph_id: str
    graph: Graph
    queries: StoredQueries
    #: Who may do what; None in the open state, where everybody may do everything.
    gate: PolicyGate | None
    #: Places for its exports.
    slots: StreamSlots
    diffs: KeptDiffs = field(default_factory=KeptDiffs)

    @property
    def address(self) -> str:
        """Where it is on this server; where its storage is, no answer tells."""
        return f"/graphs/{self.graph_id}"


@dataclass(slots=True)
class Authority:
    """Tokens, replaced as a whole by a reload; policies live in the gates of the graphs."""

    #: None in the open state.
    tokens: Tokens | None
    #: Who may list graphs; nobody without one.
    server_gate: PolicyGate | None = None


class Service:
    """Everything that requests share. Made at boot, used by every route."""

    def __init__(
        self,
        *,
        graphs: Mapping[str, OpenGraph],
        quarantined: Mapping[str, str],
        config: ServerConfig,
        authority: Authority,
        settings: ServerSettings,
    ) -> None:
        self.graphs = graphs
        #: Graphs that could not be opened, with the reason; they answer as if they did not exist.
        self.quarantined = quarantined
        self.config = config
        self.authority = authority
        self.settings = settings
        self.admission = Admission(
            inflight_max=settings.actor_inflight_max, bytes_max=settings.actor_bytes_max
        )
        #: What no answer tells.
        self.hidden = HiddenPlaces.of(config)
        self.bodies = BodyMemory(settings.bodies_max_bytes)
        self.unknown_tokens = UnknownTokens()
        self.metrics = Metrics(served=len(graphs), quarantined=len(quarantined))
        #: Responses that stream at the same time, over all graphs.
        self.streams = StreamSlots(STREAMS, per_caller=STREAMS // 2)
        self.reloading = threading.Lock()
        self.reads = anyio.CapacityLimiter(settings.read_threads)
        self.writes = anyio.CapacityLimiter(settings.write_threads)
        #: Threads that parse bodies. Two: more would only take turns.
        self.parsers = anyio.CapacityLimiter(2)
        self.producers = anyio.CapacityLimiter(STREAMS)
        #: Set when the server stops; no read goes on after it.
        self.stopping = threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked who they are."""
        return self.authority.tokens is None

    def close(self) -> None:
        """Close all graphs."""
        for served in self.graphs.values():
            served.diffs.clear()
            served.graph.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
