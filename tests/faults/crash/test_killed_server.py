"""A server is killed, stopped or told to read its tokens again under load: what it acknowledged is there, all of it."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Semaphore

import pytest

from omnigraph import Graph
from omnigraph.storage.locks import FileCommitLock
from support.killed_writers import check_sound, copy, sidecars
from support.server_processes import (
    ADD_PAIR,
    LEFTS,
    SCHEMA,
    Ledger,
    Nursery,
    Wire,
    check_ledgers,
    check_whole,
    commit_of,
    logical_history,
    make_world,
    names,
    partner,
    wait_for_metrics,
)

WRITERS = 4
OPEN = "--unauthenticated"
TOKENS = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    started = Nursery(tmp_path_factory.mktemp("nursery"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a draft that has a pair of its own."""
    root = make_world(tmp_path_factory.mktemp("made") / "world.omni")
    with Graph.open(root) as graph:
        graph.create_branch("draft")
        graph.mutate(ADD_PAIR, {"name": "new", "writer": 1}, branch="draft")
    return root


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    return copy(made, tmp_path / "world.omni")


def add(name: str) -> dict[str, object]:
    return {"query": ADD_PAIR, "params": {"name": name, "writer": 0}}


# ---- kill -9


def write_until_cut_off(address: tuple[str, int], prefix: str, ledger: Ledger, acknowledged: Semaphore) -> None:
    """Insert pairs until the server is gone."""
    number = 0
    with Wire(address) as wire:
        while True:
            number += 1
            name = f"{prefix}-{number}"
            try:
                answer = wire.post("/mutate", add(name))
            except ConnectionError:
                ledger.in_doubt.append(name)
                return
            ledger.pairs[name] = commit_of(answer)
            acknowledged.release()


