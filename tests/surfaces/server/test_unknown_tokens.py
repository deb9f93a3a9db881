"""Guesses of tokens are refused later and later, and logged with the address that they come from."""

from __future__ import annotations

import json
import logging

import anyio
import pytest

from omnigraph.errors import TooManyRequestsError
from omnigraph.server.boot import open_service
from omnigraph.server.config import single_graph
from omnigraph.server.service import (
    FORGET_S,
    FREE_GUESSES,
    LONGEST_DELAY_S,
    MAX_PEERS,
    MAX_WAITING,
    Tokens,
    UnknownTokens,
    token_warnings,
)
from omnigraph.server.settings import ServerSettings
from support.servers import TOKENS, client_of, guarded_server


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
