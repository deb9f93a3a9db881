"""Storage that refuses: typed failures with one readable line, never "there is no graph"."""

from __future__ import annotations

import http.server
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NoReturn
from urllib.parse import urlsplit

import pytest

from omnigraph.errors import NotFoundError, OmniError, StorageError, StorageFailure
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects
from support.faulty_s3 import http_server
from support.s3 import S3Server, create_bucket, point_to
from support.s3_graphs import ADD_NOTE, SCHEMA
from support.subtests import each_case


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a bucket answers some methods, and what people are told about it."""

    status: int
    code: str
    told: str
    methods: tuple[str, ...] = ("GET",)


EVERYTHING = ("GET", "PUT", "HEAD", "POST", "DELETE")
#: By bucket.
REFUSALS = {
    "no-bucket": Refusal(404, "NoSuchBucket", "the bucket does not exist: create it"),
    "not-listed": Refusal(403, "AccessDenied", "s3:ListBucket"),
    "expired": Refusal(403, "ExpiredToken", "refuses the credentials"),
    "elsewhere": Refusal(301, "PermanentRedirect", "set AWS_REGION"),
    "malformed": Refusal(400, "AuthorizationHeaderMalformed", "set AWS_REGION"),
    "denied": Refusal(403, "InvalidAccessKeyId", "refuses the credentials", EVERYTHING),
    "readonly": Refusal(403, "AccessDenied", "s3:PutObject", ("PUT", "DELETE")),
}
#: Ways to meet a refusal. A bucket that is only written to refuses nothing but an init.
CALLS: dict[str, Callable[[str], Graph]] = {
    "open": lambda bucket: Graph.open(f"s3://{bucket}/graph.omni"),
    "open to read": lambda bucket: Graph.open(f"s3://{bucket}/graph.omni", read_only=True),
    "init": lambda bucket: Graph.init(f"s3://{bucket}/new.omni", SCHEMA),
}
REFUSED = [
    (bucket, call)
    for bucket, refusal in REFUSALS.items()
    for call in CALLS
    if "GET" in refusal.methods or call == "init"
]


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers as S3 answers a request that it does not carry out, and what is not refused with an empty listing."""

    protocol_version = "HTTP/1.1"
    # A body would wait until the client has acknowledged the headers, which it does 40 ms later.
    disable_nagle_algorithm = True

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        refusal = REFUSALS.get(urlsplit(self.path).path.split("/")[1])
        is_listing = self.command == "GET" and "list-type" in self.path
        if refusal is not None and self.command in refusal.methods:
            status = refusal.status
            what = f"<Error><Code>{refusal.code}</Code><Message>no</Message></Error>"
        elif is_listing:
            status = 200
            what = "<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount></ListBucketResult>"
        else:
            status = 404
            what = "<Error><Code>NoSuchKey</Code></Error>"
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


def failure_of(call: Callable[[], Graph]) -> StorageError:
    with pytest.raises(StorageError) as caught:
        call()
    return caught.value


@pytest.fixture(scope="module")
def failures() -> dict[tuple[str, str], StorageError]:
    """What every call on every bucket raised. All at once: Lance asks again for seconds before it believes a store."""
    with (
        http_server(Answering) as endpoint,
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(len(REFUSED)) as pool,
    ):
        point_to(patch, endpoint)
        calls = [partial(CALLS[call], bucket) for bucket, call in REFUSED]
        return dict(zip(REFUSED, pool.map(failure_of, calls), strict=True))


def check_readable(error: OmniError) -> None:
    """One line for people: no paths of source files, no markup of the server."""
    assert "\n" not in error.message
    for noise in ("Traceback", ".rs:", "/home/", "<?xml", "LanceError("):
        assert noise not in error.message, error.message


@each_case(("bucket", "call"), REFUSED)
def test_what_a_store_refuses_is_a_sentence_with_what_to_do(
    failures: dict[tuple[str, str], StorageError], bucket: str, call: str
) -> None:
    failure = failures[bucket, call]
    assert failure.failure is StorageFailure.CONFIGURATION
    assert REFUSALS[bucket].told in failure.message
    check_readable(failure)


@pytest.mark.usefixtures("s3_root")
def test_a_bucket_that_does_not_exist_is_not_an_unknown_failure() -> None:
    def failure(read_only: bool) -> OmniError:
        with pytest.raises((NotFoundError, StorageError)) as caught:
            Graph.open("s3://no-such-bucket/graph.omni", read_only=read_only)
        return caught.value

    with ThreadPoolExecutor(2) as pool:
        for error in pool.map(failure, (False, True)):
            check_readable(error)
            if isinstance(error, StorageError):
                assert error.failure in (StorageFailure.NOT_FOUND, StorageFailure.CONFIGURATION)


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
    server = S3Server()
    point_to(monkeypatch, server.endpoint)
    create_bucket(server.endpoint, "leaving")
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


@each_case(
    "uri", ["s3://user:secret@graphs/graph.omni", "s3://graphs", "s3:///graph.omni", "gs://a/b"]
)
def test_an_address_that_names_no_graph_is_refused_before_anything_is_asked(uri: str) -> None:
    with pytest.raises(OmniError) as caught:
        Graph.open(uri)
    assert caught.value.kind == "bad_request"
    assert "secret" not in caught.value.message