def read_until_cut_off(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        try:
            while True:
                check_whole(wire)
        except ConnectionError:
            return


def check_killed_under_load(nursery: Nursery, world: Path, *, rounds: int, acknowledged: int) -> None:
    ledgers: list[Ledger] = []
    before: list[str] = []
    for number in range(rounds):
        server = nursery.start(world, OPEN)
        # Whoever starts settles what the dead one left.
        assert sidecars(world) == []
        with Wire(server.address) as wire:
            before = before or logical_history(wire)
            check_ledgers(wire, ledgers, before)
        written = Semaphore(0)
        mine = [Ledger() for _ in range(WRITERS)]
        ledgers += mine
        with ThreadPoolExecutor(WRITERS + 1) as pool:
            jobs = [
                pool.submit(write_until_cut_off, server.address, f"{number}-{n}", ledger, written)
                for n, ledger in enumerate(mine)
            ]
            jobs.append(pool.submit(read_until_cut_off, server.address))
            for _ in range(acknowledged):
                assert written.acquire(timeout=60)
            server.kill()
            for job in jobs:
                job.result()
    server = nursery.start(world, OPEN)
    assert sidecars(world) == []
    with Wire(server.address) as wire:
        check_ledgers(wire, ledgers, before)
        commit_of(wire.post("/mutate", add("afterwards")))
        assert partner(wire, "afterwards") == "afterwards"
    server.kill()
    check_sound(world)


def test_a_server_killed_under_load_keeps_every_acknowledged_write(nursery: Nursery, world: Path):
    check_killed_under_load(nursery, world, rounds=2, acknowledged=4)


@pytest.mark.slow
def test_a_server_killed_again_and_again_keeps_every_acknowledged_write(nursery: Nursery, world: Path):
    check_killed_under_load(nursery, world, rounds=25, acknowledged=9)


LINES = "\n".join(
    json.dumps(row)
    for row in (
        {"type": "Left", "data": {"name": "new", "writer": 1}},
        {"type": "Right", "data": {"name": "new", "writer": 1}},
        {"edge": "Pairs", "from": "new", "to": "new", "data": {}},
    )
).encode()


def mutate(wire: Wire) -> None:
    wire.post("/mutate", add("new"))


def load(wire: Wire) -> None:
    wire.post_lines("/load/ndjson?mode=merge", LINES)


def merge(wire: Wire) -> None:
    wire.post("/branches/merge", {"source": "draft"})


@pytest.mark.parametrize(
    ("place", "request_", "happened"),
    [
        ("after_table_commit@1", mutate, False),
        ("before_publish", mutate, True),
        ("after_table_commit@2", load, False),
        ("merge_staged", merge, False),
        ("before_publish", merge, True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_write_that_its_server_did_not_survive_happened_or_did_not(
    nursery: Nursery, world: Path, place: str, request_, happened: bool
):
    dying = nursery.start(world, OPEN, failpoint=f"{place}=kill")
    with Wire(dying.address) as wire, pytest.raises(ConnectionError):
        request_(wire)
    assert dying.wait() == -signal.SIGKILL
    server = nursery.start(world, OPEN)
    assert sidecars(world) == []
    with Wire(server.address) as wire:
        check_whole(wire)
        assert names(wire, LEFTS)[0] == (["first", "new"] if happened else ["first"])
        if not happened:
            # Whoever was cut off looks, and asks again.
            request_(wire)
        assert partner(wire, "new") == "new"
        commit_of(wire.post("/mutate", add("other")))
        check_whole(wire)
    server.kill()
    check_sound(world)


# ---- a graceful stop


def test_a_server_that_is_told_to_stop_finishes_what_it_does(nursery: Nursery, tmp_path: Path):
    """An export that its client reads slowly and a mutation that waits both complete, and new clients are refused."""
    world = tmp_path / "large.omni"
    # More than the socket of the server and the queue behind it can hold.
    rows = [{"type": "Note", "data": {"name": f"n{n}", "text": "x" * 65_536}} for n in range(128)]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    with Graph.init(world, f"{SCHEMA}\nnode Note {{ name: String @key  text: String }}") as graph:
        graph.load(lines, mode="append", engine="local")
    server = nursery.start(world, OPEN)
    with Wire(server.address, is_slow=True) as reader, Wire(server.address) as writer:
        with FileCommitLock(world).held(1):
            reader.begin("/export", {})
            writer.begin("/mutate", add("last"))
            # The two, and the one that asks.
            wait_for_metrics(server.address, "requests_in_flight 3.0", "streams_open 1.0")
            server.send(signal.SIGTERM)
            wait_until_refused(server.address)
        assert commit_of(writer.finish())
        exported = reader.finish()
    assert exported.status == 200
    assert sum(1 for line in exported.body.splitlines() if b'"Note"' in line) == len(rows)
    assert server.wait() == 0
    check_sound(world)
    with Graph.open(world, read_only=True) as graph:
        assert graph.query(LEFTS).to_pylist() == [{"name": "last"}]


def wait_until_refused(address: tuple[str, int]) -> None:
    """Until nobody listens any more."""
    while True:
        try:
            socket.create_connection(address).close()
        except ConnectionError:
            return


# ---- tokens that change


def test_tokens_are_replaced_under_load_without_a_dropped_request(nursery: Nursery, world: Path, tmp_path: Path):
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"act-steady": "steady", "act-moved": "old"}), encoding="utf-8")
    server = nursery.start(world, **{TOKENS: str(tokens)})
    stop = Event()

    def read_all_the_time() -> int:
        count = 0
        with Wire(server.address, "steady") as wire:
            while not stop.is_set():
                check_whole(wire)
                count += 1
        return count

    def status(token: str) -> int:
        with Wire(server.address, token) as wire:
            return wire.get("/snapshot").status

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read_all_the_time) for _ in range(8)]
        try:
            assert (status("old"), status("new")) == (200, 401)
            tokens.write_text('{"act-moved": ', encoding="utf-8")
            server.send(signal.SIGHUP)
            wait_for_metrics(server.address, 'reloads_total{result="refused"} 1.0', token="steady")
            assert (status("old"), status("new")) == (200, 401)
            kept = {"act-steady": "steady", "act-moved": "new"}
            tokens.write_text(json.dumps(kept), encoding="utf-8")
            server.send(signal.SIGHUP)
            wait_for_metrics(server.address, 'reloads_total{result="done"} 1.0', token="steady")
            assert (status("old"), status("new")) == (401, 200)
        finally:
            stop.set()
        assert all(reader.result() > 0 for reader in readers)
    server.kill()
