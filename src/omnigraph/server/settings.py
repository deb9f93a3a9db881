"""What can be configured about a running server, from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omnigraph.environ import available_memory, duration_s, is_on, whole_number

MEBIBYTE = 1024 * 1024
#: One load of the largest body has to fit.
_LOWEST_BYTES = 256 * MEBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits and choices of one process."""

    #: Mutating requests that one actor may have in flight, and the bytes they may hold together.
    actor_inflight_max: int = 16
    actor_bytes_max: int = 1024 * MEBIBYTE
    body_max_bytes: int = MEBIBYTE
    load_body_max_bytes: int = 32 * MEBIBYTE
    #: Values, at every depth, that a JSON body may hold.
    body_max_values: int = 100_000
    #: Memory that the bodies of all requests may take together.
    bodies_max_bytes: int = 1024 * MEBIBYTE
    #: How long a body may take without a byte arriving, and altogether.
    body_idle_s: float = 10.0
    body_total_s: float = 300.0
    #: How long a client may take for 48 KiB of its answer, or the rest of it.
    send_idle_s: float = 60.0
    #: Connections at the same time, how long the headers of a request may take, and how long a connection is kept for
    #: the next one.
    max_connections: int = 512
    header_s: float = 10.0
    keep_alive_s: int = 5
    #: Exports of one graph at the same time, and those of them that one caller may have.
    exports_per_graph: int = 4
    exports_per_caller: int = 2
    #: Reads and writes that run at the same time; each has its own threads, so that neither waits for the other,
    #: and there are more for writes than one actor may have in flight, so that no actor waits for another one.
    read_threads: int = 32
    write_threads: int = 64
    #: A start without all graphs is a failure.
    require_all_graphs: bool = False
    #: Names that an open server answers to, beside addresses and `localhost`.
    allowed_hosts: frozenset[str] = frozenset()
    #: How long requests in flight may take after the signal to stop.
    shutdown_s: int = 30

    @staticmethod
    def from_environment() -> ServerSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default."""
        defaults = ServerSettings()
        hosts = os.environ.get("OMNIGRAPH_ALLOWED_HOSTS", "").lower().split(",")
        return ServerSettings(
            actor_inflight_max=whole_number(
                "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", defaults.actor_inflight_max, lowest=1
            ),
            actor_bytes_max=whole_number(
                "OMNIGRAPH_PER_ACTOR_BYTES_MAX",
                max(available_memory() // 4, _LOWEST_BYTES),
                lowest=1,
            ),
            body_max_bytes=whole_number(
                "OMNIGRAPH_BODY_MAX_BYTES", defaults.body_max_bytes, lowest=1
            ),
            load_body_max_bytes=whole_number(
                "OMNIGRAPH_LOAD_BODY_MAX_BYTES", defaults.load_body_max_bytes, lowest=1
            ),
            body_max_values=whole_number(
                "OMNIGRAPH_BODY_MAX_VALUES", defaults.body_max_values, lowest=1
            ),
            bodies_max_bytes=whole_number(
                "OMNIGRAPH_BODIES_MAX_BYTES", max(available_memory() // 4, _LOWEST_BYTES), lowest=1
            ),
            body_idle_s=duration_s("OMNIGRAPH_BODY_IDLE", "10s"),
            body_total_s=duration_s("OMNIGRAPH_BODY_TOTAL", "5m"),
            send_idle_s=duration_s("OMNIGRAPH_SEND_IDLE", "60s"),
            max_connections=whole_number(
                "OMNIGRAPH_MAX_CONNECTIONS", defaults.max_connections, lowest=1
            ),
            header_s=duration_s("OMNIGRAPH_HEADER_TIMEOUT", "10s"),
            keep_alive_s=whole_number("OMNIGRAPH_KEEP_ALIVE_S", defaults.keep_alive_s, lowest=1),
            exports_per_graph=whole_number(
                "OMNIGRAPH_EXPORTS_PER_GRAPH", defaults.exports_per_graph, lowest=1, highest=8
            ),
            exports_per_caller=whole_number(
                "OMNIGRAPH_EXPORTS_PER_CALLER", defaults.exports_per_caller, lowest=1, highest=8
            ),
            read_threads=whole_number(
                "OMNIGRAPH_SERVER_READ_THREADS", defaults.read_threads, lowest=1, highest=1024
            ),
            write_threads=whole_number(
                "OMNIGRAPH_SERVER_WRITE_THREADS", defaults.write_threads, lowest=1, highest=1024
            ),
            require_all_graphs=is_on("OMNIGRAPH_REQUIRE_ALL_GRAPHS"),
            allowed_hosts=frozenset(host.strip() for host in hosts if host.strip()),
            shutdown_s=whole_number("OMNIGRAPH_SHUTDOWN_S", defaults.shutdown_s),
        )
