"""Servers for tests: in process, or on a port of this machine."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.testclient import TestClient

from omnigraph import Graph
from omnigraph.server.app import make_app
from omnigraph.server.boot import open_service
from omnigraph.server.config import read_config, single_graph
from omnigraph.server.main import http_server, listening_socket
from omnigraph.server.service import Service
from omnigraph.server.settings import ServerSettings

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? @index  photo: Blob? }
node Paper { doi: String @key  title: String  year: I32? }
edge Wrote: Person -> Paper { role: String? }
edge Knows: Person -> Person
"""
ROWS = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "bio": "wrote the first program"}},
    {"type": "Person", "data": {"name": "grace", "age": 85, "photo": "base64:SGVsbG8="}},
    {"type": "Person", "data": {"name": "alan", "age": 41}},
    {"type": "Paper", "data": {"doi": "10.1", "title": "Notes", "year": 1843}},
    {"type": "Paper", "data": {"doi": "10.2", "title": "Compilers", "year": 1952}},
    {"edge": "Wrote", "from": "ada", "to": "10.1", "data": {"role": "author"}},
    {"edge": "Wrote", "from": "grace", "to": "10.2", "data": {}},
    {"edge": "Knows", "from": "ada", "to": "alan", "data": {}},
]
QUERIES = """
query people() @description("Everybody, by name") {
  match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }
query older_than($age: I32) { match { $p: Person  $p.age > $age } return { $p.name as name } order { $p.name } }
query add_person($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
"""
POLICY = """
version: 1
groups: { curators: [act-nadia], readers: [act-bot, act-nadia], callers: [act-bot] }
protected_branches: [main]
rules:
  - id: everyone-reads
    allow: { actors: { group: readers }, actions: [read, export], branch_scope: any }
  - id: curators-edit-drafts
    allow: { actors: { group: curators }, actions: [change], branch_scope: unprotected }
  - id: curators-branch
    allow: { actors: { group: curators }, actions: [branch_create, branch_delete], target_branch_scope: unprotected }
  - id: curators-publish
    allow: { actors: { group: curators }, actions: [branch_merge], target_branch_scope: protected }
  - id: callers
    allow: { actors: { group: callers }, actions: [invoke_query] }
"""
#: As `POLICY`, and one more actor, who may know of the graph and do nothing to it through a server.
POLICY_WITH_GUEST = (
    POLICY.replace("groups: {", "groups: { guests: [act-stranger],")
    + "  - { id: guests, allow: { actors: { group: guests }, actions: [admin] } }\n"
)
SERVER_POLICY = """
version: 1
groups: { operators: [act-nadia] }
rules:
  - id: operators-list
    allow: { actors: { group: operators }, actions: [graph_list] }
"""
TOKENS = {"act-nadia": "nadia-token", "act-bot": "bot-token", "act-stranger": "stranger-token"}
TOKEN_SETTINGS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS)}


def make_graph(root: Path) -> str:
    """A small graph; gives its address."""
    lines = root / "rows.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    uri = str(root / "people.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.load(lines, mode="append", engine="local")
    return uri


def copy_graph(uri: str, root: Path) -> str:
    """The same graph somewhere else; gives its address."""
    return str(shutil.copytree(uri, root / "people.omni"))


def open_server(uri: str, *, settings: ServerSettings | None = None, **options: object) -> Service:
    """A service of one graph in the open state."""
    config = single_graph(uri, **options)
    return open_service(config, settings or ServerSettings(), unauthenticated=True, environment={})


def guarded_server(uri: str, root: Path, *, settings: ServerSettings | None = None, policy: str = POLICY) -> Service:
    """A service of one graph with tokens, a policy and stored queries."""
    (root / "policy.yaml").write_text(policy, encoding="utf-8")
    (root / "queries.gq").write_text(QUERIES, encoding="utf-8")
    config = single_graph(uri, policy=root / "policy.yaml", queries=root / "queries.gq")
    return open_service(config, settings or ServerSettings(), environment=TOKEN_SETTINGS)


def configured_server(
    folder: Path, *, settings: ServerSettings | None = None, policy: str | None = None, **graphs: Mapping[str, object]
) -> Service:
    """A service of a configuration file: with tokens if the server has a policy, else in the open state."""
    document: dict[str, object] = {"graphs": graphs}
    if policy is not None:
        (folder / "server-policy.yaml").write_text(policy, encoding="utf-8")
        document["policy"] = "server-policy.yaml"
    (folder / "server.yaml").write_text(json.dumps(document), encoding="utf-8")
    config = read_config(folder / "server.yaml")
    environment = {} if policy is None else TOKEN_SETTINGS
    return open_service(config, settings or ServerSettings(), unauthenticated=policy is None, environment=environment)


@contextmanager
def client_of(service: Service, actor: str | None = None) -> Iterator[TestClient]:
    """A client inside this process, as one of the actors."""
    headers = {} if actor is None else {"Authorization": f"Bearer {TOKENS[actor]}"}
    app = make_app(service)
    with TestClient(app, base_url="http://127.0.0.1", headers=headers, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def listening(service: Service) -> Iterator[str]:
    """A server on a free port of this machine; gives its address."""
    config = http_server(service, "127.0.0.1", 0)
    server = uvicorn.Server(config)
    bound = listening_socket(config.host, config.port)
    bound.listen(128)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        # The socket listens already: whoever connects before the start is complete waits in its queue.
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        bound.close()
        service.close()


def sent(url: str, method: str, path: str, body: object = None, **headers: str) -> socket.socket:
    """A request to a server that listens, whose answer nothing has read; a text is sent as lines, all else as JSON."""
    host, _, port = url.removeprefix("http://").partition(":")
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    headers = {"Content-Type": "application/x-ndjson" if isinstance(body, str) else "application/json", **headers}
    lines = [f"{method} /graphs/default/{path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(text)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    client = socket.create_connection((host, int(port)))
    client.sendall("\r\n".join([*lines, "", text]).encode())
    return client


# ---- Requests as the server sees them, for clients that no library plays: slow, endless, or gone in the middle


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


async def _post(service: Service, path: str, pieces: Any, headers: dict[str, str], leaves_after: int | None) -> Answer:
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
