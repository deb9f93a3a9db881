"""Requests to the routes of this server from inside: as from outside, with the same token, without a socket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio

from omnigraph.errors import InternalError, ResourceLimitError
from omnigraph.server.responses import json_bytes
from omnigraph.wire.protocol import JSON

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Scope

    from omnigraph.server.mcp.tools import InnerRequest

#: Answers beyond this are of no use to an agent, and of much to somebody who wants to fill the memory.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
#: What an inner request keeps of the headers of the outer one: who asks, and under which name of the server.
_KEPT = (b"authorization", b"host")
#: What it keeps of the connection.
_SHARED = ("asgi", "http_version", "scheme", "server", "client", "root_path")


@dataclass(frozen=True, slots=True)
class InnerAnswer:
    """The status and the document of a route."""

    status: int
    document: dict[str, Any]


async def ask(outer: Request, graph_id: str, inner: InnerRequest) -> InnerAnswer:
    """What a route answers.

    Raises:
        ResourceLimitError: it answers too much.
    """
    collected = _Collected()
    body = b"" if inner.body is None else json_bytes(inner.body)

    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        # Behind the body only the end of the connection comes, which is that of the outer request.
        return await outer.receive()

    scope = _scope(outer.scope, graph_id, inner, body)
    # In a task, because a request gives its id and its actor to all log entries of its context.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outer.app, scope, receive, collected.send)
    if collected.size > MAX_ANSWER_BYTES:
        advice = "ask for less: give a `limit`, or return fewer columns"
        raise ResourceLimitError("mcp_answer_bytes", MAX_ANSWER_BYTES, collected.size, advice)
    document = json.loads(b"".join(collected.parts))
    if not isinstance(document, dict):
        raise InternalError("a route answered something else than an object")
    return InnerAnswer(collected.status, document)


def _scope(outer: Scope, graph_id: str, inner: InnerRequest, body: bytes) -> Scope:
    path = inner.path if inner.is_flat else f"/graphs/{graph_id}{inner.path}"
    headers = [(name, value) for name, value in outer["headers"] if name in _KEPT]
    if inner.body is not None:
        headers += [
            (b"content-type", JSON.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
    return {name: outer[name] for name in _SHARED if name in outer} | {
        "type": "http",
        "method": inner.method,
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": inner.query.encode("ascii"),
        "headers": headers,
        "state": dict(outer.get("state", {})),
    }


class _Collected:
    """A response, kept while it is small enough."""

    def __init__(self) -> None:
        self.status = 0
        self.size = 0
        self.parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        part = message.get("body", b"")
        self.size += len(part)
        if self.size > MAX_ANSWER_BYTES:
            self.parts.clear()
        else:
            self.parts.append(part)
