"""Reads that are stopped: by their time, by a client that goes away, by the end of the server."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from omnigraph import Graph
from omnigraph.errors import QueryCancelledError, QueryTimeoutError
from omnigraph.server.settings import ServerSettings
from support.server_processes import ServerProcess
from support.servers import client_of, listening, make_graph, open_server

PEOPLE = 60
#: Looks at 60 to the sixth power rows, and finds none. Every variable is compared with the next one: what nobody asks
#: for would only be counted.
ENDLESS = (
    "query endless() { match { $a: Person $b: Person $c: Person $d: Person $e: Person $f: Person "
    "$a.bio = $b.bio $b.bio = $c.bio $c.bio = $d.bio $d.bio = $e.bio $e.bio != $f.bio } "
    "return { $a.name, $f.name } }"
)
SHORT = "query short() { match { $p: Person } return { $p.name as name } limit 1 }"
PAIRS = "query pairs() { match { $a: Person $b: Person } return { $a.name as a, $b.name as b } }"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("stopped")
    uri = make_graph(root)
    people = " ".join(f'insert Person {{ name: "p{i}", bio: "same" }}' for i in range(PEOPLE))
    with Graph.open(uri) as graph:
        graph.mutate(f"query add() {{ {people} }}")
    return uri


@pytest.fixture
def url(uri: str) -> Iterator[str]:
    """A server with one thread for readers: a read that goes on keeps all others out."""
    with listening(open_server(uri, settings=ServerSettings(read_threads=1))) as url:
        yield url


def begun(url: str, body: dict[str, object], *, arrow: bool = False) -> socket.socket:
    """A request that was sent, and whose answer nobody has read."""
    host, _, port = url.removeprefix("http://").partition(":")
    sent = json.dumps(body)
    accept = "Accept: application/vnd.apache.arrow.stream\r\n" if arrow else ""
    client = socket.create_connection((host, int(port)))
    client.sendall(
        f"POST /graphs/default/query HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{accept}"
        f"Content-Length: {len(sent)}\r\n\r\n{sent}".encode()
    )
    return client


@pytest.mark.parametrize("path", ["query", "explain"])
def test_a_read_that_takes_too_long_is_a_gateway_timeout(url: str, path: str) -> None:
    body = {"query": ENDLESS, "timeout_s": 0.05} | ({"analyze": True} if path == "explain" else {})
    answer = httpx.post(f"{url}/graphs/default/{path}", json=body, timeout=60)
    assert answer.status_code == 504
    assert answer.json()["kind"] == "query_timeout"
    assert answer.json()["query_timeout"]["timeout_s"] == 0.05


def test_the_server_has_a_default_and_a_longest_time(uri: str) -> None:
    settings = ServerSettings(query_timeout_s=0.05, query_timeout_max_s=2)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        stopped = client.post("/graphs/default/query", json={"query": ENDLESS})
        refused = client.post("/graphs/default/query", json={"query": SHORT, "timeout_s": 3})
    assert (stopped.status_code, stopped.json()["query_timeout"]["timeout_s"]) == (504, 0.05)
    assert (refused.status_code, refused.json()["kind"]) == (400, "bad_request")
    assert "OMNIGRAPH_QUERY_TIMEOUT_MAX" in refused.json()["error"]


@pytest.mark.parametrize("path", ["export", "changes/baseline"])
def test_a_stream_has_a_longest_time_that_is_its_default_too(uri: str, path: str) -> None:
    address = f"/graphs/default/{path}"
    with (
        open_server(uri, settings=ServerSettings(export_timeout_s=1e-9)) as service,
        client_of(service) as client,
    ):
        stopped = client.post(address, json={})
        refused = client.post(address, json={"timeout_s": 1})
    assert (stopped.status_code, stopped.json()["query_timeout"]["timeout_s"]) == (504, 1e-9)
    assert refused.status_code == 400
    assert "OMNIGRAPH_EXPORT_TIMEOUT" in refused.json()["error"]


@pytest.mark.parametrize("path", ["export", "changes/baseline"])
def test_a_stream_ends_after_the_time_that_its_caller_gives(uri: str, path: str) -> None:
    with open_server(uri) as service, client_of(service) as client:
        stopped = client.post(f"/graphs/default/{path}", json={"timeout_s": 1e-9})
        whole = client.post(f"/graphs/default/{path}", json={"timeout_s": 60})
    assert (stopped.status_code, whole.status_code) == (504, 200)


def test_the_longest_time_of_a_stream_is_six_hours_unless_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ServerSettings.from_environment().stream_timeout_s(None) == 6 * 3600
    monkeypatch.setenv("OMNIGRAPH_EXPORT_TIMEOUT", "0")
    assert ServerSettings.from_environment().stream_timeout_s(None) is None
    assert ServerSettings.from_environment().stream_timeout_s(10**6) == 10**6


@pytest.mark.parametrize("timeout_s", [0, -1, "soon"])
def test_a_time_that_is_none_is_refused(url: str, timeout_s: object) -> None:
    body = {"query": SHORT, "timeout_s": timeout_s}
    assert httpx.post(f"{url}/graphs/default/query", json=body).status_code == 400


@pytest.mark.parametrize("arrow", [False, True])
def test_a_client_that_goes_away_gives_its_thread_back(url: str, arrow: bool) -> None:
    for _ in range(3):
        begun(url, {"query": ENDLESS, "timeout_s": 500}, arrow=arrow).close()
    # The only thread is free again, or this would wait for as long as one of them works.
    answer = httpx.post(f"{url}/graphs/default/query", json={"query": SHORT}, timeout=60)
    assert answer.json()["row_count"] == 1


def test_the_first_rows_come_with_the_word_that_there_are_more(url: str) -> None:
    def ask(first: int) -> dict[str, object]:
        body = {"query": PAIRS, "first": first}
        return httpx.post(f"{url}/graphs/default/query", json=body, timeout=60).json()

    some, all_ = ask(7), ask(1_000_000)
    assert (some["row_count"], some["truncated"], len(some["rows"])) == (7, True, 7)  # type: ignore[arg-type]  # rows
    assert all_["truncated"] is False
    assert some["rows"] == all_["rows"][:7]  # type: ignore[index]  # rows
    assert [*some][-2:] == ["graph_commit_id", "truncated"]


def test_an_answer_has_at_most_so_many_rows(uri: str) -> None:
    settings = ServerSettings(query_max_rows=100)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        refused = client.post("/graphs/default/query", json={"query": PAIRS})
        first = client.post("/graphs/default/query", json={"query": PAIRS, "first": 50})
    assert refused.status_code == 413
    assert refused.json()["resource_limit"]["resource"] == "query_rows"
    assert (refused.json()["resource_limit"]["limit"], first.status_code) == (100, 413)


def test_all_reads_share_the_memory_of_the_server(uri: str) -> None:
    settings = ServerSettings(read_memory_bytes=1_000)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        refused = client.post("/graphs/default/query", json={"query": PAIRS})
    assert refused.json()["resource_limit"]["resource"] == "query_memory_bytes"
    assert "OMNIGRAPH_SERVER_READ_MEMORY_BYTES" in refused.json()["error"]


def test_a_remote_graph_passes_its_time_on(url: str) -> None:
    with Graph.connect(url) as graph:
        with pytest.raises(QueryTimeoutError):
            graph.query(ENDLESS, timeout_s=0.05).to_arrow()
        with pytest.raises(QueryTimeoutError):
            graph.explain(ENDLESS, analyze=True, timeout_s=0.05)


def test_a_remote_read_that_is_cancelled_does_not_wait_for_its_answer(url: str) -> None:
    stop = threading.Event()
    stop.set()
    with Graph.connect(url) as graph, pytest.raises(QueryCancelledError):
        graph.query(ENDLESS, timeout_s=5, cancel=stop)


def test_a_server_ends_within_its_grace_whatever_runs(uri: str, tmp_path: Path) -> None:
    environment = {"OMNIGRAPH_UNAUTHENTICATED": "1", "OMNIGRAPH_SHUTDOWN_S": "2"}
    with ServerProcess(uri, tmp_path / "log", **environment) as server:
        url = "http://{}:{}".format(*server.address)
        clients = [begun(url, {"query": ENDLESS, "timeout_s": 500}) for _ in range(4)]
        assert httpx.post(f"{url}/graphs/default/query", json={"query": SHORT}, timeout=60)
        os.kill(server.pid, signal.SIGTERM)
        # 1 on a machine so slow that the grace is over before the reads have noticed.
        assert server.wait() in (0, 1)
        for client in clients:
            client.close()
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert '"stopped"' in log or "the grace is over" in log
