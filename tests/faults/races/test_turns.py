"""Mutations of one branch take turns inside a process: nothing is prepared in vain, and nobody waits for long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from omnigraph import Graph
from omnigraph.commit.transaction import BranchQueue, Transaction

ADD = "query add($name: String) { insert Person { name: $name } }"


def test_threads_that_mutate_one_branch_prepare_every_mutation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = []
    begin = Transaction.begin

    def counted(self: Transaction) -> object:
        prepared.append(1)
        return begin(self)

    monkeypatch.setattr(Transaction, "begin", counted)
    with Graph.init(tmp_path / "graph", "node Person { name: String @key }") as graph:
        # However slow the machine is: nobody goes on without a turn here.
        graph._writer._queue = BranchQueue(longest_wait_s=120)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: graph.mutate(ADD, {"name": f"p{number}"}), range(16)))
        assert graph.snapshot().pins["node:Person"].row_count == 16
    assert len(prepared) == 16


def test_branches_do_not_wait_for_each_other() -> None:
    turns = BranchQueue(longest_wait_s=120)
    with turns.turn("main"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: enter_and_leave(turns, "draft")).result(60)


def test_whoever_waited_long_enough_goes_on_without_a_turn() -> None:
    turns = BranchQueue(longest_wait_s=0.001)
    with turns.turn("main"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: enter_and_leave(turns, "main")).result(60)
    # The one that had no turn has not given the turn of another away.
    assert turns._turns == {}


def test_a_turn_is_given_on_after_a_failure() -> None:
    turns = BranchQueue(longest_wait_s=120)
    may_fail = Event()

    def fail() -> None:
        with turns.turn("main"):
            may_fail.wait(60)
            raise ValueError("no mutation")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fail)
        second = pool.submit(lambda: enter_and_leave(turns, "main"))
        may_fail.set()
        assert isinstance(first.exception(60), ValueError)
        assert second.result(60)
    assert turns._turns == {}


def enter_and_leave(turns: BranchQueue, branch: str) -> bool:
    with turns.turn(branch):
        return True
