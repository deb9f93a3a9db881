"""Requests that this process makes to its own routes: what a tool call stands for, and messages of standard input."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

import anyio
from starlette.requests import Request

from omnigraph.api.operation import JSON
from omnigraph.codec import Json
from omnigraph.errors import InternalError, ResourceLimitError
from omnigraph.frozen import frozen
from omnigraph.server.responses import json_bytes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope

#: Larger answers are of no use to an agent, and would fill the memory.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
#: What an inner request keeps of the headers of the outer one: who asks, and under which name of the server.
_KEPT = (b"authorization", b"host")
#: What it keeps of the connection.
_SHARED = ("asgi", "http_version", "scheme", "server", "client", "root_path")


@frozen(kw_only=True)
class InnerRequest:
    """A request to a route of this server. `path` is below the graph unless it is `is_flat`."""

    method: str
    path: str
    query: str = ""
    #: The JSON body; None: there is none.
    body: Mapping[str, object] | None = None
    is_flat: bool = False


async def ask(outer: Request, graph_id: str, inner: InnerRequest) -> tuple[int, Json]:
    """Request a route; the status and the document of its answer.

    Raises:
        ResourceLimitError: it answers too much.
    """
    body = b"" if inner.body is None else json_bytes(inner.body)
    # Behind the body only the end of the connection comes, which is that of the outer request.
    status, content = await exchange(
        outer.app, _scope(outer.scope, graph_id, inner, body), body, outer.receive, max_bytes=MAX_ANSWER_BYTES
    )
    document = json.loads(content)
    if not isinstance(document, dict):
        raise InternalError("a route answered something else than an object")
    return status, document


async def exchange(
    app: ASGIApp, scope: Scope, body: bytes, gone: Callable[[], Awaitable[Message]], *, max_bytes: int | None = None
) -> tuple[int, bytes]:
    """Send one request to an application; the status and the body of its answer.

    `gone` gives the message that ends the connection, when there is one.

    Raises:
        ResourceLimitError: the answer is longer than `max_bytes`.
    """
    collected = _Collected(max_bytes)
    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await gone()

    async def run() -> None:
        await app(scope, receive, collected.send)

    # In a task, because a request gives its id and its actor to all log entries of its context.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
    if max_bytes is not None and collected.size > max_bytes:
        advice = "ask for less: give a `limit`, or return fewer columns"
        raise ResourceLimitError("mcp_answer_bytes", max_bytes, collected.size, advice)
    return collected.status, b"".join(collected.parts)


def _scope(outer: Scope, graph_id: str, inner: InnerRequest, body: bytes) -> Scope:
    path = inner.path if inner.is_flat else f"/graphs/{graph_id}{inner.path}"
    headers = [(name, value) for name, value in outer["headers"] if name in _KEPT]
    if inner.body is not None:
        headers += [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())]
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

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self.status = 0
        self.size = 0
        self.parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        part = message.get("body", b"")
        self.size += len(part)
        if self._max_bytes is not None and self.size > self._max_bytes:
            self.parts.clear()
        else:
            self.parts.append(part)
