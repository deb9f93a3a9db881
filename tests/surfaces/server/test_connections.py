"""Clients that send slowly, read slowly, or do nothing at all: real sockets, small limits."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import anyio
import httpx
import pytest

from omnigraph import Graph
from omnigraph.errors import TooManyRequestsError
from omnigraph.errors.text import one_line
from omnigraph.server.boot import open_service
from omnigraph.server.config import single_graph
from omnigraph.server.main import listening_socket
from omnigraph.server.responses import configure_logs, logger
from omnigraph.server.service import (
    FORGET_S,
    FREE_GUESSES,
    LONGEST_DELAY_S,
    MAX_PEERS,
    MAX_WAITING,
    Service,
    Tokens,
    UnknownTokens,
    token_warnings,
)
from omnigraph.server.settings import ServerSettings
from support.servers import TOKENS, client_of, guarded_server, listening, open_server
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


@each_case("sent", [b"GE", b"GET / HTTP/1.1\r\n", HEALTH[:-2]])
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


# ---- The socket that a server listens at


def test_a_connection_sends_what_it_has_at_once() -> None:
    with listening_socket("127.0.0.1", 0) as bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()):
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# ---- Log entries: on one line, and without power over the terminal that shows them


HOSTILE = '/\x1b]0;own\x07\x9b5n\u202e\r\n{"forged": true}'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _own_handlers() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_own_handlers")
@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_what_strangers_send_stays_on_its_line(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs()
    logger("test").info("request", path=HOSTILE, method=HOSTILE)
    logging.getLogger("library").warning("odd: %s", HOSTILE)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    if not stream.isatty():
        assert json.loads(lines[0])["path"] == one_line(HOSTILE)
        assert not any(one_line(line) != line for line in lines)
    for line in lines:
        assert "\x1b]" not in line
        assert "\x9b" not in line
        assert "\u202e" not in line


# ---- Guesses of tokens are refused later and later, and logged with the address that they come from


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_address_that_goes_on_guessing_waits_longer_and_longer():
    guesses = UnknownTokens(clock=Clock())
    delays = [guesses.count("192.0.2.1") for _ in range(FREE_GUESSES + 12)]
    assert delays[:FREE_GUESSES] == [0.0] * FREE_GUESSES
    later = delays[FREE_GUESSES:]
    assert later == sorted(later)
    assert later[0] > 0
    assert later[-1] == LONGEST_DELAY_S
    assert guesses.count("192.0.2.2") == 0.0, "another address"


def test_guesses_are_forgotten_with_time():
    clock = Clock()
    guesses = UnknownTokens(clock=clock)
    for _ in range(FREE_GUESSES + 3):
        guesses.count("192.0.2.1")
    clock.now += FORGET_S * (FREE_GUESSES + 3)
    assert [guesses.count("192.0.2.1") for _ in range(FREE_GUESSES)] == [0.0] * FREE_GUESSES


def test_one_network_of_ipv6_is_one_address():
    guesses = UnknownTokens(clock=Clock())
    delays = [guesses.count(f"2001:db8::{number:x}") for number in range(1, FREE_GUESSES + 2)]
    assert delays[-1] > 0
    assert guesses.count("2001:db8:1::1") == 0.0


def test_no_number_of_addresses_fills_the_memory():
    guesses = UnknownTokens(clock=Clock())
    for number in range(MAX_PEERS + 100):
        guesses.count(f"peer {number}")
    assert len(guesses) == MAX_PEERS


def test_only_so_many_refusals_wait():
    async def run() -> None:
        waiting = UnknownTokens(sleep=lambda _: anyio.sleep_forever())
        async with anyio.create_task_group() as tasks:
            for _ in range(MAX_WAITING):
                tasks.start_soon(waiting.wait, 1.0)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(TooManyRequestsError):
                await waiting.wait(1.0)
            await waiting.wait(0.0)
            tasks.cancel_scope.cancel()

    anyio.run(run)


def test_a_known_token_is_answered_at_once_whatever_the_address_sent(uri, tmp_path, caplog):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    caplog.set_level(logging.WARNING)
    with guarded_server(uri, tmp_path) as service, client_of(service) as client:
        service.unknown_tokens = UnknownTokens(clock=Clock(), sleep=sleep)
        for _ in range(FREE_GUESSES + 2):
            refused = client.get("/metrics", headers={"Authorization": "Bearer guessed-token"})
            assert refused.status_code == 401
        assert len(slept) == 2
        known = {"Authorization": f"Bearer {TOKENS['act-bot']}"}
        assert client.get("/graphs/default/branches", headers=known).status_code == 200
        assert client.get("/metrics").status_code == 401, "no token is not a guess"
        assert len(slept) == 2
        assert "omnigraph_unknown_tokens_total 7.0" in client.get("/metrics", headers=known).text
    told = [record.getMessage() for record in caplog.records]
    assert sum("unknown token" in text and "testclient" in text for text in told) == 7
    assert "guessed-token" not in caplog.text


def test_short_tokens_and_files_that_others_may_read_are_warned_about(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"ann": "short", "bob": "x" * 16}), encoding="utf-8")
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(file)}
    tokens = Tokens({"ann": "short", "bob": "x" * 16}, "test")
    for mode, is_told in ((0o600, False), (0o400, False), (0o640, True), (0o604, True)):
        file.chmod(mode)
        told = token_warnings(tokens, environment)
        assert "'ann'" in told[0]
        assert "short" not in told[0]
        assert "'bob'" not in "".join(told)
        assert any("chmod 600" in text for text in told) == is_told


def test_a_server_tells_its_log_about_weak_tokens(uri, caplog):
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKEN": "weak"}
    open_service(single_graph(uri), ServerSettings(), environment=environment).close()
    assert "choose a longer one" in caplog.text
    assert "weak" not in caplog.text
