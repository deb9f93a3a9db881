"""Settings of a running server, from the environment."""

from __future__ import annotations

import os
from typing import NamedTuple

from omnigraph.core.budget import MemoryAccount, ReadLimits, Turns
from omnigraph.core.env_settings import Duration, Variable, WholeNumber, available_memory
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen

MEBIBYTE = 1024 * 1024
#: One load of the largest body has to fit.
_LOWEST_BYTES = 256 * MEBIBYTE
_QUARTER = "a quarter of the memory, at least 256 MiB"
ACTOR_INFLIGHT = WholeNumber(
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", 16, "Mutating requests that one actor may have in flight.", lowest=1
)
ACTOR_BYTES = WholeNumber(
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX",
    1024 * MEBIBYTE,
    "Bytes that the requests in flight of one actor may hold together.",
    lowest=1,
    shown=_QUARTER,
)
_BODY = WholeNumber("OMNIGRAPH_BODY_MAX_BYTES", MEBIBYTE, "The largest body of a request that is not a load.", lowest=1)
_LOAD_BODY = WholeNumber("OMNIGRAPH_LOAD_BODY_MAX_BYTES", 32 * MEBIBYTE, "The largest body of a load.", lowest=1)
BODY_VALUES = WholeNumber(
    "OMNIGRAPH_BODY_MAX_VALUES", 100_000, "Values, at every depth, that a JSON body may hold.", lowest=1
)
BODIES_BYTES = WholeNumber(
    "OMNIGRAPH_BODIES_MAX_BYTES",
    1024 * MEBIBYTE,
    "Memory that the bodies of all requests may take together.",
    lowest=1,
    shown=_QUARTER,
)
_BODY_IDLE = Duration("OMNIGRAPH_BODY_IDLE", "10s", "The longest pause between two parts of a body.")
_BODY_TOTAL = Duration("OMNIGRAPH_BODY_TOTAL", "5m", "The time in which a whole body has to arrive.")
_SEND_IDLE = Duration(
    "OMNIGRAPH_SEND_IDLE", "60s", "The time that a client has for 48 KiB of its answer, or for the rest of it."
)
_MAX_CONNECTIONS = WholeNumber("OMNIGRAPH_MAX_CONNECTIONS", 512, "Connections at the same time.", lowest=1)
_HEADER = Duration("OMNIGRAPH_HEADER_TIMEOUT", "10s", "The time for the headers of a request.")
_KEEP_ALIVE = WholeNumber(
    "OMNIGRAPH_KEEP_ALIVE_S", 5, "Seconds for which a connection is kept for its next request.", lowest=1
)
EXPORTS_PER_GRAPH = WholeNumber(
    "OMNIGRAPH_EXPORTS_PER_GRAPH", 4, "Exports of one graph at the same time.", lowest=1, highest=8
)
EXPORTS_PER_CALLER = WholeNumber(
    "OMNIGRAPH_EXPORTS_PER_CALLER",
    2,
    "Exports of one graph that one caller may have at the same time.",
    lowest=1,
    highest=8,
)
_READ_THREADS = WholeNumber(
    "OMNIGRAPH_SERVER_READ_THREADS", 32, "Reads that run at the same time.", lowest=1, highest=1024
)
_WRITE_THREADS = WholeNumber(
    "OMNIGRAPH_SERVER_WRITE_THREADS",
    64,
    "Writes that run at the same time. More than one actor may have in flight, so that no actor waits for another.",
    lowest=1,
    highest=1024,
)
_QUERY_TIMEOUT = Duration(
    "OMNIGRAPH_QUERY_TIMEOUT", "60s", "The time limit of a read whose caller gives none; `0` for no limit."
)
_QUERY_TIMEOUT_MAX = Duration(
    "OMNIGRAPH_QUERY_TIMEOUT_MAX", "10m", "The longest time limit that a caller may ask for; `0` for any."
)
_EXPORT_TIMEOUT = Duration(
    "OMNIGRAPH_EXPORT_TIMEOUT",
    "6h",
    "The time limit of an export, a baseline or a diff, whatever its caller asks for; `0` for no limit.",
)
_WRITE_TIMEOUT = Duration(
    "OMNIGRAPH_WRITE_TIMEOUT",
    "0",
    "The time limit of a load or a merge before its commit, whatever its caller asks for; `0` for no limit.",
)
_QUERY_ROWS = WholeNumber("OMNIGRAPH_QUERY_MAX_ROWS", 10_000_000, "Rows that one answer may have.", lowest=1)
_TOOL_BYTES = WholeNumber(
    "OMNIGRAPH_TOOL_MAX_BYTES",
    64 * 1024,
    "Bytes of rows in the answer to an agent; more are cut, and the answer says so.",
    lowest=1024,
)
_READ_MEMORY = WholeNumber(
    "OMNIGRAPH_SERVER_READ_MEMORY_BYTES",
    4096 * MEBIBYTE,
    "Memory that the intermediate results of all reads may take together.",
    lowest=1,
    shown="half of the memory, at least 256 MiB",
)
_REQUIRE_ALL = Variable(
    "OMNIGRAPH_REQUIRE_ALL_GRAPHS",
    "Makes a start fail when one of the graphs cannot be opened.",
    default="off",
    values="`1`",
)
_ALLOWED_HOSTS = Variable(
    "OMNIGRAPH_ALLOWED_HOSTS",
    "Host names that a server without tokens answers to, beside IP addresses and `localhost`.",
    values="names with commas between them",
)
_SHUTDOWN = WholeNumber("OMNIGRAPH_SHUTDOWN_S", 30, "Seconds that requests in flight have after the signal to stop.")


