"""Graphs of notes with vectors, and ways to write to them and to look at them."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import lance

from omnigraph.core.ids import TableKey
from omnigraph.embedding.client import EmbeddingClient, EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.providers import ApiKey, mock_vector
from omnigraph.graph.graph import Graph

DIMENSION = 4
SCHEMA = """
node Note {
    slug: String @key
    body: String?
    file: Blob?
    vec: Vector(4)? @embed("body")
}
node Other { name: String @key }
"""
#: A vector that no text has.
GIVEN = [0.0, 0.0, 0.0, 1.0]


def notes_graph(folder: Path, schema: str = SCHEMA) -> Graph:
    return Graph.init(str(folder / "notes.omni"), schema)


def put(graph: Graph, folder: Path, *notes: dict[str, Any], mode: str = "merge", **rest: Any) -> Any:
    """Load notes as whole rows."""
    path = folder / "notes.jsonl"
    path.write_text("\n".join(json.dumps({"type": "Note", "data": note}) for note in notes))
    return graph.load(path, mode=mode, engine="local", **rest)


def note(slug: str, body: str | None, vec: list[float] | None = None) -> dict[str, Any]:
    return {"slug": slug, "body": body, "vec": vec}


def set_body(graph: Graph, slug: str, body: str | None, branch: str = "main") -> None:
    graph.mutate(
        "query q($slug: String, $body: String?) { update Note set { body: $body } where slug = $slug }",
        {"slug": slug, "body": body},
        branch=branch,
    )


def vectors(graph: Graph, branch: str = "main", **target: Any) -> dict[str, list[float] | None]:
    found = graph.query("query q() { match { $n: Note } return { $n.slug, $n.vec } }", branch=branch, **target)
    return {row["n.slug"]: row["n.vec"] for row in found.to_pylist()}


def dataset(graph: Graph, branch: str = "main") -> lance.LanceDataset:
    """The notes of a branch as they are stored."""
    pin = graph.snapshot(branch).pins[TableKey("node:Note")]
    uri = f"{graph.uri}/{pin.location}" + (f"/tree/{pin.branch}" if pin.branch else "")
    return lance.dataset(uri, version=pin.version)


def fragments(graph: Graph) -> list[tuple[int, int]]:
    """Rows and files of each fragment."""
    found = dataset(graph).get_fragments()
    return [(item.count_rows(), len(item.metadata.files)) for item in found]


def stored_rows(graph: Graph, branch: str) -> list[dict[str, Any]]:
    """Every row as it is stored, with its row id."""
    columns = ["slug", "body", "file", "vec", "_rowid", "_row_created_at_version"]
    rows = dataset(graph, branch).to_table(columns=columns, blob_handling="all_binary").to_pylist()
    return sorted(rows, key=lambda row: row["slug"])


def of(text: str) -> list[float]:
    """The vector of a text."""
    return list(mock_vector(text, DIMENSION))


def embed(graph: Graph, **choices: Any) -> Any:
    return graph.embed(engine="local", **choices)


def counts(result: Any) -> tuple[int, int, int]:
    """Missing, outdated and cleared rows of the only property."""
    (only,) = result.properties
    return only.missing, only.outdated, only.cleared


def kept_files(graph: Graph) -> list[Path]:
    """The files of vectors that are kept beside the graph."""
    folder = Path(graph.uri) / "__derived" / "embeddings"
    return sorted(path for path in folder.rglob("*") if path.is_file())


# ---- A provider on the loopback address that answers from a script, and a time that only moves when told


KEY = "sk-very-secret-0123456789"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    breaks: bool = False


HANG = Reply(hangs=True)
BREAK = Reply(breaks=True)


def json_reply(body: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(body).encode())


def openai_reply(*vectors: list[float]) -> Reply:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return json_reply({"data": data})


def gemini_reply(vector: list[float]) -> Reply:
    return json_reply({"embedding": {"values": vector}})


def error_reply(status: int, message: str = "no") -> Reply:
    return json_reply({"error": {"message": message}}, status)


class StandIn:
    """Answers one scripted reply after the other and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[Reply] = []
        self.released = threading.Event()
        self._server = _QuietServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, json.loads(content))
            stand_in.requests.append(request)
            reply = stand_in.replies.pop(0)
            if reply.hangs:
                stand_in.released.wait(30)
            if reply.hangs or reply.breaks:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class StillTime:
    """A clock that stands still except for pauses, which it records instead of taking."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds


def client_of(time: StillTime, provider: ProviderName, base_url: str = "", **settings: Any) -> EmbeddingClient:
    return create_embedder(
        EmbeddingSettings(provider=provider, base_url=base_url, api_key=ApiKey(KEY), **settings),
        clock=time.clock,
        sleep=time.sleep,  # the one of the made-up clock: nobody waits
    )
