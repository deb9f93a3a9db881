"""MCP over standard input and output, for programs that start the server of their agent themselves.

Each line is a message. It goes to the MCP endpoint of a service in this process, so tools, limits and refusals are
those of a server; the actor has a token that exists in this process only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import anyio
from anyio.from_thread import start_blocking_portal

from omnigraph.api.operation import JSON
from omnigraph.codec import Json
from omnigraph.errors import BadRequestError
from omnigraph.server.app import make_app
from omnigraph.server.inner_requests import exchange
from omnigraph.server.mcp import METHOD_HEADER, NAME_HEADER, REVISION_HEADER, RpcRequest, header_text
from omnigraph.server.responses import json_bytes
from omnigraph.server.service import Service

if TYPE_CHECKING:
    from starlette.types import Message, Scope

_INVALID_REQUEST = -32600
_INTERNAL_ERROR = -32603
_CANCELLED = "notifications/cancelled"


def serve_lines(service: Service, token: str, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the messages of a stream on another one until it ends, for the actor of a token.

    Requests run side by side. Those in flight at the end of the stream are answered; an interrupt stops reads.
    """
    bridge = _Bridge(service, token, sink)
    # The lines are read in this thread, which signals interrupt; everything else happens in that of the portal.
    with start_blocking_portal() as portal:
        try:
            for line in source:
                if line.strip():
                    portal.start_task_soon(bridge.answer, line)
        except KeyboardInterrupt:
            service.stopping.set()
            raise


@contextmanager
def own_output() -> Iterator[BinaryIO]:
    """Standard output for the protocol alone: what else is printed in this process goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        with open(kept, "wb", closefd=False) as wire:
            yield wire
    finally:
        sys.stdout.flush()
        os.dup2(kept, sys.stdout.fileno())
        os.close(kept)


class _Bridge:
    """Hands messages to the application, and writes its answers down. Used by one event loop."""

    def __init__(self, service: Service, token: str, sink: BinaryIO) -> None:
        self._app = make_app(service)
        (graph_id,) = service.graphs
        self._path = f"/graphs/{graph_id}/mcp"
        self._authorization = f"Bearer {token}".encode()
        self._sink = sink
        #: Set when the answer is no longer wanted, by the id of its request.
        self._in_flight: dict[str | int, anyio.Event] = {}

    async def answer(self, line: bytes) -> None:
        """Answer one message."""
        message = _message_of(line)
        if message is not None and message.method == _CANCELLED:
            self._cancel(message.params.get("requestId"))
            return
        gone = anyio.Event()
        id_ = None if message is None else message.id
        if id_ is not None:
            self._in_flight[id_] = gone

        async def disconnected() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        try:
            status, body = await exchange(self._app, self._scope(line, message), line, disconnected)
        finally:
            if id_ is not None:
                self._in_flight.pop(id_, None)
        if body and not gone.is_set():
            self._write(_answer_of(status, body, id_))

    def _cancel(self, id_: object) -> None:
        if isinstance(id_, str | int) and id_ in self._in_flight:
            self._in_flight[id_].set()

    def _write(self, body: bytes) -> None:
        # A reader that is gone has closed the other stream too, and nothing is lost with its answers.
        with suppress(BrokenPipeError):
            self._sink.write(body + b"\n")
            self._sink.flush()

    def _scope(self, line: bytes, message: RpcRequest | None) -> Scope:
        headers = [
            (b"authorization", self._authorization),
            (b"content-type", JSON.encode()),
            (b"content-length", str(len(line)).encode()),
        ]
        if message is not None:
            headers += [(name.encode(), text.encode("ascii")) for name, text in _headers_of(message)]
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "state": {},
        }


def _message_of(line: bytes) -> RpcRequest | None:
    """A message, as far as it is one: the endpoint says what is wrong with another line."""
    try:
        return RpcRequest.of(json.loads(line))
    except (ValueError, RecursionError, BadRequestError):
        return None


def _headers_of(message: RpcRequest) -> Iterator[tuple[str, str]]:
    """What a request without handshake repeats in headers over HTTP."""
    revision, name = message.revision, message.params.get("name")
    if isinstance(revision, str) and revision.isascii():
        yield REVISION_HEADER, revision
        yield METHOD_HEADER, header_text(message.method)
        if message.method == "tools/call" and isinstance(name, str):
            yield NAME_HEADER, header_text(name)


def _answer_of(status: int, body: bytes, id_: str | int | None) -> bytes:
    """The answer of the endpoint as a message; its refusals beside the protocol become errors of it."""
    document: Json = json.loads(body)
    if "jsonrpc" in document:
        return body
    code = _INVALID_REQUEST if status < 500 else _INTERNAL_ERROR
    return json_bytes({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": document["error"]}})
