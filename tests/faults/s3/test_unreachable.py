"""Storage that refuses: typed failures with one readable line, never "there is no graph"."""

from __future__ import annotations

import http.server
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NoReturn
from urllib.parse import urlsplit

import pytest

from omnigraph.errors import NotFoundError, OmniError, RetryableCommitConflictError, StorageError, StorageFailure
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import INIT_CLAIM, parse_location
from omnigraph.storage.locks import LeaseCommitLock
from omnigraph.storage.objects import ControlObjects, StoredObject, put_owned, replace_content
from support.s3 import (
    DOUBLE,
    HANG,
    LOSE,
    OVERLOADED,
    OVERLOADED_AFTER,
    TRUNCATE,
    Faults,
    S3Server,
    create_bucket,
    faulty_store,
    http_server,
    point_to,
)
from support.s3_graphs import ADD_CITING, ADD_NOTE, ADD_PAPER, SCHEMA, check_whole, values
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


def test_an_endpoint_that_hangs_is_given_up_after_the_time_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
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
    objects = ControlObjects(parse_location(root), durable=False)
    names = objects.names("__manifest/_versions")
    (name,) = (name for name in names if name.endswith(".manifest"))
    objects.write(f"__manifest/_versions/{name}", b"")
    with pytest.raises(StorageError, match=f"restore them from a backup: __manifest/_versions/{name}"):
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


@each_case("uri", ["s3://user:secret@graphs/graph.omni", "s3://graphs", "s3:///graph.omni", "gs://a/b"])
def test_an_address_that_names_no_graph_is_refused_before_anything_is_asked(uri: str) -> None:
    with pytest.raises(OmniError) as caught:
        Graph.open(uri)
    assert caught.value.kind == "bad_request"
    assert "secret" not in caught.value.message


# ---- Answers that get lost, come twice or come late: what arrived is believed, and nothing happens twice


_numbers = itertools.count(1)

# ---- the owner tells


class LosingObjects(ControlObjects):
    """Control objects that do what they are asked, and whose answers get lost."""

    losses = 0
    #: Whether the client sent the request again by itself, and met its own object.
    is_repeated = False

    def _lost(self, tag: str | None) -> str | None:
        if not self.losses:
            return tag
        self.losses -= 1
        if self.is_repeated:
            return None
        raise StorageError("the connection was reset", StorageFailure.TRANSIENT)

    def create(self, name: str, data: bytes) -> str | None:
        return self._lost(super().create(name, data))

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        return self._lost(super().replace(name, data, tag))


@pytest.fixture(params=[False, True], ids=["reset", "repeated"])
def losing(request: pytest.FixtureRequest, s3_root: str) -> LosingObjects:
    objects = LosingObjects(parse_location(s3_root), durable=False)
    objects.is_repeated = request.param
    return objects


def body(owner: str) -> bytes:
    return json.dumps({"owner": owner}).encode()


def stored(objects: ControlObjects, name: str) -> StoredObject:
    found = objects.read(name)
    assert found is not None
    return found


def test_what_names_its_owner_is_its_owners(losing: LosingObjects) -> None:
    losing.losses = 1
    tag = put_owned(losing, "x", body("me"), None)
    assert tag == stored(losing, "x").tag
    losing.losses = 1
    assert put_owned(losing, "x", body("other"), tag) == stored(losing, "x").tag
    assert put_owned(losing, "x", body("me"), tag) is None
    assert put_owned(losing, "x", body("me"), None) is None
    assert stored(losing, "x").data == body("other")


def test_a_request_that_never_arrived_is_sent_again(s3_root: str) -> None:
    class Deaf(ControlObjects):
        failures = 2

        def create(self, name: str, data: bytes) -> str | None:
            if self.failures:
                self.failures -= 1
                raise StorageError("the connection was reset", StorageFailure.TRANSIENT)
            return super().create(name, data)

    objects = Deaf(parse_location(s3_root), durable=False)
    assert put_owned(objects, "x", body("me"), None) is not None
    objects.failures = 99
    with pytest.raises(StorageError, match="reset"):
        put_owned(objects, "y", body("me"), None)
    assert objects.read("y") is None


def test_the_content_tells_whether_a_file_was_written(losing: LosingObjects) -> None:
    losing.losses = 1
    assert replace_content(losing, "f", b"one", None)
    losing.losses = 1
    assert replace_content(losing, "f", b"two", stored(losing, "f").tag)
    losing.is_repeated = True
    assert not replace_content(losing, "f", b"three", None)
    assert stored(losing, "f").data == b"two"


