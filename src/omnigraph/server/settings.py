"""What can be configured about a running server, from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from omnigraph.core.budget import MemoryAccount, ReadLimits, Turns
from omnigraph.core.env_settings import available_memory, duration_s, is_on, whole_number
from omnigraph.errors import BadRequestError

MEBIBYTE = 1024 * 1024
#: One load of the largest body has to fit.
_LOWEST_BYTES = 256 * MEBIBYTE
_READ_MEMORY = "OMNIGRAPH_SERVER_READ_MEMORY_BYTES"
_BODY = "OMNIGRAPH_BODY_MAX_BYTES"
_LOAD_BODY = "OMNIGRAPH_LOAD_BODY_MAX_BYTES"
_QUERY_TIMEOUT_MAX = "OMNIGRAPH_QUERY_TIMEOUT_MAX"
_EXPORT_TIMEOUT = "OMNIGRAPH_EXPORT_TIMEOUT"
_WRITE_TIMEOUT = "OMNIGRAPH_WRITE_TIMEOUT"
ACTOR_INFLIGHT = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX"
ACTOR_BYTES = "OMNIGRAPH_PER_ACTOR_BYTES_MAX"
BODIES_BYTES = "OMNIGRAPH_BODIES_MAX_BYTES"
BODY_VALUES = "OMNIGRAPH_BODY_MAX_VALUES"
EXPORTS_PER_GRAPH = "OMNIGRAPH_EXPORTS_PER_GRAPH"
EXPORTS_PER_CALLER = "OMNIGRAPH_EXPORTS_PER_CALLER"


class BodyLimit(NamedTuple):
    """The largest body of a kind of request, and the setting that changes it."""

    size_bytes: int
    setting: str


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
    #: How long a read may work when its caller does not say, and at most; None is as long as it takes.
    query_timeout_s: float | None = 60.0
    query_timeout_max_s: float | None = 600.0
    #: How long an export or a baseline may work, whatever its caller asks for: a slow reader holds a place for it.
    export_timeout_s: float | None = 6 * 3600.0
    #: How long a load or a merge may work before its commit, whatever its caller asks for; None is as long as it takes.
    longest_write_s: float | None = None
    #: Rows that one answer may have.
    query_max_rows: int = 10_000_000
    #: Memory that the intermediate results of all reads may take together.
    read_memory_bytes: int = 4096 * MEBIBYTE
    #: A start without all graphs is a failure.
    require_all_graphs: bool = False
    #: Names that an open server answers to, beside addresses and `localhost`.
    allowed_hosts: frozenset[str] = frozenset()
    #: How long requests in flight may take after the signal to stop.
    shutdown_s: int = 30

    @property
    def body_limit(self) -> BodyLimit:
        """What bounds the body of a request that is not a load."""
        return BodyLimit(self.body_max_bytes, _BODY)

    @property
    def load_body_limit(self) -> BodyLimit:
        """What bounds the body of a load."""
        return BodyLimit(self.load_body_max_bytes, _LOAD_BODY)

    def read_limits(self) -> ReadLimits:
        """What bounds every read of this process; memory and turns are shared by all that are given the same limits."""
        return ReadLimits(
            max_rows=self.query_max_rows,
            memory=MemoryAccount(self.read_memory_bytes, setting=_READ_MEMORY),
            turns=Turns(max(2, os.cpu_count() or 2)),
        )

    def timeout_s(self, wanted: float | None) -> float | None:
        """How long a read may work whose caller wants so much time, or does not say.

        Raises:
            BadRequestError: it is more than the server allows.
        """
        longest = self.query_timeout_max_s
        times = [time for time in (self.query_timeout_s, longest) if time is not None]
        return _allowed_s(wanted, min(times, default=None), longest, _QUERY_TIMEOUT_MAX)

    def stream_timeout_s(self, wanted: float | None) -> float | None:
        """As `timeout_s`, for an export, a baseline or a diff.

        Raises:
            BadRequestError: it is more than the server allows.
        """
        longest = self.export_timeout_s
        return _allowed_s(wanted, longest, longest, _EXPORT_TIMEOUT)

    def write_timeout_s(self, wanted: float | None) -> float | None:
        """As `timeout_s`, for a load or a merge.

        Raises:
            BadRequestError: it is more than the server allows.
        """
        longest = self.longest_write_s
        return _allowed_s(wanted, longest, longest, _WRITE_TIMEOUT)

    @staticmethod
    def from_environment() -> ServerSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default."""
        defaults = ServerSettings()
        hosts = os.environ.get("OMNIGRAPH_ALLOWED_HOSTS", "").lower().split(",")
        return ServerSettings(
            actor_inflight_max=whole_number(ACTOR_INFLIGHT, defaults.actor_inflight_max, lowest=1),
            actor_bytes_max=whole_number(
                ACTOR_BYTES,
                max(available_memory() // 4, _LOWEST_BYTES),
                lowest=1,
            ),
            body_max_bytes=whole_number(_BODY, defaults.body_max_bytes, lowest=1),
            load_body_max_bytes=whole_number(_LOAD_BODY, defaults.load_body_max_bytes, lowest=1),
            body_max_values=whole_number(BODY_VALUES, defaults.body_max_values, lowest=1),
            bodies_max_bytes=whole_number(
                BODIES_BYTES, max(available_memory() // 4, _LOWEST_BYTES), lowest=1
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
                EXPORTS_PER_GRAPH, defaults.exports_per_graph, lowest=1, highest=8
            ),
            exports_per_caller=whole_number(
                EXPORTS_PER_CALLER, defaults.exports_per_caller, lowest=1, highest=8
            ),
            read_threads=whole_number(
                "OMNIGRAPH_SERVER_READ_THREADS", defaults.read_threads, lowest=1, highest=1024
            ),
            write_threads=whole_number(
                "OMNIGRAPH_SERVER_WRITE_THREADS", defaults.write_threads, lowest=1, highest=1024
            ),
            query_timeout_s=duration_s("OMNIGRAPH_QUERY_TIMEOUT", "60s") or None,
            query_timeout_max_s=duration_s(_QUERY_TIMEOUT_MAX, "10m") or None,
            export_timeout_s=duration_s(_EXPORT_TIMEOUT, "6h") or None,
            longest_write_s=duration_s(_WRITE_TIMEOUT, "0") or None,
            query_max_rows=whole_number(
                "OMNIGRAPH_QUERY_MAX_ROWS", defaults.query_max_rows, lowest=1
            ),
            read_memory_bytes=whole_number(
                _READ_MEMORY, max(available_memory() // 2, _LOWEST_BYTES), lowest=1
            ),
            require_all_graphs=is_on("OMNIGRAPH_REQUIRE_ALL_GRAPHS"),
            allowed_hosts=frozenset(host.strip() for host in hosts if host.strip()),
            shutdown_s=whole_number("OMNIGRAPH_SHUTDOWN_S", defaults.shutdown_s),
        )


def _allowed_s(
    wanted: float | None, default: float | None, longest: float | None, setting: str
) -> float | None:
    if wanted is None:
        return default
    if longest is not None and wanted > longest:
        raise BadRequestError(
            f"timeout_s is {wanted:g}: this server allows at most {longest:g} s ({setting})"
        )
    return wanted
