"""A provider on the loopback address that answers from a script, and a time that only moves when told."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from omnigraph.embedding.client import (
    EmbeddingClient,
    EmbeddingSettings,
    ProviderName,
    create_embedder,
)
from omnigraph.embedding.contract import ApiKey

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


def client_of(
    time: StillTime, provider: ProviderName, base_url: str = "", **settings: Any
) -> EmbeddingClient:
    return create_embedder(
        EmbeddingSettings(provider=provider, base_url=base_url, api_key=ApiKey(KEY), **settings),
        clock=time.clock,
        sleep=time.sleep,  # the one of the made-up clock: nobody waits
    )
