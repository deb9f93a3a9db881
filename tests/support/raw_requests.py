"""Requests as the server sees them, for clients that no library plays: slow, endless, or gone in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from omnigraph.server.app import make_app
from omnigraph.server.service import Service

GRAPH = "/graphs/default"
#: The client went away.
GONE = object()
#: The client sends nothing more, and waits.
SILENCE = object()


@dataclass
class Answer:
    """What the server sent."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    #: How many pieces of the body the server took.
    taken: int = 0
    is_complete: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.body)


def post(
    service: Service,
    path: str,
    pieces: Iterable[bytes | object],
    *,
    headers: Mapping[str, str],
    leaves_after: int | None = None,
) -> Answer:
    """Send a body piece by piece; the client may go away after so many pieces of the response."""
    return anyio.run(_post, service, path, iter(pieces), dict(headers), leaves_after)


async def _post(
    service: Service, path: str, pieces: Any, headers: dict[str, str], leaves_after: int | None
) -> Answer:
    answer = Answer()
    gone = anyio.Event()
    received = 0

    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        if piece is GONE:
            return {"type": "http.disconnect"}
        if piece is SILENCE:
            await anyio.sleep_forever()
        if isinstance(piece, bytes):
            answer.taken += 1
            return {"type": "http.request", "body": piece, "more_body": True}
        if not answer.is_complete and answer.status is None:
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal received
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        answer.body += message.get("body", b"")
        answer.is_complete = not message.get("more_body", False)
        received += 1
        if received == leaves_after:
            gone.set()
            await anyio.sleep_forever()  # nobody reads any more: the connection takes nothing

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1")]
        + [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    with anyio.fail_after(60):
        await make_app(service)(scope, receive, send)
    return answer