class BodyLimit(NamedTuple):
    """The largest body of a kind of request, and the setting that changes it."""

    size_bytes: int
    setting: str


@frozen(kw_only=True)
class ServerSettings:
    """Limits and choices of one process."""

    actor_inflight_max: int = ACTOR_INFLIGHT.default
    actor_bytes_max: int = ACTOR_BYTES.default
    body_max_bytes: int = _BODY.default
    load_body_max_bytes: int = _LOAD_BODY.default
    body_max_values: int = BODY_VALUES.default
    bodies_max_bytes: int = BODIES_BYTES.default
    body_idle_s: float = _BODY_IDLE.default_s
    body_total_s: float = _BODY_TOTAL.default_s
    send_idle_s: float = _SEND_IDLE.default_s
    max_connections: int = _MAX_CONNECTIONS.default
    header_s: float = _HEADER.default_s
    keep_alive_s: int = _KEEP_ALIVE.default
    exports_per_graph: int = EXPORTS_PER_GRAPH.default
    exports_per_caller: int = EXPORTS_PER_CALLER.default
    #: Reads and writes have their own threads, so that neither waits for the other.
    read_threads: int = _READ_THREADS.default
    write_threads: int = _WRITE_THREADS.default
    #: None means no limit, here and below.
    query_timeout_s: float | None = _QUERY_TIMEOUT.default_s
    query_timeout_max_s: float | None = _QUERY_TIMEOUT_MAX.default_s
    export_timeout_s: float | None = _EXPORT_TIMEOUT.default_s
    longest_write_s: float | None = None
    query_max_rows: int = _QUERY_ROWS.default
    tool_max_bytes: int = _TOOL_BYTES.default
    read_memory_bytes: int = _READ_MEMORY.default
    require_all_graphs: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    shutdown_s: int = _SHUTDOWN.default

    @property
    def body_limit(self) -> BodyLimit:
        """The limit of the body of a request that is not a load."""
        return BodyLimit(self.body_max_bytes, _BODY)

    @property
    def load_body_limit(self) -> BodyLimit:
        """The limit of the body of a load."""
        return BodyLimit(self.load_body_max_bytes, _LOAD_BODY)

    def read_limits(self) -> ReadLimits:
        """The limits of every read of this process; reads with the same limits share memory and turns."""
        return ReadLimits(
            max_rows=self.query_max_rows,
            memory=MemoryAccount(self.read_memory_bytes, setting=_READ_MEMORY),
            turns=Turns(max(2, os.cpu_count() or 2)),
        )

    def timeout_s(self, wanted: float | None) -> float | None:
        """The time limit of a read whose caller asks for so much time, or for none.

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
        memory = available_memory()
        hosts = _ALLOWED_HOSTS.text().lower().split(",")
        return ServerSettings(
            actor_inflight_max=ACTOR_INFLIGHT.read(),
            actor_bytes_max=ACTOR_BYTES.read(max(memory // 4, _LOWEST_BYTES)),
            body_max_bytes=_BODY.read(),
            load_body_max_bytes=_LOAD_BODY.read(),
            body_max_values=BODY_VALUES.read(),
            bodies_max_bytes=BODIES_BYTES.read(max(memory // 4, _LOWEST_BYTES)),
            body_idle_s=_BODY_IDLE.read_s(),
            body_total_s=_BODY_TOTAL.read_s(),
            send_idle_s=_SEND_IDLE.read_s(),
            max_connections=_MAX_CONNECTIONS.read(),
            header_s=_HEADER.read_s(),
            keep_alive_s=_KEEP_ALIVE.read(),
            exports_per_graph=EXPORTS_PER_GRAPH.read(),
            exports_per_caller=EXPORTS_PER_CALLER.read(),
            read_threads=_READ_THREADS.read(),
            write_threads=_WRITE_THREADS.read(),
            query_timeout_s=_QUERY_TIMEOUT.read_s() or None,
            query_timeout_max_s=_QUERY_TIMEOUT_MAX.read_s() or None,
            export_timeout_s=_EXPORT_TIMEOUT.read_s() or None,
            longest_write_s=_WRITE_TIMEOUT.read_s() or None,
            query_max_rows=_QUERY_ROWS.read(),
            tool_max_bytes=_TOOL_BYTES.read(),
            read_memory_bytes=_READ_MEMORY.read(max(memory // 2, _LOWEST_BYTES)),
            require_all_graphs=_REQUIRE_ALL.is_on(),
            allowed_hosts=frozenset(host.strip() for host in hosts if host.strip()),
            shutdown_s=_SHUTDOWN.read(),
        )


def _allowed_s(wanted: float | None, default: float | None, longest: float | None, setting: str) -> float | None:
    if wanted is None:
        return default
    if longest is not None and wanted > longest:
        raise BadRequestError(f"timeout_s is {wanted:g}: this server allows at most {longest:g} s ({setting})")
    return wanted
