"""Many readers beside writers that race: nothing acknowledged is lost, nothing is seen by half, memory stays flat."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.storage.locks import FileCommitLock
from support.server_ledger import (
    ADD_PAIR,
    HALVES,
    ONE,
    SET,
    Ledger,
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
)
from support.server_processes import ServerProcess, Wire, resident_bytes, wait_for_metrics
from support.servers import listening, open_server

READERS = 64
#: How the eight writers write.
PAIRS, CAREFUL, CONTENDED = range(3), range(3, 5), range(5, 8)
WRITERS = len(PAIRS) + len(CAREFUL) + len(CONTENDED)
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
            jobs += [pool.submit(self._write_pairs, phase, writes, n) for n in PAIRS]
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
    assert contended in {
        0,
        *(load.ledgers[n].updates[-1][1] for n in CONTENDED if load.ledgers[n].updates),
    }
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
