"""Reads that are stopped: by their time, by a client that goes away, by the end of the server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from omnigraph import Graph
from omnigraph.api.operation import ARROW_STREAM
from omnigraph.errors import QueryCancelledError, QueryTimeoutError
from omnigraph.server.settings import ServerSettings
from omnigraph.storage.locks import FileCommitLock
from support.server_processes import (
    ADD_PAIR,
    HALVES,
    ONE,
    SET,
    Ledger,
    ServerProcess,
    Wire,
    check_ledgers,
    check_whole,
    commit_of,
    count_pairs,
    counter_at,
    logical_history,
    make_world,
    names,
    partner,
    refusal_of,
    resident_bytes,
    wait_for_metrics,
)
from support.servers import client_of, listening, make_graph, open_server, sent
from support.subtests import each_case

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


STREAMS = ["export", "changes/baseline"]


def test_a_stream_has_a_longest_time_that_is_its_default_too(uri: str) -> None:
    with open_server(uri, settings=ServerSettings(export_timeout_s=1e-9)) as service, client_of(service) as client:
        for path in STREAMS:
            stopped = client.post(f"/graphs/default/{path}", json={})
            refused = client.post(f"/graphs/default/{path}", json={"timeout_s": 1})
            assert (stopped.status_code, stopped.json()["query_timeout"]["timeout_s"]) == (504, 1e-9)
            assert refused.status_code == 400
            assert "OMNIGRAPH_EXPORT_TIMEOUT" in refused.json()["error"]


def test_a_stream_ends_after_the_time_that_its_caller_gives(uri: str) -> None:
    with open_server(uri) as service, client_of(service) as client:
        for path in STREAMS:
            stopped = client.post(f"/graphs/default/{path}", json={"timeout_s": 1e-9})
            whole = client.post(f"/graphs/default/{path}", json={"timeout_s": 60})
            assert (stopped.status_code, whole.status_code) == (504, 200)


def test_the_longest_time_of_a_stream_is_six_hours_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ServerSettings.from_environment().stream_timeout_s(None) == 6 * 3600
    monkeypatch.setenv("OMNIGRAPH_EXPORT_TIMEOUT", "0")
    assert ServerSettings.from_environment().stream_timeout_s(None) is None
    assert ServerSettings.from_environment().stream_timeout_s(10**6) == 10**6


@each_case("timeout_s", [0, -1, "soon"])
def test_a_time_that_is_none_is_refused(url: str, timeout_s: object) -> None:
    body = {"query": SHORT, "timeout_s": timeout_s}
    assert httpx.post(f"{url}/graphs/default/query", json=body).status_code == 400


@pytest.mark.parametrize("arrow", [False, True])
def test_a_client_that_goes_away_gives_its_thread_back(url: str, arrow: bool) -> None:
    for _ in range(3):
        accept = {"Accept": ARROW_STREAM} if arrow else {}
        sent(url, "POST", "query", {"query": ENDLESS, "timeout_s": 500}, **accept).close()
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
        clients = [sent(url, "POST", "query", {"query": ENDLESS, "timeout_s": 500}) for _ in range(4)]
        assert httpx.post(f"{url}/graphs/default/query", json={"query": SHORT}, timeout=60)
        os.kill(server.pid, signal.SIGTERM)
        # 1 on a machine so slow that the grace is over before the reads have noticed.
        assert server.wait() in (0, 1)
        for client in clients:
            client.close()
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert '"stopped"' in log or "the grace is over" in log


# ---- Many readers beside writers that race: nothing acknowledged is lost, nothing is seen by half, memory stays flat


READERS = 64
#: How the eight writers write.
LOAD_PAIRS, CAREFUL, CONTENDED = range(3), range(3, 5), range(5, 8)
WRITERS = len(LOAD_PAIRS) + len(CAREFUL) + len(CONTENDED)
#: Fewer than there are writers, so that some are told to wait.
IN_FLIGHT = 6
#: What a server may have grown by since it was warm.
FLAT_BYTES = 48 * 1024 * 1024

REFUSALS = {
    (409, "conflict"),
    (409, "retryable_commit_conflict"),
    (412, "precondition_failed"),
    (429, "too_many_requests"),
}


class Load:
    """Readers and writers of one server; a phase is a number of operations, however long they take."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.ledgers = [Ledger() for _ in range(WRITERS)]

    def run(self, phase: str, reads: int, writes: int) -> None:
        with ThreadPoolExecutor(READERS + WRITERS) as pool:
            jobs = [pool.submit(self._read, reads, number) for number in range(READERS)]
            jobs += [pool.submit(self._write_pairs, phase, writes, n) for n in LOAD_PAIRS]
            jobs += [pool.submit(self._count, writes, n) for n in CAREFUL]
            jobs += [pool.submit(self._overwrite, writes, n) for n in CONTENDED]
            for job in jobs:
                job.result()

    def _read(self, reads: int, number: int) -> None:
        """Look in different ways; a later look never sees less than an earlier one."""
        with Wire(self._address) as wire:
            seen = 0
            for step in range(reads):
                match (number + step) % 16:
                    case 0:
                        check_whole(wire)
                    case 1 | 2 | 3:
                        assert names(wire, HALVES)[0] == []
                    case 4 | 5 | 6 | 7 | 8 | 9:
                        assert partner(wire, "first") == "first"
                    case _:
                        count = count_pairs(wire)
                        assert count >= seen, "a reader went back in time"
                        seen = count

    def _write_pairs(self, phase: str, writes: int, number: int) -> None:
        """Insert pairs until so many are acknowledged; each is seen by its writer at once."""
        ledger = self.ledgers[number]
        with Wire(self._address) as wire:
            for step in range(writes):
                name = f"{phase}-{number}-{step}"
                body = {"query": ADD_PAIR, "params": {"name": name, "writer": number}}
                while (answer := wire.post("/mutate", body)).status != 200:
                    ledger.refusals.append(refusal_of(answer))
                ledger.pairs[name] = commit_of(answer)
                assert partner(wire, name) == name, "a writer does not see its own write"

    def _count(self, writes: int, number: int) -> None:
        """Add one to the value that was read, if nothing happened since then, until so much was added."""
        ledger = self.ledgers[number]
        enough = len(ledger.updates) + writes
        with Wire(self._address) as wire:
            while len(ledger.updates) < enough:
                value, commit_id = counter_at(wire, "careful")
                body = {"query": SET, "params": {"name": "careful", "value": value + 1}}
                condition = {"Omnigraph-If-Graph-Commit": commit_id}
                answer = wire.post("/mutate/if-graph-commit", body, **condition)
                if answer.status == 200:
                    ledger.updates.append((commit_of(answer), value + 1))
                else:
                    ledger.refusals.append(refusal_of(answer))

    def _overwrite(self, writes: int, number: int) -> None:
        """Set one value that others set, too; try so often."""
        ledger = self.ledgers[number]
        with Wire(self._address) as wire:
            for step in range(writes):
                value = 1000 * number + step
                body = {"query": SET, "params": {"name": "contended", "value": value}}
                answer = wire.post("/mutate", body)
                if answer.status == 200:
                    ledger.updates.append((commit_of(answer), value))
                else:
                    ledger.refusals.append(refusal_of(answer))


