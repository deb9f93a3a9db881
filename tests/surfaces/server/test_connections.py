"""Clients that send slowly, read slowly, or do nothing at all: real sockets, small limits."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from omnigraph import Graph
from omnigraph.server.service import Service
from omnigraph.server.settings import ServerSettings
from support.servers import listening, open_server
from support.subtests import each_case

HASTY = ServerSettings(header_s=0.05, body_idle_s=0.05, keep_alive_s=1, max_connections=8)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(shared_uri: str) -> Iterator[str]:
    """A server without patience."""
    with listening(open_server(shared_uri, settings=HASTY)) as url:
        yield url


@pytest.fixture(scope="module")
def patient(shared_uri: str) -> Iterator[str]:
    """A server that only ends connections when it has no place for others."""
    settings = ServerSettings(header_s=600, body_idle_s=600, max_connections=8)
    with listening(open_server(shared_uri, settings=settings)) as url:
        yield url


def connect(url: str, sent: bytes = b"") -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    client = socket.create_connection((host, int(port)))
    client.settimeout(60)
    client.sendall(sent)
    return client


def received(client: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    found = b""
    with client, suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            found += piece
    return found


def answer_of(text: bytes) -> tuple[int, dict[str, object]]:
    """Status and document of the only answer in a text."""
    head, _, body = text.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert b"application/json" in head
    return int(head.split()[1]), json.loads(body)


# ---- time


def test_a_connection_on_which_nothing_comes_is_closed(hasty):
    assert received(connect(hasty)) == b""


@pytest.mark.parametrize("sent", [b"GE", b"GET / HTTP/1.1\r\n", HEALTH[:-2]])
def test_half_sent_headers_are_given_up(hasty, sent):
    status, document = answer_of(received(connect(hasty, sent)))
    assert (status, document["kind"]) == (408, "request_timeout")


def test_half_sent_headers_after_an_answer_are_given_up(hasty):
    client = connect(hasty, HEALTH + HEALTH[:20])
    text = received(client)
    assert text.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in text


def test_dripping_headers_are_given_up(hasty):
    client = connect(hasty)
    client.settimeout(0.005)
    found = b""
    while not found:
        client.sendall(b"x")
        with suppress(TimeoutError):
            found = client.recv(12)
    assert found == b"HTTP/1.1 408"
    client.close()


def test_a_body_that_no_route_reads_does_not_keep_its_connection(hasty):
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
    text = received(connect(hasty, head))
    assert text.startswith(b"HTTP/1.1 200")


def test_a_body_that_stops_is_given_up(hasty):
    head = b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    status, document = answer_of(received(connect(hasty, head + b"Content-Length: 9\r\n\r\n{")))
    assert (status, document["kind"]) == (408, "request_timeout")


# ---- what is not HTTP


@each_case(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ],
)
def test_what_is_not_http_is_refused_in_the_form_of_all_failures(hasty, sent, status):
    found, document = answer_of(received(connect(hasty, sent)))
    assert (found, document["code"]) == (status, "bad_request")
    assert document["error"]


def test_a_malformed_piece_of_a_body_is_refused(patient):
    head = b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client = connect(patient, head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
    status, document = answer_of(received(client))
    assert (status, document["kind"]) == (400, "transport")


# ---- number


def test_idle_connections_do_not_keep_others_out(patient):
    with ExitStack() as held:
        for number in range(30):
            held.enter_context(connect(patient, b"GET" if number % 2 else b""))
        for _ in range(3):
            assert httpx.get(f"{patient}/healthz", timeout=60).status_code == 200


def test_connections_that_were_used_give_their_place_to_others(patient):
    with ExitStack() as held:
        for _ in range(20):
            client = held.enter_context(connect(patient, HEALTH))
            assert client.recv(12) == b"HTTP/1.1 200"
        assert httpx.get(f"{patient}/healthz", timeout=60).status_code == 200


def test_bodies_that_do_not_come_do_not_keep_others_out(patient):
    head = b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with ExitStack() as held:
        for _ in range(20):
            client = connect(patient, head + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
            held.enter_context(client)
            assert client.recv(12) == b"HTTP/1.1 100", "the route waits for its body"
        assert httpx.get(f"{patient}/healthz", timeout=60).status_code == 200


def test_when_all_wait_for_the_server_another_one_is_refused(patient, monkeypatch):
    begun, may_end = threading.Semaphore(0), threading.Event()

    def slowly(_: Graph) -> list[str]:
        begun.release()
        may_end.wait(60)
        return ["main"]

    monkeypatch.setattr(Graph, "branches", slowly)
    with ExitStack() as held:
        question = b"GET /graphs/default/branches HTTP/1.1\r\nHost: localhost\r\n\r\n"
        busy = [held.enter_context(connect(patient, question)) for _ in range(8)]
        for _ in busy:
            assert begun.acquire(timeout=60)
        status, document = answer_of(received(connect(patient, HEALTH)))
        assert (status, document["code"]) == (429, "too_many_requests")
        may_end.set()
        assert [client.recv(12) for client in busy] == [b"HTTP/1.1 200"] * 8
        assert httpx.get(f"{patient}/healthz", timeout=60).status_code == 200


# ---- the event loop


def beats_during(service: Service, url: str, body: bytes) -> int:
    """How often the event loop came round while a body was on its way and refused."""
    from omnigraph.server import http_input

    beats, is_over = [0], threading.Event()
    read = http_input._run

    async def counted(request, work, size):
        async def beat() -> None:
            while not is_over.is_set():
                beats[0] += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(beat())
        try:
            return await read(request, work, size)
        finally:
            is_over.set()
            await task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_input, "_run", counted)
        headers = {"Content-Type": "application/json"}
        answer = httpx.post(f"{url}/graphs/default/load", content=body, headers=headers, timeout=60)
        assert answer.status_code in (400, 413), answer.text
    return beats[0]


def test_the_event_loop_goes_round_while_a_large_body_is_parsed(uri):
    service = open_server(uri)
    with listening(service) as url:
        text = b'{"data": "' + b'\\"x\\"' * 2_000_000 + b"\\ud800 never ends"
        assert beats_during(service, url, text) > 20
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
