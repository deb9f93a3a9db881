"""Inside tasks of Spark: how failures leave them, what a worker process keeps, and how rows are counted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Generic, TypeAlias, TypeVar

from omnigraph.core.arrow import Batch
from omnigraph.errors import OmniError, StorageError, StorageFailure
from omnigraph.frozen import frozen
from omnigraph.pipeline.workers import Message, failure_message, listening, raise_failure

# ---- Errors and caches inside Spark tasks
#
# A task that answers with messages gives a failure as its answer, so that Spark does not try again. One that gives
# rows raises it in a form that survives the way through the JVM: `jobs.spark_errors` recognises it, in classic sessions
# and in those of Spark Connect.


_Value = TypeVar("_Value")
Batches: TypeAlias = Iterator[Batch]
BatchFunction: TypeAlias = Callable[[Batches], Batches]
_MARK = "omnigraph-failure: "
#: How long a worker process keeps a value after its last use: tasks of one stage follow each other at once.
_KEEP_S = 30.0


class TaskFailureError(Exception):
    """A typed failure on its way out of a task; its text is the message that carries it."""


def guarded(work: Callable[[], list[Message]], tries: int) -> list[Message]:
    """The answers of a task. Failures on purpose become messages, so that Spark does not try again.

    Those of the storage that may go away are raised while Spark has tries left. All others are its business.

    Args:
        work: gives the answers.
        tries: how often Spark tries a task.
    """
    try:
        return work()
    except OmniError as error:
        is_transient = isinstance(error, StorageError) and (error.failure is StorageFailure.TRANSIENT)
        if is_transient and attempt_number() + 1 < tries:
            raise
        return [failure_message(error)]


def attempt_number() -> int:
    """The number of earlier attempts of the task of this process; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def partition_number() -> int:
    """The number of the partition of this task; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def numbers_in(batches: Batches) -> Iterator[int]:
    """The numbers of the items that a task works on, the only column that it gets."""
    for batch in batches:
        yield from batch.column(0).to_numpy().tolist()


def carrying(function: BatchFunction) -> BatchFunction:
    """A function of tasks that gives rows, whose failures on purpose reach the driver as what they are."""

    def carried(batches: Batches) -> Batches:
        try:
            yield from function(batches)
        except OmniError as error:
            # Without its cause: Spark Connect may cut off what stands behind a long trace.
            raise TaskFailureError(_MARK + json.dumps(failure_message(error))) from None

    return carried


def raise_carried(text: str) -> None:
    """Raise the failure that a text of Spark carries, if it does.

    Raises:
        OmniError: what a task raised on purpose.
    """
    _, found, rest = text.partition(_MARK)
    if not found:
        return
    try:
        message, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return  # cut off on the way
    if isinstance(message, dict):
        raise_failure(message)


class Kept(Generic[_Value]):
    """A value that the tasks of one stage share in a worker process. It goes a while after its last use.

    Spark keeps worker processes for later stages and other users of the session, which have no use for it.
    """

    def __init__(self, keep_s: float = _KEEP_S) -> None:
        self._keep_s = keep_s
        self._lock = Lock()
        self._key: Hashable = None
        self._values: list[_Value] = []
        self._timer: Timer | None = None

    @contextmanager
    def holding(self, key: Hashable, make: Callable[[], _Value]) -> Iterator[_Value]:
        """The value of a key, made when it is not the one that is kept."""
        with self._lock:
            self._stop_timer()
            if not self._values or self._key != key:
                # First, so that two values are never held at once.
                self._values.clear()
                self._values.append(make())
                self._key = key
            value = self._values[0]
        try:
            yield value
        finally:
            with self._lock:
                self._stop_timer()
                self._timer = Timer(self._keep_s, self.drop)
                self._timer.daemon = True
                self._timer.start()

    def drop(self) -> None:
        """Let go of the value."""
        with self._lock:
            self._values.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# ---- Row progress of local Spark tasks
#
# Spark tells nothing of a task before its end: accumulators of Python travel with its answer. On one machine a small
# file per task does, which the task writes now and then and the driver reads. Tasks of a cluster say nothing on the
# way.


#: How often a task writes, and the driver reads.
_EVERY_S = 1.0
_BYTES = 8


@frozen
class RowTally:
    """A folder with one file per task; travels to tasks."""

    folder: str

    @contextmanager
    def counting(self, task: int) -> Iterator[None]:
        """Write down the rows of a task that runs in the block; those of an earlier try do not count."""
        path = os.path.join(self.folder, str(task))
        rows, written_at = 0, 0.0

        def listener(more: int) -> None:
            nonlocal rows, written_at
            rows += more
            now = time.monotonic()
            if now - written_at >= _EVERY_S:
                written_at = now
                # A full disk costs the figure, never the task.
                with suppress(OSError), open(path, "wb") as file:
                    file.write(rows.to_bytes(_BYTES))

        with listening(listener):
            yield

    def rows(self) -> int:
        """The rows of all tasks, as far as they have said and can be read."""
        total = 0
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError), open(entry.path, "rb") as file:
                    # Empty while a task writes it.
                    total += int.from_bytes(file.read(_BYTES))
        return total


def slowly(rows: Callable[[], int]) -> Callable[[], int]:
    """The same number for a while: a job is looked at more often than its tasks say something."""
    known, asked_at = 0, 0.0

    def ask() -> int:
        nonlocal known, asked_at
        now = time.monotonic()
        if now - asked_at >= _EVERY_S:
            asked_at = now
            # A file that is being written counts as nothing for once.
            known = max(known, rows())
        return known

    return ask
