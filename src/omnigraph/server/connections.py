"""Connections that cannot wait for ever: bounded in number and time, without a proxy in front.

A connection is either *busy*, between the last byte of the headers of a request and the last piece of its answer, or
*waiting* for a client. What a client may hold is bounded in each state:

- waiting for headers, or for the rest of a body that was not read: `header_s` from the first byte (of a new connection:
  from its start); without a byte after an answer: the keep-alive time;
- while a body is read: `bodies` bounds the silence and the whole;
- while an answer is sent: 48 KiB of it, or the rest, must be taken in every `send_idle_s`;
- all connections: `max_connections`. Another one takes the place of the connection that waits longest for its client,
  between requests or within a body, and is refused when the server owes all of them an answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from omnigraph.api.operation import JSON
from omnigraph.errors import OmniError, RequestTimeoutError, TooManyRequestsError, TransportError
from omnigraph.frozen import frozen
from omnigraph.server.responses import json_bytes, logger
from omnigraph.server.settings import ServerSettings

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle


_log = logger(__name__)
_MALFORMED = "the request is not HTTP/1.1"
_ALL_BUSY = "all connections of the server are busy: try again later, or raise OMNIGRAPH_MAX_CONNECTIONS on the server"
#: What a client has to take of its answer in a time; the transport reports every 48 KiB.
_LEAST_TAKEN_BYTES = 48 * 1024


@frozen(kw_only=True)
class ConnectionLimits:
    """Limits of the number of connections, and of the time that a client may take."""

    max_connections: int
    header_s: float
    send_idle_s: float

    @staticmethod
    def of(settings: ServerSettings) -> ConnectionLimits:
        """The limits of a server."""
        return ConnectionLimits(
            max_connections=settings.max_connections, header_s=settings.header_s, send_idle_s=settings.send_idle_s
        )


class BoundedConnection(H11Protocol):
    """One connection; `bounded` gives the class its limits."""

    limits: ClassVar[ConnectionLimits]

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # what the server gives its protocols
        self._waiting_timer: asyncio.TimerHandle | None = None
        self._sending_timer: asyncio.TimerHandle | None = None
        #: When something came last, or was answered; connections that are quiet longest go first.
        self._quiet_since = self.loop.time()
        self._unsent_bytes = 0

    # ---- calls from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        """Take a place among the connections, or refuse."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections and not self._make_room():
            self._refuse(TooManyRequestsError(_ALL_BUSY))
            return
        self._watch_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._stop_waiting()
        self._stop_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; those that complete no request start the clock."""
        if self.transport.is_closing():
            return
        self._quiet_since = self.loop.time()
        super().data_received(data)
        self._watch_waiting()

    def pause_writing(self) -> None:
        """Begin to look whether the client takes anything."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """The client took enough for more to be written."""
        super().resume_writing()
        self._stop_sending()
        if self.transport.is_closing():
            self._watch_sending()  # there will not be more, and the rest has to be taken too

    # ---- calls from the server

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]:
            # The rest of a body that no route read, or half of the next request: it may never come.
            self._watch_waiting()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the form of all failures."""
        problem = sys.exception()
        status = getattr(problem, "error_status_hint", 400)
        _log.info("malformed request", peer=peer_of(self.client), reason=str(problem or msg))
        self._refuse(TransportError(f"{_MALFORMED}: {problem or msg}"), status)

    # ---- waiting for a client

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def is_waiting(self) -> bool:
        """Whether it has nothing to do before the client sends something."""
        if self.is_busy:
            return self.conn.their_state is h11.SEND_BODY and not self.cycle.response_started
        return not self.transport.get_write_buffer_size()

    def _watch_waiting(self) -> None:
        if self.is_busy or self.transport.is_closing():
            self._stop_waiting()
        elif self._waiting_timer is None:
            self._waiting_timer = self.loop.call_later(self.limits.header_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
            self._waiting_timer = None

    def _give_up(self) -> None:
        self._waiting_timer = None
        if self.conn.trailing_data[0]:
            self._refuse(RequestTimeoutError("the headers came too slowly"))
        else:
            self.transport.close()  # nothing was asked, and an answer would be taken for that of the next request

    def _make_room(self) -> bool:
        """End the connection that waits longest, if one does; those between requests go first."""
        others: Iterable[BoundedConnection] = (
            item
            for item in self.connections
            if isinstance(item, BoundedConnection) and item is not self and item.is_waiting
        )
        oldest = min(others, key=lambda item: (item.is_busy, item._quiet_since), default=None)
        if oldest is None:
            return False
        oldest._stop_waiting()
        # Not closed but ended: its place is free at once, whatever it still has to send.
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True

    # ---- sending to a client

    def _watch_sending(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        if self._sending_timer is None:
            self._sending_timer = self.loop.call_later(self.limits.send_idle_s, self._check_sending)

    def _stop_sending(self) -> None:
        if self._sending_timer is not None:
            self._sending_timer.cancel()
            self._sending_timer = None

    def _check_sending(self) -> None:
        """End the connection of a client that took too little since the last look."""
        self._sending_timer = None
        left = self.transport.get_write_buffer_size()
        if not left:
            return
        if self._unsent_bytes - left < _LEAST_TAKEN_BYTES:
            _log.info("a client took its answer too slowly", peer=peer_of(self.client))
            self.transport.abort()
        else:
            self._watch_sending()

    # ---- refusing

    def _refuse(self, failure: OmniError, status: int | None = None) -> None:
        """Say why, if an answer can still be given, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = status or failure.http_status
            body = json_bytes(failure.to_json())
            headers = {"Content-Type": JSON, "Content-Length": str(len(body)), "Connection": "close"}
            answer = h11.Response(
                status_code=status, headers=list(headers.items()), reason=STATUS_PHRASES.get(status, b"")
            )
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.is_busy:
            # The route that waits for the rest of its request learns that its client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._stop_waiting()
        self.transport.close()


def bounded(limits: ConnectionLimits) -> type[BoundedConnection]:
    """The class of connections with these limits."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": limits})


def peer_of(client: tuple[str, int] | None) -> str:
    """The address of a client, as logs tell it."""
    return "unknown" if client is None else client[0]