def test_a_lease_whose_answers_get_lost_locks_nobody_out(losing: LosingObjects) -> None:
    for _ in range(3):
        losing.losses = 1
        with LeaseCommitLock(losing).held(0) as tenure:
            assert not tenure.is_lost
            with pytest.raises(RetryableCommitConflictError), LeaseCommitLock(losing).held(0):
                pass
            losing.losses = 1


def test_a_lease_that_nobody_knows_of_is_taken_back_by_its_process(s3_root: str) -> None:
    class Silent(ControlObjects):
        is_silent = False

        def create(self, name: str, data: bytes) -> str | None:
            super().create(name, data)
            self.is_silent = True
            raise StorageError("the connection was reset", StorageFailure.TRANSIENT)

        def read(self, name: str) -> StoredObject | None:
            if self.is_silent:
                raise StorageError("the connection was reset", StorageFailure.TRANSIENT)
            return super().read(name)

    objects = Silent(parse_location(s3_root), durable=False)
    lock = LeaseCommitLock(objects)
    with pytest.raises(StorageError), lock.held(0):
        pass
    objects.is_silent = False
    with lock.held(0) as tenure:
        assert tenure.needs_fence


# ---- through the wire


@pytest.fixture
def faulty(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Faults]]:
    """An unused root behind a proxy; every bucket is used with one endpoint only."""
    bucket = f"faulty-{next(_numbers)}"
    create_bucket(s3_endpoint, bucket)
    with faulty_store(s3_endpoint) as (endpoint, faults):
        point_to(monkeypatch, endpoint)
        yield f"s3://{bucket}/graph.omni", faults


#: The default run tries one; a lost answer and a doubled request lead to the same places.
ANSWERS = [OVERLOADED_AFTER, *(pytest.param(it, marks=pytest.mark.slow) for it in (LOSE, DOUBLE))]


@pytest.mark.parametrize("treatment", ANSWERS)
def test_an_init_whose_claim_or_catalog_was_not_answered_is_whole(faulty: tuple[str, Faults], treatment: str) -> None:
    root, faults = faulty
    for number, place in enumerate((INIT_CLAIM, "__manifest/_versions")):
        uri = f"{root}-{number}"
        faults.arm(treatment, place)
        Graph.init(uri, SCHEMA).close()
        assert faults.hit
        with Graph.open(uri) as graph:
            assert len(graph.commits()) == 1
        assert ControlObjects(parse_location(uri), durable=False).read(INIT_CLAIM) is None


@pytest.mark.parametrize("treatment", ANSWERS)
@pytest.mark.parametrize("place", ["__lock", "__manifest/_versions", "nodes/", "__recovery/"])
def test_a_write_whose_answer_was_lost_happens_once(
    faulty: tuple[str, Faults], treatment: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, faults = faulty
    # Nobody waits for a lease to end: a wait would be a conflict.
    monkeypatch.setenv("OMNIGRAPH_LOCK_TIMEOUT_MS", "0")
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        faults.arm(treatment, place)
        receipt = graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}).commit
        assert faults.hit
        assert receipt is not None
        assert len(graph.commits()) == 3
        assert values(graph, "node:Paper", "doi") == ["a", "b"]
    check_whole(root)


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_request_about_the_lease_that_is_never_answered_is_given_up(
    faulty: tuple[str, Faults], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, faults = faulty
    # Longer than a test may take.
    monkeypatch.setenv("AWS_TIMEOUT", "3600s")
    monkeypatch.setenv("OMNIGRAPH_LOCK_LEASE_MS", "1500")
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        faults.arm(HANG, "__lock", method=method)
        assert graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}).commit is not None
        assert faults.hit
    check_whole(root)


@pytest.mark.parametrize("treatment", ANSWERS)
def test_a_branch_whose_creation_was_not_answered_exists_once(faulty: tuple[str, Faults], treatment: str) -> None:
    root, faults = faulty
    with Graph.init(root, SCHEMA) as graph:
        faults.arm(treatment, "__manifest/_versions")
        graph.create_branch("work")
        assert faults.hit
        assert sorted(graph.branches()) == ["main", "work"]
        faults.arm(treatment, "__manifest/_versions")
        graph.delete_branch("work")
        assert faults.hit
        assert sorted(graph.branches()) == ["main"]


@pytest.mark.parametrize(("treatment", "method"), [(OVERLOADED, "PUT"), (OVERLOADED, "GET"), (TRUNCATE, "GET")])
def test_a_burst_of_failures_is_waited_out(faulty: tuple[str, Faults], treatment: str, method: str) -> None:
    root, faults = faulty
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        faults.arm(treatment, "graph.omni", times=2, method=method)
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})
        assert faults.hit
    check_whole(root)
