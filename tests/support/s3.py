"""An S3 server on the loopback address, and a graph root that is local in one run and on S3 in the other.

The server lives as long as the session; the variables that point to it last for one test of this folder, so that no
other test sees them. Every bucket name is used with one endpoint only: Lance keeps object stores by address."""

from __future__ import annotations

import http.client
import http.server
import itertools
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import urlsplit

import pytest
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from omnigraph.core import failpoints

_numbers = itertools.count(1)


class S3Server:
    """The S3 of moto on a free port, without its search for the service that a request means: it takes longer."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        app = create_backend_app("s3")
        self._server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
        # It looks that often whether it has to end.
        serve = partial(self._server.serve_forever, poll_interval=0.01)
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def create_bucket(endpoint: str, name: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def point_to(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Let Lance and obstore talk to an endpoint, with invented credentials."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """One server for all tests of the folder."""
    server = S3Server()
    yield server.endpoint
    server.stop()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An unused root on S3, in a bucket of its own: the server looks at every key of a bucket that it lists."""
    point_to(monkeypatch, s3_endpoint)
    bucket = f"graphs-{next(_numbers)}"
    create_bucket(s3_endpoint, bucket)
    return f"s3://{bucket}/graph.omni"


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An unused root, on disk and on S3."""
    if request.param == "local":
        return str(tmp_path / "graph.omni")
    found: str = request.getfixturevalue("s3_root")
    return found


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """Make one place fail, or none."""

    def arrange(instruction: str | None) -> None:
        failpoints.reset()
        if instruction is None:
            monkeypatch.delenv(failpoints.VARIABLE, raising=False)
        else:
            monkeypatch.setenv(failpoints.VARIABLE, f"{instruction}=raise")

    yield arrange
    failpoints.reset()


# ---- A store that answers badly: a proxy on the loopback address in front of the S3 server of the tests


#: The request arrives, the connection ends without an answer.
LOSE = "lose"
#: The request arrives, and the answer is that of an overloaded store; clients send it again.
OVERLOADED_AFTER = "503 after"
#: The request arrives, and its answer never comes: the client has to give it up.
HANG = "hang"
#: The request does not arrive, and the answer is that of an overloaded store.
OVERLOADED = "503"
#: The request arrives twice; the client gets the answer to the second one.
DOUBLE = "double"
#: The answer ends in the middle of its body.
TRUNCATE = "truncate"

_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


@dataclass
class Faults:
    """What goes wrong: how often which requests get which treatment."""

    treatment: str = LOSE
    method: str = "PUT"
    #: A part of the path.
    path: str = ""
    left: int = 0
    #: The requests that were treated.
    hit: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def arm(self, treatment: str, path: str, times: int = 1, method: str = "PUT") -> None:
        with self.lock:
            self.treatment, self.path, self.left, self.method = treatment, path, times, method
            self.hit = []

    def of(self, method: str, path: str) -> str | None:
        with self.lock:
            if self.left and method == self.method and self.path in path:
                self.left -= 1
                self.hit.append(path)
                return self.treatment
        return None


class _Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A body would wait until the client has acknowledged the headers, which it does 40 ms later.
    disable_nagle_algorithm = True
    upstream: str
    faults: Faults

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        treatment = self.faults.of(self.command, self.path)
        if treatment == OVERLOADED:
            self._send(503, [], b"<Error><Code>SlowDown</Code></Error>")
            return
        status, headers, data = self._forward(body)
        if treatment == DOUBLE:
            status, headers, data = self._forward(body)
        if treatment == HANG:
            # Until the client closes the connection.
            self.rfile.read(1)
        if treatment in (LOSE, HANG):
            self.close_connection = True
            return
        if treatment == OVERLOADED_AFTER:
            self._send(503, [], b"<Error><Code>SlowDown</Code></Error>")
            return
        self._send(status, headers, data, cut=treatment == TRUNCATE)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("content-length", length)
        self.end_headers()
        if cut:
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def http_server(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on a free port of the loopback address; gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # It looks that often whether it has to end.
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def faulty_store(endpoint: str) -> Iterator[tuple[str, Faults]]:
    """The address of a proxy in front of an endpoint, and what it does wrong."""
    faults = Faults()
    handler = type("Proxy", (_Proxy,), {"upstream": urlsplit(endpoint).netloc, "faults": faults})
    with http_server(handler) as address:
        yield address, faults
