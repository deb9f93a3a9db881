"""Storage that refuses: typed failures with one readable line, never "there is no graph"."""

from __future__ import annotations

import http.server
import socket
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

import pytest

from omnigraph.errors import NotFoundError, OmniError, StorageError, StorageFailure
from omnigraph.graph import Graph
from omnigraph.storage import ObstoreObjects, parse_location
from s3.conftest import create_bucket, endpoint_of, point_to, start_server
from s3.worlds import ADD_NOTE, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers some methods as S3 answers a request that it does not carry out, and all others with an empty listing."""

    protocol_version = "HTTP/1.1"
    status = 403
    code = "InvalidAccessKeyId"
    methods: tuple[str, ...] = ("GET", "PUT", "HEAD", "POST", "DELETE")

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        refused = self.command in self.methods and self.path != "/"
        is_listing = self.command == "GET" and "list-type" in self.path
        status = self.status if refused else 200 if is_listing else 404
        what = f"<Error><Code>{self.code}</Code><Message>no</Message></Error>"
        if not refused:
            what = (
                "<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount></ListBucketResult>"
                if is_listing
                else "<Error><Code>NoSuchKey</Code></Error>"
            )
        body = f'<?xml version="1.0"?>{what}'.encode()
        self.send_response(status)
        self.send_header("content-type", "application/xml")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def answering(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, methods: tuple[str, ...]
) -> Iterator[None]:
    handler = type("Handler", (Answering,), {"status": status, "code": code, "methods": methods})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    point_to(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def _denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with answering(monkeypatch, 403, "InvalidAccessKeyId", Answering.methods):
        yield


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


@pytest.mark.parametrize(
    ("status", "code", "what"),
    [
        (404, "NoSuchBucket", "the bucket does not exist: create it"),
        (403, "AccessDenied", "s3:ListBucket"),
        (403, "ExpiredToken", "refuses the credentials"),
        (301, "PermanentRedirect", "set AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "set AWS_REGION"),
    ],
)
def test_what_a_store_refuses_is_a_sentence_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, what: str
) -> None:
    bucket = f"refusing-{code.lower()}"
    with answering(monkeypatch, status, code, ("GET",)):
        for call in (
            lambda: Graph.open(f"s3://{bucket}/graph.omni"),
            lambda: Graph.open(f"s3://{bucket}/graph.omni", read_only=True),
            lambda: Graph.init(f"s3://{bucket}/new.omni", SCHEMA),
        ):
            with pytest.raises(StorageError, match=what) as caught:
                call()
            assert caught.value.failure is StorageFailure.CONFIGURATION
            check_readable(caught.value)


def test_credentials_that_may_only_read_say_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        answering(monkeypatch, 403, "AccessDenied", ("PUT", "DELETE")),
        pytest.raises(StorageError, match="s3:PutObject") as caught,
    ):
        Graph.init("s3://readonly/new.omni", SCHEMA)
    assert caught.value.failure is StorageFailure.CONFIGURATION
    check_readable(caught.value)


@pytest.mark.parametrize("make", [Graph.open, lambda uri: Graph.init(uri, SCHEMA)])
def test_an_endpoint_that_refuses_connections_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[str], Graph]
) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else gets the port, and it refuses every connection.
        taken.bind(("127.0.0.1", 0))
        point_to(monkeypatch, f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StorageError, match="refuses connections; check that") as caught:
            make("s3://refused/graph.omni")
    assert caught.value.failure is StorageFailure.TRANSIENT
    assert caught.value.exit_code == 1
    check_readable(caught.value)


def test_an_endpoint_that_hangs_is_given_up_after_the_time_that_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMNIGRAPH_STORAGE_CONNECT_TIMEOUT", "1s")
    with socket.socket() as silent:
        # Takes connections and never says a word.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        point_to(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StorageError, match="did not answer within 1 s") as caught:
            Graph.open("s3://silent/graph.omni")
    assert "OMNIGRAPH_STORAGE_CONNECT_TIMEOUT" in caught.value.message
    check_readable(caught.value)


def test_an_endpoint_of_an_unknown_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    point_to(monkeypatch, "http://no-such-store.invalid:9000")
    with pytest.raises(StorageError, match="is not known; check AWS_ENDPOINT_URL"):
        Graph.open("s3://unknown/graph.omni")


def test_an_empty_file_of_the_catalog_is_named(root: str) -> None:
    Graph.init(root, SCHEMA).close()
    objects = ObstoreObjects(parse_location(root), durable=False)
    names = objects.names("__manifest/_versions")
    (name,) = (name for name in names if name.endswith(".manifest"))
    objects.write(f"__manifest/_versions/{name}", b"")
    with pytest.raises(
        StorageError, match=f"restore them from a backup: __manifest/_versions/{name}"
    ):
        Graph.open(root)


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
