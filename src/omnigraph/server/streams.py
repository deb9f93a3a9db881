"""Responses that are made while they are sent: bounded in memory, as fast as their reader.

Two ways to make one. *Pulled*: an iterator gives the next piece when the last one was taken, and holds a thread only
while it makes one, so that any number of readers may pause. *Produced*: a thread writes all of it, and pieces of at
most 64 KiB wait for the reader, two at a time; how many of these there may be is bounded.

A reader that goes away stops what makes its response; one that takes too little is made to go by `connections`. A
failure after the first byte breaks the connection, so that a part is never taken for the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import anyio
from anyio.from_thread import run as run_in_loop
from starlette.responses import Response

from omnigraph.core.budget import LinkedSignal
from omnigraph.errors import OmniError, ResourceLimitError
from omnigraph.server.calls import GraphCall, run_in_thread, until_gone
from omnigraph.server.responses import logger
from omnigraph.server.service import Service
from omnigraph.server.settings import EXPORTS_PER_CALLER, EXPORTS_PER_GRAPH

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from starlette.types import Receive, Scope, Send

    Release = Callable[[], None]

_log = logger(__name__)
CHUNK_BYTES = 64 * 1024
QUEUED_CHUNKS = 2
RESERVED_BYTES = 256 * 1024
_WAIT_S = 0.25
_POLL_S = 0.01


class ReaderGoneError(Exception):
    """The reader of a stream went away; only the producer sees it."""


class Sink:
    """Takes what the producer writes, in a thread, and hands it over in pieces."""

    def __init__(self, send: MemoryObjectSendStream[bytes]) -> None:
        self._send = send
        self._buffer = bytearray()

    def write(self, piece: str | bytes, /) -> None:
        """Take a piece of text or bytes; waits while two pieces are on their way.

        Raises:
            ReaderGoneError: the reader is gone.
        """
        self._buffer += piece.encode() if isinstance(piece, str) else piece
        while len(self._buffer) >= CHUNK_BYTES:
            self._hand_over(CHUNK_BYTES)

    def finish(self) -> None:
        """Hand over what is left."""
        if self._buffer:
            self._hand_over(len(self._buffer))

    def _hand_over(self, size: int) -> None:
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        try:
            run_in_loop(self._send.send, chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ReaderGoneError from error


class _Production:
    """A producer at work in a thread, and the pieces that it made."""

    def __init__(self, produce: Callable[[Sink], None], limiter: anyio.CapacityLimiter, release: Release) -> None:
        self._sending, self._receiving = anyio.create_memory_object_stream[bytes](QUEUED_CHUNKS)
        self._release = release
        self._task = asyncio.create_task(self._run(produce, limiter))

    async def _run(self, produce: Callable[[Sink], None], limiter: anyio.CapacityLimiter) -> None:
        def work() -> None:
            sink = Sink(self._sending)
            produce(sink)
            sink.finish()

        with self._sending:
            await run_in_thread(work, limiter=limiter)

    async def next(self) -> bytes | None:
        """The next piece; None after the last one. The failure of the producer is raised here."""
        try:
            return await self._receiving.receive()
        except anyio.EndOfStream:
            await self._task
            return None

    async def stop(self) -> None:
        """Stop the producer if it still works, and give back what the stream held."""
        self._receiving.close()
        with anyio.CancelScope(shield=True):
            try:
                await self._task
            except ReaderGoneError:
                pass
            except OmniError as failure:
                _log.info("a stream ended early", reason=failure.message)
            except Exception:  # noqa: BLE001  # the reader of the pieces got it, or is gone
                _log.info("a stream ended early", exc_info=True)
            finally:
                self._release()


class _Pull:
    """An iterator that makes a piece when it is asked for one."""

    def __init__(self, pieces: Iterator[bytes], limiter: anyio.CapacityLimiter) -> None:
        self._pieces = pieces
        self._limiter = limiter

    async def next(self) -> bytes | None:
        """The next piece; None after the last one."""
        return await run_in_thread(lambda: next(self._pieces, None), limiter=self._limiter)

    async def stop(self) -> None:
        """Give back what the iterator holds."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            with anyio.CancelScope(shield=True):
                await run_in_thread(close, limiter=self._limiter)


class StreamedResponse(Response):
    """A response whose body is still being made."""

    def __init__(
        self,
        source: _Production | _Pull,
        first: bytes | None,
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
        signal: LinkedSignal | None = None,
    ) -> None:
        super().__init__(None, headers=headers, media_type=media_type, status_code=status)
        if headers is None or "Content-Length" not in headers:
            del self.headers["content-length"]
        self._source = source
        self._first = first
        self._signal = signal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces until there are no more, or the client is gone."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(until_gone, receive, self._signal, group.cancel_scope)
                await self._send_all(send)
                group.cancel_scope.cancel()
        finally:
            if self._signal is not None:
                # What still works for this response is not wanted any more.
                self._signal.set()
            await self._source.stop()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        piece = self._first or await self._source.next()
        while piece is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await self._source.next()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def produced(
    call: GraphCall,
    produce: Callable[[Sink], None],
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    signal: LinkedSignal,
) -> StreamedResponse:
    """A response of what a producer writes, which stops at a signal, in a place for one large stream of the graph.

    Whatever fails before its first piece is a failure of the request.

    Raises:
        ResourceLimitError: too many streams of the caller, the graph or the server are open.
    """
    production = _Production(produce, call.service.producers, await _reserve(call))
    try:
        first = await production.next()
    except BaseException:  # also when cancelled: the thread would go on without a reader
        signal.set()
        await production.stop()
        raise
    return StreamedResponse(production, first, media_type=media_type, headers=headers, signal=signal)


def pulled(
    service: Service,
    pieces: Iterator[bytes],
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    status: int = 200,
    signal: LinkedSignal | None = None,
) -> StreamedResponse:
    """A response of what an iterator gives; nothing of it is made before the response begins."""
    source = _Pull(pieces, service.reads)
    return StreamedResponse(source, None, media_type=media_type, headers=headers, status=status, signal=signal)


async def _reserve(call: GraphCall) -> Release:
    """A place for one large stream of the graph; what is returned gives it back.

    Raises:
        ResourceLimitError: too many streams of the caller, the graph or the server are open.
    """
    service, slots, caller = call.service, call.served.slots, call.caller
    if not slots.take(caller):
        if slots.has_all(caller):
            most, whose, setting = slots.per_caller, "yours", EXPORTS_PER_CALLER
        else:
            most, whose, setting = slots.count, "this graph", EXPORTS_PER_GRAPH
        advice = f"other exports of {whose} are running: try again when one is done, or raise {setting} on the server"
        raise ResourceLimitError("stream_export_slots", most, most + 1, advice)
    try:
        await _take_stream(service, caller)
    except BaseException:  # also when cancelled: the graph would have a place less for exports
        slots.give_back(caller)
        raise
    service.metrics.streams.inc()

    def release() -> None:
        service.metrics.streams.dec()
        service.streams.give_back(caller)
        slots.give_back(caller)

    return release


async def _take_stream(service: Service, caller: str) -> None:
    deadline = anyio.current_time() + _WAIT_S
    while not service.streams.take(caller):
        if anyio.current_time() >= deadline:
            limit = service.streams.count * RESERVED_BYTES
            advice = "other streams of this server are running: try again when one is done"
            raise ResourceLimitError("stream_export_transport_bytes", limit, limit + RESERVED_BYTES, advice)
        await anyio.sleep(_POLL_S)  # places are given back in threads, which do not wake the loop
