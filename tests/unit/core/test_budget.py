"""What one read may use: time, memory, rows, turns."""

from __future__ import annotations

import threading

import pytest

from omnigraph.core.budget import PATIENT_ROWS, Budget, LinkedSignal, MemoryAccount, Turns
from omnigraph.errors import QueryCancelledError, QueryTimeoutError, ResourceLimitError


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_read_without_bounds_goes_on() -> None:
    budget = Budget()
    budget.check()
    budget.count_rows(10**12)
    budget.release(budget.hold(10**15))
    assert budget.memory.used == 0


def test_a_read_stops_when_its_time_is_over_and_names_what_worked() -> None:
    clock = Clock()
    budget = Budget(timeout_s=2, clock=clock)
    clock.now += 2
    budget.enter("Order")
    clock.now += 0.1
    with pytest.raises(QueryTimeoutError) as caught:
        budget.check()
    assert (caught.value.timeout_s, caught.value.operator) == (2, "Order")


def test_the_time_of_the_reader_is_not_that_of_the_read() -> None:
    clock = Clock()
    budget = Budget(timeout_s=2, clock=clock)
    paused_at = budget.pause()
    clock.now += 1_000
    budget.resume(paused_at)
    budget.check()
    clock.now += 3
    with pytest.raises(QueryTimeoutError):
        budget.check()


def test_the_time_of_an_encoder_belongs_to_the_read() -> None:
    clock = Clock()
    budget = Budget(timeout_s=2, clock=clock)
    budget.counts_pauses = True
    paused_at = budget.pause()
    clock.now += 3
    budget.resume(paused_at)
    with pytest.raises(QueryTimeoutError):
        budget.check()


def test_a_signal_stops_a_read_at_the_next_check() -> None:
    signal = threading.Event()
    budget = Budget(cancel=signal)
    budget.check()
    signal.set()
    with pytest.raises(QueryCancelledError):
        list(budget.steps([1]))


def test_a_linked_signal_follows_the_other_one() -> None:
    other = threading.Event()
    first, second = LinkedSignal(other), LinkedSignal(other)
    first.set()
    assert (first.is_set(), second.is_set()) == (True, False)
    other.set()
    assert second.is_set()


def test_memory_is_refused_before_it_is_taken_and_given_back_at_the_end() -> None:
    shared = MemoryAccount(1_000, setting="OMNIGRAPH_SERVER_READ_MEMORY_BYTES")
    first = Budget(memory=MemoryAccount(700, shared=shared))
    second = Budget(memory=MemoryAccount(700, shared=shared))
    first.hold(600)
    with pytest.raises(ResourceLimitError) as own:
        first.allow(101)
    second.enter("Expand $a Knows $b")
    with pytest.raises(ResourceLimitError) as others:
        second.hold(401)
    assert (own.value.limit, own.value.actual) == (700, 701)
    assert (others.value.limit, others.value.actual) == (1_000, 1_001)
    assert "Expand $a Knows $b" in others.value.advice
    assert "OMNIGRAPH_SERVER_READ_MEMORY_BYTES" in others.value.advice
    first.release_all()
    assert (shared.used, shared.peak) == (0, 600)


def test_rows_beyond_the_bound_are_refused_with_the_way_out() -> None:
    budget = Budget(max_rows=10)
    budget.count_rows(10)
    with pytest.raises(ResourceLimitError, match="OMNIGRAPH_QUERY_MAX_ROWS"):
        budget.count_rows(1)


def test_a_kernel_that_goes_on_does_not_keep_its_read() -> None:
    signal, let_go = threading.Event(), threading.Event()
    budget = Budget(cancel=signal)

    def kernel() -> None:
        signal.set()
        let_go.wait(30)

    with pytest.raises(QueryCancelledError):
        budget.patiently(kernel)
    let_go.set()


def test_kernels_give_their_outcome_and_their_failure() -> None:
    budget = Budget()

    def fails() -> None:
        raise KeyError("inside")

    here, elsewhere = (budget.patiently(threading.get_ident, rows) for rows in (0, PATIENT_ROWS))
    assert here == threading.get_ident() != elsewhere
    with pytest.raises(KeyError, match="inside"):
        budget.patiently(fails)


def test_long_reads_take_turns_and_short_ones_do_not_wait() -> None:
    clock, turns = Clock(), Turns(1)
    long, other, short = (Budget(turns=turns, clock=clock) for _ in range(3))
    clock.now += 1
    long.check()
    short_too = Budget(turns=turns, clock=clock)
    short_too.check()
    stopped = threading.Event()
    waiting = Budget(turns=turns, clock=clock, cancel=stopped)
    clock.now += 1
    stopped.set()
    with pytest.raises(QueryCancelledError):
        waiting.check()
    paused_at = long.pause()
    other.check()
    other.release_all()
    long.resume(paused_at)
    long.check()
    long.release_all()
    short.check()
    short.release_all()
    assert not turns.is_wanted
