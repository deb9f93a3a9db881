"""Storage that refuses: typed failures with one readable line, never "there is no graph"."""

from __future__ import annotations

import http.server
import socket
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import NotFoundError, OmniError, StorageError, StorageFailure
from omnigraph.graph import Graph
from s3.conftest import create_bucket, endpoint_of, point_to, start_server
from s3.worlds import ADD_NOTE, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

DENIED = b'<?xml version="1.0"?><Error><Code>InvalidAccessKeyId</Code><Message>no</Message></Error>'


class Denying(http.server.BaseHTTPRequestHandler):
    """Answers every request as S3 answers one with wrong credentials."""

    protocol_version = "HTTP/1.1"

    def _deny(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(403)
        self.send_header("content-type", "application/xml")
        self.send_header("content-length", str(len(DENIED)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(DENIED)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _deny

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def _denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denying)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    point_to(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def check_readable(error: OmniError) -> None:
    """One line for people: no paths of source files, no markup of the server."""
    assert "\n" not in error.message
    for noise in ("Traceback", ".rs:", "/home/", "<?xml", "LanceError("):
        assert noise not in error.message, error.message


@pytest.mark.usefixtures("_denied")
@pytest.mark.parametrize("read_only", [False, True])
def test_wrong_credentials_are_a_failure_of_configuration(read_only: bool) -> None:
    with pytest.raises(StorageError) as caught:
        Graph.open("s3://denied/graph.omni", read_only=read_only)
    assert caught.value.failure is StorageFailure.CONFIGURATION


@pytest.mark.usefixtures("_denied")
def test_init_with_wrong_credentials_is_a_failure_of_configuration() -> None:
    with pytest.raises(StorageError) as caught:
        Graph.init("s3://denied/new.omni", SCHEMA)
    assert caught.value.failure is StorageFailure.CONFIGURATION


@pytest.mark.usefixtures("_denied")
def test_wrong_credentials_are_told_in_one_readable_line() -> None:
    with pytest.raises(StorageError) as caught:
        Graph.open("s3://denied/graph.omni")
    check_readable(caught.value)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_bucket_that_does_not_exist_is_not_an_unknown_failure(
    s3_root: str, read_only: bool
) -> None:
    with pytest.raises((NotFoundError, StorageError)) as caught:
        Graph.open(s3_root.replace("s3://graphs/", "s3://no-such-bucket/"), read_only=read_only)
    error = caught.value
    check_readable(error)
    if isinstance(error, StorageError):
        assert error.failure in (StorageFailure.NOT_FOUND, StorageFailure.CONFIGURATION)


@pytest.mark.slow  # storage tries again for ten seconds; wrong credentials fail at once
def test_a_refused_connection_is_a_storage_failure_and_not_a_missing_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else gets the port, and it refuses every connection.
        taken.bind(("127.0.0.1", 0))
        point_to(monkeypatch, f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StorageError) as caught:
            Graph.open("s3://refused/graph.omni")
    # obstore and Lance give no typed evidence of it, and messages are never classified.
    assert caught.value.failure in (StorageFailure.TRANSIENT, StorageFailure.UNKNOWN)
    assert caught.value.exit_code == 1
    check_readable(caught.value)


@pytest.fixture
def orphan(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """An open graph whose server is gone."""
    server = start_server()
    point_to(monkeypatch, endpoint_of(server))
    create_bucket(endpoint_of(server), "leaving")
    graph = Graph.init("s3://leaving/graph.omni", SCHEMA)
    graph.mutate(ADD_NOTE, {"text": "x"})
    server.stop()
    return graph


@pytest.mark.slow  # storage tries again for many seconds; wrong credentials fail at once
def test_an_open_graph_whose_server_went_away_fails_typed_and_readable(orphan: Graph) -> None:
    for call in (orphan.snapshot, lambda: orphan.mutate(ADD_NOTE, {"text": "y"})):
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.failure in (StorageFailure.TRANSIENT, StorageFailure.UNKNOWN)
        check_readable(caught.value)


@pytest.mark.parametrize(
    "uri", ["s3://user:secret@graphs/graph.omni", "s3://graphs", "s3:///graph.omni", "gs://a/b"]
)
def test_an_address_that_names_no_graph_is_refused_before_anything_is_asked(uri: str) -> None:
    with pytest.raises(OmniError) as caught:
        Graph.open(uri)
    assert caught.value.kind == "bad_request"
    assert "secret" not in caught.value.message
