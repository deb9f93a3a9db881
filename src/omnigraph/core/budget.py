"""Bounds of one read: time, memory and rows, what a caller gives, and whether the answer is still wanted."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from threading import Condition, Event, Lock, Thread
from typing import Generic, Protocol, TypeVar

from omnigraph.errors import BadRequestError, QueryCancelledError, QueryTimeoutError, ResourceLimitError
from omnigraph.frozen import frozen

# ---- The budget of a read
#
# A `Budget` travels with a read to everything that works for it. Work that goes on in steps calls `check` at every
# step; one call of a foreign kernel that may take long runs through `patiently`, which looks while the kernel works.
# What is allocated is asked for first (`allow`) and accounted while it is held (`hold`, `release`).
#
# A budget is used by one thread at a time; `cancel` may be called, and its memory account shared, from any thread.
#
# Bulk work is spread over many modules, and most of them have nothing to do with bounds. It runs inside `bounded`,
# and what goes on in steps calls `check_work` at every step, in whatever module it is: without a bound that does
# nothing. What has to be finished once it has begun, a commit for example, runs inside `finishing`.


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")

#: Rows or values that a kernel works through in well below 100 ms; more of them are waited for patiently.
PATIENT_ROWS = 1 << 20
#: How often a reader that waits looks whether it is still wanted.
LOOK_S = 0.05
#: How long a read is a short one, and how long one turn of a long one is.
_SHORT_S = 0.1
_TURN_S = 0.1
#: Threads that wait for the next kernel.
_KEPT_THREADS = 8
#: Bytes that are too few to be told about.
_GRAIN = 1 << 20
_NO_LIMIT = 1 << 62

MEMORY_RESOURCE = "query_memory_bytes"
ROWS_RESOURCE = "query_rows"


class CancelSignal(Protocol):
    """A signal that cancels a read: a `threading.Event`, or anything like it."""

    def is_set(self) -> bool:
        """Whether it is not wanted."""
        ...


class MemoryAccount:
    """Bytes that are held, against a limit. Thread-safe, so that the reads of a server may share one.

    Args:
        limit: bytes that may be held; None counts only.
        shared: an account that everything held here is held in as well.
        setting: the name of the setting that raises the limit.
    """

    def __init__(
        self,
        limit: int | None = None,
        *,
        shared: MemoryAccount | None = None,
        setting: str = "OMNIGRAPH_QUERY_MEMORY_BYTES",
    ) -> None:
        self.limit = limit
        self.setting = setting
        self.shared = shared
        self.used = 0
        #: The most that was held at any time.
        self.peak = 0
        self._lock = Lock()

    @property
    def least_limit(self) -> int:
        """The smallest limit of this account and those that it is shared with."""
        own = _NO_LIMIT if self.limit is None else self.limit
        return own if self.shared is None else min(own, self.shared.least_limit)

    def refusal(self, size: int) -> tuple[MemoryAccount, int] | None:
        """The account that has no room for so many more bytes, and what it would hold; None when all have."""
        if self.limit is not None and self.used + size > self.limit:
            return self, self.used + size
        return None if self.shared is None else self.shared.refusal(size)

    def add(self, size: int) -> None:
        """Hold so many more bytes, or fewer when negative."""
        with self._lock:
            self.used += size
            self.peak = max(self.peak, self.used)
        if self.shared is not None:
            self.shared.add(size)


class Turns:
    """Places in which long reads work, by turns; short ones need none. Thread-safe.

    Many computing threads are not faster than a few, and starve everything that shares the interpreter with them: a
    read by key, and the loop that would notice that a client is gone.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[object] = deque()
        self._changed = Condition()

    def take(self, check: Callable[[], None]) -> None:
        """Wait for a place, first come, first served; `check` ends the waiting by raising."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not (self._free and self._waiting[0] is ticket):
                    self._changed.wait(LOOK_S)
                    check()
                self._free -= 1
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def give_back(self) -> None:
        """Leave a place."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    @property
    def is_wanted(self) -> bool:
        """Whether a read waits for a place."""
        return bool(self._waiting)