def check_load(root: Path, log: Path, *, reads: int, writes: int) -> None:
    limits = {
        "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": str(IN_FLIGHT),
        # A cache that is full when the server is warm cannot be taken for a leak.
        "OMNIGRAPH_METADATA_CACHE_BYTES": str(8 * 1024 * 1024),
    }
    with ServerProcess(make_world(root), log, "--unauthenticated", **limits) as server:
        with Wire(server.address) as wire:
            before = logical_history(wire)
        load = Load(server.address)
        load.run("warm", reads, writes)
        warm = resident_bytes(server.pid)
        load.run("then", reads, writes)
        grown = resident_bytes(server.pid) - warm
        with Wire(server.address) as wire:
            check_ledgers(wire, load.ledgers, before)
            careful, contended = counter_at(wire, "careful")[0], counter_at(wire, "contended")[0]
    assert {refusal for ledger in load.ledgers for refusal in ledger.refusals} <= REFUSALS
    increments = [value for n in CAREFUL for _, value in load.ledgers[n].updates]
    assert sorted(increments) == list(range(1, careful + 1)), "two writers counted the same step"
    assert contended in {0, *(load.ledgers[n].updates[-1][1] for n in CONTENDED if load.ledgers[n].updates)}
    assert grown < FLAT_BYTES, f"grown by {grown:,} bytes"


def test_readers_and_racing_writers_lose_nothing_and_see_no_half_of_a_write(tmp_path: Path):
    check_load(tmp_path / "world.omni", tmp_path / "log", reads=4, writes=2)


def test_readers_do_not_wait_for_writers_that_wait(tmp_path: Path):
    root = make_world(tmp_path / "world.omni")
    with listening(open_server(str(root))) as url, ExitStack() as stack:
        host, _, port = url.removeprefix("http://").rpartition(":")
        address = host, int(port)
        writers = [stack.enter_context(Wire(address)) for _ in range(20)]
        with FileCommitLock(root).held(1):
            for number, writer in enumerate(writers):
                params = {"name": f"w{number}", "writer": number}
                writer.begin("/mutate", {"query": ADD_PAIR, "params": params})
            # As many as one actor may have, and the one that asks.
            wait_for_metrics(address, "requests_in_flight 17.0")
            readers = [stack.enter_context(Wire(address)) for _ in range(200)]
            for reader in readers:
                reader.begin("/query", {"query": ONE, "params": {"name": "first"}})
            assert {reader.finish().status for reader in readers} == {200}
        answers = [writer.finish().status for writer in writers]
        assert (answers.count(200), answers.count(429)) == (16, 4)
        check_whole(writers[0])
        assert count_pairs(writers[0]) == 17


@pytest.mark.slow
def test_a_long_load_loses_nothing_and_memory_stays_flat(tmp_path: Path):
    check_load(tmp_path / "world.omni", tmp_path / "log", reads=150, writes=150)