class Budget:
    """The bounds of one read.

    Args:
        timeout_s: seconds that the read may work; the time that its reader takes between batches does not count.
        cancel: set when the read is not wanted any more.
        memory: where the memory of intermediate results is accounted.
        max_rows: rows that the answer may have.
        turns: where the read has to take turns with others once it takes long.
    """

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
        memory: MemoryAccount | None = None,
        max_rows: int | None = None,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_s = timeout_s
        self.memory = MemoryAccount() if memory is None else memory
        self.max_rows = max_rows
        #: What works now, for the failure that stops it.
        self.operator = "the query"
        #: Whether pauses count as time of the read, as where what reads the batches is part of the answer.
        self.counts_pauses = False
        #: How often the read was checked.
        self.checks = 0
        self._cancel = cancel
        self._clock = clock
        #: Whether there is nothing to look at: a read of a few rows should not notice that it is watched.
        self._is_free = timeout_s is None and cancel is None and turns is None
        self._deadline = None if timeout_s is None else clock() + timeout_s
        self._rows = 0
        #: Bytes that are held, and how many of them the account knows of: only larger amounts are reported to it.
        self._held = 0
        self._told = 0
        self._grain = min(_GRAIN, self.memory.least_limit // 16)
        self._turns = turns
        #: Until when it may work without looking whether others wait; at first without a place.
        self._turn_ends = None if turns is None else clock() + _SHORT_S
        self._has_place = False

    # ---- time

    def check(self) -> None:
        """Go on, or stop here.

        Raises:
            QueryCancelledError: the read is not wanted any more.
            QueryTimeoutError: its time is over.
        """
        self.checks += 1
        if self._is_free:
            return
        self._look()
        if self._turn_ends is not None and self._clock() > self._turn_ends:
            self._take_turn()

    def _look(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise QueryCancelledError(self.operator)
        if self._deadline is not None and self._clock() > self._deadline:
            assert self.timeout_s is not None, "a deadline follows from a timeout"
            raise QueryTimeoutError(self.timeout_s, self.operator)

    def _take_turn(self) -> None:
        """Give others that wait their turn, and go on with a place."""
        turns = self._turns
        assert turns is not None, "a turn ends where there are turns"
        if not self._has_place or turns.is_wanted:
            self._leave_place()
            turns.take(self._look)
            self._has_place = True
        self._turn_ends = self._clock() + _TURN_S

    def _leave_place(self) -> None:
        if self._has_place:
            assert self._turns is not None, "a place is one of them"
            self._has_place = False
            self._turns.give_back()

    def enter(self, operator: str) -> None:
        """Note who works from here on, and check."""
        self.operator = operator
        self.check()

    def steps(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items, with a check before each of them."""
        for item in items:
            self.check()
            yield item

    def pause(self) -> float:
        """Exclude the time until `resume`, which gets the value that is returned, unless pauses count."""
        if self._is_free:
            return 0.0
        self._leave_place()
        return self._clock()

    def resume(self, paused_at: float) -> None:
        """Go on after a pause."""
        if self._is_free or self.counts_pauses:
            return
        spent = self._clock() - paused_at
        if self._deadline is not None:
            self._deadline += spent
        if self._turn_ends is not None:
            self._turn_ends += spent

    def patiently(self, work: Callable[[], _Made], rows: int = PATIENT_ROWS) -> _Made:
        """Do work that cannot be stopped on the way, and go on without it when the read is stopped meanwhile.

        Work on fewer than `PATIENT_ROWS` rows is done at once. More of it runs in a thread of its own, so that this one
        can look, and so that an interrupt reaches it: a kernel of Arrow, numpy or Lance listens to neither. A kernel
        that is left alone ends by itself; its outcome is dropped.
        """
        self.check()
        if rows < PATIENT_ROWS:
            return work()
        # What the work does in steps looks at the same bounds, and ends by itself.
        context = copy_context()
        task = _KERNELS.start(lambda: context.run(work))
        while not task.done.wait(LOOK_S):
            self.check()
        return task.outcome()

    def together(self, works: Sequence[Callable[[], _Made]]) -> list[_Made]:
        """What pieces of work come to that are done at once, each in a thread of its own; otherwise as `patiently`."""
        self.check()
        tasks = [_KERNELS.start(partial(copy_context().run, work)) for work in works]
        for task in tasks:
            while not task.done.wait(LOOK_S):
                self.check()
        return [task.outcome() for task in tasks]

    # ---- memory

    def allow(self, size: int) -> None:
        """Ask before so many bytes are allocated.

        Raises:
            ResourceLimitError: they are more than the read may hold.
        """
        unknown = self._held - self._told
        if unknown + size <= self._grain:
            return
        refused = self.memory.refusal(int(unknown + size))
        if refused is not None:
            account, wanted = refused
            assert account.limit is not None, "an account without a limit refuses nothing"
            advice = (
                f"{self.operator} needs more memory than a read may have: add a filter or a limit, return fewer "
                f"columns, export instead, or raise {account.setting}"
            )
            raise ResourceLimitError(MEMORY_RESOURCE, account.limit, wanted, advice)

    def hold(self, size: int) -> int:
        """Account so many bytes until they are given to `release`; returns the size.

        Raises:
            ResourceLimitError: they are more than the read may hold.
        """
        if size:
            self.allow(size)
            self._held += size
            self._tell()
        return size

    def release(self, size: int) -> None:
        """Give back what was held."""
        if size:
            self._held -= size
            self._tell()

    def _tell(self) -> None:
        change = self._held - self._told
        if abs(change) > self._grain:
            self._told = self._held
            self.memory.add(change)

    def release_all(self) -> None:
        """Give back everything that is still held, and the place among others: the read is over."""
        self._leave_place()
        told, self._held, self._told = self._told, 0, 0
        if told:
            self.memory.add(-told)

    # ---- rows

    def count_rows(self, rows: int) -> None:
        """Count rows of the answer.

        Raises:
            ResourceLimitError: they are more than an answer may have.
        """
        self._rows += rows
        if self.max_rows is not None and self._rows > self.max_rows:
            advice = (
                "the answer has more rows than one may have: add a filter or a limit, export instead, or raise "
                "OMNIGRAPH_QUERY_MAX_ROWS"
            )
            raise ResourceLimitError(ROWS_RESOURCE, self.max_rows, self._rows, advice)


#: The bounds of the bulk work that runs here.
_WORK: ContextVar[Budget | None] = ContextVar("omnigraph_work", default=None)


@contextmanager
def bounded(budget: Budget, operator: str) -> Iterator[None]:
    """Let everything that works in the block look at a budget.

    Raises:
        QueryCancelledError: the work is not wanted any more; also from every `check_work` in the block.
        QueryTimeoutError: its time is over.
    """
    budget.enter(operator)
    token = _WORK.set(budget)
    try:
        yield
    finally:
        _WORK.reset(token)


@contextmanager
def finishing() -> Iterator[None]:
    """Let nothing stop the work of the block: it ends, or it fails for reasons of its own."""
    token = _WORK.set(None)
    try:
        yield
    finally:
        _WORK.reset(token)


def check_work() -> None:
    """Go on with bulk work, or stop here; does nothing where no bounds were given, as in a task on another machine.

    Raises:
        QueryCancelledError: the work is not wanted any more.
        QueryTimeoutError: its time is over.
    """
    budget = _WORK.get()
    if budget is not None:
        budget.check()


def work_steps(items: Iterable[_Item]) -> Iterator[_Item]:
    """The items, with a `check_work` before each of them."""
    for item in items:
        check_work()
        yield item


def patiently(work: Callable[[], _Made]) -> _Made:
    """Do work that listens to nothing, within the bounds of the bulk work that runs here; see `Budget.patiently`."""
    return (_WORK.get() or Budget()).patiently(work)


class _Task(Generic[_Made]):
    """One piece of work in another thread."""

    def __init__(self, work: Callable[[], _Made]) -> None:
        self.done = Event()
        self._work: Callable[[], _Made] | None = work
        self._made: tuple[_Made] | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        work, self._work = self._work, None
        assert work is not None, "a task runs once"
        try:
            self._made = (work(),)
        except BaseException as failure:  # noqa: BLE001  # it belongs to the thread that waits
            self._failure = failure
        finally:
            # What the work refers to is released before the waiter wakes up: it may be a file, or much memory.
            del work
            self.done.set()

    def outcome(self) -> _Made:
        if self._failure is not None:
            raise self._failure
        assert self._made is not None, "work that is done has an outcome or a failure"
        return self._made[0]


class _Kernels:
    """Threads for kernels, kept for the next one: starting a thread takes longer than many a kernel.

    They end with the process at the latest, whatever they do then.
    """

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Callable[[], None]]] = deque()

    def start(self, work: Callable[[], _Made]) -> _Task[_Made]:
        """Begin a piece of work."""
        task = _Task(work)
        try:
            waiting = self._idle.pop()
        except IndexError:
            waiting = SimpleQueue()
            Thread(target=self._serve, args=(waiting,), name="omnigraph-kernel", daemon=True).start()
        waiting.put(task.run)
        return task

    def _serve(self, waiting: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            waiting.get()()
            if len(self._idle) >= _KEPT_THREADS:
                return
            self._idle.append(waiting)

    def forget(self) -> None:
        """Threads do not exist in a process that was forked."""
        self._idle.clear()


_KERNELS = _Kernels()
os.register_at_fork(after_in_child=_KERNELS.forget)


class LinkedSignal:
    """A signal of its own that is also set when another one is."""

    def __init__(self, other: CancelSignal) -> None:
        self._own = Event()
        self._other = other

    def set(self) -> None:
        """The read is not wanted any more."""
        self._own.set()

    def is_set(self) -> bool:
        """Whether one of the two is set."""
        return self._own.is_set() or self._other.is_set()


# ---- Limits given by a caller


#: The longest time that is counted; more is as good as none.
_LONGEST_S = 10**9


@frozen(kw_only=True)
class ReadLimits:
    """The limits of a read: time, cancellation, and the size of its answer.

    Raises:
        BadRequestError: the time is not a positive number, or the signal is none.
    """

    timeout_s: float | None = None
    cancel: CancelSignal | None = None
    max_rows: int | None = None
    #: An account that several reads share, beside the one of each.
    memory: MemoryAccount | None = None
    #: Where several reads take turns once they take long.
    turns: Turns | None = None

    def __post_init__(self) -> None:
        given = self.timeout_s
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and 0 < given < math.inf):
            raise BadRequestError(f"timeout_s is {given!r}: give seconds above zero, or None")
        if self.cancel is not None and not callable(getattr(self.cancel, "is_set", None)):
            raise BadRequestError(f"cancel is {self.cancel!r}: give a threading.Event, and set it to stop the read")

    def during(self, timeout_s: float | None, cancel: CancelSignal | None) -> ReadLimits:
        """These limits for one call that gives a time or a signal of its own."""
        if timeout_s is None and cancel is None:
            return self
        return replace(
            self,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            cancel=self.cancel if cancel is None else cancel,
        )

    def budget(self, memory_bytes: int | None = None) -> Budget:
        """The budget of one read; its time begins now. `memory_bytes` limits its intermediate results."""
        return Budget(
            timeout_s=None if self.timeout_s is None else min(self.timeout_s, _LONGEST_S),
            cancel=self.cancel,
            memory=MemoryAccount(memory_bytes, shared=self.memory),
            max_rows=self.max_rows,
            turns=self.turns,
        )


NO_LIMITS = ReadLimits()
